//! The parser of the datapath against the reference, a parser that was written apart from it.

#![no_main]

#[path = "../../tests/src/reference.rs"]
mod reference;

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use limiter_common::{
    base::address::Address,
    packet::{frame::Sighting, headers::Packet, link::NonIp, parse::parse},
};

use self::reference::{Reference, is_of_link, reference};

/// Bytes of a frame.
const LONGEST: usize = 4_096;

fuzz_target!(|frame: &[u8]| {
    let frame = &frame[..frame.len().min(LONGEST)];
    let mut packet = Packet::UNREADABLE;
    let reason = parse(frame, &mut packet);

    let mut sighted = Packet::UNREADABLE;
    assert_eq!(parse(&Sighting::whole(frame), &mut sighted), reason);
    assert_eq!(sighted, packet);

    let expected = reference(frame);
    assert_eq!(reason.map_or("non_ip", |reason| reason.name()), expected.reason(), "{packet:?}");
    assert_eq!(reason == Err(NonIp::LinkProtocol), is_of_link(frame));
    let Reference::Ip { source, destination, protocol, ports, port, tcp_flags, may_open, .. } =
        expected
    else {
        let deep = expected == Reference::TooDeep;
        assert_eq!(packet, if deep { Packet::TOO_DEEP } else { Packet::UNREADABLE });
        return;
    };
    assert_eq!(IpAddr::try_from(packet.source), Ok(source));
    let Address { family, .. } = packet.source;
    assert_eq!(IpAddr::try_from(Address { words: packet.destination, family }), Ok(destination));
    assert_eq!(packet.protocol, protocol);
    assert_eq!((packet.ports.source, packet.ports.destination), ports);
    assert_eq!(packet.port(), port);
    assert_eq!(packet.tcp_flags.get(), tcp_flags);
    assert_eq!(packet.may_open(), may_open);
});
