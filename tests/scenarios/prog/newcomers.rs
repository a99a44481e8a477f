//! Sources that meet a full table: what they are charged while on probation, and after they get an entry.

use std::net::IpAddr;

use limiter_common::{
    abi::counters::TableStats,
    algorithm::rate::{Rate, SECOND},
    base::{address::Address, tally::Tally},
    packet::reason::Reason,
    table::probation::HELD_OF,
};
use limiter_tests::{
    packet::{ACK, Frame, SYN, set_source},
    program::{Clock, SMALL, Sizes, TestProgram, Verdict},
};
use limiter_userspace::{
    datapath::snapshot::LimitStatistics,
    policy::{
        Builtin, KeyPrefix, Policy,
        model::{
            Allowance, Count, GlobalMode, KeyPart, Limit, Match, Override, OverrideWhom, Penalty,
            Unproven,
        },
    },
    query::Inquiry,
};

use super::{
    NOW, Run, counted,
    cpus::{check_contended, meet},
    define::{limit, policy_of},
    lists,
    mutation::Random,
    part, per_second, policy, program, seed, set_override, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    tokens, udp,
};

const A: [u8; 4] = [192, 0, 2, 1];
/// A key that several sources share.
const NETWORK: KeyPart = KeyPart::SourcePrefix { ipv4: 24, ipv6: 48 };
/// A key of which each source has one.
const EACH: KeyPart = KeyPart::SourcePrefix { ipv4: 32, ipv6: 64 };
const RUNS: u64 = 50;
const STEPS: u64 = 1_200;

/// Makes a small instance with a full table.
fn crowded(policy: &Policy) -> TestProgram {
    let mut program = program(policy);
    program.crowd().unwrap();
    program
}

/// The smallest instance with a full table.
fn small(policy: &Policy, clock: Clock) -> TestProgram {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, policy, clock).unwrap();
    program.at(NOW).unwrap();
    program.crowd().unwrap();
    program
}

/// Up to four limits, most of them per source: some count bytes or new connections, some match only part of the packets,
/// some have a penalty. Some policies drop nothing.
fn any_policy(random: &mut Random) -> Policy {
    let limits = (0..1 + random.below(4)).map(|number| {
        let rate = Rate { packets: 1 + random.below(50) as u64, period: SECOND };
        let (bytes, opens) = (random.below(3) == 0, random.below(4) == 0);
        let scale = if bytes { 100 } else { 1 };
        let rate = Rate { packets: rate.packets * scale, ..rate };
        let burst = (1 + random.below(6) as u64) * scale;
        let allowance = match random.below(3) {
            0 => Allowance::LeakyBucket { rate, depth: burst.max(if bytes { 2_000 } else { 1 }) },
            _ => Allowance::TokenBucket { rate, burst },
        };
        let tight =
            Allowance::TokenBucket { rate: Rate { packets: 3, period: SECOND }, burst: 2 * scale };
        let overridden = (random.below(3) == 0).then(|| Override {
            whom: OverrideWhom::Prefix("192.0.2.0/29".parse().unwrap()),
            layers: Some(vec![if bytes { allowance } else { tight }]),
        });
        let penalty = (random.below(6) == 0).then_some(Penalty {
            backoff: 2,
            max: SECOND,
            unproven: Unproven::Block,
            ..Penalty::new(SECOND / 20, SECOND / 5)
        });
        let ports = if random.below(3) == 0 { vec![443..=443] } else { Vec::new() };
        let count = match (bytes, opens) {
            (true, _) => Count::Bytes,
            (false, true) => Count::Connections,
            (false, false) => Count::Packets,
        };
        let key = match random.below(4) {
            0 => KeyPart::SourcePrefix { ipv4: 30, ipv6: 48 },
            _ => KeyPart::Source,
        };
        Limit {
            count,
            overrides: overridden.filter(|_| key == KeyPart::Source).into_iter().collect(),
            penalty,
            matching: Match { ports, ..Match::default() },
            ..limit(&format!("limit-{number}"), &[key], allowance)
        }
    });
    let mut policy = policy_of(limits.collect::<Vec<_>>());
    if random.below(3) == 0 {
        policy.deny.push(lists::entry("192.0.2.8/30", None));
        policy.allow.push(lists::entry("10.0.64.0/18", None));
    }
    if random.below(6) == 0 {
        policy.mode = GlobalMode::Monitor;
    }
    policy
}

/// A random packet of few kinds from few sources, with the key of its source.
fn any_frame(random: &mut Random) -> (IpAddr, Vec<u8>) {
    let number = random.below(12) as u8;
    let six = |host| IpAddr::from([0x2001, 0xdb8, 1, u16::from(number), 0, 0, 0, host]);
    let (key, source, target): (_, _, IpAddr) = match random.below(2) {
        0 => {
            let four = IpAddr::from([192, 0, 2, number]);
            (four, four, [198, 51, 100, 1].into())
        }
        _ => (six(0), six(random.below(9) as u16), [0x2001, 0xdb8, 2, 0, 0, 0, 0, 1].into()),
    };
    let flags = *random.pick(&[SYN, ACK]);
    let frame = match random.below(3) {
        0 => Frame::tcp(source, target, 40_000, 443, flags),
        1 => Frame::udp(source, target, 40_000, 443).payload(random.below(900)),
        _ => Frame::udp(source, target, 40_000, 53).payload(random.below(900)),
    };
    (key, frame.build())
}

/// Sends the same packets to a program with a full table and to one without. Verdicts and final counts have
/// to be equal.
#[test]
fn a_full_table_changes_no_verdict() {
    let seed = seed();
    let (mut passed, mut dropped, mut first) = (0, 0, 0);
    // A table so large that no source is evicted.
    let sizes = Sizes { sources: 1 << 13, ..SMALL };
    let mut both =
        [(); 2].map(|()| TestProgram::new(sizes, &Policy::default(), Clock::Test).unwrap());
    for run in 0..part(RUNS) {
        let mut random = Random::new(seed, run);
        let mut policy = any_policy(&mut random);
        let first_policy = policy.clone();
        let _run = Run { seed, run, of: &first_policy };
        for program in &mut both {
            program.forget().unwrap();
            program.apply(&policy).unwrap();
        }
        both[1].crowd().unwrap();
        let mut now = NOW;
        // In half of the runs, other sources send in between.
        let flooded = run % 2 == 0;
        for number in 0..STEPS {
            now += if random.below(3) > 0 { 0 } else { random.below(30_000_000) as u64 };
            // Entries are migrated to a new policy, and so are the debts of sources on probation. Their state
            // moves to other columns with their limits.
            if random.below(200) == 0 {
                policy.limits.rotate_left(1);
                if random.below(2) == 0 {
                    policy.limits[0].name = format!("limit-{}", 10 + number);
                }
                for program in &mut both {
                    program.apply(&policy).unwrap();
                }
            }
            for _ in 0..if flooded { random.below(6) } else { 0 } {
                let made_up = udp([10, 0, random.below(256) as u8, random.below(256) as u8]);
                let verdicts = both.each_mut().map(|program| {
                    program.at(now).unwrap();
                    program.run(&made_up).unwrap()
                });
                assert_eq!(verdicts[0], verdicts[1], "packet {number}, made up, at {now}");
            }
            let (source, frame) = any_frame(&mut random);
            let verdicts = both.each_mut().map(|program| {
                program.at(now).unwrap();
                program.run(&frame).unwrap()
            });
            assert_eq!(verdicts[0], verdicts[1], "packet {number}, of {source} at {now}");
            *(if verdicts[0] == Verdict::Pass { &mut passed } else { &mut dropped }) += 1;
            first += u64::from(!has_entry(&both[1], source));
        }
        let [free, full] = &both;
        assert_eq!(free.counters().unwrap(), full.counters().unwrap());
        let tallies = both.each_ref().map(|it| it.maps().snapshot(&[]).unwrap().limits);
        assert_eq!(tallies[0], tallies[1]);
        assert_eq!(counted(full, Reason::Contended), 0);
    }
    println!("{passed} passed, {first} of them first packets, {dropped} dropped");
    assert!(dropped > part(4_000) && first > part(200), "cases are missed");
}

#[test]
fn the_second_packet_brings_an_entry_that_knows_of_the_first() {
    let mut program = crowded(&policy(&[(Builtin::Source, per_second(10, 3))]));
    let frame = udp(A);
    assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
    assert!(!has_entry(&program, A));
    // A token takes a tenth of a second; half of the one for the first packet is refilled.
    program.at(NOW + SECOND / 20).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 3 - 1 + 1, "part of a token is enough");
    let entry = program.source(&Address::v4(A)).unwrap().unwrap();
    let tally = |packets| Tally { packets, bytes: packets * frame.len() as u64 };
    assert_eq!((entry.passed, entry.dropped), (tally(4), tally(7)));
    program.check_accounts().unwrap();
}

/// Neither other sources nor its own made-up addresses evict a source on probation that owes, while another
/// entry owes nothing.
#[test]
fn a_newcomer_that_owes_is_not_forgotten_while_another_owes_nothing() {
    // CPUs may disagree on the time and on the last tick.
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut limits = policy(&[(Builtin::Source, per_second(1_000_000, 20))]);
    set_override(&mut limits, Builtin::Source, "192.0.2.0/24", tokens(1));
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    for back in [0, 1, 4_000_000, 2 * SECOND] {
        flood_newcomers(&mut program, sizes, back);
    }
}

/// Sends a flood whose clock is `back` nanoseconds behind.
fn flood_newcomers(program: &mut TestProgram, sizes: Sizes, back: u64) {
    program.at(NOW).unwrap();
    program.forget().unwrap();
    program.crowd().unwrap();
    let own = |number: u8| [192, 0, 2, number];
    for number in 0..200 {
        assert_eq!(program.run(&udp(own(number))).unwrap(), Verdict::Pass, "{number}");
    }
    let mut flood = Flood::new();
    for number in 0..(part(32) as u32).max(2) * sizes.sources {
        program.at(NOW - back + u64::from(number) * 10_000).unwrap();
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
    }
    for number in 0..200 {
        // Some sources found no probation slot and got an entry at once.
        let newcomer = program.maps().newcomer(&Address::v4(own(number))).unwrap();
        assert!(newcomer.is_some() || has_entry(program, own(number)), "{number} is forgotten");
    }
    program.check_accounts().unwrap();
}

/// When every entry owes, mostly sources on probation are evicted. A source that goes on sending gets an
/// entry in the end, even if about eight others in its set evict its record between two packets.
#[test]
fn where_all_owe_a_source_that_goes_on_sending_is_held() {
    const BURST: u32 = 5;
    let sizes = Sizes { overrides: 8, ..smallest() };
    let limits = policy(&[(Builtin::Source, tokens(BURST.into()))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let (mut flood, mut made_up) = (Flood::new(), 0..);
    let mut flood = |program: &mut TestProgram, packets: u32| {
        for number in made_up.by_ref().take(packets as usize) {
            assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
        }
    };
    flood(&mut program, 6 * sizes.sources);
    let before = program.maps().table_stats().unwrap();
    flood(&mut program, 8 * sizes.sources);
    let after = program.maps().table_stats().unwrap();
    let (entries, owing) =
        (after.inserted - before.inserted, after.evicted_owing - before.evicted_owing);
    assert_eq!(after.untracked - before.untracked + entries, u64::from(8 * sizes.sources));
    assert_eq!(owing, u64::from(8 * sizes.sources), "each comes for another");
    let expected = u64::from(8 * sizes.sources / HELD_OF);
    assert!((expected / 2..2 * expected).contains(&entries), "{entries} entries");

    // The probability that the source has no entry after so many packets is 10^-11.
    let frame = udp(A);
    let mut admitted = 0;
    while program.run(&frame).unwrap() == Verdict::Pass {
        admitted += 1;
        assert!(admitted < BURST + 25 * HELD_OF, "it is never held");
        flood(&mut program, sizes.sources / 2);
    }
    assert!(admitted >= BURST, "{admitted} of its burst");
    for _ in 0..10 {
        flood(&mut program, sizes.sources);
        // The refusal comes from the entry, not from a CPU cache.
        assert!(has_entry(&program, A), "it is forgotten");
        assert_eq!(program.run(&frame).unwrap(), Verdict::Drop);
    }
    program.check_accounts().unwrap();
}

/// A blocked source stays blocked without an entry, also for packets that its limit does not match.
#[test]
fn a_block_holds_for_a_source_without_an_entry() {
    let penalty = Penalty { unproven: Unproven::Block, ..Penalty::new(1, 600 * SECOND) };
    let opens = Limit {
        count: Count::Syns,
        penalty: Some(penalty),
        ..limit("opens", &[KeyPart::Source], tokens(1))
    };
    let packets = limit("packets", &[KeyPart::Source], tokens(100));
    let network = limit("network", &[NETWORK], tokens(50));
    for more in [vec![], vec![network]] {
        let is_alone = more.is_empty();
        let mut program =
            crowded(&policy_of([vec![opens.clone(), packets.clone()], more].concat()));
        for step in 0..4 {
            program.at(NOW + step * SECOND).unwrap();
            program.run_many(&syn(A), 3).unwrap();
        }
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Drop);
        // The entry is evicted; the record of the offence remains.
        program.crowd().unwrap();
        assert!(!has_entry(&program, A));
        // It blocks the source also where its network has nothing left.
        let passed = program.run_many(&udp([192, 0, 2, 9]), 99).unwrap();
        assert!(is_alone == (passed == 99), "{passed} passed");
        let blocked = counted(&program, Reason::Penalty);
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Drop);
        assert_eq!(counted(&program, Reason::Penalty), blocked + 1);
    }
}

/// Idle entries keep their totals: one packet from each new source is no reason to evict them.
#[test]
fn sources_of_a_single_packet_take_nobodys_entry() {
    let sizes = smallest();
    let mut program = small(&policy(&[(Builtin::Source, per_second(1_000_000, 20))]), Clock::Test);
    assert_eq!(program.run_many(&udp(A), 5).unwrap(), 5);
    let before = program.source(&Address::v4(A)).unwrap();
    let mut flood = Flood::new();
    for number in 0..(part(64) as u32).max(4) * sizes.sources {
        program.at(NOW + u64::from(number) * 10_000).unwrap();
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
    }
    assert_eq!(program.source(&Address::v4(A)).unwrap(), before);
    program.check_accounts().unwrap();
}

/// Debts of first packets that find no probation slot are noted, so that the next source need not read the
/// entries.
#[test]
fn what_is_owed_for_a_first_packet_is_noted_where_it_has_no_place() {
    let sizes = smallest();
    let mut program = small(&policy(&[(Builtin::Source, tokens(2))]), Clock::Test);
    assert_eq!(program.noted(NOW).unwrap(), 0);
    let mut flood = Flood::new();
    for number in 0..4 * sizes.sources {
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
    }
    assert_eq!(program.noted(NOW).unwrap(), sizes.sources as usize);
    // The note is valid for some seconds, because the policy may change.
    assert_eq!(program.noted(NOW + 10 * SECOND).unwrap(), 0);
}

/// Packets of listed sources are allowed or denied without an entry, so a flood of them evicts no source that
/// owes. While entries are free, some of these sources get one, so that the busiest are visible.
#[test]
fn who_is_listed_has_nobody_forgotten_who_owes() {
    let mut limits = policy(&[(Builtin::Source, tokens(5))]);
    limits.deny.push(lists::entry("100.64.0.0/10", None));
    limits.allow.push(lists::entry("172.16.0.0/12", None));
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut made_up = Flood::new();
    for number in 0..6 * sizes.sources {
        program.run(made_up.frame(number)).unwrap();
    }
    let packets = 4 * sizes.sources;
    let flood = |program: &mut TestProgram| {
        let mut passed = [0; 2];
        for number in 0..packets {
            let [_, _, c, d] = number.to_be_bytes();
            for (first, passed) in [[100, 64], [172, 16]].into_iter().zip(&mut passed) {
                let verdict = program.run(&udp([first[0], first[1], c, d])).unwrap();
                *passed += u32::from(verdict == Verdict::Pass);
            }
        }
        (passed, program.maps().table_stats().unwrap())
    };
    let before = program.maps().table_stats().unwrap();
    assert_eq!(flood(&mut program), ([0, packets], before));
    program.split().unwrap().1.switch_monitor(true).unwrap();
    assert_eq!(flood(&mut program), ([packets, packets], before));
    program.split().unwrap().1.switch_monitor(false).unwrap();
    let [denied, allowed, monitored] =
        [Reason::Deny, Reason::Allow, Reason::Monitor].map(|reason| counted(&program, reason));
    assert_eq!([denied, allowed, monitored], [1, 2, 1].map(|times| times * u64::from(packets)));

    // All sources have paid their debts.
    program.at(NOW + 600 * SECOND).unwrap();
    let (passed, after) = flood(&mut program);
    assert_eq!(passed, [0, packets]);
    let entries = after.inserted - before.inserted;
    let expected = u64::from(2 * packets / HELD_OF);
    assert!((expected / 2..2 * expected).contains(&entries), "{entries} entries");
    assert_eq!(
        after,
        TableStats {
            inserted: after.inserted,
            evicted_idle: before.evicted_idle + entries,
            ..before
        }
    );
    program.check_accounts().unwrap();
}

/// A first packet that is charged to no limit evicts nothing.
#[test]
fn a_first_packet_that_owes_nothing_has_nobody_forgotten() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let web = Match { ports: vec![443..=443], ..Match::default() };
    let limit = limit("web", &[KeyPart::Source], tokens(5));
    let mut program =
        TestProgram::new(sizes, &policy_of([Limit { matching: web, ..limit }]), Clock::Test)
            .unwrap();
    program.at(NOW).unwrap();
    let mut sources = (0_u32..).map(|number| {
        let [_, b, c, d] = number.to_be_bytes();
        [10, b, c, d]
    });
    let mut flood = |program: &mut TestProgram, packets: u32, port| {
        for source in sources.by_ref().take(packets as usize) {
            let frame = Frame::tcp(source, [198, 51, 100, 1], 40_000, port, SYN).build();
            assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
        }
        program.maps().table_stats().unwrap()
    };
    let before = flood(&mut program, 6 * sizes.sources, 443);
    let after = flood(&mut program, 4 * sizes.sources, 80);
    let newcomers = before.untracked + u64::from(4 * sizes.sources);
    assert_eq!(after, TableStats { untracked: newcomers, ..before });
    program.check_accounts().unwrap();
}

/// A first packet needs no entry even if a penalty or a new connection has to be recorded.
#[test]
fn a_first_packet_takes_no_entry_for_a_penalty_or_a_new_connection() {
    let penalty = Penalty { unproven: Unproven::Block, ..Penalty::new(1, SECOND) };
    let packets = limit("packets", &[KeyPart::Source], tokens(2));
    let opens = Limit { count: Count::Connections, ..packets.clone() };
    let packets = Limit { penalty: Some(penalty), ..packets };
    for (limit, repeated) in [(packets, Verdict::Drop), (opens, Verdict::Pass)] {
        let mut program = crowded(&policy_of([limit]));
        assert_eq!(program.run(&syn(A)).unwrap(), Verdict::Pass);
        assert!(!has_entry(&program, A));
        // Other packets, which take the second token and part of the next; then the first packet again.
        program.at(NOW + 2 * SECOND).unwrap();
        let other = Frame::tcp(A, [198, 51, 100, 1], 40_001, 443, SYN).build();
        assert_eq!(program.run_many(&other, 3).unwrap(), 2);
        assert!(has_entry(&program, A));
        assert_eq!(program.run(&syn(A)).unwrap(), repeated);
        program.check_accounts().unwrap();
    }
}

/// A SYN that a limit with another key admitted is known again as well when its source had no entry.
#[test]
fn a_repeated_syn_of_a_source_without_an_entry_is_charged_to_its_network_once() {
    let opens = Limit { count: Count::Connections, ..limit("network", &[NETWORK], tokens(2)) };
    let packets = limit("packets", &[KeyPart::Source], tokens(10));
    for limits in [vec![opens.clone()], vec![opens, packets]] {
        let mut program = crowded(&policy_of(limits));
        assert_eq!(program.run(&syn(A)).unwrap(), Verdict::Pass);
        assert!(!has_entry(&program, A));
        program.at(NOW + SECOND).unwrap();
        assert_eq!(program.run(&syn(A)).unwrap(), Verdict::Pass);
        let other = Frame::tcp([192, 0, 2, 77], [198, 51, 100, 1], 40_001, 443, SYN).build();
        assert_eq!(
            program.run_many(&other, 3).unwrap(),
            2,
            "the first token is back, the other still there"
        );
        program.check_accounts().unwrap();
    }
}

/// What a source on probation owes refuses its next packet before a limit with another key is asked.
#[test]
fn the_limit_of_the_source_refuses_what_its_network_would_refuse_too() {
    let limits =
        [limit("source", &[KeyPart::Source], tokens(1)), limit("network", &[NETWORK], tokens(1))];
    let mut program = crowded(&policy_of(limits));
    assert_eq!(program.run_many(&udp(A), 3).unwrap(), 1);
    let refused = program.maps().snapshot(&[]).unwrap().limits.into_iter();
    let refused: Vec<_> = refused.map(|it| (it.name, it.tally.exceed.packets)).collect();
    assert_eq!(refused[refused.len() - 2..], [("source".into(), 2), ("network".into(), 0)]);
}

/// Who sends many packets that a limit with another key refuses has an entry at last, so that the refusals are told of.
#[test]
fn who_is_refused_by_another_key_is_known_when_he_sends_on() {
    let limits =
        [limit("source", &[KeyPart::Source], tokens(100)), limit("network", &[NETWORK], tokens(1))];
    let mut program = crowded(&policy_of(limits));
    assert_eq!(program.run(&udp([192, 0, 2, 77])).unwrap(), Verdict::Pass);
    assert!(!has_entry(&program, A));
    assert_eq!(program.run_many(&udp(A), 20 * HELD_OF).unwrap(), 0);
    assert!(has_entry(&program, A));
    program.check_accounts().unwrap();
}

/// Sends this packet from one source after the other to a [`small`] instance, until the first packet of one brings it an
/// entry, as the places of probation are taken. Returns how many there were; the packet is of the last one.
fn enter(program: &mut TestProgram, frame: &mut [u8]) -> u64 {
    let mut numbers = 0..smallest().sources / 2;
    let entered = numbers.find(|number| {
        let source = Flood::address(*number);
        assert!(set_source(frame, source));
        assert_eq!(program.run(frame).unwrap(), Verdict::Pass);
        has_entry(program, source)
    });
    // Of half as many sources as there is room for, some have no place.
    u64::from(entered.unwrap()) + 1
}

/// What a limit admitted, refused, and would have refused.
fn tally_of(program: &TestProgram, name: &str) -> [u64; 3] {
    let limits = program.maps().snapshot(&[]).unwrap().limits;
    let LimitStatistics { tally, .. } = limits.into_iter().find(|it| it.name == name).unwrap();
    [tally.conform, tally.exceed, tally.monitored].map(|it| it.packets)
}

/// The packet is charged once to limits of the source and to others, whether or not they drop.
#[test]
fn a_first_packet_is_charged_to_the_entry_that_it_brings() {
    for (mode, own, other) in [
        (GlobalMode::Enforce, 3, None),
        (GlobalMode::Enforce, 3, Some(4)),
        (GlobalMode::Enforce, 4, Some(3)),
        (GlobalMode::Monitor, 3, Some(4)),
        (GlobalMode::Monitor, 4, Some(3)),
    ] {
        let mut limits = vec![limit("own", &[KeyPart::Source], tokens(own))];
        limits.extend(other.map(|other| limit("other", &[EACH], tokens(other))));
        let mut policy = policy_of(limits);
        policy.mode = mode;
        let mut frame = udp(A);
        let mut program = small(&policy, Clock::Test);
        let sent = enter(&mut program, &mut frame);
        assert!(sent > 1, "{mode:?}, {own}, {other:?}: the first one had no place of probation");
        program.run_many(&frame, 9).unwrap();
        let refused = match mode {
            GlobalMode::Enforce => [sent + 2, 7, 0],
            GlobalMode::Monitor => [sent + 2, 0, 7],
        };
        let admitted = [sent + 2, 0, 0];
        let expected = if own == 3 { [refused, admitted] } else { [admitted, refused] };
        assert_eq!(tally_of(&program, "own"), expected[0], "{mode:?}, {own}, {other:?}");
        if other.is_some() {
            assert_eq!(tally_of(&program, "other"), expected[1], "{mode:?}, {own}, {other:?}");
        }
        program.check_accounts().unwrap();
    }
}

/// A SYN that brings an entry is known when it is repeated.
#[test]
fn a_syn_that_brings_an_entry_is_charged_once() {
    let opens = |name, key| Limit { count: Count::Connections, ..limit(name, &[key], tokens(2)) };
    let policy = policy_of([opens("own", KeyPart::Source), opens("other", EACH)]);
    let mut frame = syn(A);
    let mut program = small(&policy, Clock::Test);
    let sent = enter(&mut program, &mut frame);
    program.at(NOW + SECOND).unwrap();
    assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
    for name in ["own", "other"] {
        assert_eq!(tally_of(&program, name), [sent, 0, 0], "{name}");
    }
}

/// What a first packet owes is noted of the entry that it brings, and not of the next one that is made.
#[test]
fn what_a_first_packet_owes_is_noted_of_its_own_entry() {
    let mut policy = policy(&[(Builtin::Source, tokens(2))]);
    policy.allow.push(lists::entry("192.0.2.0/24", None));
    let mut frame = udp(A);
    let mut program = small(&policy, Clock::Test);
    enter(&mut program, &mut frame);
    assert_eq!(program.noted(NOW).unwrap(), 1);
    // One of some sixteen brings its source an entry.
    let allowed = udp(A);
    let many = 100 * HELD_OF;
    assert!((0..many).any(|_| {
        program.run(&allowed).unwrap();
        has_entry(&program, A)
    }));
    assert_eq!(program.noted(NOW).unwrap(), 1);
}

/// A source that enters late in a jiffy is given its whole burst in it, as others are.
#[test]
fn a_first_packet_is_charged_at_the_time_of_its_jiffy() {
    const TICK: u64 = 4_000_000;
    let policy = policy(&[(Builtin::Source, per_second(1_000, 32))]);
    let mut frame = udp(A);
    let mut program = small(&policy, Clock::Ticking(TICK));
    program.stand_still(TICK, TICK - 1).unwrap();
    enter(&mut program, &mut frame);
    assert_eq!(program.run_many(&frame, 99).unwrap(), 31);
}

/// The report of `limiter get`.
#[test]
fn the_inquiry_knows_of_the_first_packet() {
    let mut program = crowded(&policy(&[(Builtin::Source, tokens(3))]));
    program.run(&udp(A)).unwrap();
    let report =
        Inquiry::new(program.maps(), NOW).unwrap().source(IpAddr::from(A).into(), NOW).unwrap();
    let text = format!("{report:?}");
    assert!(text.contains("packets: 1,"), "{text}");
}

/// A limit that stays keeps the charge of the first packet; a new limit in its place starts full.
#[test]
fn a_change_of_policy_keeps_what_a_newcomer_owes() {
    let named = |name: &str| limit(name, &[KeyPart::Source], tokens(3));
    let before = policy_of([named("kept")]);
    let changes = [
        (policy_of([named("kept"), named("new")]), 2),
        (policy_of([named("new")]), 3),
        (policy_of([named("new"), named("kept")]), 2),
    ];
    let mut program = crowded(&before);
    for (number, (after, left)) in changes.into_iter().enumerate() {
        program.forget().unwrap();
        program.apply(&before).unwrap();
        program.crowd().unwrap();
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
        program.apply(&after).unwrap();
        assert_eq!(program.run_many(&udp(A), 9).unwrap(), left, "change {number}");
    }
}

/// An IPv6 source keyed by more than 64 bits gets an entry with its first packet.
#[test]
fn a_source_of_a_whole_ipv6_address_is_known_from_its_first_packet() {
    let address = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7];
    let mut limits = policy(&[(Builtin::Source, tokens(3))]);
    let mut program = crowded(&limits);
    for (length, known) in [(64, false), (128, true)] {
        limits.set_key_prefix(KeyPrefix { ipv4: 32, ipv6: length }).unwrap();
        program.apply(&limits).unwrap();
        program.forget().unwrap();
        program.crowd().unwrap();
        assert_eq!(program.run(&udp(address)).unwrap(), Verdict::Pass);
        let mut key = address;
        if length == 64 {
            key[7] = 0;
        }
        assert_eq!(has_entry(&program, key), known, "/{length}");
        assert_eq!(program.run_many(&udp(address), 9).unwrap(), 2, "/{length}");
    }
}

/// Two CPUs meet at each new source, each with a first packet.
#[test]
fn of_two_first_packets_one_gets_the_only_token() {
    let sources = part(10_000) as u32;
    let source = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
    let sizes = Sizes { sources: 1 << 17, ..SMALL };
    let limits = policy(&[(Builtin::Source, tokens(1)), (Builtin::Syn, tokens(1))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    program.crowd().unwrap();
    meet(&mut program, sources, |number| syn(source(number)));
    check_contended(&program, 20);
    let late: u64 =
        (0..sources).map(|number| program.run_many(&syn(source(number)), 1).unwrap()).sum();
    assert_eq!(program.passed().unwrap(), u64::from(sources), "{late} of them late");
    program.check_accounts().unwrap();
}
