//! Of plain packets only some headers are read, at constant offsets; the same packets behind a VLAN tag take the parser. Both
//! have to be decided, counted and charged alike.

use std::{collections::HashSet, net::IpAddr};

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    base::address::{Address, Mask},
    memory::cache::Cached,
    packet::reason::{REASONS, Reason},
};
use limiter_tests::{
    packet::{ACK, Frame, SYN},
    program::{Clock, SMALL, TestProgram, pin_to_cpu, two_cpus},
};
use limiter_userspace::policy::{
    Bucket, Builtin, KeyPrefix, Policy,
    model::{Count, GlobalMode, KeyPart, Limit, Listed, Match, Mode, Penalty, Unproven, Whom},
};

use super::{
    NOW, Run, bucket,
    define::{in_mode, limit},
    destination, is_emulated,
    leased::TICK,
    most,
    mutation::Random,
    per_second, seed, set_override,
};

const RUNS: u64 = 160;
const STEPS: usize = 120;
/// With keys of 64 bits, two of the IPv6 addresses are one source; with keys of 56 bits, three are.
const SOURCES: [&str; 10] = [
    "192.0.2.1",
    "192.0.2.2",
    "10.0.0.1",
    "10.0.0.2",
    "10.9.0.1",
    "2001:db8:0:1::1",
    "2001:db8:0:1::2",
    "2001:db8:0:2::1",
    "2001:db8:1::1",
    "2001:db8:9::1",
];
/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// One packet, plain and behind a tag, in frames of the same length.
fn both_ways(source: &str, kind: usize) -> [Vec<u8>; 2] {
    let source: IpAddr = source.parse().unwrap();
    let target = destination(source);
    let frame = match kind {
        0 => Frame::udp(source, target, 5_000, 53),
        1 => Frame::udp(source, target, 5_000, 54),
        2 => Frame::tcp(source, target, 40_000, 443, ACK),
        3 => Frame::tcp(source, target, 40_000, 443, SYN),
        4 => Frame::tcp(source, target, 40_001, 443, SYN),
        _ => Frame::echo(source, target, 7, 1),
    };
    let tagged = frame.clone().tag(0x8100, 5).payload(26).build();
    [frame.payload(26 + TAG).build(), tagged]
}

/// A random bucket. With `ticks` it is charged by jiffy time, and its packets may be leased; else it may also
/// need the exact clock.
fn any_bucket(random: &mut Random, ticks: bool) -> Bucket {
    match random.below(if ticks { 3 } else { 5 }) {
        0 => bucket(Rate { packets: 1, period: 60 * SECOND }, 1 + random.below(20) as u64),
        1 => per_second(10_000, 2_000),
        2 => per_second(100_000, 120_000),
        3 => per_second(1_000, 1 + random.below(50) as u64),
        _ => per_second(20_000, 999),
    }
}

/// A random limit, by what it matches and counts.
fn any_limit(random: &mut Random, name: &str, ticks: bool) -> Limit {
    let mut limit = limit(name, &[KeyPart::Source], any_bucket(random, ticks));
    let destinations =
        ["198.51.100.0/24", "2001:db8:ffff::/48"].map(|it| Whom::Prefix(it.parse().unwrap()));
    limit.matching = match random.below(8) {
        0 => Match { ports: vec![53..=53], ..Match::default() },
        1 => Match { protocols: vec![17], ..Match::default() },
        2 => Match { length: Some(0..=80), ..Match::default() },
        3 => Match { fragments: Some(false), ..Match::default() },
        4 => Match { destinations: destinations.to_vec(), ..Match::default() },
        _ => Match::default(),
    };
    limit.count = match random.below(8) {
        0 => Count::Bytes,
        1 => Count::Syns,
        2 => Count::Connections,
        _ => Count::Packets,
    };
    if random.below(3) == 0 {
        let (after, block) = (SECOND / 4, 20 * SECOND);
        limit.penalty = Some(Penalty { unproven: Unproven::Block, ..Penalty::new(after, block) });
    }
    if random.below(8) == 0 { in_mode(Mode::Monitor, limit) } else { limit }
}

fn any_policy(random: &mut Random, ticks: bool) -> Policy {
    let mut policy = Policy::default();
    if random.below(4) > 0 {
        policy.set_default(Builtin::Source, any_bucket(random, ticks)).unwrap();
        if random.below(3) == 0 {
            for prefix in ["10.0.0.0/16", "2001:db8:1::/48"] {
                set_override(&mut policy, Builtin::Source, prefix, any_bucket(random, ticks));
            }
        }
    }
    if random.below(4) == 0 {
        policy.set_default(Builtin::Syn, any_bucket(random, ticks)).unwrap();
    }
    for number in 0..random.below(3) {
        policy.limits.push(any_limit(random, &format!("limit-{number}"), ticks));
    }
    let prefixes = ["10.9.0.0/16", "2001:db8:9::/48"].map(|it| it.parse().unwrap());
    let listed =
        || prefixes.map(|prefix| Listed { whom: Whom::Prefix(prefix), until: None }).to_vec();
    match random.below(8) {
        0 => policy.deny = listed(),
        1 => policy.allow = listed(),
        _ => {}
    }
    if random.below(4) == 0 {
        policy.key_prefix = *random.pick(&[
            KeyPrefix { ipv4: 24, ipv6: 64 },
            KeyPrefix { ipv4: 24, ipv6: 56 },
            KeyPrefix { ipv4: 32, ipv6: 128 },
        ]);
    }
    if random.below(10) == 0 {
        policy.mode = GlobalMode::Monitor;
    }
    policy
}

/// A program in which no two of the sources share a slot of the CPU cache, under any key prefix. Which of two
/// rivals gets a slot is random, and leases depend on it.
fn without_rivals(clock: Clock) -> TestProgram {
    let masks = [(32, 128), (32, 64), (24, 64), (24, 56)].map(|(ipv4, ipv6)| Mask::new(ipv4, ipv6));
    let keys: HashSet<_> = SOURCES
        .iter()
        .map(|source| Address::from(source.parse::<IpAddr>().unwrap()))
        .flat_map(|source| masks.map(|mask| source.masked(&mask)))
        .collect();
    loop {
        let program = TestProgram::fresh(SMALL, &Policy::default(), clock).unwrap();
        let slots = |key| program.maps().place(key).unwrap().slot / Cached::KINDS;
        if keys.iter().map(slots).collect::<HashSet<_>>().len() == keys.len() {
            return program;
        }
    }
}

/// Everything that a program knows of reasons, limits and sources.
fn known(program: &TestProgram, policy: &Policy) -> Vec<String> {
    let limits = policy.limits.iter();
    let limits =
        limits.map(|limit| format!("{limit:?}: {:?}", program.tally(&limit.name).unwrap()));
    let sources = SOURCES.map(|address| {
        let key = Address::from(address.parse::<IpAddr>().unwrap());
        let KeyPrefix { ipv4, ipv6 } = policy.key_prefix;
        let source = program.whole_source(&key.masked(&Mask::new(ipv4, ipv6))).unwrap();
        let limits = source.map(|it| [0, 1, 2, 3, 4, 5, 6, 7].map(|place| it.limit(place)));
        let source = source.map(|it| (it.entry.passed, it.entry.dropped, limits));
        format!("{address}: {source:?}")
    });
    limits.chain(sources).collect()
}

#[test]
fn they_are_decided_as_those_behind_a_tag() {
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    let seed = seed();
    // One pair of programs has ticks, and no limit for which most packets read the clock: the time of a tick
    // is when it was first read. The other pair has no ticks.
    let mut pairs =
        [Clock::Ticking(TICK), Clock::Test].map(|clock| [(); 2].map(|()| without_rivals(clock)));
    let mut decided = [[0; REASONS]; 2];
    let mut now = NOW;
    for run in 0..most(RUNS) {
        let mut random = Random::new(seed, run);
        let pair = run as usize / 2 % 2;
        let programs = &mut pairs[pair];
        let [first, second] = [(); 2].map(|()| any_policy(&mut random, pair == 0));
        let mut policy = &first;
        let _run = Run { seed, run, of: &(&first, &second) };
        // All refusals in the CPU caches have expired.
        now += 2 * Cached::LONGEST;
        for program in programs.iter_mut() {
            program.forget().unwrap();
            program.forget_offences().unwrap();
            program.at(now).unwrap();
            program.apply(policy).unwrap();
        }
        // Which source gets an entry of a full table is random, but no verdict depends on it.
        let crowded = run % 2 == 1;
        if crowded {
            programs.iter_mut().for_each(|program| program.crowd().unwrap());
        }
        for step in 0..STEPS {
            if step == STEPS / 2 {
                policy = &second;
                programs.iter_mut().for_each(|program| program.apply(policy).unwrap());
            }
            let source = *random.pick(&SOURCES);
            let frames = both_ways(source, random.below(6));
            let packets = *random.pick(&[1, 1, 2, 5, 70, 300]);
            let passed = [0, 1].map(|at| {
                programs[at].at(now).unwrap();
                programs[at].run_many(&frames[at], packets).unwrap()
            });
            assert_eq!(passed[0], passed[1], "step {step}: {packets} of {:02x?}", frames[0]);
            now += match random.below(8) {
                0..4 => random.below(20_000) as u64,
                4..6 => random.below(2 * TICK as usize) as u64,
                6 => random.below(SECOND as usize) as u64,
                _ => random.below(5 * SECOND as usize) as u64,
            };
        }
        if !crowded {
            let [plain, tagged] = [0, 1].map(|at| known(&programs[at], policy));
            for (plain, tagged) in plain.into_iter().zip(tagged) {
                assert_eq!(plain, tagged);
            }
        }
        let [plain, tagged] = [0, 1].map(|at| programs[at].counters().unwrap());
        assert_eq!(plain, tagged);
        let reasons = plain.reasons;
        decided[pair] = std::array::from_fn(|at| reasons[at].packets);
    }
    for program in pairs.into_iter().flatten() {
        program.check_accounts().unwrap();
    }
    println!("{decided:?}");
    // If the runs stopped reaching a case, their number would prove nothing. The few runs in an emulator do
    // not reach all.
    let least = if is_emulated() { 0 } else { 500 };
    for reason in [
        Reason::Conform,
        Reason::Exceed,
        Reason::Allow,
        Reason::Deny,
        Reason::Penalty,
        Reason::Monitor,
    ] {
        let packets = decided.iter().map(|of_pair| of_pair[reason.index()]).sum::<u64>();
        assert!(packets >= least, "{reason:?}");
    }
}

/// The clock is read at once for a source that needs it; a source with another limit is still charged by
/// jiffy time.
#[test]
fn a_source_that_can_do_without_the_clock_is_charged_by_the_tick() {
    let mut policy = Policy::default();
    policy.set_default(Builtin::Source, per_second(20_000, 999)).unwrap();
    set_override(&mut policy, Builtin::Source, "10.0.0.0/16", per_second(10_000, 20_000));
    let [first, late] = ["10.0.0.1", "10.0.0.2"].map(|source| both_ways(source, 0));
    let words = [0, 1].map(|way| {
        let mut program = TestProgram::new(SMALL, &policy, Clock::Ticking(TICK)).unwrap();
        // Inserting an entry reads the clock.
        for tick in [NOW, NOW + 10 * TICK] {
            program.at(tick).unwrap();
            assert_eq!(program.run_many(&first[1], 1).unwrap(), 1);
            program.at(tick + 3 * TICK / 4).unwrap();
            assert_eq!(program.run_many(&late[way], 1).unwrap(), 1);
        }
        program.whole_source(&Address::v4([10, 0, 0, 2])).unwrap().unwrap().words()
    });
    assert_eq!(words[0], words[1]);
}
