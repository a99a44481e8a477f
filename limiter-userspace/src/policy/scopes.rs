//! The scopes of all matches of a policy, several of which may name the same large sets.

use std::{borrow::Cow, collections::HashMap, rc::Rc};

use ipnet::IpNet;

use super::{
    cover::Cover,
    model::{Match, Policy, Whom},
    scope::{Named, Scope},
    shadowed::FromFiles,
};

/// The most prefixes that are cached: four times those of a policy, for named and excepted lists of sources
/// and destinations.
const KEPT: usize = 4 * Policy::MOST_PREFIXES;

/// Computes the scopes of matches, and caches the union of each list of sets and prefixes for later matches
/// with the same list in any order.
pub(super) struct Scopes<'p> {
    pub(super) policy: &'p Policy,
    pub(super) files: Cow<'p, FromFiles>,
    lists: HashMap<Vec<Whom>, Joined>,
    /// For two lists by their numbers, the prefixes of the first that the second does not contain.
    left: HashMap<[usize; 2], Rc<[IpNet]>>,
    /// The number of the newest list.
    last: usize,
    /// The number of prefixes in the cache.
    kept: usize,
}

/// The union of a list of sets and prefixes.
#[derive(Clone)]
struct Joined {
    number: usize,
    all: Rc<Cover<()>>,
    /// Whether the prefixes may become any: a set has none yet, or has a file.
    open: bool,
}

impl<'p> Scopes<'p> {
    /// Scopes with the present contents of files.
    pub(super) fn now(policy: &'p Policy) -> Self {
        Self::new(policy, Cow::Owned(FromFiles::default()))
    }

    /// Scopes that hold whatever the files of these sets and tenants contain.
    pub(super) fn certain(policy: &'p Policy, files: &'p FromFiles) -> Self {
        Self::new(policy, Cow::Borrowed(files))
    }

    fn new(policy: &'p Policy, files: Cow<'p, FromFiles>) -> Self {
        let (lists, left) = (HashMap::new(), HashMap::new());
        Self { policy, files, lists, left, last: 0, kept: 0 }
    }

    /// The sources and the destinations of a match. The sources are restricted to the address families of the
    /// destinations, since both addresses of a packet are of one family.
    pub(super) fn both(&mut self, matching: &Match) -> [Scope; 2] {
        let Match { sources, except_sources, destinations, except_destinations, .. } = matching;
        let sources = self.scope(sources, except_sources);
        let destinations = self.scope(destinations, except_destinations);
        [sources.of_families(destinations.families()), destinations]
    }

    /// The scope of `named` without `excepted`. A set with a file may have any addresses if it is named; if
    /// it is excepted, it has only those that the document lists.
    pub(super) fn scope(&mut self, named: &[Whom], excepted: &[Whom]) -> Scope {
        let excepted = self.list(excepted);
        let named = (!named.is_empty()).then(|| {
            let named = self.list(named);
            let left = self.left(&named, &excepted);
            Named { all: named.all, left, open: named.open }
        });
        Scope::new(named, excepted.all)
    }

    fn list(&mut self, whoms: &[Whom]) -> Joined {
        let mut whoms = whoms.to_vec();
        whoms.sort_unstable();
        whoms.dedup();
        if let Some(joined) = self.lists.get(&whoms) {
            return joined.clone();
        }
        let prefixes = whoms.iter().flat_map(|whom| self.files.certain(whom, self.policy));
        // Prefixes that make up a wider one are merged to that.
        let all = Rc::new(Cover::of(prefixes.copied().collect()));
        let open = whoms
            .iter()
            .any(|whom| self.files.may_be_any(whom) || self.policy.prefixes(whom).is_empty());
        self.last += 1;
        let joined = Joined { number: self.last, all, open };
        self.make_room(whoms.len() + joined.all.widest().len());
        self.lists.insert(whoms, joined.clone());
        joined
    }

    fn left(&mut self, named: &Joined, excepted: &Joined) -> Rc<[IpNet]> {
        let numbers = [named.number, excepted.number];
        if let Some(left) = self.left.get(&numbers) {
            return Rc::clone(left);
        }
        let left = named.all.widest().filter(|prefix| excepted.all.around(*prefix).is_none());
        let left: Rc<[IpNet]> = left.collect();
        self.make_room(left.len());
        self.left.insert(numbers, Rc::clone(&left));
        left
    }

    /// Counts `more` prefixes into the cache, after emptying it if they would exceed [`KEPT`].
    fn make_room(&mut self, more: usize) {
        if self.kept + more > KEPT {
            self.lists.clear();
            self.left.clear();
            self.kept = 0;
        }
        self.kept += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str) -> Whom {
        Whom::Set(name.to_owned())
    }

    #[test]
    fn the_same_list_is_gone_through_once() {
        let mut policy = Policy::default();
        for (name, prefix) in [("a", "192.0.2.0/24"), ("b", "198.51.100.0/24")] {
            policy.sets.insert(name.to_owned(), vec![prefix.parse().unwrap()]);
        }
        let mut scopes = Scopes::now(&policy);
        let [one, other] = [["a", "b"], ["b", "a"]].map(|names| scopes.list(&names.map(set)));
        assert!(Rc::ptr_eq(&one.all, &other.all) && one.number == other.number);
        let excepted = scopes.list(&[set("a")]);
        assert_ne!(excepted.number, one.number);
        let [left, again] = [&one, &other].map(|named| scopes.left(named, &excepted));
        assert!(Rc::ptr_eq(&left, &again));
        assert_eq!(*left, *policy.sets["b"]);
        assert!(scopes.left(&excepted, &one).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut policy = Policy::default();
        let large = (0..Policy::MOST_PREFIXES as u32)
            .map(|at| IpNet::from(std::net::IpAddr::from(std::net::Ipv4Addr::from_bits(at << 8))));
        policy.sets.insert("large".to_owned(), large.collect());
        let mut scopes = Scopes::now(&policy);
        for last in 0..20 {
            let single = Whom::Prefix(IpNet::new([224, 0, 0, last].into(), 32).unwrap());
            let scope = scopes.scope(&[set("large"), single.clone()], &[single]);
            assert!(scope.has_part_of("0.0.1.0/32".parse().unwrap()));
            assert!(!scope.has_part_of("224.0.0.0/4".parse().unwrap()));
            let covers = scopes.lists.values().map(|joined| joined.all.widest().len());
            let left = scopes.left.values().map(|left| left.len());
            assert!(covers.chain(left).sum::<usize>() <= KEPT && scopes.kept <= KEPT);
        }
    }
}
