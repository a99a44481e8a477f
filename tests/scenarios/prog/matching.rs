//! Which packets a limit matches in the program, at the edges of its `match`.
//!
//! The limits are written as in a policy document. Each admits a single packet, so the verdicts show what it
//! matches: the second matching packet is dropped.

mod addresses;
mod any;
mod headers;
mod ports;

use limiter_tests::{
    packet::Frame,
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    document::{self, FileError},
};

use super::modes::tally;

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1];

/// A policy with one limit that admits one packet.
fn written(matching: &str, key: &str) -> Policy {
    let document = format!(
        "version: 1
services: {{ web: {{ protocol: [tcp, udp], ports: [http, https, 8000-8010] }} }}
limits: [{{ name: it, match: {{ {matching} }}, key: {key}, rate: 1/min, burst: 1 }}]
"
    );
    let no_file = &mut |_: &str| Err(FileError::TooLarge { most: 0 });
    document::parse("policy.yaml", document.as_bytes(), no_file).unwrap()
}

/// Asserts that a limit matches the frames in `about` and not those in `not`: as a bucket for all packets, as
/// a bucket per source, and when the CPU cache holds a refusal. All fragments belong to different datagrams.
fn check(program: &mut TestProgram, matching: &str, about: &[Frame], not: &[Frame]) {
    for key in ["all", "source"] {
        program.forget().unwrap();
        program.apply(&written(matching, key)).unwrap();
        let counted = |program: &TestProgram| {
            let (conform, exceed) = tally(program, "it");
            conform + exceed
        };
        let before = counted(program);
        for (frames, expected) in [(about, Verdict::Drop), (not, Verdict::Pass)] {
            for frame in frames {
                let bytes = frame.build();
                program.forget_fragment(&bytes).unwrap();
                program.run(&bytes).unwrap();
                let verdict = program.run(&bytes).unwrap();
                assert_eq!(verdict, expected, "{{ {matching} }} by {key}: {frame:?}");
            }
        }
        let about = 2 * about.len() as u64;
        assert_eq!(counted(program) - before, about, "{{ {matching} }} by {key}");
    }
    program.check_accounts().unwrap();
}

/// A frame with these source and destination ports, for each family and each of these protocols.
fn with_ports(protocols: &[u8], ports: [u16; 2]) -> Vec<Frame> {
    let [from, to] = ports;
    let both = |protocol: &u8| match protocol {
        6 => [Frame::tcp(A, B, from, to, 0x10), Frame::tcp(A6, B6, from, to, 0x10)],
        17 => [Frame::udp(A, B, from, to), Frame::udp(A6, B6, from, to)],
        _ => [Frame::sctp(A, B, from, to), Frame::sctp(A6, B6, from, to)],
    };
    protocols.iter().flat_map(both).map(|frame| frame.payload(18)).collect()
}
