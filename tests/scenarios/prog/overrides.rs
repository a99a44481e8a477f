//! Overrides: for each limit, the longest matching prefix decides.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Instant,
};

use limiter_common::algorithm::rate::SECOND;
use limiter_tests::program::{Clock, SMALL, Sizes, TestProgram};
use limiter_userspace::{
    error::Error,
    policy::{Builtin, Policy, units::prefix::parse_prefix},
};

use super::{
    NOW, Run, divisor,
    mutation::Random,
    naive::{Naive, truncated},
    part, per_second, policy, program, seed, set_override, syn, udp,
};

/// Random addresses from few networks, so that prefixes contain each other.
fn address(random: &mut Random) -> IpAddr {
    let few = |random: &mut Random| [0, 1, 0x80, 0xff][random.below(4)];
    if random.below(2) == 0 {
        let octets: [u8; 4] = std::array::from_fn(|_| few(random));
        IpAddr::from([10 | (octets[0] & 1), octets[1], octets[2], octets[3]])
    } else {
        let octets: [u8; 8] = std::array::from_fn(|_| few(random));
        let bits = u128::from(u64::from_be_bytes(octets)) << 64 | u128::from(few(random));
        Ipv6Addr::from_bits(bits & !(7 << 125) | 1 << 125).into()
    }
}

#[test]
fn the_longest_prefix_holds_for_each_limit() {
    const ENOUGH: u32 = 200;
    let seed = seed();
    let mut now = NOW;
    let mut program = program(&Policy::default());
    let mut limited = 0;
    for run in 0..part(60) {
        let mut random = Random::new(seed, run);
        let mut naive = Naive::default();
        for limit in Builtin::ALL {
            let any = |random: &mut Random| per_second(1_000, 1 + random.below(150) as u64);
            if random.below(2) == 0 {
                naive.set_default(limit, any(&mut random));
            }
            for _ in 0..random.below(20) {
                let address = address(&mut random);
                let most = if address.is_ipv4() { 32 } else { 64 };
                naive.set_override(limit, address, random.below(most + 1) as u8, any(&mut random));
            }
        }
        let _run = Run { seed, run, of: &naive };
        program.apply(&naive.policy()).unwrap();
        for _ in 0..60 {
            let source = address(&mut random);
            for (frame, limits) in [
                (syn(source), &Builtin::ALL[..]),
                (udp(source), &[Builtin::Connection, Builtin::Source]),
            ] {
                let buckets = limits.iter().filter_map(|limit| naive.bucket(*limit, Some(source)));
                let least = buckets.map(|bucket| bucket.burst).min().unwrap_or(ENOUGH.into());
                // After a second, every bucket is full again.
                now += SECOND;
                program.at(now).unwrap();
                assert_eq!(program.run_many(&frame, ENOUGH).unwrap(), least, "{limits:?} {source}");
                limited += u32::from(least < ENOUGH.into());
            }
        }
    }
    assert!(u64::from(limited) > part(2_000), "{limited}");
    program.check_accounts().unwrap();
}

#[test]
fn what_is_around_a_deleted_override_holds() {
    let mut policy = policy(&[(Builtin::Source, per_second(1_000, 10))]);
    set_override(&mut policy, Builtin::Source, "10.1.0.0/16", per_second(1_000, 20));
    set_override(&mut policy, Builtin::Source, "10.1.2.0/24", per_second(1_000, 30));
    set_override(&mut policy, Builtin::Source, "10.1.2.3/32", per_second(1_000, 40));
    set_override(&mut policy, Builtin::Syn, "10.1.2.0/24", per_second(1_000, 5));
    let mut program = program(&policy);
    let source = [10, 1, 2, 3];
    let mut now = NOW;
    let mut bursts = |program: &mut TestProgram| {
        [udp(source), syn(source)].map(|frame| {
            now += SECOND;
            program.at(now).unwrap();
            program.run_many(&frame, 100).unwrap()
        })
    };
    assert_eq!(bursts(&mut program), [40, 5]);
    for (limit, prefix, expected) in [
        (Builtin::Source, "10.1.2.3/32", [30, 5]),
        (Builtin::Source, "10.1.0.0/16", [30, 5]),
        (Builtin::Syn, "10.1.2.0/24", [30, 30]),
        (Builtin::Source, "10.1.2.0/24", [10, 10]),
    ] {
        policy.del_override(limit, parse_prefix(prefix).unwrap()).unwrap();
        program.apply(&policy).unwrap();
        assert_eq!(bursts(&mut program), expected, "without {limit:?} {prefix}");
    }
    policy.del_default(Builtin::Source).unwrap();
    program.apply(&policy).unwrap();
    assert_eq!(bursts(&mut program), [100, 100]);
}

#[test]
fn ten_thousand_overrides_hold() {
    const OVERRIDES: u32 = 10_000;
    let mut policy = policy(&[(Builtin::Source, per_second(1_000, 3))]);
    let source = |number: u32| -> IpAddr {
        if number.is_multiple_of(2) {
            // IPv4 overrides are single addresses, with others between them.
            (0x0a00_0000 + number).to_be_bytes().into()
        } else {
            let [high, low] = [(number >> 16) as u16, number as u16];
            [0x2001, 0xdb8, high, low, 0, 0, 0, 1].into()
        }
    };
    let burst = |number: u32| u64::from(number % 4_999 + 4);
    for number in 0..OVERRIDES {
        let address = source(number);
        let length = if address.is_ipv4() { 32 } else { 64 };
        let text = format!("{}/{length}", truncated(address, length));
        set_override(&mut policy, Builtin::Source, &text, per_second(1_000, burst(number)));
    }
    let sizes = Sizes { overrides: 5_000, ..SMALL };
    let mut program = TestProgram::new(sizes, &Policy::default(), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let start = Instant::now();
    program.apply(&policy).unwrap();
    println!("{OVERRIDES} overrides put in force in {} ms", start.elapsed().as_millis());
    assert_eq!(program.maps().policy().unwrap(), policy);
    for number in (0..OVERRIDES).step_by(7 * divisor() as usize) {
        assert_eq!(
            program.run_many(&udp(source(number)), 6_000).unwrap(),
            burst(number),
            "{number}"
        );
    }
    // Neighbours of overridden addresses have the default.
    for number in (0..OVERRIDES).step_by(998) {
        let neighbour: IpAddr = (0x0a00_0000 + number + 1).to_be_bytes().into();
        assert_eq!(program.run_many(&udp(neighbour), 100).unwrap(), 3, "{neighbour}");
    }
    program.check_accounts().unwrap();

    // A policy with one profile too many is refused, and the old one stays in force.
    let mut larger = policy.clone();
    set_override(&mut larger, Builtin::Syn, "10.0.0.0/32", per_second(1, 1));
    assert!(
        matches!(program.apply(&larger), Err(error) if error.downcast_ref::<Error>().is_some_and(
            |error| error.to_string().ends_with("for 5,001 overrides (there is room for 5,000)")
        ))
    );
    assert_eq!(program.maps().policy().unwrap(), policy);
    program.at(NOW + 100 * SECOND).unwrap();
    assert_eq!(program.run_many(&udp(source(0)), 100).unwrap(), burst(0));
}
