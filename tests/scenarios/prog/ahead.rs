//! Sources of many packets, which pay for some ahead: each is charged all the same, and nobody gains by it but
//! what was paid for.

use std::net::IpAddr;

use limiter_common::{
    address::Address,
    contract::{Source, Tally},
    gcra::Gcra,
    rate::{Rate, SECOND},
    reason::Reason,
    recent::Recent,
};
use limiter_tests::program::{Clock, SMALL, Sizes, TestProgram, Verdict};
use limiter_userspace::{
    inquiry::{Inquiry, limit::Kept},
    policy::{
        Builtin, Policy,
        model::{Allowance, GlobalMode, KeyPart},
    },
};

use super::{
    NOW, counted,
    cpus::on_two_cpus,
    define::{limit, policy_of},
    limit_tallies,
    lists::entry,
    part, per_second, policy, source_word, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    udp,
};

pub(super) const TICK: u64 = 4_000_000;
pub(super) const A: [u8; 4] = [192, 0, 2, 1];
pub(super) const RATE: u64 = 100_000;
pub(super) const BURST: u64 = 120_000;
/// A thousandth of the burst, without what is for credit, is twice that and what pays for it.
pub(super) const AHEAD: u64 = 29;

fn ticking(policy: &Policy) -> TestProgram {
    let mut program = TestProgram::new(SMALL, policy, Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    program
}

pub(super) fn ample() -> Policy {
    policy(&[(Builtin::Source, per_second(RATE, BURST))])
}

fn bucket() -> Gcra {
    Rate::per_second(RATE).bucket(BURST, 1).unwrap()
}

/// Runs one frame so many times, all of which pass.
pub(super) fn pass(program: &mut TestProgram, frame: &[u8], packets: u64) {
    assert_eq!(program.run_many(frame, packets as u32).unwrap(), packets);
}

fn source(program: &TestProgram) -> Source {
    program.source(&Address::v4(A)).unwrap().unwrap()
}

/// How many packets of the source are paid for.
fn paid(program: &TestProgram) -> u64 {
    Recent(source(program).recent).paid()
}

/// How many packets are charged to its first limit.
fn charged(program: &TestProgram, now: u64) -> u64 {
    bucket().spent(source(program).words[0], now) / bucket().interval
}

#[test]
fn one_packet_of_many_pays_for_those_that_follow() {
    let mut program = ticking(&ample());
    let frame = udp(A);
    pass(&mut program, &frame, Recent::KEPT);
    assert_eq!((paid(&program), charged(&program, NOW)), (0, Recent::KEPT));
    let mut passed = Recent::KEPT;
    for _ in 0..3 {
        for left in (0..=AHEAD).rev() {
            pass(&mut program, &frame, 1);
            passed += 1;
            assert_eq!(paid(&program), left);
            assert_eq!(charged(&program, NOW), passed + left);
            let bytes = passed * frame.len() as u64;
            assert_eq!(source(&program).passed, Tally { packets: passed, bytes });
        }
    }
    assert_eq!(program.tally(Builtin::Source.name()).unwrap().conform.packets, passed);
    program.check_accounts().unwrap();
}

/// Who asks what is left is told what would pass.
#[test]
fn what_is_paid_for_is_left() {
    let mut program = ticking(&ample());
    for packets in [1, Recent::KEPT, AHEAD / 2] {
        pass(&mut program, &udp(A), packets);
        let sent = source(&program).passed.packets;
        let mut inquiry = Inquiry::new(program.maps(), NOW).unwrap();
        let report = inquiry.source(IpAddr::from(A).into(), NOW).unwrap();
        let used = match &report.limits[0].kept {
            Kept::One(Some(fill)) => fill.used,
            kept => panic!("{kept:?}"),
        };
        assert_eq!(used, sent);
    }
    assert!(paid(&program) > 0);
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
        // Those that are near too.
        assert_eq!(tallies[0], tallies[1]);
    }
}

/// On two CPUs, whatever they take from each other.
#[test]
fn the_burst_is_admitted_once_by_two_cpus() {
    for _ in 0..part(8) {
        let mut program = ticking(&ample());
        on_two_cpus(&mut program, |runner, _| {
            for _ in 0..10 {
                runner.run_many(&udp(A), BURST as u32 / 5).unwrap();
            }
        });
        assert_eq!(counted(&program, Reason::Conform), BURST);
        assert_eq!(paid(&program), 0);
        program.check_accounts().unwrap();
    }
}

#[test]
fn what_was_paid_for_and_not_taken_is_all_that_a_rest_adds() {
    let mut program = ticking(&ample());
    let (frame, mut now) = (udp(A), NOW);
    for rest in [2 * SECOND, 3_600 * SECOND, 86_400 * SECOND] {
        // What pays is the last.
        loop {
            pass(&mut program, &frame, 1);
            if paid(&program) == AHEAD {
                break;
            }
        }
        now += rest;
        program.at(now).unwrap();
        assert_eq!(program.run_many(&frame, 2 * BURST as u32).unwrap(), BURST + AHEAD);
        now += 2 * SECOND;
        program.at(now).unwrap();
    }
    const { assert!(AHEAD <= BURST / Gcra::EXACT) };
    program.check_accounts().unwrap();
}

/// By the exact time, and where each of its packets is charged, as no tick may be trusted.
#[test]
fn who_is_to_be_exact_to_the_packet_pays_for_none_ahead() {
    let mut program = TestProgram::new(SMALL, &ample(), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    for passed in 1..=4 * Recent::KEPT {
        pass(&mut program, &udp(A), 1);
        assert_eq!((paid(&program), charged(&program, NOW)), (0, passed));
    }
}

/// A limit that is about some packets is charged with those alone, and these pay for themselves.
#[test]
fn packets_that_another_limit_is_about_pay_for_themselves() {
    let syns = per_second(10, 200);
    let ample = per_second(RATE, BURST);
    let mut program = ticking(&policy(&[(Builtin::Source, ample), (Builtin::Syn, syns)]));
    let mut passed = [0; 2];
    for round in 0..3 * syns.burst {
        for (passed, frame) in passed.iter_mut().zip([syn(A), udp(A)]) {
            *passed += u64::from(program.run(&frame).unwrap() == Verdict::Pass);
        }
        let all = passed[0] + passed[1];
        assert_eq!(charged_to(&program, Builtin::Source), all + paid(&program), "round {round}");
    }
    assert_eq!(passed, [syns.burst, 3 * syns.burst]);
    let [_, of_syns, of_all] = limit_tallies(&program).map(|tally| tally.conform.packets);
    assert_eq!((of_syns, of_all), (syns.burst, 4 * syns.burst));
    program.check_accounts().unwrap();
}

/// How many packets are charged to a limit of the source that refills as the first does.
fn charged_to(program: &TestProgram, limit: Builtin) -> u64 {
    let word = source_word(program, limit, A.into());
    bucket().spent(word, NOW) / bucket().interval
}

#[test]
fn all_limits_are_paid_ahead_by_the_one_that_has_least_to_spare() {
    let rate = Rate::per_second(RATE);
    let of =
        |name: &str, burst| limit(name, &[KeyPart::Source], Allowance::TokenBucket { rate, burst });
    for (bursts, ahead) in [([BURST, 60_000], 14), ([BURST, 36_000], 8), ([BURST, 10_000], 0)] {
        let mut program = ticking(&policy_of([of("one", bursts[0]), of("other", bursts[1])]));
        pass(&mut program, &udp(A), Recent::KEPT + 1);
        assert_eq!(paid(&program), ahead, "{bursts:?}");
        for word in &source(&program).words[..2] {
            let charged = bucket().spent(*word, NOW) / bucket().interval;
            assert_eq!(charged, Recent::KEPT + 1 + ahead, "{bursts:?}");
        }
        let passed = program.run_many(&udp(A), 2 * BURST as u32).unwrap();
        assert_eq!(passed + Recent::KEPT + 1, bursts[1]);
    }
}

/// What was paid for and not taken is given back with a change of the policy, whatever that is, and paid for anew by
/// the second packet after it: the first one brings the entry up to date.
#[test]
fn a_change_of_the_policy_gives_back_what_is_paid_for() {
    let mut program = ticking(&ample());
    let frame = udp(A);
    let mut passed = Recent::KEPT + 1;
    pass(&mut program, &frame, passed);
    let mut other = ample();
    for change in 0..5 {
        assert_eq!((paid(&program), charged(&program, NOW)), (AHEAD, passed + AHEAD));
        other.deny.push(entry(&format!("10.0.{change}.0/24"), None));
        program.apply(&other).unwrap();
        pass(&mut program, &frame, 1);
        passed += 1;
        assert_eq!((paid(&program), charged(&program, NOW)), (0, passed));
        pass(&mut program, &frame, 1);
        passed += 1;
    }
    // One change after the other: nobody knows any more under what it was paid for.
    for change in 5..7 {
        other.deny.push(entry(&format!("10.0.{change}.0/24"), None));
        program.apply(&other).unwrap();
    }
    pass(&mut program, &frame, 1);
    passed += 1;
    assert_eq!((paid(&program), charged(&program, NOW)), (0, passed + AHEAD));
    program.check_accounts().unwrap();
}

/// A limit that is changed again and again takes nothing of what is paid for, nor gives it twice.
#[test]
fn changes_of_a_limit_cost_nobody_what_is_paid_for() {
    let mut programs = [Clock::Ticking(TICK), Clock::Test].map(|clock| {
        let mut program = TestProgram::new(SMALL, &ample(), clock).unwrap();
        program.at(NOW).unwrap();
        pass(&mut program, &udp(A), Recent::KEPT);
        program
    });
    let limit_of = |burst| policy(&[(Builtin::Source, per_second(RATE, burst))]);
    let more = policy_of([
        limit("source", &[KeyPart::Source], per_second(RATE, BURST)),
        limit("more", &[KeyPart::Source], per_second(RATE, 36_000)),
    ]);
    // The second has the depth of the first, and packets that cost half as much.
    let others = [
        limit_of(BURST / 2),
        policy(&[(Builtin::Source, per_second(2 * RATE, 2 * BURST))]),
        more,
        limit_of(BURST + 1_000),
    ];
    for change in 0..part(200) as usize {
        let policy = if change % 2 == 0 { &others[change / 2 % others.len()] } else { &ample() };
        for program in &mut programs {
            program.apply(policy).unwrap();
            pass(program, &udp(A), 2 + change as u64 % 40);
        }
        let paid = paid(&programs[0]);
        let word = |at: usize| source(&programs[at]).words[0];
        let by_one = match change % 8 {
            2 => bucket().interval / 2,
            _ => bucket().interval,
        };
        let [ahead, exact] = [word(0).wrapping_sub(paid * by_one), word(1)];
        let apart = ahead.abs_diff(exact) / by_one;
        assert!(apart <= 1, "after change {change}: {apart} packets apart, {paid} paid for");
    }
    assert!(paid(&programs[0]) > 0);
}

#[test]
fn what_is_paid_for_does_not_save_who_is_denied_nor_outlives_the_entry() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, &ample(), Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    let (frame, mut flood) = (udp(A), Flood::new());
    pass(&mut program, &frame, Recent::KEPT + 1);
    let mut denied = ample();
    denied.deny.push(entry("192.0.2.1/32", None));
    program.apply(&denied).unwrap();
    assert_eq!(program.run(&frame).unwrap(), Verdict::Drop);
    program.apply(&ample()).unwrap();
    pass(&mut program, &frame, 1);
    // Who has been idle makes room for others, who have nothing that they did not pay for.
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
    let mut owners = 0;
    program
        .maps()
        .each_source(|_, source| {
            owners += 1;
            assert_eq!(Recent(source.recent).paid(), 0, "{:?}", source.address);
        })
        .unwrap();
    assert!(owners > 0);
    program.check_accounts().unwrap();
}

#[test]
fn where_nothing_is_dropped_all_pass_and_are_counted() {
    let mut program = ticking(&Policy { mode: GlobalMode::Monitor, ..ample() });
    pass(&mut program, &udp(A), 2 * BURST);
    let tally = program.tally(Builtin::Source.name()).unwrap();
    assert_eq!((tally.conform.packets, tally.monitored.packets), (BURST, BURST));
    program.check_accounts().unwrap();
}
