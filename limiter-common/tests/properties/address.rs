//! Addresses as keys, against their bits.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limiter_common::base::address::{Address, Mask};
use proptest::prelude::*;

use super::cases;

/// The bits of an address, the first one first.
fn bits(address: IpAddr) -> Vec<bool> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.iter().flat_map(|octet| (0..8).map(move |bit| octet >> (7 - bit) & 1 == 1)).collect()
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_ipv6_mapped().into()),
    ]
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn an_address_survives_its_key(address in address()) {
        prop_assert_eq!(IpAddr::try_from(Address::from(address)), Ok(address));
    }

    #[test]
    fn a_mask_keeps_the_prefix_and_clears_the_rest(
        address in address(), ipv4 in 0..=40_u8, ipv6: u8,
    ) {
        let masked = Address::from(address).masked(&Mask::new(ipv4, ipv6));
        let length = usize::from(if address.is_ipv4() { ipv4 } else { ipv6 });
        let kept = bits(address).into_iter().enumerate().map(|(place, bit)| bit && place < length);
        let masked = IpAddr::try_from(masked).unwrap();
        prop_assert_eq!(bits(masked), kept.collect::<Vec<_>>());
        prop_assert_eq!(masked.is_ipv4(), address.is_ipv4());
    }

    #[test]
    fn two_addresses_are_one_source_exactly_within_a_prefix(
        one: u128, differ in 0..128_u32, ipv6 in 0..=128_u8, one_is_ipv4: bool,
    ) {
        let mask = Mask::new(ipv6.min(32), ipv6);
        let other = one ^ (1 << differ);
        let [one, other] = [one, other].map(|bits| {
            if one_is_ipv4 {
                Address::from(IpAddr::from(Ipv4Addr::from((bits >> 96) as u32)))
            } else {
                Address::from(IpAddr::from(Ipv6Addr::from(bits)))
            }
        });
        let length = if one_is_ipv4 { ipv6.min(32) } else { ipv6 };
        let first_different = 127 - differ;
        let same = first_different >= u32::from(length);
        prop_assert_eq!(one.masked(&mask) == other.masked(&mask), same);
    }
}
