//! Counts every frame under the reason of an independent parser, and shows that none evades the limits of its
//! source.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
};

use limiter_common::packet::reason::Reason;
use limiter_tests::{
    packet::{Extension, Frame, kinds},
    program::{Clock, LONGEST, SHORTEST, SMALL, Sizes, TestProgram, Verdict},
    reference::{Reference, ReferenceFragment, UNKNOWN_PROTOCOL, control, reference},
};
use limiter_userspace::policy::{Builtin, Policy};

use super::{
    Case, NOW, Run,
    kernel::{load, pieces},
    mutation::{Random, mutate},
    part, policy, seed, tokens,
};

/// Calls `with` with each kind of frame cut to every length, and with `mutations` mutated frames, if the
/// program can be run on them.
fn for_each(mutations: u64, mut with: impl FnMut(&[u8])) {
    let kinds = kinds();
    for (name, frame) in &kinds {
        for length in SHORTEST..=frame.len() {
            let frame = &frame[..length];
            let case = format_args!("{name} cut to {length}: {frame:02x?}");
            let _case = Case(&case);
            with(frame);
        }
    }
    let seed = seed();
    let mut frame = Vec::new();
    for step in 0..mutations {
        let mut random = Random::new(seed, step);
        let (name, kind) = random.pick(&kinds);
        frame.clone_from(kind);
        for _ in 0..=random.below(4) {
            mutate(&mut random, &mut frame, &kinds);
        }
        if (SHORTEST..=LONGEST).contains(&frame.len()) {
            let case = format_args!("made of {name}: {frame:02x?}");
            let _run = Run { seed, run: step, of: &case };
            with(&frame);
        }
    }
}

/// Asserts that the program counts frames under the reasons of the reference.
fn count_like_the_reference(mut program: TestProgram, mutations: u64) {
    program.at(NOW).unwrap();
    let mut expected = program.counters().unwrap().reasons;
    for_each(mutations, |frame| {
        let name = reference(frame).reason();
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name).unwrap();
        // Mutations make too little control traffic to use up a budget.
        let reason = if control(frame).is_some() { Reason::Control } else { reason };
        let verdict = if reason.drops() { Verdict::Drop } else { Verdict::Pass };
        assert_eq!(program.run(frame).unwrap(), verdict, "{name}");
        let tally = &mut expected[reason.index()];
        tally.packets += 1;
        tally.bytes += frame.len() as u64;
        assert_eq!(program.counters().unwrap().reasons, expected, "expected {name}");
    });
    program.check_accounts().unwrap();
    // If mutations stopped reaching a case, their number would prove nothing.
    let others = [Reason::Allow, Reason::Monitor, Reason::Unloaded];
    let seen = |reason: &Reason| !reason.drops() || *reason == Reason::TooDeep;
    for reason in Reason::ALL.into_iter().filter(seen).filter(|it| *it != Reason::Control) {
        let packets = expected[reason.index()].packets;
        if others.contains(&reason) {
            assert_eq!(packets, 0, "no policy asks for {reason:?}, and the main program is there");
        } else {
            assert!(packets >= mutations / 500, "{packets} of {reason:?}");
        }
    }
}

#[test]
fn reasons_are_those_of_the_reference() {
    let program = TestProgram::new(SMALL, &Policy::default(), Clock::Test).unwrap();
    count_like_the_reference(program, part(200_000));
}

#[test]
fn reasons_are_those_of_the_reference_for_packets_in_several_pieces() {
    let program = TestProgram::with_frags(SMALL, &Policy::default(), Clock::Test).unwrap();
    count_like_the_reference(program, part(50_000));
}

/// Bytes beyond the first piece are payload; a long packet is not malformed.
#[test]
fn a_packet_in_several_pieces_is_a_packet() {
    const A: [u8; 4] = [10, 0, 0, 1];
    const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
    let mut program = TestProgram::with_frags(SMALL, &Policy::default(), Clock::Test).unwrap();
    let mut expected = program.counters().unwrap().reasons;
    for payload in [LONGEST - 42, LONGEST - 41, LONGEST, 5_000, 8_958, 60_000] {
        for (frame, reason) in [
            (Frame::udp(A, A, 1, 2), Reason::Conform),
            (Frame::udp(A, A, 1, 2).fragment(1, 3, true), Reason::Fragment),
            (Frame::udp(A6, A6, 1, 2).tag(0x8100, 5), Reason::Conform),
            (Frame::udp(A6, A6, 1, 2).extension(Extension::routing(2)), Reason::Conform),
            (Frame::udp(A, A, 1, 2).declared_length(65_535), Reason::Malformed),
        ] {
            let frame = frame.payload(payload).build();
            assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
            expected[reason.index()].packets += 1;
            expected[reason.index()].bytes += frame.len() as u64;
            let counted = program.counters().unwrap().reasons;
            assert_eq!(counted, expected, "{payload} bytes, expected {reason:?}");
        }
    }
    program.check_accounts().unwrap();
}

/// The source of a frame under the default key prefix; `None` if it cannot be read.
fn source(frame: &Reference) -> Option<IpAddr> {
    match *frame {
        Reference::Ip { source: IpAddr::V6(source), .. } => {
            Some(Ipv6Addr::from_bits(source.to_bits() >> 64 << 64).into())
        }
        Reference::Ip { source, .. } => Some(source),
        _ => None,
    }
}

/// Runs all frames under one limit. `key` returns the bucket of that limit to which a frame is charged.
fn hold<K: Eq + Hash + Debug>(limit: Builtin, key: impl Fn(&Reference) -> Option<K>) {
    const BURST: u32 = 4;
    let sizes = Sizes {
        sources: 1 << 18,
        buckets: 1 << 18,
        wide_states: 1 << 11,
        overrides: 1,
        further: false,
        buckets_made: false,
    };
    let limits = policy(&[(limit, tokens(BURST.into()))]);
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut spent: HashMap<K, u32> = HashMap::new();
    let mut verdicts: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    for_each(part(60_000), |frame| {
        let what = reference(frame);
        let expected = match key(&what) {
            _ if what.reason() == "too_deep" => Verdict::Drop,
            _ if control(frame).is_some() => Verdict::Pass,
            None => Verdict::Pass,
            Some(key) => {
                let spent = spent.entry(key).or_default();
                *spent += 1;
                if *spent > BURST { Verdict::Drop } else { Verdict::Pass }
            }
        };
        // Each fragment belongs to a datagram of its own.
        program.forget_fragment(frame).unwrap();
        assert_eq!(program.run(frame).unwrap(), expected, "{what:?}");
        verdicts.entry(what.reason()).or_default()[expected as usize] += 1;
    });
    program.check_accounts().unwrap();
    assert!(u64::from(verdicts["malformed"][Verdict::Drop as usize]) > part(1_000), "{verdicts:?}");
    assert_eq!(verdicts["non_ip"][Verdict::Drop as usize], 0, "{verdicts:?}");
}

#[test]
fn no_frame_gets_past_the_limit_of_its_source() {
    hold(Builtin::Source, |frame| (*frame != Reference::NonIp).then(|| source(frame)));
}

#[test]
fn no_frame_that_may_open_a_connection_gets_past_the_limit_of_syns() {
    hold(Builtin::Syn, |frame| match frame {
        // Only the first fragment tells the protocol, and it was not seen.
        Reference::Ip {
            source: IpAddr::V6(_), fragment: ReferenceFragment::Later(offset), ..
        } => (*offset == 1).then(|| source(frame)),
        Reference::Unreadable | Reference::Ip { may_open: true, .. } => Some(source(frame)),
        _ => None,
    });
}

#[test]
fn no_frame_gets_past_the_limit_of_its_connection() {
    hold(Builtin::Connection, |frame| match *frame {
        Reference::NonIp | Reference::TooDeep => None,
        // All unreadable frames count as one connection, because they are of one source.
        Reference::Unreadable => Some(None),
        Reference::Ip {
            source: source @ IpAddr::V6(_),
            destination,
            fragment: ReferenceFragment::Later(_),
            ..
        } => Some(Some((source, destination, (0, 0), UNKNOWN_PROTOCOL))),
        Reference::Ip { source, destination, ports, protocol, .. } => {
            Some(Some((source, destination, ports, protocol)))
        }
    });
}

#[test]
fn packets_in_several_pieces_are_counted_whole() {
    let mut program = load(true, Clock::Test);
    program.at(NOW).unwrap();
    pieces(&mut program);
    program.close().unwrap();
}
