//! Events about sources: a source begins to exceed a limit, or is blocked.

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
    memory::event::{EventStats, QUIET, SourceEvent, kind},
    packet::reason::Reason,
};
use limiter_tests::packet::Frame;
use limiter_tests::program::{Clock, SMALL, Sizes, TestProgram, Verdict, pin_to_cpu, two_cpus};
use limiter_userspace::policy::{
    Builtin, Policy,
    model::{Allowance, GlobalMode, KeyPart, Limit, Mode, Penalty, Unproven},
    tallies,
};

use super::{
    NOW, counted,
    cpus::meet,
    define::{in_mode, limit, policy_of},
    part, policy, program, tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

/// The source with this number.
fn source(number: u32) -> [u8; 4] {
    (u32::from_be_bytes([10, 64, 0, 0]) + number).to_be_bytes()
}

/// The index of the tally of a limit.
fn tally(program: &TestProgram, name: &str) -> u32 {
    let in_force = program.maps().in_force().unwrap();
    let tallied = tallies(&in_force.policy, &in_force.held).unwrap();
    tallied.iter().find(|tallied| tallied.name == name).unwrap().place
}

fn run_at(program: &mut TestProgram, now: u64, from: [u8; 4]) -> Verdict {
    program.at(now).unwrap();
    program.run(&udp(from)).unwrap()
}

/// The events since the last call, without their times.
fn told(program: &TestProgram) -> Vec<(Address, u32, u16, u16)> {
    let of = |it: SourceEvent| (it.source, it.tally, it.kind, it.again);
    program.notices().unwrap().into_iter().map(of).collect()
}

#[test]
fn a_source_is_told_of_when_it_begins_to_be_over_a_limit() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(2))]));
    let place = tally(&program, "source");
    for _ in 0..2 {
        assert_eq!(run_at(&mut program, NOW, A), Verdict::Pass);
    }
    assert_eq!(told(&program), []);
    // Part of the next token is enough for one packet.
    assert_eq!(run_at(&mut program, NOW + 1, A), Verdict::Pass);
    for at in 2..200 {
        assert_eq!(run_at(&mut program, NOW + at, A), Verdict::Drop);
    }
    let notices = program.notices().unwrap();
    let expected = SourceEvent {
        time: NOW + 2,
        dropped: 1,
        source: Address::v4(A),
        tally: place,
        kind: kind::LIMITED,
        ..SourceEvent::default()
    };
    assert_eq!(notices, [expected]);

    // A flood that goes on is reported once a minute, whatever the CPUs cache about it.
    let flood = |program: &mut TestProgram, from: u64, seconds: u64| {
        for step in 0..seconds * 20 {
            run_at(program, from + step * SECOND / 20, A);
        }
    };
    flood(&mut program, NOW + SECOND, 150);
    let again = [(Address::v4(A), place, kind::LIMITED, 1); 2];
    assert_eq!(told(&program), again);
    // Another source has events of its own.
    let end = NOW + 151 * SECOND;
    for _ in 0..4 {
        run_at(&mut program, end, OTHER);
    }
    assert_eq!(told(&program), [(Address::v4(OTHER), place, kind::LIMITED, 0)]);
    // After a rest, in which some packets conform, a new episode begins.
    let next = end + 2 * QUIET;
    for at in 0..10 {
        run_at(&mut program, next + at, A);
    }
    assert_eq!(told(&program), [(Address::v4(A), place, kind::LIMITED, 0)]);
    let event_stats = program.maps().event_stats().unwrap();
    assert_eq!((event_stats.happened, event_stats.suppressed), ([3, 0, 0], [0; 3]));
}

#[test]
fn what_is_only_monitored_is_told_as_such_whatever_the_limit_is_kept_by() {
    let by = |name: &str, parts: &[KeyPart]| limit(name, parts, tokens(1));
    let keys: [&[KeyPart]; 3] = [&[KeyPart::Source], &[KeyPart::Connection], &[]];
    for parts in keys {
        let limits: [(Mode, GlobalMode, u16); 3] = [
            (Mode::Enforce, GlobalMode::Enforce, kind::LIMITED),
            (Mode::Monitor, GlobalMode::Enforce, kind::MONITORED),
            (Mode::Enforce, GlobalMode::Monitor, kind::MONITORED),
        ];
        for (mode, global, expected) in limits {
            let policy = Policy { mode: global, ..policy_of([in_mode(mode, by("it", parts))]) };
            let mut program = program(&policy);
            for _ in 0..5 {
                run_at(&mut program, NOW, A);
            }
            let place = tally(&program, "it");
            let one = (Address::v4(A), place, expected, 0);
            assert_eq!(told(&program), [one], "{parts:?} {mode:?} {global:?}");
            let tally = program.tally("it").unwrap();
            let [exceed, monitored] = [tally.exceed, tally.monitored].map(|it| it.packets);
            let dropped = counted(&program, Reason::Exceed);
            assert_eq!((exceed, exceed + monitored), (dropped, 4), "{parts:?} {mode:?}");
            assert_eq!(dropped == 0, expected == kind::MONITORED);
        }
    }
    // A drop is reported even if a monitored limit was exceeded first.
    let live = limit("live", &[KeyPart::Source], tokens(3));
    let watched = in_mode(Mode::Monitor, by("watched", &[KeyPart::Connection]));
    let mut program = program(&policy_of([watched, live]));
    for _ in 0..9 {
        run_at(&mut program, NOW, A);
    }
    let [watched, live] = ["watched", "live"].map(|name| tally(&program, name));
    let both = [(watched, kind::MONITORED), (live, kind::LIMITED)];
    assert_eq!(told(&program), both.map(|(place, kind)| (Address::v4(A), place, kind, 0)));
}

#[test]
fn a_block_is_told_once_with_its_end() {
    let allowance =
        Allowance::LeakyBucket { rate: Rate { packets: 1, period: 86_400 * SECOND }, depth: 1 };
    let penalty = Penalty {
        backoff: 2,
        max: 3_600 * SECOND,
        unproven: Unproven::Block,
        ..Penalty::new(5 * SECOND, 60 * SECOND)
    };
    let it = limit("it", &[KeyPart::Source], allowance);
    let mut program = program(&policy_of([Limit { penalty: Some(penalty), ..it }]));
    for step in 0..300 {
        run_at(&mut program, NOW + step * SECOND / 10, A);
    }
    let notices = program.notices().unwrap();
    let blocked: Vec<&SourceEvent> = notices.iter().filter(|it| it.kind == kind::BLOCKED).collect();
    let [blocked] = blocked[..] else { panic!("{notices:?}") };
    let length = blocked.until - blocked.time;
    assert!((60 * SECOND - 256..=60 * SECOND).contains(&length), "{length}");
    assert_eq!(program.maps().event_stats().unwrap().happened, [1, 0, 1]);
}

/// The number of events is bounded. Those left out are counted one by one, whether the budget or the room was
/// used up.
#[test]
fn what_is_left_out_is_counted_exactly() {
    let [cpu, _] = two_cpus().unwrap();
    std::thread::scope(|scope| {
        let work = || {
            pin_to_cpu(cpu).unwrap();
            // So much room that no two sources share an entry.
            let sizes = Sizes { sources: 1 << 17, ..SMALL };
            let policy = policy(&[(Builtin::Source, tokens(1))]);
            let mut program = TestProgram::new(sizes, &policy, Clock::Test).unwrap();
            program.at(NOW).unwrap();
            let sources = 1_000;
            for number in 0..sources {
                program.run_many(&udp(source(number)), 4).unwrap();
            }
            let event_stats = program.maps().event_stats().unwrap();
            let told = program.notices().unwrap().len() as u64;
            assert_eq!(told, EventStats::BUDGET);
            assert_eq!(event_stats.happened, [u64::from(sources), 0, 0]);
            assert_eq!(event_stats.suppressed, [u64::from(sources) - told, 0, 0]);

            // No process reads for so long that the ring fills up.
            let before = event_stats;
            let (seconds, each) = (30, 200);
            for second in 0..seconds {
                program.at(NOW + (second + 2) * SECOND).unwrap();
                for number in 0..each {
                    let number = 10_000 + (second * each + number) as u32;
                    program.run_many(&udp(source(number)), 4).unwrap();
                }
            }
            let event_stats = program.maps().event_stats().unwrap();
            let happened = event_stats.happened[0] - before.happened[0];
            let left_out = event_stats.suppressed[0] - before.suppressed[0];
            let told = program.notices().unwrap().len() as u64;
            assert_eq!((happened, told), (seconds * each, happened - left_out));
            assert!(left_out > 0, "there was room for all");
            // Events are written again when there is room.
            program.at(NOW + 100 * SECOND).unwrap();
            program.run_many(&udp(source(50_000)), 4).unwrap();
            assert_eq!(program.notices().unwrap().len(), 1);
        };
        scope.spawn(work).join().unwrap();
    });
}

#[test]
fn two_cpus_that_meet_at_an_edge_tell_it_once() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    let sources = part(3_000) as u32;
    // The burst, and one packet for part of a token.
    for number in 0..sources {
        program.run_many(&udp(source(number)), 1).unwrap();
    }
    meet(&mut program, sources, |number| udp(source(number)));
    meet(&mut program, sources, |number| udp(source(number)));
    let event_stats = program.maps().event_stats().unwrap();
    assert_eq!(event_stats.happened, [u64::from(sources), 0, 0]);
    let told = program.notices().unwrap().len() as u64;
    assert_eq!(told + event_stats.suppressed[0], u64::from(sources));
}

#[test]
fn of_sources_that_share_an_entry_nothing_is_told() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    let frame = Frame::ip(A, [198, 51, 100, 1], 17).payload(4).build();
    let short = &frame[..24];
    for _ in 0..5 {
        program.run(short).unwrap();
    }
    assert!(counted(&program, Reason::Exceed) > 0);
    assert_eq!(told(&program), []);
    assert_eq!(program.maps().event_stats().unwrap().happened, [0; 3]);
}
