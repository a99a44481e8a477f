//! The addresses that a match is about.

use ipnet::IpNet;

use super::{
    model::{Match, Policy, Whom},
    shadowed::FromFiles,
    spec::Cover,
};

/// Those of some sets and prefixes, or all, without those of others.
pub(super) struct Scope {
    /// What of the named is left of each; `None` for all addresses.
    named: Option<Named>,
    excepted: Cover<()>,
    /// Whether it can have addresses of IPv4, and of IPv6.
    families: [bool; 2],
}

struct Named {
    /// All, also what is excepted.
    all: Cover<()>,
    /// Prefixes that are not excepted as a whole, in their order, none within another.
    left: Vec<IpNet>,
    /// Whether a set has no prefixes, or may have any: nobody knows which it will have.
    open: bool,
}

impl Scope {
    /// The sources and the destinations of a match; the sources of the family of the destinations, as
    /// both of a packet are.
    pub(super) fn both(policy: &Policy, matching: &Match, files: &FromFiles) -> [Self; 2] {
        let Match { sources, except_sources, destinations, except_destinations, .. } = matching;
        let mut sources = Self::new(policy, sources, except_sources, files);
        let destinations = Self::new(policy, destinations, except_destinations, files);
        for (family, other) in sources.families.iter_mut().zip(destinations.families) {
            *family &= other;
        }
        [sources, destinations]
    }

    /// What could be anything for its file is open where it is named, and excepts no more than it has
    /// in any case.
    fn new(policy: &Policy, named: &[Whom], excepted: &[Whom], files: &FromFiles) -> Self {
        let all = |whoms: &[Whom]| -> Vec<IpNet> {
            whoms.iter().flat_map(|whom| files.certain(whom, policy)).copied().collect()
        };
        // Several that make up a wider one except all of it.
        let excepted = Cover::of(all(excepted));
        let named = (!named.is_empty()).then(|| {
            let open =
                named.iter().any(|whom| files.may_be_any(whom) || policy.prefixes(whom).is_empty());
            let all = Cover::of(all(named));
            let left = all.widest().filter(|prefix| excepted.around(*prefix).is_none());
            Named { left: left.collect(), all, open }
        });
        let families = match &named {
            Some(Named { left, open: false, .. }) => {
                let has = |v4| left.iter().any(|prefix| prefix.addr().is_ipv4() == v4);
                [has(true), has(false)]
            }
            _ => [true; 2],
        };
        Self { named, excepted, families }
    }

    /// Whether it has nobody. With nothing named it has at least what cannot be read of a packet.
    pub(super) fn is_empty(&self) -> bool {
        self.named.as_ref().is_some_and(|named| !named.open && named.left.is_empty())
    }

    /// Whether it has part of a prefix.
    pub(super) fn has_part_of(&self, prefix: IpNet) -> bool {
        let [v4, v6] = self.families;
        let of_family = if prefix.addr().is_ipv4() { v4 } else { v6 };
        if !of_family || self.excepted.around(prefix).is_some() {
            return false;
        }
        let Some(Named { all, left, open }) = &self.named else { return true };
        let next = left.partition_point(|inner| *inner < prefix);
        let inner = left.get(next).is_some_and(|inner| prefix.contains(inner));
        *open || inner || all.around(prefix).is_some()
    }

    /// Whether it can have addresses of IPv4, and of IPv6.
    pub(super) const fn families(&self) -> [bool; 2] {
        self.families
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A prefix of the first /24 of IPv4, or of IPv6.
    fn prefix((v4, last, length): (bool, u8, u8)) -> IpNet {
        let net = match v4 {
            true => IpNet::new([0, 0, 0, last].into(), 24 + length),
            false => IpNet::new([0, 0, 0, 0, 0, 0, 0, u16::from(last)].into(), 120 + length),
        };
        net.unwrap().trunc()
    }

    fn whoms() -> impl Strategy<Value = Vec<Whom>> {
        let prefixes = prop::collection::vec((any::<bool>(), any::<u8>(), 0_u8..=8), 0..12);
        prefixes.prop_map(|all| all.into_iter().map(|it| Whom::Prefix(prefix(it))).collect())
    }

    proptest! {
        /// Held to every single address.
        #[test]
        fn it_has_what_is_named_and_not_excepted(
            named in whoms(),
            excepted in whoms(),
            asked in prop::collection::vec((any::<bool>(), any::<u8>(), 0_u8..=8), 10),
        ) {
            let scope = Scope::new(&Policy::default(), &named, &excepted, &FromFiles::default());
            let within = |whoms: &[Whom], address: &IpNet| {
                whoms.iter().any(|whom| matches!(whom, Whom::Prefix(it) if it.contains(address)))
            };
            let all = [true, false].into_iter();
            let all = all.flat_map(|v4| (0..=255).map(move |last| prefix((v4, last, 8))));
            let left: Vec<_> = all
                .filter(|it| (named.is_empty() || within(&named, it)) && !within(&excepted, it))
                .collect();
            for asked in asked.into_iter().map(prefix) {
                let expected = left.iter().any(|address| asked.contains(address));
                prop_assert_eq!(scope.has_part_of(asked), expected, "{}", asked);
            }
            if !named.is_empty() {
                prop_assert_eq!(scope.is_empty(), left.is_empty());
                let has = |v4| left.iter().any(|address| address.addr().is_ipv4() == v4);
                prop_assert_eq!(scope.families(), [has(true), has(false)]);
            }
        }
    }

    #[test]
    fn of_a_set_without_prefixes_nothing_is_known() {
        let mut policy = Policy::default();
        policy.sets.insert("later".to_owned(), Vec::new());
        let [inside, outside] = ["192.0.2.0/25", "192.0.2.128/25"].map(|it| it.parse().unwrap());
        let named = [Whom::Set("later".to_owned()), Whom::Prefix(inside)];
        let scope = Scope::new(&policy, &named, &[Whom::Prefix(inside)], &FromFiles::default());
        assert!(!scope.is_empty() && scope.has_part_of(outside) && !scope.has_part_of(inside));
        assert_eq!(scope.families(), [true; 2]);
    }

    #[test]
    fn sources_are_of_the_family_of_the_destinations() {
        let [v4, v6] = ["192.0.2.0/24", "2001:db8::/32"].map(|it| it.parse().unwrap());
        let mut matching = Match { destinations: vec![Whom::Prefix(v6)], ..Match::default() };
        let [scope, _] = Scope::both(&Policy::default(), &matching, &FromFiles::default());
        assert!(!scope.has_part_of(v4) && scope.has_part_of(v6));
        matching.sources = vec![Whom::Prefix(v4)];
        let [scope, _] = Scope::both(&Policy::default(), &matching, &FromFiles::default());
        assert_eq!((scope.is_empty(), scope.families()), (false, [false; 2]));
    }
}
