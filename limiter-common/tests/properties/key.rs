//! The keys of state: the parts that a limit is kept by, and nothing else.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limiter_common::{
    base::address::{Address, Mask},
    packet::headers::{Packet, Ports},
    policy::limit::{BucketKey, Key, Limit},
};
use proptest::prelude::*;

use super::cases;

/// What of a packet can be in a key, as an operator would say it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
    tenant: u32,
    slot: u32,
}

impl Facts {
    fn any() -> impl Strategy<Value = Self> {
        let addresses = prop_oneof![
            any::<[u32; 2]>().prop_map(|two| two.map(|bits| Ipv4Addr::from(bits).into())),
            any::<[u128; 2]>().prop_map(|two| two.map(|bits| Ipv6Addr::from(bits).into())),
        ];
        let ports = (any::<u16>(), any::<u16>());
        (addresses, any::<u8>(), ports, 0..=0xffff_u32, 0..64_u32).prop_map(
            |([source, destination], protocol, ports, tenant, slot)| Self {
                source,
                destination,
                protocol,
                ports,
                tenant,
                slot,
            },
        )
    }

    /// Others that differ in one fact at most, which may be a single bit.
    fn near(&self) -> impl Strategy<Value = Self> + use<> {
        let one = self.clone();
        (0..8_u8, any::<u32>(), 0..128_u32, Self::any()).prop_map(
            move |(which, any, bit, other)| {
                let mut it = one.clone();
                let flip = |address| match address {
                    IpAddr::V4(address) => {
                        Ipv4Addr::from(address.to_bits() ^ 1 << (bit % 32)).into()
                    }
                    IpAddr::V6(address) => Ipv6Addr::from(address.to_bits() ^ 1 << bit).into(),
                };
                match which {
                    0 => it.source = flip(it.source),
                    1 => it.destination = flip(it.destination),
                    2 => it.protocol ^= 1 << (bit % 8),
                    3 => it.ports.0 ^= 1 << (bit % 16),
                    4 => it.ports.1 ^= 1 << (bit % 16),
                    5 => it.tenant = any & 0xffff,
                    6 => it.slot = bit % 64,
                    _ => it = other,
                }
                it
            },
        )
    }

    fn packet(&self) -> Packet {
        let (source, destination) = self.ports;
        Packet {
            source: self.source.into(),
            destination: Address::from(self.destination).words,
            protocol: self.protocol,
            ports: Ports { source, destination },
            ..Packet::UNREADABLE
        }
    }

    fn key(&self, limit: &Limit) -> BucketKey {
        // What was in it before must not matter.
        let mut key = BucketKey { limit_id: 9, ports: u32::MAX, whose: 77, ..BucketKey::default() };
        key.destination = [u32::MAX; 4];
        key.source = [5; 4];
        key.protocol = u32::MAX;
        key.fill(limit, &self.packet(), self.tenant, self.slot);
        key
    }

    /// The parts that a limit is kept by, in words.
    fn parts(&self, key: Key, lengths: (u8, u8)) -> Vec<String> {
        let (ipv4, ipv6) = lengths;
        let masked = match self.source {
            IpAddr::V4(address) => {
                let bits = u64::from(address.to_bits()) >> (32 - ipv4.min(32));
                format!("IPv4 {bits}")
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits().checked_shr(128 - u32::from(ipv6)).unwrap_or(0);
                format!("IPv6 {bits}")
            }
        };
        [
            (Key::SOURCE, masked),
            (Key::DESTINATION, self.destination.to_string()),
            (Key::PORT, format!("{} {}", self.protocol, self.ports.1)),
            (Key::SOURCE_PORT, self.ports.0.to_string()),
            (Key::TENANT, self.tenant.to_string()),
            (Key::INTERFACE, self.slot.to_string()),
        ]
        .into_iter()
        .filter_map(|(part, text)| (key.0 & part != 0).then_some(text))
        .collect()
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// Two packets have one state exactly if the parts that are asked for are the same.
    #[test]
    fn a_key_has_exactly_the_parts_that_are_asked_for(
        (one, other) in Facts::any().prop_flat_map(|one| (Just(one.clone()), one.near())),
        parts in 0..64_u32, lengths in (0..=32_u8, 0..=128_u8),
    ) {
        let (ipv4, ipv6) = lengths;
        let mask = Mask::new(ipv4, ipv6);
        let limit = Limit { key: Key(parts), mask, limit_id: 3, ..Limit::default() };
        let same = one.parts(limit.key, lengths) == other.parts(limit.key, lengths);
        prop_assert_eq!(one.key(&limit) == other.key(&limit), same);
        let another = Limit { limit_id: 4, ..limit };
        prop_assert_ne!(one.key(&limit), one.key(&another), "another limit's");
    }

    /// What is not asked for is 0, so that it can be read back.
    #[test]
    fn a_key_can_be_read(one in Facts::any(), parts in 0..64_u32) {
        let asked = |part: u32| parts & part != 0;
        let either = |part: u32, value: u32| if asked(part) { value } else { 0 };
        let mask = Mask::new(32, 128);
        let key = one.key(&Limit { key: Key(parts), mask, limit_id: 3, ..Limit::default() });
        let [source, destination] = [one.source, one.destination].map(Address::from);
        let expected = BucketKey {
            limit_id: 3,
            source: source.words.map(|word| either(Key::SOURCE, word)),
            destination: destination.words.map(|word| either(Key::DESTINATION, word)),
            ports: either(Key::SOURCE_PORT, u32::from(one.ports.0) << 16)
                | either(Key::PORT, one.ports.1.into()),
            protocol: either(Key::PORT, one.protocol.into())
                | either(Key::DESTINATION, destination.family << 8)
                | either(Key::SOURCE, source.family << 16),
            whose: either(Key::TENANT, one.tenant) | either(Key::INTERFACE, (one.slot + 1) << 16),
        };
        prop_assert_eq!(key, expected);
        let or_none = |part, address| if asked(part) { address } else { Address::NONE };
        prop_assert_eq!(key.source(), or_none(Key::SOURCE, source));
        prop_assert_eq!(key.destination(), or_none(Key::DESTINATION, destination));
        prop_assert!(!key.is_shared() && BucketKey::shared(3).is_shared());
    }
}

#[test]
fn a_limit_for_all_has_one_state() {
    let limit = Limit { key: Key::ALL, limit_id: 7, ..Limit::default() };
    let mut key = BucketKey::default();
    key.fill(&limit, &Packet::UNREADABLE, 0, 0);
    assert_eq!(key, BucketKey { limit_id: 7, ..BucketKey::default() });
}
