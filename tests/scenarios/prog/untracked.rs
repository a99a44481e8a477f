//! The untracked allowance: packets of unknown sources that pass without a record while the table is full. No
//! source gains by it.

use std::{collections::BTreeMap, net::IpAddr};

use limiter_common::{
    abi::{counters::TableStats, table::WAYS},
    algorithm::{
        gcra::Scale,
        rate::{Rate, SECOND},
    },
    base::address::Address,
    memory::cache::Cached,
    table::untracked::UntrackedAllowance,
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{Clock, SMALL, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Builtin, Policy,
    model::{Allowance, Costs, Count, KeyPart, Limit, Penalty, Unproven},
};

use super::{
    NOW,
    define::{limit, policy_of},
    leased::{A, BURST, RATE, TICK, ample, pass},
    part, per_second, policy, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    udp,
};

/// The allowance of a set in a tick: a third of what the rate brings in a millisecond.
const ALLOWANCE: u64 = RATE / 1_000 / 3;

/// A program with ticks and a full table.
fn crowded(sizes: Sizes, policy: &Policy) -> TestProgram {
    let mut program = TestProgram::new(sizes, policy, Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    program.crowd().unwrap();
    program
}

/// The first of three consecutive ticks in which every packet of the allowance is admitted without a record.
fn lucky() -> u64 {
    let all_in = |tick: u64| {
        let mut allowance = UntrackedAllowance::default();
        (0..ALLOWANCE).all(|_| {
            let (next, admitted) = allowance.next(tick as u32, ALLOWANCE).unwrap();
            allowance = next;
            admitted
        })
    };
    (NOW / TICK..).find(|tick| (0..3).all(|later| all_in(tick + later))).unwrap()
}

#[test]
fn a_few_packets_in_a_tick_bring_no_entry_and_more_do() {
    let mut program = crowded(SMALL, &ample());
    let (frame, begin) = (udp(A), lucky());
    for tick in begin..begin + 3 {
        program.at(tick * TICK).unwrap();
        pass(&mut program, &frame, ALLOWANCE);
        assert!(!has_entry(&program, A), "in tick {tick}");
    }
    let packets = 3 * ALLOWANCE;
    assert_eq!(
        program.maps().table_stats().unwrap(),
        TableStats { untracked: packets, ..TableStats::default() }
    );
    // The first packet beyond the allowance goes on probation, the second makes an entry.
    pass(&mut program, &frame, 1);
    assert!(!has_entry(&program, A));
    pass(&mut program, &frame, 1);
    assert!(has_entry(&program, A));
    assert_eq!(program.tally(Builtin::Source.name()).unwrap().conform.packets, packets + 2);
    program.check_accounts().unwrap();
}

/// At one moment, and over ticks in which the source has no entry and so uses the allowance.
#[test]
fn a_source_gains_by_the_untracked_allowance_what_a_millisecond_brings_at_most() {
    let frame = udp(A);
    for before in [0, 1, 7] {
        let mut program = crowded(SMALL, &ample());
        let mut passed = 0;
        let mut now = NOW;
        for tick in 0..before {
            now = NOW + tick * TICK + TICK - 1;
            program.at(now).unwrap();
            passed += program.run_many(&frame, ALLOWANCE as u32).unwrap();
        }
        let begun = passed.min(ALLOWANCE);
        now += 1;
        program.at(now).unwrap();
        let at_once = begun + program.run_many(&frame, 2 * BURST as u32).unwrap();
        assert!(at_once + 3 * ALLOWANCE >= BURST, "{at_once} of {BURST}");
        // What passed before this tick has been refilled.
        let most = BURST + 1 + RATE * TICK / SECOND;
        assert!(at_once <= most, "{at_once} of {most}: untracked packets are charged too");
        program.check_accounts().unwrap();
    }
}

/// While every set has allowance left, no made-up source takes a probation slot or an entry.
#[test]
fn a_flood_of_made_up_sources_takes_no_entry() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = crowded(sizes, &ample());
    let (mut flood, packets) = (Flood::new(), part(64) as u32 * sizes.sources);
    let before = program.maps().table_stats().unwrap();
    for number in 0..packets {
        // Sixteen packets for each set in a tick.
        program.at(NOW + u64::from(number) * TICK / u64::from(sizes.sources)).unwrap();
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass);
    }
    let after = program.maps().table_stats().unwrap();
    let newcomers = after.untracked - before.untracked;
    assert_eq!(newcomers + after.inserted - before.inserted, u64::from(packets));
    assert!(after.inserted - before.inserted <= u64::from(packets) / 100, "{after:?}");
    program.check_accounts().unwrap();
}

/// A source that stays within the allowance in every tick gets an entry in the end.
#[test]
fn a_source_that_goes_on_sending_comes_to_have_an_entry() {
    let mut program = crowded(SMALL, &ample());
    let frame = udp(A);
    let sent = (1..=3 * u64::from(UntrackedAllowance::HELD_OF)).find(|packets| {
        program.at(NOW + packets * TICK).unwrap();
        pass(&mut program, &frame, 1);
        has_entry(&program, A)
    });
    assert!(sent.is_some(), "it is never known");
}

/// No packet passes untracked where one packet is a large share of the burst, or where more state than the
/// debt of a source is needed.
#[test]
fn no_packet_is_untracked_where_a_packet_matters() {
    let packets = |burst| Allowance::TokenBucket { rate: Rate::per_second(RATE), burst };
    let penalty = Penalty { unproven: Unproven::Block, ..Penalty::new(1, SECOND) };
    let small = limit("small", &[KeyPart::Source], packets(2_999));
    let ample = limit("ample", &[KeyPart::Source], packets(BURST));
    let costs = Costs { default: 2, by_kind: BTreeMap::new() };
    let weighted = limit("weighted", &[KeyPart::Source], packets(100));
    let weighted = Limit { count: Count::Weighted(costs), ..weighted };
    let opens = Limit { count: Count::Connections, ..ample.clone() };
    let strict = Limit { penalty: Some(penalty), ..ample.clone() };
    for (limits, known) in [
        (vec![ample.clone()], false),
        (vec![small.clone()], true),
        (vec![ample.clone(), small], true),
        (vec![ample.clone(), weighted], true),
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

/// Packets of sources whose set is that of `A`.
fn beside_a(program: &TestProgram) -> impl Iterator<Item = Vec<u8>> {
    let set = |address: IpAddr| program.maps().place(&address.into()).unwrap().set;
    let own = set(A.into());
    (0_u32..).filter_map(move |number| {
        let [_, b, c, d] = number.to_be_bytes();
        let address = [10, b, c, d];
        (set(address.into()) == own).then(|| udp(address))
    })
}

/// Sources without room share an overflow bucket, and have no allowance besides.
#[test]
fn where_all_owe_no_packet_is_untracked_beside_the_bucket_that_all_share() {
    const RATE: u64 = 4_000;
    const BURST: u64 = 8_000;
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut limits = policy(&[(Builtin::Source, per_second(RATE, BURST))]);
    limits.limits[0].shared = Some(1);
    let mut program = TestProgram::new(sizes, &limits, Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    let others: Vec<_> = beside_a(&program).take(WAYS).collect();
    for other in &others {
        pass(&mut program, other, BURST / 2);
    }
    let frame = udp(A);
    let mut passed = program.run_many(&frame, 2 * BURST as u32).unwrap();
    assert!(!has_entry(&program, A));
    let ticks = 100;
    for tick in 1..=ticks {
        program.at(NOW + tick * TICK).unwrap();
        passed += program.run_many(&frame, 2 * (RATE * TICK / SECOND) as u32).unwrap();
    }
    assert!(!has_entry(&program, A));
    let promised = BURST + RATE * ticks * TICK / SECOND;
    let most = promised + 1 + RATE * TICK / SECOND;
    assert!((promised..=most).contains(&(passed + 1)), "{passed}, not {promised}");
    program.check_accounts().unwrap();
}

/// A source whose entry is evicted in every other tick, as soon as it owes nothing, and which starts again
/// with the allowance.
#[test]
fn who_is_thrown_out_again_and_again_gains_two_ticks_at_most() {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, &ample(), Clock::Ticking(TICK)).unwrap();
    program.at(NOW).unwrap();
    let ticks = part(100);
    // Sources beyond the allowance take the two probation slots and an entry.
    let crowd = ALLOWANCE as usize + 4;
    let mut others: Vec<_> = beside_a(&program).take(WAYS + crowd * ticks as usize).collect();
    let throw_out = others.split_off(WAYS);
    let (last, others) = others.split_last().unwrap();
    for other in others {
        pass(&mut program, other, BURST / 2);
    }
    pass(&mut program, last, 1);
    let frame = udp(A);
    let (mut passed, mut thrown) = (0, 0);
    for (tick, throw_out) in (1..=ticks).zip(throw_out.chunks(crowd)) {
        let begin = NOW + 2 * tick * TICK;
        program.at(begin).unwrap();
        passed += program.run_many(&frame, (ALLOWANCE + 4) as u32).unwrap();
        program.at(begin + 1).unwrap();
        // As many packets as can be charged and refilled before the next tick, minus those that are leased
        // but not sent. A source that was charged in a tick keeps its entry in that tick.
        let end = begin + TICK;
        let Some(entry) = program.source(&Address::v4(A)).unwrap() else { continue };
        let scale = Scale(entry.scales[0]);
        let left = (end << scale.shift()).saturating_sub(entry.words[0]) >> scale.shift();
        let more = (left * RATE / SECOND).saturating_sub(1 + Cached::MOST_LEASED);
        passed += program.run_many(&frame, more as u32).unwrap();
        program.at(end).unwrap();
        for other in throw_out {
            pass(&mut program, other, 1);
        }
        thrown += u64::from(!has_entry(&program, A));
    }
    assert!(thrown > ticks / 2, "thrown out {thrown} times only");
    let end = NOW + 2 * (ticks + 1) * TICK;
    program.at(end).unwrap();
    passed += program.run_many(&frame, 2 * BURST as u32).unwrap();
    let promised = BURST + RATE * (end - NOW) / SECOND;
    let most = promised + 1 + 2 * RATE * TICK / SECOND;
    assert!((BURST..=most).contains(&(passed + 1)), "{passed}, not {promised}");
    program.check_accounts().unwrap();
}
