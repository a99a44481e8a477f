//! Full tables, and floods into them.

use std::{collections::HashMap, net::IpAddr};

use limiter_common::{
    abi::table::Source,
    algorithm::rate::SECOND,
    base::{address::Address, tally::Tally},
    memory::{cache::Cached, pending::PendingTally},
    packet::reason::Reason,
    table::set::Place,
};
use limiter_tests::{
    packet::{ACK, Frame, set_source},
    program::{Clock, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::Builtin;

use super::{
    NOW, counted,
    cpus::{check_contended, on_two_cpus},
    leased::TICK,
    part, per_second, policy, tallies, udp,
};

const POLITE: [u8; 4] = [192, 0, 2, 1];

/// The smallest sizes of an instance.
pub(super) fn smallest() -> Sizes {
    let mut sizes = Sizes {
        sources: 1,
        buckets: 1,
        wide_states: 1,
        overrides: 1,
        further: true,
        buckets_made: true,
    };
    while sizes.check().is_err() {
        sizes.sources *= 2;
        sizes.buckets *= 2;
        sizes.wide_states *= 2;
    }
    sizes
}

#[test]
fn a_flood_of_sources_costs_an_honest_one_nothing() {
    let sizes = smallest();
    let limits = policy(&[(Builtin::Source, per_second(100, 20))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    let [mut four, mut six] = [udp([10, 0, 0, 0]), udp([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])];
    let polite = udp(POLITE);
    for number in 0..40 * sizes.sources {
        program.at(NOW + u64::from(number) * 100_000).unwrap();
        let [a, b, c, d] = number.to_be_bytes();
        assert!(set_source(&mut four, IpAddr::from([10 | a, b, c, d])));
        let [high, low] = [(number >> 16) as u16, number as u16];
        assert!(set_source(&mut six, [0x2001, 0xdb8, high, low, 0, 0, 0, 1].into()));
        // The first packet of each source is within its burst.
        assert_eq!(program.run(&four).unwrap(), Verdict::Pass, "source {number}");
        assert_eq!(program.run(&six).unwrap(), Verdict::Pass, "source {number}");
        // The polite source sends at exactly its rate.
        if number % 100 == 0 {
            assert_eq!(program.run(&polite).unwrap(), Verdict::Pass, "beside source {number}");
        }
    }
    let tracked = program.maps().talkers(1).unwrap().1.tracked;
    assert!(
        (u64::from(sizes.sources) / 2..=u64::from(sizes.sources)).contains(&tracked),
        "{tracked}"
    );
    program.check_accounts().unwrap();
}

/// Two CPUs send new sources at the same time.
#[test]
fn a_flood_of_sources_on_two_cpus_is_counted_and_passes() {
    let sizes = smallest();
    let limits = policy(&[(Builtin::Source, per_second(100, 20))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let packets = part(200_000);
    on_two_cpus(&mut program, |runner, cpu| {
        let mut frame = udp([10, 0, 0, 0]);
        for number in 0..packets as u32 {
            let [_, b, c, d] = number.to_be_bytes();
            assert!(set_source(&mut frame, IpAddr::from([10 + cpu, b, c, d])));
            runner.run(&frame).unwrap();
        }
    });
    program.check_accounts().unwrap();
    // A CPU that waits for the lock of a set while the other CPU, which has it, is stopped drops the packet
    // as contended.
    check_contended(&program, 1_000);
    let contended = counted(&program, Reason::Contended);
    assert_eq!(program.passed().unwrap(), 2 * packets - contended);
}

#[test]
fn a_busy_source_keeps_its_entry_among_others() {
    let sizes = smallest();
    let limits = policy(&[(Builtin::Source, per_second(100, 20))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    let mut other = udp([10, 0, 0, 0]);
    let flooder = udp(POLITE);
    // Nanoseconds between two new sources, down to the time that a CPU needs for one.
    for step in [100_000, 1_000, 500] {
        program.forget().unwrap();
        let mut passed = 0;
        let packets = 40 * sizes.sources;
        for number in 0..packets {
            program.at(NOW + u64::from(number) * step).unwrap();
            let [a, b, c, d] = number.to_be_bytes();
            assert!(set_source(&mut other, IpAddr::from([10 | a, b, c, d])));
            program.run(&other).unwrap();
            passed += u64::from(program.run(&flooder).unwrap() == Verdict::Pass);
        }
        // If the source were evicted, it would get a second burst.
        let promised = 20 + u64::from(packets - 1) * step * 100 / SECOND;
        assert!(passed.abs_diff(promised) <= 1, "{passed} instead of {promised}, step {step}");
    }
    program.check_accounts().unwrap();
}

/// Two sources of one set with the same tag, with the same preferred way or not, and with the same tag
/// extension or not. A third source first takes the preferred way of the second.
#[test]
fn sources_that_look_the_same_to_the_table_are_told_apart() {
    let limits = policy(&[(Builtin::Source, per_second(100, 3))]);
    let address = |number: u32| IpAddr::from((10 << 24 | number).to_be_bytes());
    for (clock, crowded) in
        [(Clock::Test, false), (Clock::Test, true), (Clock::Ticking(TICK), true)]
    {
        let mut program = TestProgram::new(smallest(), &limits, clock).unwrap();
        let mut now = NOW;
        for (same_home, same_mark) in [(true, true), (true, false), (false, true), (false, false)] {
            program.forget().unwrap();
            if crowded {
                program.crowd().unwrap();
            }
            let place = |number| program.maps().place(&address(number).into()).unwrap();
            let mut seen: HashMap<_, Vec<_>> = HashMap::new();
            let twins = (0..1 << 16).find_map(|number| {
                let Place { set, tag, home, tag_ext, .. } = place(number);
                let like = seen.entry((set, tag)).or_default();
                let twin = like.iter().find(|(_, other_home, other_mark)| {
                    let is_before =
                        if same_home { *other_home == home } else { *other_home < home };
                    is_before && (*other_mark == tag_ext) == same_mark
                });
                let twins = twin.map(|(other, ..)| [*other, number]);
                like.push((number, home, tag_ext));
                twins
            });
            let [one, other] = twins.unwrap();
            let Place { set, tag, home, .. } = place(other);
            let is_first = |number: &u32| {
                let first = place(*number);
                (first.set, first.home) == (set, home) && first.tag != tag
            };
            let sources = [(0..).find(is_first).unwrap(), one, other].map(address);
            let mut frame = udp([10, 0, 0, 0]);
            for _ in 0..3 {
                now += SECOND;
                program.at(now).unwrap();
                for packet in 0..5 {
                    for source in sources {
                        assert!(set_source(&mut frame, source));
                        let expected = if packet < 3 { Verdict::Pass } else { Verdict::Drop };
                        assert_eq!(program.run(&frame).unwrap(), expected, "{source}, {packet}");
                    }
                }
            }
            for source in sources {
                let entry = program.source(&source.into()).unwrap().unwrap();
                assert_eq!((entry.passed.packets, entry.address), (9, source.into()), "{source}");
            }
            // All refusals in the CPU caches have expired.
            now += 2 * Cached::LONGEST;
        }
        program.check_accounts().unwrap();
    }
}

/// Passed packets of a source are first counted in one word, which would overflow.
#[test]
fn totals_of_a_source_are_exact_beyond_the_word_that_they_are_counted_in() {
    let unlimited = policy(&[]);
    let mut program = TestProgram::new(smallest(), &unlimited, Clock::Test).unwrap();
    let (frame, key) = (udp(POLITE), Address::v4(POLITE));
    let bytes = frame.len() as u64;
    let totals = |program: &TestProgram| program.source(&key).unwrap().unwrap().passed;
    program.run_many(&frame, 10).unwrap();
    assert_eq!(totals(&program), Tally { packets: 10, bytes: 10 * bytes });
    // As if all but three of the packets that the word can count had passed.
    let half = 1 << 17;
    let before = half - 3;
    let passed = Tally { packets: before, bytes: before * bytes };
    program.change_source(&key, |it| it.pending = PendingTally::of(&passed).0).unwrap();
    assert_eq!(totals(&program).packets, before);
    for packet in 1..=10 {
        program.run(&frame).unwrap();
        let packets = before + packet;
        assert_eq!(totals(&program), Tally { packets, bytes: packets * bytes }, "{packet}");
    }
    let mut written = Source::default();
    program.change_source(&key, |it| written = *it).unwrap();
    assert_eq!(written.passed, Tally { packets: half, bytes: half * bytes });
    let left = Tally { packets: 7, bytes: 7 * bytes };
    assert_eq!(PendingTally(written.pending).tally(), left);
}

#[test]
fn two_cpus_count_what_passes_of_a_source_exactly() {
    let mut program = TestProgram::new(smallest(), &policy(&[]), Clock::Test).unwrap();
    let (frame, key) = (udp(POLITE), Address::v4(POLITE));
    let bytes = frame.len() as u64;
    let packets = part(200_000);
    program.run(&frame).unwrap();
    for _ in 0..5 {
        // The word is half full after half of the packets of one CPU.
        let before = (1 << 17) - packets / 2;
        let begin = |it: &mut Source| {
            *it = Source {
                pending: PendingTally::of(&Tally { packets: before, bytes: before * bytes }).0,
                passed: Tally::default(),
                ..*it
            };
        };
        program.change_source(&key, begin).unwrap();
        on_two_cpus(&mut program, |runner, _| {
            runner.run_many(&frame, packets as u32).unwrap();
        });
        let packets = before + 2 * packets;
        let passed = program.source(&key).unwrap().unwrap().passed;
        assert_eq!(passed, Tally { packets, bytes: packets * bytes });
    }
}

#[test]
fn a_flood_of_connections_is_held_at_the_limit_of_its_source() {
    let sizes = smallest();
    let limits =
        [(Builtin::Connection, per_second(10, 5)), (Builtin::Source, per_second(1_000, 50_000))];
    let mut program = TestProgram::new(sizes, &policy(&limits), Clock::Test).unwrap();
    let frame = |source: u16, destination: u16| {
        Frame::tcp(POLITE, [198, 51, 100, 1], source, destination, ACK).build()
    };
    program.at(NOW).unwrap();
    let mut passed = 0;
    for number in 0..60_000 {
        passed += u64::from(program.run(&frame(number, 1)).unwrap() == Verdict::Pass);
    }
    assert_eq!(passed, 50_000);
    assert_eq!(counted(&program, Reason::Exceed), 10_000);
    assert_eq!(tallies(&program), [(0, 0), (50_000, 10_000), (50_000, 0)]);
    assert_eq!(counted(&program, Reason::Contended), 0);
    let occupancy = program.maps().buckets().unwrap();
    assert!(occupancy.tracked <= occupancy.capacity, "{occupancy:?}");
    program.check_accounts().unwrap();
}
