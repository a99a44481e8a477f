//! Nested prefixes, a naive matcher for them, and addresses at their edges.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

use super::super::{mutation::Random, naive::truncated, part};

/// Prefixes at whose edges packets are sent.
const PROBED: u64 = 1_200;

/// Values of prefixes, in a table for each prefix length.
pub(super) struct Naive<T> {
    by_length: HashMap<u8, HashMap<IpAddr, T>>,
}

impl<T> FromIterator<(IpNet, T)> for Naive<T> {
    fn from_iter<I: IntoIterator<Item = (IpNet, T)>>(said: I) -> Self {
        let mut by_length: HashMap<u8, HashMap<IpAddr, T>> = HashMap::new();
        for (prefix, what) in said {
            by_length.entry(prefix.prefix_len()).or_default().insert(prefix.addr(), what);
        }
        Self { by_length }
    }
}

impl<T> Naive<T> {
    pub(super) fn new(prefixes: &[IpNet], what: T) -> Self
    where
        T: Copy,
    {
        prefixes.iter().map(|prefix| (*prefix, what)).collect()
    }

    /// The value of the longest prefix that contains an address.
    pub(super) fn longest(&self, address: IpAddr) -> Option<&T> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (0..=bits)
            .rev()
            .find_map(|length| self.by_length.get(&length)?.get(&truncated(address, length)))
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.longest(address).is_some()
    }
}

/// A random address in the networks of the sets.
fn anywhere(random: &mut Random) -> IpAddr {
    let bits = random.below(usize::MAX) as u64;
    if random.below(2) == 0 {
        let few = 10 << 24 | bits as u32 & 0x00ff_ffff;
        Ipv4Addr::from_bits(few).into()
    } else {
        let low = u128::from(random.below(usize::MAX) as u64);
        let few = 0x2001_0db8_u128 << 96 | u128::from(bits as u32 & 0x00ff_ffff) << 64 | low;
        Ipv6Addr::from_bits(few).into()
    }
}

/// A random address in a prefix.
fn within(random: &mut Random, prefix: &IpNet) -> IpAddr {
    match (anywhere(random), prefix) {
        (IpAddr::V4(any), IpNet::V4(prefix)) => (prefix.network() | any & prefix.hostmask()).into(),
        (IpAddr::V6(any), IpNet::V6(prefix)) => (prefix.network() | any & prefix.hostmask()).into(),
        _ => prefix.network(),
    }
}

/// Makes `many` distinct prefixes, no longer than `longest`. Half of them are inside another one or inside
/// one of `others`.
pub(super) fn prefixes(
    random: &mut Random,
    many: u64,
    longest: [u8; 2],
    others: &[IpNet],
) -> Vec<IpNet> {
    let mut around = others.to_vec();
    let mut prefixes = BTreeSet::new();
    while (prefixes.len() as u64) < many {
        let (address, length) = if !around.is_empty() && random.below(2) == 0 {
            let outer = *random.pick(&around);
            (within(random, &outer), outer.prefix_len() + 1 + random.below(4) as u8)
        } else {
            let address = anywhere(random);
            // Few prefixes are so short that they contain many others.
            let shorter = random.below(14).min(random.below(14)) as u8;
            (address, longest[usize::from(address.is_ipv6())] - shorter)
        };
        let length = length.min(longest[usize::from(address.is_ipv6())]);
        let prefix = IpNet::new(truncated(address, length), length).unwrap();
        if prefixes.insert(prefix) {
            around.push(prefix);
        }
    }
    prefixes.into_iter().collect()
}

/// The next or the previous address.
fn beside(address: IpAddr, up: bool) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let step = if up { 1 } else { u32::MAX };
            Ipv4Addr::from_bits(it.to_bits().wrapping_add(step)).into()
        }
        IpAddr::V6(it) => {
            let step = if up { 1 } else { u128::MAX };
            Ipv6Addr::from_bits(it.to_bits().wrapping_add(step)).into()
        }
    }
}

/// Addresses to test: the first and last of some prefixes, their neighbours, and random ones.
pub(super) fn probes(random: &mut Random, prefixes: &[IpNet]) -> Vec<IpAddr> {
    let mut probes = Vec::new();
    for _ in 0..part(PROBED) {
        let prefix = random.pick(prefixes);
        let (first, last) = (prefix.network(), prefix.broadcast());
        probes.extend([first, last, beside(first, false), beside(last, true), anywhere(random)]);
    }
    probes
}
