//! Limits with `action: drop`, which drop all that they are about.

use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason, table::probation::HELD_OF};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::{
    policy::{Policy, document},
    query::{Inquiry, frame::Sighting},
};

use super::{NOW, counted, modes::tally, part, program, table_room::has_entry};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

fn written(text: &str) -> Policy {
    let text = format!("version: 1\n{text}");
    document::parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
}

/// An answer of memcached, as a reflection flood has them.
fn answer(source: [u8; 4]) -> Frame {
    Frame::udp(source, B, 11_211, 9_999).payload(1_000)
}

const REFLECTION: &str = "\
limits:
- {name: reflection, match: {protocol: udp, source_ports: 11211}, action: drop}
- {name: each, key: source, rate: 10/min, burst: 10}";

/// The verdicts of the program and of the inquiry before.
fn decided(program: &mut TestProgram, frame: &[u8]) -> Verdict {
    let now = NOW;
    let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
    let asked = inquiry.verdict(&Sighting::whole(frame), 0, now).unwrap();
    let verdict = program.run(frame).unwrap();
    assert_eq!(asked.reason.drops(), verdict == Verdict::Drop, "{asked:?}");
    verdict
}

#[test]
fn all_that_matches_is_dropped_and_charged_nowhere_else() {
    let mut program = program(&written(REFLECTION));
    let other = Frame::udp(A, B, 9_999, 11_211).payload(18).build();
    for _ in 0..20 {
        assert_eq!(decided(&mut program, &answer(A).build()), Verdict::Drop);
    }
    assert_eq!((tally(&program, "reflection"), tally(&program, "each")), ((0, 20), (0, 0)));
    // The other limit has all of its burst.
    assert_eq!(program.run_many(&other, 15).unwrap(), 10);
    assert_eq!(counted(&program, Reason::Exceed), 25);
    // A source over its limit is dropped for what matches, still.
    assert_eq!(decided(&mut program, &answer(A).build()), Verdict::Drop);
    assert_eq!((tally(&program, "reflection"), tally(&program, "each")), ((0, 21), (10, 5)));
    assert_eq!(program.notices().unwrap().len(), 1, "that source is over `each` alone");
    assert!(program.buckets().unwrap().is_empty(), "nothing is kept for it");
    program.check_accounts().unwrap();
}

#[test]
fn lists_and_modes_hold_for_it() {
    let policy = |mode: &str| {
        let matching = "{protocol: udp, source_ports: 11211, except: 10.9.0.0/16}";
        written(&format!(
            "{mode}\nallow: [10.0.1.0/24]\ndeny: [10.0.2.0/24]\nlimits: [{{name: it, match: {matching}, action: drop, \
             overrides: [{{src: 10.0.3.0/24, unlimited: true}}]}}]"
        ))
    };
    let mut program = program(&policy(""));
    for (source, reason) in [
        ([10, 0, 0, 1], Reason::Exceed),
        ([10, 0, 1, 1], Reason::Allow),
        ([10, 0, 2, 1], Reason::Deny),
        ([10, 0, 3, 1], Reason::Conform),
        ([10, 9, 0, 1], Reason::Conform),
    ] {
        for _ in 0..3 {
            let before = counted(&program, reason);
            let verdict = decided(&mut program, &answer(source).build());
            assert_eq!(verdict == Verdict::Drop, reason.drops(), "{source:?}");
            assert_eq!(counted(&program, reason), before + 1, "{source:?}");
        }
    }
    assert_eq!(tally(&program, "it"), (0, 3));
    // What would be dropped is counted where nothing is.
    program.apply(&policy("mode: monitor")).unwrap();
    for source in [[10, 0, 0, 1], [10, 0, 0, 2]] {
        assert_eq!(decided(&mut program, &answer(source).build()), Verdict::Pass);
    }
    assert_eq!((counted(&program, Reason::Monitor), tally(&program, "it")), (2, (0, 5)));
    program.check_accounts().unwrap();
}

/// What a limit counts is what it drops: `count: syns` leaves the segments of open connections.
#[test]
fn a_limit_drops_what_it_counts() {
    for count in ["syns", "connections"] {
        let limit = format!(
            "limits: [{{name: it, match: {{protocol: tcp}}, count: {count}, action: drop}}]"
        );
        let mut program = program(&written(&limit));
        let tcp = |flags| Frame::tcp(A, B, 5_000, 22, flags).build();
        for _ in 0..3 {
            assert_eq!(decided(&mut program, &tcp(SYN)), Verdict::Drop, "{count}");
            assert_eq!(decided(&mut program, &tcp(0x10)), Verdict::Pass, "{count}");
        }
    }
}

/// A flood of sources takes no entry of a source that owes, and few of those that do not.
#[test]
fn a_flood_that_is_dropped_takes_few_entries() {
    let mut program = program(&written(REFLECTION));
    program.crowd().unwrap();
    let established: Vec<[u8; 4]> = (0..50).map(|number| [172, 16, 0, number]).collect();
    for source in &established {
        let frame = Frame::udp(*source, B, 9, 9).payload(18).build();
        assert_eq!(program.run_many(&frame, 12).unwrap(), 10);
    }
    let sources = part(40_000) as u32;
    let flood = |number: u32| answer((0x0a00_0000 + number).to_be_bytes()).build();
    for number in 0..sources {
        assert_eq!(program.run(&flood(number)).unwrap(), Verdict::Drop);
    }
    assert_eq!(tally(&program, "reflection"), (0, u64::from(sources)));
    let known = |number: &u32| has_entry(&program, (0x0a00_0000 + number).to_be_bytes());
    let taken = (0..sources).filter(known).count() as u64;
    assert!(taken <= 2 * u64::from(sources) / HELD_OF as u64 + 10, "{taken} of {sources}");
    for source in &established {
        let frame = Frame::udp(*source, B, 9, 9).payload(18).build();
        assert_eq!(program.run(&frame).unwrap(), Verdict::Drop, "it owes still");
    }
    program.check_accounts().unwrap();
}

/// With a penalty, who sends what is dropped is blocked for all else.
#[test]
fn a_penalty_blocks_who_sends_what_is_dropped() {
    let mut program = program(&written(
        "limits: [{name: trap, match: {protocol: tcp, ports: 23}, action: drop, penalty: {after: 1s, block: 1m, unproven: \
         block}}]",
    ));
    let knock = Frame::tcp(A, B, 5_000, 23, SYN).build();
    let web = Frame::tcp(A, B, 5_000, 443, SYN).build();
    assert_eq!(program.run(&web).unwrap(), Verdict::Pass);
    for step in 0..4 {
        program.at(NOW + step * SECOND / 2).unwrap();
        assert_eq!(program.run(&knock).unwrap(), Verdict::Drop, "{step}");
    }
    assert_eq!(program.run(&web).unwrap(), Verdict::Drop);
    assert_eq!(counted(&program, Reason::Penalty), 2, "the last knock, and what came after");
    program.check_accounts().unwrap();
}

#[test]
fn a_limit_goes_to_drop_and_back_with_its_rate() {
    let text = |action: &str| {
        written(&format!("limits: [{{name: it, key: source, rate: 10/min, burst: 10{action}}}]"))
    };
    let mut program = program(&text(""));
    let frame = Frame::udp(A, B, 9, 9).payload(18).build();
    assert_eq!(program.run_many(&frame, 4).unwrap(), 4);
    program.apply(&text(", action: drop")).unwrap();
    assert_eq!(program.run_many(&frame, 4).unwrap(), 0);
    program.apply(&text("")).unwrap();
    assert_eq!(program.run_many(&frame, 20).unwrap(), 10, "it begins anew");
    program.check_accounts().unwrap();
}
