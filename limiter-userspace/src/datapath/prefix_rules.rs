//! What a policy says of prefixes.

use limiter_common::{abi::policy::Profile, base::address::Address};

use crate::policy::{LongestPrefix, Tables};

/// What the policy of an epoch says of prefixes. It is compiled again from the document that is stored
/// with it: the kernel opens the tries of the datapath, which are maps in a map, only for
/// `CAP_SYS_ADMIN`, and an agent has given that up.
#[derive(Debug)]
pub(crate) struct PrefixRules {
    profiles: LongestPrefix<Profile>,
    /// The profile of sources that no prefix has.
    first: Profile,
    destinations: LongestPrefix<u64>,
}

impl PrefixRules {
    pub(super) fn new(tables: Tables) -> Self {
        let Tables { profiles, prefixes, destinations, .. } = tables;
        let of = |number: u32| profiles.get(number as usize).copied().unwrap_or_default();
        Self {
            first: of(0),
            profiles: LongestPrefix::new(
                prefixes.into_iter().map(|(bits, address, number)| (bits, address, of(number))),
            ),
            destinations: LongestPrefix::new(destinations),
        }
    }

    /// What holds for a source, by its key.
    pub(crate) fn profile(&self, source: &Address) -> Profile {
        self.profiles.find(source).unwrap_or(self.first)
    }

    /// The limits that accept a destination, as bits; `None` if no prefix has it.
    pub(crate) fn accepting(&self, destination: &Address) -> Option<u64> {
        self.destinations.find(destination)
    }
}
