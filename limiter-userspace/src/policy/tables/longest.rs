//! Longest-prefix match over compiled prefixes, with the results of the datapath's tries.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;
use limiter_common::base::address::Address;

/// A map from prefixes to values; look-ups return the value of the longest prefix around an address.
#[derive(Clone, Debug)]
pub struct LongestPrefix<V> {
    values: HashMap<(u8, Address), V>,
    /// The prefix lengths that occur for IPv4 and for IPv6, longest first.
    lengths: [Vec<u8>; 2],
}

impl<V: Copy> LongestPrefix<V> {
    /// Builds the map from prefixes as in [`Tables`](super::Tables): the length in bits,
    /// [`Address::FAMILY_BITS`] included; the address; and the value.
    pub fn new(prefixes: impl IntoIterator<Item = (u32, Address, V)>) -> Self {
        let mut values = HashMap::new();
        let mut lengths = [Vec::new(), Vec::new()];
        for (bits, address, value) in prefixes {
            let Ok(length) = u8::try_from(bits.saturating_sub(Address::FAMILY_BITS)) else {
                continue;
            };
            lengths[family(&address)].push(length);
            values.insert((length, address), value);
        }
        for lengths in &mut lengths {
            lengths.sort_unstable_by(|one, other| other.cmp(one));
            lengths.dedup();
        }
        Self { values, lengths }
    }

    /// The value of the longest prefix around an address; `None` if there is none.
    pub fn find(&self, address: &Address) -> Option<V> {
        let plain = IpAddr::try_from(*address).ok()?;
        self.lengths[family(address)].iter().find_map(|&length| {
            let prefix = IpNet::new(plain, length).ok()?.trunc();
            self.values.get(&(length, prefix.addr().into())).copied()
        })
    }
}

fn family(address: &Address) -> usize {
    usize::from(address.family == Address::IPV6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_the_family_decides() {
        let entry = |text: &str, value: u32| {
            let prefix: IpNet = text.parse().unwrap();
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            (bits, Address::from(prefix.addr()), value)
        };
        let table = LongestPrefix::new([
            entry("0.0.0.0/0", 1),
            entry("192.0.2.0/24", 2),
            entry("192.0.2.128/25", 3),
            entry("192.0.2.129/32", 4),
            entry("2001:db8::/32", 5),
        ]);
        for (address, value) in [
            ("198.51.100.1", Some(1)),
            ("192.0.2.1", Some(2)),
            ("192.0.2.130", Some(3)),
            ("192.0.2.129", Some(4)),
            ("2001:db8::1", Some(5)),
            ("2001:db9::1", None),
            ("::ffff:192.0.2.1", None),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(table.find(&address.into()), value, "{address}");
        }
        assert_eq!(table.find(&Address::NONE), None);
    }
}
