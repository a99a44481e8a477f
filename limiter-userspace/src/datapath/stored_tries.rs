//! What tries have, as the document of a policy says it.

use std::iter::repeat_n;

use ipnet::IpNet;
use limiter_common::base::address::Address;
use serde::{Deserialize, Serialize};

use crate::policy::{
    Tables,
    packed::{pack, unpack},
};

/// A prefix of a trie: the bits that count, the prefix, and what it is mapped to.
pub(super) type Prefix<T> = (u32, Address, T);

/// The prefixes of a trie, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored<T> {
    packed: String,
    /// What the prefixes are mapped to: how many in turn, and to what.
    values: Vec<(usize, T)>,
}

impl<T: Copy + PartialEq> Stored<T> {
    /// Of these prefixes; `None` if one of them has no address.
    pub(super) fn new(prefixes: &[Prefix<T>]) -> Option<Self> {
        let mut plain = Vec::with_capacity(prefixes.len());
        for (bits, address, _) in prefixes {
            let length = u8::try_from(bits.checked_sub(Address::FAMILY_BITS)?).ok()?;
            plain.push(IpNet::new((*address).try_into().ok()?, length).ok()?);
        }
        let runs = prefixes.chunk_by(|(.., one), (.., other)| one == other);
        let values = runs.filter_map(|run| Some((run.len(), run.first()?.2))).collect();
        Some(Self { packed: pack(plain.into_iter()), values })
    }

    /// The prefixes; `None` if this is broken.
    pub(super) fn prefixes(&self) -> Option<Vec<Prefix<T>>> {
        let plain = unpack(&self.packed).ok()?;
        let all = self.values.iter().map(|(number, _)| *number);
        if all.fold(0, usize::saturating_add) != plain.len() {
            return None;
        }
        let values = self.values.iter().flat_map(|(number, value)| repeat_n(*value, *number));
        let prefix = |(prefix, value): (IpNet, T)| {
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            (bits, prefix.addr().into(), value)
        };
        Some(plain.into_iter().zip(values).map(prefix).collect())
    }
}

/// The tries of a policy, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tries {
    pub(super) prefixes: Stored<u32>,
    pub(super) destinations: Stored<u64>,
}

impl Tries {
    /// Those of these tables.
    pub(super) fn of(tables: &Tables) -> Option<Self> {
        let prefixes = Stored::new(&tables.prefixes)?;
        Some(Self { prefixes, destinations: Stored::new(&tables.destinations)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_a_broken_trie_is_nothing() {
        let prefix = |last| (Address::FAMILY_BITS + 32, Address::v4([192, 0, 2, last]), 2);
        let mut stored = Stored::new(&[1, 2, 3].map(prefix)).unwrap();
        assert_eq!(stored.values, [(3, 2)]);
        stored.values[0].0 += 1;
        assert_eq!(stored.prefixes(), None);
        stored.values = vec![(usize::MAX, 2), (4, 2)];
        assert_eq!(stored.prefixes(), None);
        let nowhere = [(Address::FAMILY_BITS, Address::NONE, 2)];
        assert_eq!(Stored::new(&nowhere), None);
    }
}
