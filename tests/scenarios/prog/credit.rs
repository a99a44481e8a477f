//! Sources of a full table whose packets pass on credit: nobody remembers them, and nobody gains by it.

use limiter_common::{
    contract::Turnover,
    credit::Credit,
    gcra::Gcra,
    rate::{Rate, SECOND},
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{Clock, SMALL, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Builtin, Policy,
    model::{Allowance, Count, KeyPart, Limit, Penalty},
};

use super::{
    NOW,
    define::{limit, policy_of},
    part, per_second, policy, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    udp,
};

const TICK: u64 = 4_000_000;
const A: [u8; 4] = [192, 0, 2, 1];
const RATE: u64 = 100_000;
const BURST: u64 = 40_000;
/// A two-thousandth of the burst.
const CREDIT: u64 = 20;

/// A full table of a program that ticks.
fn crowded(sizes: Sizes, policy: &Policy) -> TestProgram {
    let mut program = TestProgram::new(sizes, policy, Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    program.crowd().unwrap();
    program
}

fn ample() -> Policy {
    policy(&[(Builtin::Source, per_second(RATE, BURST))])
}

/// Runs one frame so many times, all of which pass.
fn pass(program: &mut TestProgram, frame: &[u8], packets: u64) {
    assert_eq!(program.run_many(frame, packets as u32).unwrap(), packets);
}

#[test]
fn a_few_packets_in_a_tick_bring_no_entry_and_more_do() {
    let mut program = crowded(SMALL, &ample());
    let frame = udp(A);
    for tick in 0..3 {
        program.at(NOW + tick * TICK).unwrap();
        pass(&mut program, &frame, CREDIT);
        assert!(!has_entry(&program, A), "in tick {tick}");
    }
    let packets = 3 * CREDIT;
    assert_eq!(
        program.maps().turnover().unwrap(),
        Turnover { newcomers: packets, ..Turnover::default() }
    );
    // One is remembered, and the next makes the entry.
    pass(&mut program, &frame, 1);
    assert!(!has_entry(&program, A));
    pass(&mut program, &frame, 1);
    assert!(has_entry(&program, A));
    assert_eq!(program.tally(Builtin::Source.name()).unwrap().conform.packets, packets + 2);
    program.check_accounts().unwrap();
}

/// At one moment, and over ticks in each of which it has credit while it has no entry.
#[test]
fn a_source_gains_a_thousandth_of_its_burst_at_most() {
    let frame = udp(A);
    for before in [0, 1, 7] {
        let mut program = crowded(SMALL, &ample());
        let mut passed = 0;
        let mut now = NOW;
        for tick in 0..before {
            now = NOW + tick * TICK + TICK - 1;
            program.at(now).unwrap();
            passed += program.run_many(&frame, CREDIT as u32).unwrap();
        }
        let begun = passed.min(CREDIT);
        now += 1;
        program.at(now).unwrap();
        let at_once = begun + program.run_many(&frame, 2 * BURST as u32).unwrap();
        assert!(at_once >= BURST, "{at_once} of {BURST}");
        assert!(at_once <= BURST + BURST / Gcra::EXACT + 1, "{at_once} of {BURST}");
        program.check_accounts().unwrap();
    }
}

/// As long as there is credit for those in a set, and none of them takes a place.
#[test]
fn a_flood_of_made_up_sources_takes_no_entry() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = crowded(sizes, &ample());
    let (mut flood, packets) = (Flood::new(), part(64) as u32 * sizes.sources);
    let before = program.maps().turnover().unwrap();
    for number in 0..packets {
        // Sixteen for each set in a tick.
        program.at(NOW + u64::from(number) * TICK / u64::from(sizes.sources)).unwrap();
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
    }
    let after = program.maps().turnover().unwrap();
    let newcomers = after.newcomers - before.newcomers;
    assert_eq!(newcomers + after.entries - before.entries, u64::from(packets));
    assert!(after.entries - before.entries <= u64::from(packets) / 100, "{after:?}");
    program.check_accounts().unwrap();
}

/// Though it never has more in a tick than there is credit for.
#[test]
fn a_source_that_goes_on_sending_comes_to_have_an_entry() {
    let mut program = crowded(SMALL, &ample());
    let frame = udp(A);
    let sent = (1..=3 * u64::from(Credit::HELD_OF)).find(|packets| {
        program.at(NOW + packets * TICK).unwrap();
        pass(&mut program, &frame, 1);
        has_entry(&program, A)
    });
    assert!(sent.is_some(), "it is never known");
}

/// Of what a packet is too large a part, and where more is to be known of a source than what it owes.
#[test]
fn there_is_no_credit_where_a_packet_matters() {
    let packets = |burst| Allowance::TokenBucket { rate: Rate::per_second(RATE), burst };
    let penalty = Penalty { after: 1, block: SECOND, backoff: 1, max: SECOND };
    let small = limit("small", &[KeyPart::Source], packets(BURST / CREDIT - 1));
    let ample = limit("ample", &[KeyPart::Source], packets(BURST));
    let opens = Limit { count: Count::Connections, ..ample.clone() };
    let strict = Limit { penalty: Some(penalty), ..ample.clone() };
    for (limits, known) in [
        (vec![ample.clone()], false),
        (vec![small.clone()], true),
        (vec![ample.clone(), small], true),
        (vec![opens], true),
        (vec![strict], true),
    ] {
        let mut program = crowded(SMALL, &policy_of(limits.clone()));
        let other = Frame::tcp(A, [198, 51, 100, 1], 40_001, 443, SYN);
        pass(&mut program, &syn(A), 1);
        pass(&mut program, &other.build(), 1);
        assert_eq!(has_entry(&program, A), known, "{limits:?}");
    }
}
