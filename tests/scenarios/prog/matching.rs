//! Which packets a limit is about, in the program that is in force: at the edges of what its `match`
//! says.
//!
//! The limits are written as an operator writes them. One that admits a single packet shows by the
//! verdicts what it is about: of those packets, the second is dropped.

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

/// A policy with one limit, which admits one packet.
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

/// Checks that a limit is about some frames and not about others, if it is kept for all packets, if it
/// is kept by their sources, and if what is refused of a source is remembered. No fragment has another of its datagram.
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

/// A frame with these source and destination ports, of each family and of each of these protocols.
fn with_ports(protocols: &[u8], ports: [u16; 2]) -> Vec<Frame> {
    let [from, to] = ports;
    let both = |protocol: &u8| match protocol {
        6 => [Frame::tcp(A, B, from, to, 0x10), Frame::tcp(A6, B6, from, to, 0x10)],
        17 => [Frame::udp(A, B, from, to), Frame::udp(A6, B6, from, to)],
        _ => [Frame::sctp(A, B, from, to), Frame::sctp(A6, B6, from, to)],
    };
    protocols.iter().flat_map(both).map(|frame| frame.payload(18)).collect()
}
