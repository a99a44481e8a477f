use std::{net::IpAddr, time::Instant};

use limiter_common::rate::Rate;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::policy::model::{Bucket, KeyPrefix};

fn bucket(packets: u64) -> Bucket {
    Bucket::new(Rate::per_second(packets), packets).unwrap()
}

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The plan that the datapath would find, by asking every prefix.
fn looked_up(compiled: &Compiled, address: IpAddr) -> &Plan {
    let address = Address::from(address);
    let holds = |&&(bits, prefix, _): &&(u32, Address, u32)| {
        let length = u8::try_from(bits - Address::FAMILY_BITS).unwrap();
        address.masked(&Mask::new(length, length)) == prefix
    };
    let longest = compiled.overrides.iter().filter(holds).max_by_key(|(bits, ..)| bits);
    &compiled.plans[longest.map_or(0, |&(_, _, plan)| plan) as usize]
}

/// What the policy says, by asking every override of every limit.
fn expected(policy: &Policy, address: IpAddr) -> Plan {
    let mut plan = Plan::default();
    for limit in Limit::ALL {
        let own =
            policy.limit(limit).overrides.iter().filter(|(prefix, _)| prefix.contains(&address));
        let longest = own.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, bucket)| *bucket);
        if let Some(bucket) = longest.or(policy.limit(limit).default) {
            plan.limits[limit.index()] = bucket.rate.bucket(bucket.burst).unwrap();
            plan.active |= limit.bit();
        }
    }
    plan
}

#[test]
fn an_empty_policy_is_one_empty_plan() {
    let compiled = compile(&Policy::default()).unwrap();
    assert_eq!(compiled.plans, [Plan::default()]);
    assert_eq!(compiled.overrides, []);
    assert_eq!(compiled.settings, Settings { mask: Mask::new(32, 64), overrides: 0, limits: 0 });
}

#[test]
fn a_limit_without_an_override_of_its_own_takes_part() {
    let mut policy = Policy::default();
    policy.set_key_prefix(KeyPrefix { ipv4: 30, ipv6: 60 }).unwrap();
    policy.set_default(Limit::Syn, bucket(5)).unwrap();
    policy.set_override(Limit::Source, prefix("10.0.0.0/8"), bucket(10)).unwrap();
    policy.set_override(Limit::Connection, prefix("10.1.0.0/16"), bucket(1)).unwrap();
    policy.set_override(Limit::Source, prefix("2001:db8::/32"), bucket(10)).unwrap();
    let compiled = compile(&policy).unwrap();
    let (all, both) = (0b111, Limit::Source.bit() | Limit::Syn.bit());
    let active: Vec<_> = compiled.plans.iter().map(|plan| plan.active).collect();
    assert_eq!(active, [Limit::Syn.bit(), both, all]);
    // The IPv6 prefix shares the plan of 10.0.0.0/8.
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(
        compiled.overrides,
        [
            (40, address("10.0.0.0"), 1),
            (48, address("10.1.0.0"), 2),
            (64, address("2001:db8::"), 1)
        ]
    );
    assert_eq!(compiled.settings, Settings { mask: Mask::new(30, 60), overrides: 1, limits: 1 });
}

#[test]
fn rates_that_are_one_share_a_plan() {
    let mut policy = Policy::default();
    for (third, rate) in
        [(0, Rate::per_second(1)), (1, Rate { packets: 60, period: 60_000_000_000 })]
    {
        let bucket = Bucket::new(rate, 1).unwrap();
        policy.set_override(Limit::Syn, prefix(&format!("10.0.{third}.0/24")), bucket).unwrap();
    }
    assert_eq!(compile(&policy).unwrap().plans.len(), 2);
}

#[test]
fn an_unchecked_policy_is_checked() {
    let mut policy = Policy::default();
    policy.limit_mut(Limit::Syn).overrides.insert(prefix("10.0.0.1/8"), bucket(1));
    assert!(compile(&policy).is_err());
}

#[test]
fn many_overrides_compile_quickly() {
    let mut policy = Policy::default();
    for n in 0..100_000_u32 {
        let length = 24 + (n % 9) as u8;
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n * 100);
        let prefix = IpNet::new(address.into(), length).unwrap().trunc();
        let limit = Limit::ALL[(n % 3) as usize];
        policy.limit_mut(limit).overrides.insert(prefix, bucket(u64::from(n) + 1));
    }
    for length in 0..=32 {
        let prefix = IpNet::new(IpAddr::from([10, 0, 0, 0]), length).unwrap().trunc();
        policy.set_override(Limit::Syn, prefix, bucket(7)).unwrap();
    }
    let start = Instant::now();
    let compiled = compile(&policy).unwrap();
    let took = start.elapsed();
    println!(
        "{} overrides, {} plans: compiled in {took:?}",
        compiled.overrides.len(),
        compiled.plans.len()
    );
    let start = Instant::now();
    let document = policy.to_document().unwrap();
    let (bytes, wrote) = (document.len(), start.elapsed());
    let start = Instant::now();
    assert_eq!(Policy::from_document(&document).unwrap(), policy);
    println!("document of {bytes} bytes: written in {wrote:?}, read in {:?}", start.elapsed());
}

/// Addresses that are often within each other's prefixes.
fn address() -> impl Strategy<Value = IpAddr> {
    let few = prop_oneof![Just(0_u32), Just(1), Just(0x8000_0000), 0..16_u32, any::<u32>()];
    prop_oneof![
        few.clone().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        (few.clone(), few.clone(), few.clone(), few).prop_map(|(a, b, c, d)| {
            // Not in ::/8, where the IPv4-mapped addresses are.
            let a = a | 0x2000_0000;
            let words = [a, b, c, d].map(u128::from);
            IpAddr::from(
                (words[0] << 96 | words[1] << 64 | words[2] << 32 | words[3]).to_be_bytes(),
            )
        }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let an_override = (0..LIMITS, address(), 0..=128_u8, 1..6_u64);
    let defaults = vec(proptest::option::of(1..6_u64), LIMITS);
    (defaults, vec(an_override, 0..40)).prop_map(|(defaults, overrides)| {
        let mut policy = Policy::default();
        policy.set_key_prefix(KeyPrefix { ipv4: 32, ipv6: 128 }).unwrap();
        for (limit, packets) in Limit::ALL.into_iter().zip(defaults) {
            policy.limit_mut(limit).default = packets.map(bucket);
        }
        for (limit, address, length, packets) in overrides {
            let length = if address.is_ipv4() { length % 33 } else { length };
            let prefix = IpNet::new(address, length).unwrap().trunc();
            policy.set_override(Limit::ALL[limit], prefix, bucket(packets)).unwrap();
        }
        policy
    })
}

proptest! {
    #[test]
    fn every_address_gets_what_the_policy_says(policy in policy(), others in vec(address(), 20)) {
        let compiled = compile(&policy).unwrap();
        let mut addresses = others;
        for limit in Limit::ALL {
            for prefix in policy.limit(limit).overrides.keys() {
                addresses.extend([prefix.network(), prefix.broadcast()]);
            }
        }
        for address in addresses {
            prop_assert_eq!(looked_up(&compiled, address), &expected(&policy, address), "{}", address);
        }
        for (number, plan) in compiled.plans.iter().enumerate() {
            prop_assert!(!compiled.plans[..number].contains(plan), "plan {} is there twice", number);
        }
    }

    #[test]
    fn any_policy_survives_being_stored(policy in policy()) {
        prop_assert_eq!(Policy::from_document(&policy.to_document().unwrap()), Ok(policy));
    }
}
