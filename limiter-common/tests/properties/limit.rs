//! Limits as the datapath has them: their rows, and what a packet costs.

use limiter_common::{
    packet::{
        headers::{FragmentField, Packet},
        protocol::UNKNOWN_PROTOCOL,
    },
    policy::limit::{CostClass, LIMITS, Limit},
};
use proptest::prelude::*;

use super::cases;

#[test]
fn every_bit_has_a_row_of_its_own() {
    let mut rows: Vec<u32> = (0..LIMITS).map(|bit| Limit::row(1 << bit)).collect();
    assert!(rows.iter().all(|row| *row < LIMITS), "{rows:?}");
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), LIMITS as usize);
}

/// A packet of which no transport header was read.
fn packet(protocol: u8, fragment: u16) -> Packet {
    Packet { protocol, fragment: FragmentField(fragment), ..Packet::UNREADABLE }
}

#[test]
fn a_sort_tells_transport_and_fragment_apart() {
    let whole = |protocol| CostClass::of(&packet(protocol, 0));
    assert_eq!(whole(17), CostClass(CostClass::UDP));
    assert_eq!([1, 58].map(whole), [CostClass(CostClass::ICMP); 2]);
    assert_eq!([0, 2, 47, 132].map(whole), [CostClass(CostClass::OTHER); 4]);
    // Its flags are out of reach, or everything is.
    assert_eq!([6, UNKNOWN_PROTOCOL].map(whole), [CostClass(CostClass::SYN); 2]);
    // The first part, the part that could overwrite its flags, and one that is far from them.
    let tcp = |fragment| CostClass::of(&packet(6, fragment));
    assert_eq!([1, 1 << 3].map(tcp), [CostClass(CostClass::SYN | CostClass::FRAGMENT); 2]);
    assert_eq!(tcp(2 << 3), CostClass(CostClass::TCP | CostClass::FRAGMENT));
    assert_eq!(CostClass::of(&packet(17, 9)), CostClass(CostClass::UDP | CostClass::FRAGMENT));
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_packet_costs_its_bytes_or_what_its_sort_does(
        costs: [u32; CostClass::COUNT], in_bytes: bool, protocol: u8, fragment: u16, bytes: u64,
    ) {
        let class = CostClass::of(&packet(protocol, fragment));
        let expected = if in_bytes { bytes.min(Limit::LONGEST) } else { u64::from(costs[class.0 as usize]) };
        let limit = Limit { costs, bytes: u32::from(in_bytes), ..Limit::default() };
        prop_assert_eq!(limit.cost(class, bytes), expected);
        prop_assert_eq!(class.0 & CostClass::FRAGMENT != 0, fragment & 0xfff9 != 0);
    }
}
