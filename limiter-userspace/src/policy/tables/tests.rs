use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;
use limiter_common::{
    algorithm::{binding::Binding, rate::Rate},
    memory::cache::Cached,
    policy::penalty::Penalty,
};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::policy::{
    Bucket, Builtin, KeyPrefix,
    model::{Allowance, KeyPart, Layer, Limit, Override, OverrideWhom},
};

pub(super) fn bucket(packets: u64) -> Bucket {
    Bucket::new(Rate::per_second(packets), packets).unwrap()
}

pub(super) fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(super) fn compiled(policy: &Policy) -> Tables {
    compile(policy, &Assignment::default(), &Context::default()).unwrap().0
}

/// The profile that the datapath would find, by a search over all prefixes.
pub(super) fn looked_up(tables: &Tables, address: IpAddr) -> &Profile {
    let address = Address::from(address);
    let holds = |&&(bits, prefix, _): &&(u32, Address, u32)| {
        let length = u8::try_from(bits - Address::FAMILY_BITS).unwrap();
        address.masked(&Mask::new(length, length)) == prefix
    };
    let longest = tables.prefixes.iter().filter(holds).max_by_key(|(bits, ..)| bits);
    &tables.profiles[longest.map_or(0, |&(_, _, profile)| profile) as usize]
}

/// The meters of a profile, one for each row that applies, as the datapath selects them.
fn admitted(tables: &Tables, profile: &Profile) -> Vec<Meter> {
    let applies = tables.rows.iter().filter(|row| profile.limits & row.bit != 0);
    let number =
        |row: &Row| profile.meters.get(row.override_column as usize).copied().unwrap_or(row.meter);
    applies.map(|row| tables.meters[number(row) as usize]).collect()
}

/// The meters that the policy gives, by a search over all overrides of all limits.
fn expected(policy: &Policy, address: IpAddr) -> Vec<Meter> {
    let says = |builtin| {
        let limit = policy.limit(builtin)?;
        let own = limit.overrides.iter().filter_map(|entry| match entry {
            Override { whom: OverrideWhom::Prefix(prefix), layers }
                if prefix.contains(&address) =>
            {
                Some((prefix.prefix_len(), layers.as_ref().map(|layers| layers[0])))
            }
            _ => None,
        });
        let default = limit.layers.first().map(|layer| layer.allowance);
        own.max_by_key(|(length, _)| *length).map_or(default, |(_, allowance)| allowance)
    };
    // Each built-in limit has one layer; they are in the order of their bits.
    let meter = |allowance: Allowance| {
        let Bucket { rate, burst } = allowance.bucket();
        Meter::bucket(rate.bucket(burst, 1).unwrap())
    };
    Builtin::ALL.into_iter().filter_map(says).map(meter).collect()
}

#[test]
fn a_limit_that_pushes_has_a_row_for_it_from_the_beginning_where_there_is_room() {
    let limit = |at| {
        format!(
            "  - {{ name: l{at}, key: source, match: {{ protocol: tcp, ports: [{at}] }}, rate: 1/s, burst: 1 }}\n"
        )
    };
    let pushing = "  - { name: login, on: requests, key: source, rate: 1/s, burst: 1, penalty: { after: 1s, block: 1m } }\n";
    for (limits, pushes, has_row) in
        [(1, "", false), (1, pushing, true), (63, pushing, true), (64, pushing, false)]
    {
        let limits: String = (1..=limits).map(limit).collect();
        let text = format!("version: 1\nlimits:\n{limits}{pushes}");
        let policy = crate::policy::document::parse("policy.yaml", text.as_bytes(), &mut |_| {
            unreachable!("there is no set")
        });
        let rows = compiled(&policy.unwrap()).rows;
        let is_row = |row: &Row| row.penalty.limit == Penalty::PUSHED;
        assert_eq!(rows.iter().any(is_row), has_row, "{} rows", rows.len());
    }
}

#[test]
fn an_empty_policy_is_one_empty_profile() {
    let tables = compiled(&Policy::default());
    let all = Profile { lease: Cached::MOST_LEASED, ..Profile::default() };
    assert_eq!(tables.profiles, [all; 2], "that of all, and that of what they share");
    assert_eq!((&*tables.prefixes, &*tables.rows, &*tables.classes), (&[][..], &[][..], &[][..]));
    assert_eq!(tables.meters, [Meter::default()]);
    let (mask, elsewhere) = (Mask::new(32, 64), u64::MAX);
    let settings = Settings {
        mask,
        default_destination_limits: elsewhere,
        default_profile: all,
        ..Settings::default()
    };
    assert_eq!(tables.settings, settings);
}

#[test]
fn a_limit_without_an_override_of_its_own_takes_part() {
    let mut policy = Policy::default();
    policy.set_key_prefix(KeyPrefix { ipv4: 30, ipv6: 60 }).unwrap();
    policy.set_default(Builtin::Syn, bucket(5)).unwrap();
    policy.set_override(Builtin::Source, prefix("10.0.0.0/8"), bucket(10)).unwrap();
    policy.set_override(Builtin::Connection, prefix("10.1.0.0/16"), bucket(1)).unwrap();
    policy.set_override(Builtin::Source, prefix("2001:db8::/32"), bucket(10)).unwrap();
    let tables = compiled(&policy);
    let [syn, source, connection] = [1, 2, 4];
    let limits: Vec<_> = tables.profiles.iter().map(|profile| profile.limits).collect();
    let shared = syn | source;
    assert_eq!(limits, [syn, shared, syn | source, connection | syn | source]);
    // The IPv6 prefix shares the profile of 10.0.0.0/8.
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(
        tables.prefixes,
        [
            (40, address("10.0.0.0"), 2),
            (48, address("10.1.0.0"), 3),
            (64, address("2001:db8::"), 2)
        ]
    );
    let Settings { mask, flags, enforced, unit, keyed, inline, .. } = tables.settings;
    assert_eq!(mask, Mask::new(30, 60));
    assert_eq!(flags, flag::PREFIXES | flag::LIMITS | flag::FRAGMENTS);
    assert_eq!((enforced, unit, keyed), (7, 7, connection));
    assert_eq!(inline, [source, syn, 0, 0, 0, 0, 0, 0], "that of most packets first");
}

#[test]
fn rates_that_are_one_share_a_profile() {
    let mut policy = Policy::default();
    for (third, rate) in
        [(0, Rate::per_second(1)), (1, Rate { packets: 60, period: 60_000_000_000 })]
    {
        let bucket = Bucket::new(rate, 1).unwrap();
        policy.set_override(Builtin::Syn, prefix(&format!("10.0.{third}.0/24")), bucket).unwrap();
    }
    let tables = compiled(&policy);
    // One profile and one meter more belong to shared entries.
    assert_eq!((tables.profiles.len(), tables.meters.len()), (3, 3));
}

/// A limit with one key has no others to share with.
#[test]
fn what_keys_share_is_that_of_sixteen_keys_but_for_a_limit_with_one() {
    let limit = |name: &str, parts: &[KeyPart]| {
        let layers = vec![Layer { allowance: bucket(100).into(), key: None }];
        Limit { layers, ..Limit::new(name, parts) }
    };
    let limits = vec![limit("all", &[]), limit("destination", &[KeyPart::Destination])];
    let tables = compiled(&Policy { limits, ..Policy::default() });
    let left = |number: u32| tables.meters[number as usize].gcra.left(0);
    let mut shared: Vec<_> =
        tables.rows.iter().map(|row| left(row.shared_meter) / left(row.meter)).collect();
    shared.sort_unstable();
    assert_eq!(shared, [1, 16]);
}

#[test]
fn many_overrides_compile_quickly() {
    let mut policy = Policy::default();
    for limit in Builtin::ALL {
        policy.set_default(limit, bucket(3)).unwrap();
    }
    for n in 0..100_000_u32 {
        let length = 24 + (n % 9) as u8;
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n * 100);
        let whom = OverrideWhom::Prefix(IpNet::new(address.into(), length).unwrap().trunc());
        let layers = Some(vec![bucket(u64::from(n) + 1).into()]);
        policy.limits[(n % 3) as usize].overrides.push(Override { whom, layers });
    }
    for limit in &mut policy.limits {
        limit.overrides.sort_by(|a, b| a.whom.cmp(&b.whom));
        limit.overrides.dedup_by(|a, b| a.whom == b.whom);
    }
    for length in 0..=32 {
        let prefix = IpNet::new(IpAddr::from([10, 0, 0, 0]), length).unwrap().trunc();
        policy.set_override(Builtin::Syn, prefix, bucket(7)).unwrap();
    }
    let start = Instant::now();
    let tables = compiled(&policy);
    let took = start.elapsed();
    println!(
        "{} overrides, {} profiles: compiled in {took:?}",
        tables.prefixes.len(),
        tables.profiles.len()
    );
    assert!(tables.profiles.len() > 90_000 && tables.prefixes.len() > 90_000);
    assert!((tables.profiles.len() as u32) < Binding::PROFILES);
    for address in ["10.0.0.0", "10.0.0.1", "10.3.4.5", "10.100.0.99", "11.0.0.1", "::1"] {
        let address = address.parse().unwrap();
        assert_eq!(admitted(&tables, looked_up(&tables, address)), expected(&policy, address));
    }
}

/// Addresses that are often within each other's prefixes.
fn address() -> impl Strategy<Value = IpAddr> {
    let few = prop_oneof![Just(0_u32), Just(1), Just(0x8000_0000), 0..16_u32, any::<u32>()];
    prop_oneof![
        few.clone().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        (few.clone(), few.clone(), few.clone(), few).prop_map(|(a, b, c, d)| {
            // Outside of ::/8, which has the IPv4-mapped addresses.
            let a = a | 0x2000_0000;
            let words = [a, b, c, d].map(u128::from);
            IpAddr::from(
                (words[0] << 96 | words[1] << 64 | words[2] << 32 | words[3]).to_be_bytes(),
            )
        }),
    ]
}

/// Policies of the built-in limits, with overrides.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let an_override =
        (0..3_usize, address(), 0..=128_u8, proptest::option::weighted(0.9, 1..6_u64));
    let defaults = vec(proptest::option::of(1..6_u64), 3);
    (defaults, vec(an_override, 0..40)).prop_map(|(defaults, overrides)| {
        let mut policy = Policy::default();
        policy.set_key_prefix(KeyPrefix { ipv4: 32, ipv6: 128 }).unwrap();
        for (limit, packets) in Builtin::ALL.into_iter().zip(defaults) {
            if let Some(packets) = packets {
                policy.set_default(limit, bucket(packets)).unwrap();
            }
        }
        for (limit, address, length, packets) in overrides {
            let length = if address.is_ipv4() { length % 33 } else { length };
            let prefix = IpNet::new(address, length).unwrap().trunc();
            let limit = Builtin::ALL[limit];
            policy.set_override(limit, prefix, bucket(packets.unwrap_or(1))).unwrap();
            if packets.is_none() {
                // Not limited.
                let limit = policy.limits.iter_mut().find(|it| it.name == limit.name()).unwrap();
                let whom = OverrideWhom::Prefix(prefix);
                limit.overrides.iter_mut().find(|it| it.whom == whom).unwrap().layers = None;
            }
        }
        policy
    })
}

proptest! {
    #[test]
    fn every_address_gets_what_the_policy_says(policy in policy(), others in vec(address(), 20)) {
        let tables = compiled(&policy);
        let mut addresses = others;
        for limit in &policy.limits {
            for prefix in limit.prefixes() {
                addresses.extend([prefix.network(), prefix.broadcast()]);
            }
        }
        for address in addresses {
            let admitted = admitted(&tables, looked_up(&tables, address));
            prop_assert_eq!(admitted, expected(&policy, address), "{}", address);
        }
        let mut own = tables.profiles.clone();
        own.remove(Profile::SHARED as usize);
        for (number, profile) in own.iter().enumerate() {
            let before = &own[..number];
            prop_assert!(!before.contains(profile), "profile {} is there twice", number);
        }
    }
}
