//! Who pushed the blocks that run, as far as this process saw it: a user other than root ends only its own.

use std::{collections::HashMap, iter, net::IpAddr};

use ipnet::IpNet;

/// The most that are remembered. Others are root's to end.
const MOST: usize = 65_536;

/// The users that pushed blocks. It is empty when the agent starts.
#[derive(Debug, Default)]
pub(super) struct Owners(HashMap<IpNet, Block>);

/// A block that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    user: u32,
    /// When it ends, in ns of the monotonic clock.
    until: u64,
}

impl Owners {
    /// Remembers that a user had a source blocked until then. The source was blocked until `before` then, if a pushed block of it ran:
    /// a block that was not the user's alone does not become so.
    pub(super) fn note(
        &mut self,
        source: IpNet,
        user: u32,
        before: Option<u64>,
        until: u64,
        now: u64,
    ) {
        if before.is_some_and(|before| !self.is_of(source, user, before)) {
            self.0.remove(&source);
            return;
        }
        if self.0.len() >= MOST && !self.0.contains_key(&source) {
            self.0.retain(|_, block| block.until > now);
        }
        if self.0.len() < MOST || self.0.contains_key(&source) {
            self.0.insert(source, Block { user, until });
        }
    }

    /// Whether the block of a source that ends then was pushed by this user alone.
    pub(super) fn is_of(&self, source: IpNet, user: u32, until: u64) -> bool {
        self.0.get(&source) == Some(&Block { user, until })
    }

    /// The source of an address, and the smaller ones of it that are remembered, as an earlier policy had them.
    pub(super) fn sources_of(&self, source: IpNet, address: IpAddr) -> impl Iterator<Item = IpNet> {
        let lengths = source.prefix_len() + 1..=source.max_prefix_len();
        let smaller = lengths.filter_map(move |length| IpNet::new(address, length).ok());
        let smaller = smaller.map(|it| it.trunc()).filter(|it| self.0.contains_key(it));
        iter::once(source).chain(smaller)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpNet {
        IpNet::from(IpAddr::from(Ipv4Addr::from(number)))
    }

    #[test]
    fn a_block_is_of_the_user_that_pushed_it_and_of_nobody_else() {
        let mut owners = Owners::default();
        owners.note(source(1), 7, None, 50, 0);
        assert!(owners.is_of(source(1), 7, 50));
        assert!(!owners.is_of(source(1), 8, 50) && !owners.is_of(source(2), 7, 50));
        assert!(!owners.is_of(source(1), 7, 60), "a command made it longer");
        // Made longer by its user it stays its own, and by another one it is nobody's.
        owners.note(source(1), 7, Some(50), 60, 1);
        assert!(owners.is_of(source(1), 7, 60));
        owners.note(source(1), 8, Some(60), 70, 2);
        assert!(!owners.is_of(source(1), 7, 70) && !owners.is_of(source(1), 8, 70));
        // It was pushed before this process began.
        owners.note(source(3), 7, Some(40), 50, 0);
        assert!(!owners.is_of(source(3), 7, 50));
    }

    #[test]
    fn smaller_sources_of_an_earlier_policy_are_found_by_an_address_in_them() {
        let mut owners = Owners::default();
        let [large, small, other] = ["2001:db8:9::/48", "2001:db8:9:1::/64", "2001:db8:9:2::/64"]
            .map(|it| it.parse::<IpNet>().unwrap());
        for source in [small, other] {
            owners.note(source, 7, None, 50, 0);
        }
        let found: Vec<_> = owners.sources_of(large, "2001:db8:9:1::1".parse().unwrap()).collect();
        assert_eq!(found, [large, small]);
        assert!(owners.sources_of(small, "2001:db8:9:1::1".parse().unwrap()).eq([small]));
    }

    #[test]
    fn no_more_are_remembered_than_fit_until_others_end() {
        let mut owners = Owners::default();
        for number in 0..MOST as u32 {
            owners.note(source(number), 7, None, 50, 0);
        }
        let new = source(MOST as u32);
        owners.note(new, 7, None, 60, 1);
        assert!(!owners.is_of(new, 7, 60) && owners.0.len() == MOST);
        owners.note(new, 7, None, 60, 50);
        assert!(owners.is_of(new, 7, 60) && owners.0.len() == 1);
    }
}
