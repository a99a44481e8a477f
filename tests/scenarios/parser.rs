//! Compares the parser of the decision core with the independent reference: on every truncation of every kind
//! of frame, on mutated frames, and on frames made to mislead parsers.

mod directed;
pub(super) mod mutation;

use std::{collections::BTreeMap, fmt, thread};

use limiter_common::{
    algorithm::concurrent::Signal,
    base::address::Mask,
    packet::{
        control::{self as core, Protocol},
        headers::{Anomaly, Fragment, Packet},
        link::NonIp,
        parse::parse,
        reason::Reason,
    },
    policy::limit::{BucketKey, Key, Limit},
};
use limiter_tests::{
    packet::kinds,
    random::{self, SEED_VARIABLE},
    reference::{Reference, ReferenceAnomaly, ReferenceFragment, control, is_of_link, reference},
};

use self::mutation::{Random, mutate};

/// The number of mutated frames.
const STEPS: u64 = 1_200_000;
/// The seed of the mutations, unless `LIMITER_TEST_SEED` is set.
const SEED: u64 = 0x6c69_6d69_7465_7231;

/// A frame to compare on. Its name and bytes are printed if the comparison fails.
struct Case<'a> {
    name: &'a dyn fmt::Display,
    frame: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let bytes: Vec<_> = self.frame.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{}: {} bytes: {}", self.name, self.frame.len(), bytes.join(" "));
        }
    }
}

/// Asserts that parser and reference agree on `frame`, and returns their reading.
fn check(name: &dyn fmt::Display, frame: &[u8]) -> Reference {
    let _case = Case { name, frame };
    let expected = reference(frame);
    let mut packet = Packet::UNREADABLE;
    let (observed, reason) = match parse(frame, &mut packet) {
        Ok(reason) => {
            assert_eq!(reason, Reason::conform(&packet));
            (as_reference(&packet), reason)
        }
        Err(what) => {
            assert_eq!(packet, Packet::UNREADABLE);
            assert_eq!(what == NonIp::LinkProtocol, is_of_link(frame), "{what:?}");
            (Some(Reference::NonIp), Reason::NonIp)
        }
    };
    assert_eq!(observed.as_ref(), Some(&expected));
    assert_eq!(reason.name(), expected.reason());
    let protocol = Protocol::of(&packet);
    assert_eq!(protocol.map(|it| (it.name(), it.is_far())), control(frame));
    let ends = matches!(Signal::of(&packet), Signal::Finish | Signal::Reset);
    assert!(!ends || packet.anomaly != Anomaly::Unsized, "it closes no connection");
    assert!(protocol.is_none() || core::may_be(&packet), "the first look sees it");
    expected
}

/// The parser's reading in terms of the reference; `None` if it gives no connection key, or one without
/// addresses.
fn as_reference(packet: &Packet) -> Option<Reference> {
    if *packet == Packet::UNREADABLE {
        return Some(Reference::Unreadable);
    }
    if *packet == Packet::TOO_DEEP {
        return Some(Reference::TooDeep);
    }
    let (mask, ports) = (Mask::new(32, 128), packet.ports);
    let limit = Limit { key: Key(Key::CONNECTION), mask, limit_id: 1, ..Limit::default() };
    let mut key = BucketKey::default();
    key.fill(&limit, packet, 0, 0);
    assert_eq!(key.source(), packet.source);
    assert_eq!(key.protocol & 0xff, u32::from(packet.protocol));
    assert_eq!(key.ports, (u32::from(ports.source) << 16) | u32::from(ports.destination));
    assert_eq!(key.whose, 0);
    let destination = key.destination();
    Some(Reference::Ip {
        source: packet.source.try_into().ok()?,
        destination: destination.try_into().ok()?,
        protocol: packet.protocol,
        ports: (ports.source, ports.destination),
        port: packet.port(),
        icmp_type: packet.icmp_type(),
        tcp_flags: packet.tcp_flags.get(),
        sequence: packet.sequence,
        fragment: match packet.fragment.get() {
            Fragment::Whole => ReferenceFragment::Whole,
            Fragment::First => ReferenceFragment::First,
            Fragment::Later(offset) => ReferenceFragment::Later(offset),
        },
        anomaly: match packet.anomaly {
            Anomaly::None => ReferenceAnomaly::None,
            Anomaly::Unreadable => return None,
            Anomaly::Malformed => ReferenceAnomaly::Malformed,
            Anomaly::TooDeep => ReferenceAnomaly::TooDeep,
            Anomaly::Unsized => ReferenceAnomaly::Unsized,
        },
        may_open: packet.may_open(),
    })
}

#[test]
fn every_truncation_of_every_kind() {
    for (name, frame) in kinds() {
        let whole = check(&name, &frame);
        for length in 0..=frame.len() {
            let part = check(&format_args!("{name} cut to {length}"), &frame[..length]);
            // A cut may hide fields but never changes the source or the destination.
            if let (
                Reference::Ip { source, destination, .. },
                Reference::Ip { source: whole_source, destination: whole_destination, .. },
            ) = (part, &whole)
            {
                assert_eq!((source, destination), (*whole_source, *whole_destination), "{name}");
            }
        }
    }
}

/// The frame of a step depends only on the seed and the step.
#[test]
fn mutated_frames() {
    let seed = random::seed(SEED).unwrap();
    let kinds = kinds();
    let mut seen = BTreeMap::new();
    let mut frame = Vec::new();
    for step in 0..STEPS {
        let mut random = Random::new(seed, step);
        let (name, kind) = random.pick(&kinds);
        frame.clone_from(kind);
        for _ in 0..=random.below(4) {
            mutate(&mut random, &mut frame, &kinds);
        }
        let name = format_args!("{SEED_VARIABLE}={seed}, step {step}, made of {name}");
        *seen.entry(class(&check(&name, &frame))).or_insert(0_u32) += 1;
    }
    // If mutations stopped reaching a case, their number would prove nothing.
    for class in [
        "non_ip",
        "unreadable",
        "conform",
        "conform, may open",
        "fragment",
        "fragment, may open",
        "malformed",
        "malformed, may open",
        "too_deep",
        "too_deep, may open",
    ] {
        let count = seen.get(class).copied().unwrap_or_default();
        assert!(count >= 3_000, "only {count} frames were {class}, of {seen:?}");
    }
}

fn class(frame: &Reference) -> String {
    let may_open = matches!(frame, Reference::Ip { may_open: true, .. });
    format!("{}{}", frame.reason(), if may_open { ", may open" } else { "" })
}
