//! The addresses that a match is about.

use std::rc::Rc;

use ipnet::IpNet;

use super::cover::Cover;

/// A set of addresses: those that are named, or all, without those that are excepted.
pub(super) struct Scope {
    /// The named prefixes; `None` for all addresses.
    named: Option<Named>,
    excepted: Rc<Cover<()>>,
    /// Whether the scope can have IPv4 addresses, and IPv6 addresses.
    families: [bool; 2],
}

/// The sets and prefixes that a match names.
pub(super) struct Named {
    /// Their union, with what is excepted.
    pub(super) all: Rc<Cover<()>>,
    /// The prefixes of `all` that are not excepted as a whole, sorted, none within another.
    pub(super) left: Rc<[IpNet]>,
    /// Whether the prefixes may become any: a set has none yet, or has a file.
    pub(super) open: bool,
}

impl Scope {
    /// The scope of `named`, or of all addresses, without `excepted`.
    pub(super) fn new(named: Option<Named>, excepted: Rc<Cover<()>>) -> Self {
        let families = match &named {
            Some(Named { left, open: false, .. }) => {
                // IPv4 is before IPv6.
                let is_v4 = |prefix: &IpNet| prefix.addr().is_ipv4();
                [left.first().is_some_and(is_v4), left.last().is_some_and(|last| !is_v4(last))]
            }
            _ => [true; 2],
        };
        Self { named, excepted, families }
    }

    /// Restricts the scope to address families.
    pub(super) fn of_families(mut self, families: [bool; 2]) -> Self {
        for (family, other) in self.families.iter_mut().zip(families) {
            *family &= other;
        }
        self
    }

    /// Whether the scope has no address. If nothing is named it is not empty: packets whose source or
    /// destination cannot be read count too.
    pub(super) fn is_empty(&self) -> bool {
        self.named.as_ref().is_some_and(|named| !named.open && named.left.is_empty())
    }

    /// Whether the scope has an address of `prefix`.
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

    /// Whether the scope can have IPv4 addresses, and IPv6 addresses.
    pub(super) const fn families(&self) -> [bool; 2] {
        self.families
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{
        Policy,
        model::{Match, Whom},
        scopes::Scopes,
    };

    /// A prefix within the first /24 of IPv4, or within the first /120 of IPv6.
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
        /// Compared with a search over every address.
        #[test]
        fn it_has_what_is_named_and_not_excepted(
            named in whoms(),
            excepted in whoms(),
            asked in prop::collection::vec((any::<bool>(), any::<u8>(), 0_u8..=8), 10),
        ) {
            let policy = Policy::default();
            let scope = Scopes::now(&policy).scope(&named, &excepted);
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
        let scope = Scopes::now(&policy).scope(&named, &[Whom::Prefix(inside)]);
        assert!(!scope.is_empty() && scope.has_part_of(outside) && !scope.has_part_of(inside));
        assert_eq!(scope.families(), [true; 2]);
    }

    #[test]
    fn sources_are_of_the_family_of_the_destinations() {
        let [v4, v6] = ["192.0.2.0/24", "2001:db8::/32"].map(|it| it.parse().unwrap());
        let policy = Policy::default();
        let mut matching = Match { destinations: vec![Whom::Prefix(v6)], ..Match::default() };
        let [scope, _] = Scopes::now(&policy).both(&matching);
        assert!(!scope.has_part_of(v4) && scope.has_part_of(v6));
        matching.sources = vec![Whom::Prefix(v4)];
        let [scope, _] = Scopes::now(&policy).both(&matching);
        assert_eq!((scope.is_empty(), scope.families()), (false, [false; 2]));
    }
}
