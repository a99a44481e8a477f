//! Large sets: 100,000 nested prefixes of both families, compared with tables by prefix length.

mod prefixes;

use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;
use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::program::{Clock, SMALL, Sizes, TestProgram, Verdict};
use limiter_userspace::policy::{
    Policy,
    model::{KeyPart, Limit, Listed, Match, Override, OverrideWhom, Whom},
};

use self::prefixes::{Naive, prefixes, probes};
use super::{
    NOW, Run, counted,
    define::{limit, policy_of},
    modes::tally,
    mutation::Random,
    part, per_second, seed,
    sent::Sent,
    tokens, udp,
};

const PREFIXES: u64 = 100_000;
/// The greatest prefix lengths of sources, of IPv4 and IPv6.
const SOURCES: [u8; 2] = [32, 64];

/// A program with room for 4,096 distinct overrides.
fn program(policy: &Policy) -> TestProgram {
    let sizes = Sizes { overrides: 1 << 12, ..SMALL };
    let mut program = TestProgram::new(sizes, &Policy::default(), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let start = Instant::now();
    program.apply(policy).unwrap();
    println!("put in force in {} ms", start.elapsed().as_millis());
    program
}

fn two_sets(random: &mut Random, longest: [u8; 2]) -> (Policy, [Vec<IpNet>; 2]) {
    let listed = prefixes(random, part(PREFIXES), longest, &[]);
    let excepted = prefixes(random, part(PREFIXES) / 4, longest, &listed);
    let mut policy = Policy::default();
    policy.sets.insert("listed".to_owned(), listed.clone());
    policy.sets.insert("excepted".to_owned(), excepted.clone());
    (policy, [listed, excepted])
}

/// Compares limits that name a set, except a set, or name one with exceptions with a naive matcher. Each
/// limit has a port of its own. `name` writes the sets into a match, `sent` makes a packet for an address.
fn compare(
    longest: [u8; 2],
    name: impl Fn(&mut Match, &[&str], &[&str]),
    sent: impl Fn(IpAddr, u16) -> Sent,
) {
    let seed = seed();
    let mut random = Random::new(seed, u64::from(longest[1]));
    let _run = Run { seed, run: 0, of: &"sets" };
    let (mut policy, [listed, excepted]) = two_sets(&mut random, longest);
    let asked: [(&[&str], &[&str]); 4] = [
        (&["listed"], &[]),
        (&[], &["listed"]),
        (&["listed"], &["excepted"]),
        (&["listed", "excepted"], &[]),
    ];
    for (port, (named, except)) in (1..).zip(asked) {
        let mut limit = limit(&format!("limit-{port}"), &[], tokens(1));
        (limit.matching.protocols, limit.matching.ports) = (vec![17], vec![port..=port]);
        name(&mut limit.matching, named, except);
        policy.limits.push(limit);
    }
    let mut program = program(&policy);
    let [inside, apart] = [&listed, &excepted].map(|of| Naive::new(of, ()));
    let mut about = [0; 4];
    let probes = [probes(&mut random, &listed), probes(&mut random, &excepted)].concat();
    for address in &probes {
        let [inside, apart] = [&inside, &apart].map(|naive| naive.contains(*address));
        let fits = [inside, !inside, inside && !apart, inside || apart];
        for ((port, fits), about) in (1..).zip(fits).zip(&mut about) {
            let verdict = program.run(&sent(*address, port).frame()).unwrap();
            // The limit admits the first packet that it matches, whatever its source.
            let expected = fits && *about > 0;
            assert_eq!(verdict == Verdict::Drop, expected, "{address} of limit-{port}");
            *about += u64::from(fits);
        }
    }
    for (port, about) in (1..).zip(about) {
        assert_eq!(tally(&program, &format!("limit-{port}")), (1, about - 1));
        let least = probes.len() as u64 / 8;
        assert!((least..7 * least).contains(&about), "limit-{port}: {about} of {}", probes.len());
    }
    program.check_accounts().unwrap();
}

fn whoms(names: &[&str]) -> Vec<Whom> {
    names.iter().map(|name| Whom::Set((*name).to_owned())).collect()
}

fn other_end(address: IpAddr) -> IpAddr {
    super::destination(address)
}

#[test]
fn sources_in_large_sets_are_those_of_a_naive_matcher() {
    compare(
        SOURCES,
        |matching, named, except| {
            (matching.sources, matching.except_sources) = (whoms(named), whoms(except));
        },
        |address, port| Sent::udp(address, other_end(address), [9, port]),
    );
}

#[test]
fn destinations_in_large_sets_are_those_of_a_naive_matcher() {
    compare(
        [32, 128],
        |matching, named, except| {
            (matching.destinations, matching.except_destinations) = (whoms(named), whoms(except));
        },
        |address, port| Sent::udp(other_end(address), address, [9, port]),
    );
}

/// The longest prefix decides the burst of a source.
#[test]
fn large_numbers_of_overrides_are_those_of_a_naive_matcher() {
    const OTHERS: u64 = 8;
    const ENOUGH: u64 = 10;
    let seed = seed();
    let mut random = Random::new(seed, 2);
    let _run = Run { seed, run: 2, of: &"overrides" };
    let prefixes = prefixes(&mut random, part(PREFIXES), SOURCES, &[]);
    // 0 stands for no limit.
    let said: Vec<(IpNet, u64)> =
        prefixes.iter().map(|prefix| (*prefix, random.below(8) as u64)).collect();
    let burst = |burst| per_second(1_000, burst);
    let overrides = said.iter().map(|(prefix, most)| Override {
        whom: OverrideWhom::Prefix(*prefix),
        layers: (*most > 0).then(|| vec![burst(*most).into()]),
    });
    let limit =
        Limit { overrides: overrides.collect(), ..limit("it", &[KeyPart::Source], burst(OTHERS)) };
    let mut program = program(&policy_of([limit]));
    let naive: Naive<u64> = said.into_iter().collect();
    let (mut now, mut overridden) = (NOW, 0);
    let probes = probes(&mut random, &prefixes);
    for address in &probes {
        // After a second, every bucket is full again.
        now += SECOND;
        program.at(now).unwrap();
        let frame = udp(*address);
        let passes = |_: &u64| program.run(&frame).unwrap() == Verdict::Pass;
        let passed = (0..ENOUGH).filter(passes).count() as u64;
        let found = naive.longest(*address);
        let expected = match found.unwrap_or(&OTHERS) {
            0 => ENOUGH,
            most => *most,
        };
        assert_eq!(passed, expected, "{address}");
        overridden += u64::from(found.is_some());
    }
    let most = probes.len() as u64;
    assert!((most / 3..most * 7 / 8).contains(&overridden), "{overridden} of {most}");
    program.check_accounts().unwrap();
}

#[test]
fn large_lists_are_those_of_a_naive_matcher() {
    let seed = seed();
    let mut random = Random::new(seed, 3);
    let _run = Run { seed, run: 3, of: &"lists" };
    let (mut policy, [denied, allowed]) = two_sets(&mut random, SOURCES);
    let listed = |name: &str| vec![Listed { whom: Whom::Set(name.to_owned()), until: None }];
    (policy.deny, policy.allow) = (listed("listed"), listed("excepted"));
    let mut program = program(&policy);
    let naive = [&denied, &allowed].map(|of| Naive::new(of, ()));
    let mut reasons = [0_u64; Reason::ALL.len()];
    let probes = [probes(&mut random, &denied), probes(&mut random, &allowed)].concat();
    for address in &probes {
        let reason = match naive.each_ref().map(|naive| naive.contains(*address)) {
            [_, true] => Reason::Allow,
            [true, false] => Reason::Deny,
            [false, false] => Reason::Conform,
        };
        let verdict = program.run(&udp(*address)).unwrap();
        assert_eq!(verdict == Verdict::Drop, reason.drops(), "{address}");
        reasons[reason.index()] += 1;
    }
    for reason in [Reason::Allow, Reason::Deny, Reason::Conform] {
        assert_eq!(counted(&program, reason), reasons[reason.index()], "{reason:?}");
        assert!(reasons[reason.index()] > probes.len() as u64 / 8, "{reasons:?}");
    }
    program.check_accounts().unwrap();
}

/// A set may be empty, for example when its file is. A limit that names it then matches no packet, instead of
/// every packet.
#[test]
fn a_set_without_prefixes_is_nobody() {
    let named = |name: &str, fill: fn(&mut Match, Vec<Whom>)| {
        let mut it = limit(name, &[KeyPart::Source], tokens(1));
        fill(&mut it.matching, vec![Whom::Set("empty".to_owned())]);
        it
    };
    let limits = || {
        [
            named("to", |it, whom| it.destinations = whom),
            named("from", |it, whom| it.sources = whom),
        ]
    };
    let mut other = limit("other", &[KeyPart::Source], tokens(1 << 20));
    other.matching.destinations = vec![Whom::Prefix("198.51.100.0/24".parse().unwrap())];
    for more in [None, Some(other)] {
        let mut policy = policy_of(limits().into_iter().chain(more));
        policy.sets.insert("empty".to_owned(), Vec::new());
        let mut program = program(&policy);
        let frame = udp([10, 0, 0, 1]);
        assert_eq!(program.run_many(&frame, 10).unwrap(), 10);
        for name in ["to", "from"] {
            assert_eq!(tally(&program, name), (0, 0), "{name}");
        }
        program.check_accounts().unwrap();
    }
}
