//! Leases: packets that a CPU charges in advance for a busy source. Each packet is charged before it passes;
//! leases that a CPU does not use in time are lost.

use std::{
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use limiter_common::{
    abi::table::Source,
    algorithm::{
        gcra::Gcra,
        rate::{Rate, SECOND},
    },
    base::{address::Address, tally::Tally},
    memory::cache::Cached,
    packet::reason::Reason,
};
use limiter_tests::program::{Clock, SMALL, Sizes, TestProgram, Verdict, pin_to_cpu, two_cpus};
use limiter_userspace::{
    policy::{
        Builtin, Policy,
        model::{Allowance, GlobalMode, KeyPart, Listed},
    },
    query::{Inquiry, limit::Kept},
};

use super::{
    NOW, counted,
    cpus::on_two_cpus,
    define::{limit, policy_of, within},
    limit_tallies,
    lists::entry,
    part,
    penalties::PENALTY,
    per_second, policy, source_word, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    udp,
};

pub(super) const TICK: u64 = 4_000_000;
pub(super) const A: [u8; 4] = [192, 0, 2, 1];
pub(super) const RATE: u64 = 100_000;
pub(super) const BURST: u64 = 120_000;
/// Packets in a tick that make a source lease as many at once as any source does.
const MANY: u64 = 96;

/// A program with ticks, on one CPU.
pub(super) fn ticking(policy: &Policy) -> TestProgram {
    stay();
    let mut program = TestProgram::new(SMALL, policy, Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    program
}

/// Pins the thread to one CPU, because each CPU has leases of its own.
fn stay() {
    // With a single CPU, the thread stays there anyway.
    if let Ok([cpu, _]) = two_cpus() {
        pin_to_cpu(cpu).unwrap();
    }
}

pub(super) fn ample() -> Policy {
    policy(&[(Builtin::Source, per_second(RATE, BURST))])
}

fn bucket() -> Gcra {
    Rate::per_second(RATE).bucket(BURST, 1).unwrap()
}

/// Runs a frame `packets` times; all have to pass.
pub(super) fn pass(program: &mut TestProgram, frame: &[u8], packets: u64) {
    assert_eq!(program.run_many(frame, packets as u32).unwrap(), packets);
}

fn source(program: &TestProgram) -> Source {
    program.source(&Address::v4(A)).unwrap().unwrap()
}

/// The packets charged to a limit of the source whose rate is that of the first limit.
fn charged_to(program: &TestProgram, limit: Builtin) -> u64 {
    let word = source_word(program, limit, A.into());
    bucket().spent(word, NOW) / bucket().interval
}

/// The packets charged to the first limit of the source, if no time has passed.
fn charged(program: &TestProgram) -> u64 {
    bucket().spent(source(program).words[0], NOW) / bucket().interval
}

#[test]
fn one_packet_of_many_is_charged_for_those_that_follow() {
    let mut program = ticking(&ample());
    let frame = udp(A);
    let (mut left, mut longest) = (0, 0);
    for passed in 1..=2 * MANY {
        pass(&mut program, &frame, 1);
        let before = left;
        left = charged(&program) - passed;
        // A packet uses one of the leases, or leases more.
        assert!(left + 1 == before || before == 0 && left <= passed / 4, "{left} after {passed}");
        longest = longest.max(left + 1);
        let bytes = passed * frame.len() as u64;
        assert_eq!(source(&program).passed, Tally { packets: passed, bytes });
    }
    assert_eq!(longest, Cached::MOST_LEASED);
    assert_eq!(program.tally(Builtin::Source.name()).unwrap().conform.packets, 2 * MANY);
    program.check_accounts().unwrap();
}

/// Packets that no limit is about are counted by the CPU, and the entry is told of several at once; none is lost, and a
/// packet that a limit is about is charged all the same.
#[test]
fn packets_that_no_limit_is_about_are_counted_by_the_cpu() {
    let syns = per_second(RATE, BURST);
    for policy in [policy(&[]), policy(&[(Builtin::Syn, syns)])] {
        let mut program = ticking(&policy);
        let (frame, key) = (udp(A), Address::v4(A));
        let mut most = 0;
        for passed in 1..=2 * MANY {
            pass(&mut program, &frame, 1);
            let bytes = passed * frame.len() as u64;
            assert_eq!(source(&program).passed, Tally { packets: passed, bytes });
            most = most.max(program.maps().outstanding_of(&key).unwrap().passed.packets);
        }
        assert_eq!(most, Cached::MOST_LEASED - 1, "the entry was told of each");
        // It is denied from the next packet on.
        let mut denying = policy.clone();
        denying.deny.push(entry("192.0.2.1/32", None));
        program.apply(&denying).unwrap();
        assert_eq!(program.run(&frame).unwrap(), Verdict::Drop);
        program.apply(&policy).unwrap();
        for _ in 0..MANY {
            pass(&mut program, &syn(A), 1);
        }
        if !policy.limits.is_empty() {
            assert!(charged_to(&program, Builtin::Syn) >= MANY);
        }
        program.check_accounts().unwrap();
    }
}

/// The most packets of a source that its entry is not told of while so many pass.
fn most_outstanding(program: &mut TestProgram, frame: &[u8]) -> u64 {
    let outstanding = |_| {
        pass(program, frame, 1);
        program.maps().outstanding_of(&Address::v4(A)).unwrap().passed.packets
    };
    (0..2 * MANY).map(outstanding).max().unwrap()
}

/// After a push, packets of other sources are leased as before. What was leased before a source is blocked may pass.
#[test]
fn a_push_costs_nobody_else_the_leases() {
    let syns = per_second(RATE, BURST);
    for policy in [policy(&[]), ample(), policy(&[(Builtin::Syn, syns)])] {
        let mut program = ticking(&policy);
        let mut pusher = program.pusher().unwrap();
        let until = NOW + 10 * SECOND;
        pusher.push(IpAddr::from([198, 51, 100, 1]), until).unwrap();
        assert_eq!(most_outstanding(&mut program, &udp(A)), Cached::MOST_LEASED - 1);
        pusher.push(A.into(), until).unwrap();
        let passed = program.run_many(&udp(A), 2 * MANY as u32).unwrap();
        assert!(passed < Cached::MOST_LEASED, "{passed} packets pass a block");
        program.check_accounts().unwrap();
    }
}

/// Where a limit may block the source, nothing of it is leased, and it takes no slot from others.
#[test]
fn who_may_be_blocked_by_a_limit_leases_nothing() {
    let mut policy = policy(&[(Builtin::Syn, per_second(RATE, BURST))]);
    policy.limits[0].penalty = Some(PENALTY);
    let mut program = ticking(&policy);
    assert_eq!(most_outstanding(&mut program, &udp(A)), 0);
    assert!(program.maps().cached(&Address::v4(A)).unwrap().is_empty(), "it has a slot");
    program.check_accounts().unwrap();
}

/// The inquiry reports what the limit has left, without what a CPU has leased.
#[test]
fn what_is_leased_is_used() {
    let mut program = ticking(&ample());
    for packets in [1, MANY, 7] {
        pass(&mut program, &udp(A), packets);
        let mut inquiry = Inquiry::new(program.maps(), NOW).unwrap();
        let report = inquiry.source(IpAddr::from(A).into(), NOW).unwrap();
        let used = match &report.limits[0].kept {
            Kept::One(Some(fill)) => fill.used,
            kept => panic!("{kept:?}"),
        };
        assert_eq!(used, charged(&program));
        assert_eq!(report.passed, source(&program).passed);
    }
}

#[test]
fn the_burst_is_admitted_at_once_and_not_a_packet_more_or_less() {
    let strict = Allowance::LeakyBucket { rate: Rate::per_second(RATE), depth: BURST };
    let policies = [ample(), policy_of([limit("source", &[KeyPart::Source], strict)])];
    for policy in &policies {
        let tallies = [Clock::Ticking(TICK), Clock::Test].map(|clock| {
            let mut program = TestProgram::new(SMALL, policy, clock).unwrap();
            program.at(NOW).unwrap();
            assert_eq!(program.run_many(&udp(A), 2 * BURST as u32).unwrap(), BURST);
            program.check_accounts().unwrap();
            program.tally(Builtin::Source.name()).unwrap()
        });
        // The packets that leave the limit near are counted exactly, too.
        assert_eq!(tallies[0], tallies[1]);
    }
}

/// Two CPUs lease from the same burst.
#[test]
fn the_burst_is_admitted_once_by_two_cpus() {
    for _ in 0..part(8) {
        let mut program = TestProgram::new(SMALL, &ample(), Clock::Ticking(TICK)).unwrap();
        program.at(NOW).unwrap();
        on_two_cpus(&mut program, |runner, _| {
            for _ in 0..10 {
                runner.run_many(&udp(A), BURST as u32 / 5).unwrap();
            }
        });
        assert_eq!(counted(&program, Reason::Conform), BURST);
        assert_eq!(source(&program).passed.packets, BURST);
        program.check_accounts().unwrap();
    }
}

/// A lease is valid in its tick and in the next one.
#[test]
fn what_is_not_used_in_time_is_lost() {
    for (ticks, is_lost) in [(0, false), (1, false), (2, true), (3, true), (1_000_000, true)] {
        let mut program = ticking(&ample());
        pass(&mut program, &udp(A), MANY);
        while charged(&program) == source(&program).passed.packets {
            pass(&mut program, &udp(A), 1);
        }
        let (before, passed) = (source(&program).words[0], source(&program).passed.packets);
        program.at(NOW + ticks * TICK).unwrap();
        pass(&mut program, &udp(A), 1);
        let is_charged = source(&program).words[0] != before;
        assert_eq!(is_charged, is_lost, "{ticks} ticks later");
        assert_eq!(source(&program).passed.packets, passed + 1);
        program.check_accounts().unwrap();
    }
}

/// Leases from before a rest do not add to the burst after it.
#[test]
fn a_rest_brings_the_burst_and_not_a_packet_more() {
    let mut program = ticking(&ample());
    let (frame, mut now) = (udp(A), NOW);
    for rest in [2 * SECOND, 3_600 * SECOND, 86_400 * SECOND] {
        pass(&mut program, &frame, MANY);
        now += rest;
        program.at(now).unwrap();
        assert_eq!(program.run_many(&frame, 2 * BURST as u32).unwrap(), BURST);
        now += 2 * SECOND;
        program.at(now).unwrap();
    }
    program.check_accounts().unwrap();
}

/// Nothing is leased without ticks, when a tick is too long for the burst, or when the limit is precise.
#[test]
fn who_is_to_be_exact_to_the_packet_leases_nothing() {
    let exact = (ample(), Clock::Test);
    let short = policy(&[(Builtin::Source, per_second(RATE, 8 * RATE * TICK / SECOND - 1))]);
    let mut precise = ample();
    precise.limits.iter_mut().for_each(|limit| limit.precise = true);
    for (policy, clock) in [exact, (short, Clock::Ticking(TICK)), (precise, Clock::Ticking(TICK))] {
        let mut program = TestProgram::new(SMALL, &policy, clock).unwrap();
        program.at(NOW).unwrap();
        for passed in 1..=2 * MANY {
            pass(&mut program, &udp(A), 1);
            assert_eq!(charged(&program), passed, "{clock:?}");
        }
    }
}

/// Leased packets of one kind were charged to exactly the limits that match this kind.
#[test]
fn a_limit_of_some_packets_is_charged_with_those_alone() {
    let syns = per_second(10, 200);
    let ample = per_second(RATE, BURST);
    let mut program = ticking(&policy(&[(Builtin::Source, ample), (Builtin::Syn, syns)]));
    let mut passed = [0; 2];
    for round in 0..3 * syns.burst {
        for (passed, frame) in passed.iter_mut().zip([syn(A), udp(A)]) {
            *passed += u64::from(program.run(&frame).unwrap() == Verdict::Pass);
        }
        let all = passed[0] + passed[1];
        // Each of the two kinds of packets has some leases.
        let leased = charged_to(&program, Builtin::Source) - all;
        assert!(leased <= 2 * (Cached::MOST_LEASED - 1), "round {round}: {leased}");
    }
    assert_eq!(passed, [syns.burst, 3 * syns.burst]);
    let [of_syns, of_all, _] = limit_tallies(&program).map(|tally| tally.conform.packets);
    assert_eq!((of_syns, of_all), (passed[0], passed[0] + passed[1]));
    program.check_accounts().unwrap();
}

#[test]
fn all_limits_are_leased_from_by_the_one_that_has_least_to_spare() {
    let rate = Rate::per_second(RATE);
    let of =
        |name: &str, burst| limit(name, &[KeyPart::Source], Allowance::TokenBucket { rate, burst });
    for (bursts, most) in [([BURST, 60_000], 16), ([BURST, 640], 0), ([BURST, 4_000], 16)] {
        let mut program = ticking(&policy_of([of("one", bursts[0]), of("other", bursts[1])]));
        let mut longest = 0;
        for passed in 1..=MANY {
            pass(&mut program, &udp(A), 1);
            let charged = source(&program).words.map(|word| bucket().spent(word, NOW));
            assert_eq!(charged[0], charged[1], "{bursts:?}");
            longest = longest.max(charged[0] / bucket().interval - passed);
        }
        assert_eq!(longest, most - u64::from(most != 0), "{bursts:?}");
        let passed = program.run_many(&udp(A), 2 * BURST as u32).unwrap();
        assert_eq!(passed + MANY, bursts[1]);
    }
}

/// Leases made under one policy are not valid under another, and are lost.
#[test]
fn a_change_of_the_policy_ends_what_is_leased() {
    let mut program = ticking(&ample());
    let frame = udp(A);
    let mut other = ample();
    let mut lost = 0;
    for change in 0..5 {
        pass(&mut program, &frame, MANY);
        other.deny.push(entry(&format!("10.0.{change}.0/24"), None));
        program.apply(&other).unwrap();
        pass(&mut program, &frame, 1);
        let passed = source(&program).passed.packets;
        let now_lost = charged(&program) - passed;
        assert!(now_lost < lost + Cached::MOST_LEASED, "{now_lost} after {lost}");
        lost = now_lost;
    }
    program.check_accounts().unwrap();
}

#[test]
fn what_is_leased_does_not_save_who_is_denied_nor_outlives_the_entry() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    stay();
    let mut program = TestProgram::new(sizes, &ample(), Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    let (frame, mut flood) = (udp(A), Flood::new());
    pass(&mut program, &frame, MANY);
    let mut denied = ample();
    denied.deny.push(entry("192.0.2.1/32", None));
    program.apply(&denied).unwrap();
    assert_eq!(program.run(&frame).unwrap(), Verdict::Drop);
    program.apply(&ample()).unwrap();
    pass(&mut program, &frame, MANY);
    // An idle source is evicted.
    let mut now = NOW;
    for round in 0..1_000 {
        now += 10 * SECOND;
        program.at(now).unwrap();
        for number in 0..2 * sizes.sources {
            pass(&mut program, flood.frame(number), 2);
        }
        if !has_entry(&program, A) {
            break;
        }
        assert!(round < 999, "it keeps its entry");
    }
    program.check_accounts().unwrap();
}

/// In monitor mode all packets pass and are counted, including leases made before it was switched on.
#[test]
fn where_nothing_is_dropped_all_pass_and_are_counted() {
    let mut program = ticking(&Policy { mode: GlobalMode::Monitor, ..ample() });
    pass(&mut program, &udp(A), 2 * BURST);
    let tally = program.tally(Builtin::Source.name()).unwrap();
    assert_eq!((tally.conform.packets, tally.monitored.packets), (BURST, BURST));
    program.check_accounts().unwrap();
}

/// A limit on the network of the source, with or without a limit of its own.
fn with_network(own: Option<(u64, u64)>, burst: u64) -> Policy {
    let network = limit("network", &[within(24, 64)], per_second(RATE, burst));
    let own = own.map(|(rate, burst)| limit("own", &[KeyPart::Source], per_second(rate, burst)));
    policy_of(own.into_iter().chain([network]))
}

/// The packets charged to the bucket of the network, if no time has passed.
fn charged_to_network(program: &TestProgram, burst: u64) -> u64 {
    let bucket = Rate::per_second(RATE).bucket(burst, 1).unwrap();
    let words = program.buckets().unwrap().into_iter().map(|(_, state)| state.word);
    words.map(|word| bucket.spent(word, NOW) / bucket.interval).sum()
}

#[test]
fn packets_are_leased_from_a_limit_by_a_wider_key_too() {
    for own in [Some((RATE, BURST)), None] {
        let mut program = ticking(&with_network(own, BURST));
        let frame = udp(A);
        let mut leases = 0;
        let mut before = 0;
        for passed in 1..=2 * MANY {
            pass(&mut program, &frame, 1);
            let left = charged_to_network(&program, BURST) - passed;
            assert!(left + 1 == before || before == 0 && left <= passed / 4, "{left} at {passed}");
            leases += u64::from(before == 0 && left > 0);
            before = left;
            assert_eq!(source(&program).passed.packets, passed);
            assert_eq!(program.tally("network").unwrap().conform.packets, passed);
        }
        assert!(leases >= 5, "{leases} leases, own {own:?}");
        program.check_accounts().unwrap();
    }
}

/// However many sources of a network hold leases, the network gets its burst and no more, and loses at most a
/// quarter of it.
#[test]
fn what_sources_hold_of_a_wider_limit_is_within_it() {
    const BURST: u64 = 4_000;
    const SOURCES: u8 = 40;
    let mut program = ticking(&with_network(Some((RATE, 120_000)), BURST));
    let mut passed = 0;
    for round in 0..4 * BURST {
        let frame = udp([192, 0, 2, (round / 50 % u64::from(SOURCES)) as u8]);
        passed += program.run_many(&frame, 1).unwrap();
    }
    assert!((BURST - BURST / 4..=BURST).contains(&passed), "{passed} of {BURST}");
    let tally = program.tally("network").unwrap();
    assert_eq!((tally.conform.packets, tally.exceed.packets), (passed, 4 * BURST - passed));
    assert_eq!(
        program.tally("own").unwrap().conform.packets,
        passed,
        "a refused one is charged nowhere"
    );
    program.check_accounts().unwrap();
}

/// A refusal by the limit of a network is cached for the source for a while.
#[test]
fn what_a_wider_limit_refuses_is_remembered_and_counted() {
    const BURST: u64 = 4_000;
    let mut program = ticking(&with_network(None, BURST));
    let frame = udp(A);
    assert_eq!(program.run_many(&frame, 2 * BURST as u32).unwrap(), BURST);
    let held = program.maps().outstanding_of(&Address::v4(A)).unwrap();
    assert!(held != Default::default(), "the CPU remembers it");
    let tally = program.tally("network").unwrap();
    assert_eq!((tally.conform.packets, tally.exceed.packets), (BURST, BURST));
    assert_eq!(counted(&program, Reason::Exceed), BURST);
    // A tick later, the tokens of one tick are there.
    program.at(NOW + TICK).unwrap();
    let brought = RATE * TICK / SECOND;
    let passed = program.run_many(&frame, 2 * BURST as u32).unwrap();
    assert!((brought - 1..=brought + 1).contains(&passed), "{passed} of {brought}");
    program.check_accounts().unwrap();
}

/// An entry of a list that is over costs its source nothing: it leases as others do.
#[test]
fn whose_list_entry_is_over_leases_again() {
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1_000;
    for list in [
        |policy: &mut Policy, it| policy.deny.push(it),
        |policy: &mut Policy, it| policy.penalties.push(it),
    ] {
        let mut policy = ample();
        list(&mut policy, entry("192.0.2.1/32", Some(until)));
        let mut program = ticking(&policy);
        program.at(NOW + 1_000_000_000 * SECOND).unwrap();
        pass(&mut program, &udp(A), MANY);
        let mut charged = 0;
        for _ in 0..MANY {
            let before = source(&program).words;
            pass(&mut program, &udp(A), 1);
            charged += u64::from(source(&program).words != before);
        }
        assert!(charged < MANY / 2, "{charged} of {MANY}");
        program.check_accounts().unwrap();
    }
}

/// A list entry with an end holds for each packet of its source; leases of a wider limit do not skip it.
#[test]
fn who_is_listed_for_a_time_gets_no_lease() {
    type Of = fn(&mut Policy) -> &mut Vec<Listed>;
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1_000_000;
    let lists: [(Of, u64); 3] = [
        (|policy| &mut policy.deny, 0),
        (|policy| &mut policy.penalties, 0),
        (|policy| &mut policy.allow, 1_000),
    ];
    for (number, (list, passes)) in lists.into_iter().enumerate() {
        let mut policy = with_network(None, BURST);
        list(&mut policy).push(entry("192.0.2.1/32", Some(until)));
        let mut program = ticking(&policy);
        // Another source of the same network leases first.
        pass(&mut program, &udp([192, 0, 2, 7]), MANY);
        assert_eq!(program.run_many(&udp(A), 1_000).unwrap(), passes, "list {number}");
        assert_eq!(program.tally("network").unwrap().conform.packets, MANY, "list {number}");
        program.check_accounts().unwrap();
    }
}
