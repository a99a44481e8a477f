//! Frames made to mislead parsers, each with its expected reading.

use std::net::IpAddr;

use limiter_tests::{
    packet::{ACK, Extension, FIN, Frame, IPV4, IPV6, PSH, RST, SYN, TAGS},
    reference::{
        Reference, ReferenceAnomaly, ReferenceFragment, UNKNOWN_PROTOCOL, control, is_of_link,
    },
};

use super::check;

const A4: [u8; 4] = [192, 0, 2, 1];
const B4: [u8; 4] = [198, 51, 100, 1];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0, 1, 0, 0, 0, 2];
const PORTS: (u16, u16) = (40_000, 443);
/// The sequence number of all TCP segments here.
const SEQUENCE: u32 = 0x8765_4321;
/// Bytes before the IP header in a frame without VLAN tags.
const ETHERNET: usize = 14;

const WHOLE: ReferenceFragment = ReferenceFragment::Whole;
const FIRST: ReferenceFragment = ReferenceFragment::First;
const NONE: ReferenceAnomaly = ReferenceAnomaly::None;
const MALFORMED: ReferenceAnomaly = ReferenceAnomaly::Malformed;
const TOO_DEEP: ReferenceAnomaly = ReferenceAnomaly::TooDeep;
const UNSIZED: ReferenceAnomaly = ReferenceAnomaly::Unsized;

fn tcp4(flags: u8) -> Frame {
    Frame::tcp(A4, B4, PORTS.0, PORTS.1, flags).sequence(SEQUENCE)
}

fn tcp6(flags: u8) -> Frame {
    Frame::tcp(A6, B6, PORTS.0, PORTS.1, flags).sequence(SEQUENCE)
}

/// The expected reading of a packet. Fields that a test does not set are those of a plain TCP SYN.
#[derive(Clone, Copy)]
struct Expected {
    protocol: u8,
    ports: (u16, u16),
    /// Whether the destination port was read.
    port: bool,
    icmp_type: Option<u8>,
    tcp_flags: Option<u8>,
    fragment: ReferenceFragment,
    anomaly: ReferenceAnomaly,
    may_open: bool,
}

const TCP_SYN: Expected = Expected {
    protocol: 6,
    ports: PORTS,
    port: true,
    icmp_type: None,
    tcp_flags: Some(SYN),
    fragment: WHOLE,
    anomaly: NONE,
    may_open: true,
};
/// A TCP packet of which no transport field could be read.
const HIDDEN_TCP: Expected =
    Expected { ports: (0, 0), port: false, tcp_flags: None, anomaly: MALFORMED, ..TCP_SYN };
/// A chain of headers that does not lead to a protocol.
const LOST: Expected = Expected { protocol: UNKNOWN_PROTOCOL, ..HIDDEN_TCP };

/// Asserts that parser and reference read a packet between the addresses of this file as `expected`.
fn expect(name: &str, frame: &[u8], expected: Expected) {
    let observed = check(&name, frame);
    let (source, destination): (IpAddr, IpAddr) = match observed {
        Reference::Ip { source: IpAddr::V6(_), .. } => (A6.into(), B6.into()),
        _ => (A4.into(), B4.into()),
    };
    let Expected { protocol, ports, port, icmp_type, tcp_flags, fragment, anomaly, may_open } =
        expected;
    let expected = Reference::Ip {
        source,
        destination,
        protocol,
        ports,
        port: port.then_some(ports.1),
        icmp_type,
        tcp_flags,
        sequence: if tcp_flags.is_some() { SEQUENCE } else { 0 },
        fragment,
        anomaly,
        may_open,
    };
    assert_eq!(observed, expected, "{name}");
}

#[test]
fn four_tags_are_read_and_more_are_too_deep() {
    for tag in TAGS {
        for count in 0..=12 {
            let mix = |frame| {
                // A mix of tags: the tested one outside, the others in turn inside.
                (0..count).fold(frame, |frame: Frame, i| {
                    frame.tag(if i == 0 { tag } else { TAGS[i % 3] }, 7)
                })
            };
            let name = format!("{count} tags, the first {tag:#x}");
            for frame in [mix(tcp4(SYN)).build(), mix(tcp6(SYN)).build()] {
                if count <= 4 {
                    expect(&name, &frame, TCP_SYN);
                } else {
                    assert_eq!(check(&name, &frame), Reference::TooDeep, "{name}");
                }
            }
            let arp = mix(Frame::other(0x0806, [0; 28])).build();
            let verdict = if count <= 4 { Reference::NonIp } else { Reference::TooDeep };
            assert_eq!(check(&name, &arp), verdict, "{name}");
        }
    }
}

#[test]
fn sessions_and_labels_are_read_through() {
    type Change = fn(Frame) -> Frame;
    let framings: [(&str, Change); 8] = [
        ("a session", Frame::pppoe),
        ("a session with a short protocol", Frame::compressed_pppoe),
        ("tags and a session", |it| it.tag(0x88a8, 1).tag(0x8100, 2).pppoe()),
        ("four tags and a session", |it| {
            TAGS.iter().chain(&[0x8100]).fold(it, |it, tag| it.tag(*tag, 1)).pppoe()
        }),
        ("a label", |it| it.labels(1)),
        ("a tag and labels", |it| it.tag(0x8100, 1).labels(3)),
        ("four labels", |it| it.labels(4)),
        ("a session and labels", |it| it.tag(0x8100, 1).pppoe().labels(4)),
    ];
    for (name, framed) in framings {
        for plain in [tcp4(SYN), tcp6(SYN)] {
            expect(name, &framed(plain.clone()).build(), TCP_SYN);
            expect(name, &framed(plain.clone()).padded().build(), TCP_SYN);
            expect(name, &framed(plain.clone().payload(700)).build(), TCP_SYN);
            let first = Expected { fragment: FIRST, ..TCP_SYN };
            expect(name, &framed(plain.clone().fragment(1, 0, true)).build(), first);
            let later = ReferenceFragment::Later(2);
            let later = Expected { fragment: later, anomaly: NONE, may_open: false, ..HIDDEN_TCP };
            expect(name, &framed(plain.clone().fragment(1, 2, true)).build(), later);
            let unsized_ = Expected { anomaly: UNSIZED, ..TCP_SYN };
            expect(name, &framed(plain.clone().declared_length(0)).build(), unsized_);
        }
        let options = Extension::destination_options(3);
        let eight = (0..8).fold(tcp6(SYN), |it, _| it.extension(options.clone()));
        expect(name, &framed(eight.clone()).build(), TCP_SYN);
        let nine = Expected { anomaly: TOO_DEEP, ..LOST };
        expect(name, &framed(eight.extension(options)).build(), nine);
        let options = tcp4(SYN).options(&[1; 40]);
        expect(name, &framed(options).build(), TCP_SYN);
    }
    for labels in 5..8 {
        for frame in [tcp4(SYN).labels(labels), tcp6(SYN).pppoe().labels(labels)] {
            assert_eq!(check(&labels, &frame.build()), Reference::TooDeep, "{labels} labels");
        }
    }
    let tagged = (0..5).fold(tcp4(SYN), |it, _| it.tag(0x8100, 1));
    for frame in [tagged.clone().pppoe(), tagged.labels(1)] {
        assert_eq!(check(&"five tags", &frame.build()), Reference::TooDeep);
    }
}

#[test]
fn the_length_of_a_session_bounds_its_datagram() {
    for (plain, header) in [(tcp4(SYN), 20), (tcp6(SYN), 40)] {
        let datagram = plain.build().len() - ETHERNET;
        for (framed, protocol) in
            [(plain.clone().pppoe(), 2), (plain.clone().compressed_pppoe(), 1)]
        {
            for length in 0..datagram + protocol + 8 {
                let frame = framed.clone().pppoe_length(length as u16).build();
                let name = format!("{length} of {datagram} bytes, and {protocol}");
                // The declared part of the datagram.
                match length.checked_sub(protocol) {
                    None => assert_eq!(check(&name, &frame), Reference::Unreadable, "{name}"),
                    Some(there) if there < header => {
                        assert_eq!(check(&name, &frame), Reference::Unreadable, "{name}");
                    }
                    Some(there) if there == datagram => expect(&name, &frame, TCP_SYN),
                    Some(there) => {
                        let (ports, flags) = (there >= header + 4, there >= header + 14);
                        let expected = Expected {
                            ports: if ports { PORTS } else { (0, 0) },
                            port: ports,
                            tcp_flags: flags.then_some(SYN),
                            anomaly: MALFORMED,
                            ..TCP_SYN
                        };
                        expect(&name, &frame, expected);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_in_a_session_or_behind_labels_and_no_ip_is_not_ip() {
    let control = [0x8021, 0x8057, 0x80fd, 0xc021, 0xc023, 0xc025, 0xc223, 0xc227];
    for protocol in control.into_iter().chain([0x0029, 0x002d, 0x003d, 0x00fd, 0x4021]) {
        let frame = Frame::other(protocol, [0x45; 40]).tag(0x8100, 1).pppoe().build();
        assert_eq!(check(&protocol, &frame), Reference::NonIp, "{protocol:#x}");
        assert_eq!(is_of_link(&frame), control.contains(&protocol), "{protocol:#x}");
    }
    for first in 0..16_u8 {
        let frame = Frame::other(0, [first << 4; 60]).labels(2).build();
        let expected = match first {
            4 | 6 => continue,
            _ => Reference::NonIp,
        };
        assert_eq!(check(&first, &frame), expected, "{first}");
        assert!(!is_of_link(&frame));
    }
}

#[test]
fn a_header_of_the_other_version_hides_the_source() {
    for version in 0..16 {
        for (own, frame) in [(4, tcp4(SYN).build()), (6, tcp6(SYN).build())] {
            let mut frame = frame;
            frame[ETHERNET] = (version << 4) | (frame[ETHERNET] & 0x0f);
            let name = format!("version {version} where {own} should be");
            if version == own {
                expect(&name, &frame, TCP_SYN);
            } else {
                assert_eq!(check(&name, &frame), Reference::Unreadable, "{name}");
            }
        }
    }
    let swapped = |ether_type: u16, mut frame: Vec<u8>| {
        frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
        check(&"ethertype of the other version", &frame)
    };
    assert_eq!(swapped(IPV6, tcp4(SYN).payload(40).build()), Reference::Unreadable);
    assert_eq!(swapped(IPV4, tcp6(SYN).build()), Reference::Unreadable);
}

#[test]
fn options_move_the_transport_header() {
    for words in 0..=10_u8 {
        let frame = tcp4(SYN).options(&vec![1; 4 * usize::from(words)]).build();
        expect(&format!("{words} words of options"), &frame, TCP_SYN);
        // Any other header length is wrong, and must not reach beyond the datagram.
        for ihl in 0..16 {
            let mut frame = frame.clone();
            frame[ETHERNET] = 0x40 | ihl;
            let name = format!("{words} words of options, {ihl} words declared");
            let beyond = usize::from(ihl) * 4 > frame.len() - ETHERNET;
            if ihl < 5 || beyond {
                expect(&name, &frame, HIDDEN_TCP);
            } else {
                check(&name, &frame);
            }
        }
    }
    // The options have the declared length, but the datagram is declared to be shorter.
    let options = tcp4(SYN).options(&[1; 40]);
    expect("options cut", &options.clone().declared_length(59).build(), HIDDEN_TCP);
    expect("options alone", &options.declared_length(60).build(), HIDDEN_TCP);
}

#[test]
fn a_lying_length_hides_nothing_but_headers_beyond_it() {
    for declared in 0..=120_u16 {
        let tcp = |header: u16| match declared.checked_sub(header) {
            Some(20) => TCP_SYN,
            Some(14..20) => Expected { anomaly: MALFORMED, ..TCP_SYN },
            Some(4..14) => Expected { ports: PORTS, port: true, ..HIDDEN_TCP },
            Some(21..) => Expected { anomaly: MALFORMED, ..TCP_SYN },
            _ if declared == 0 => Expected { anomaly: UNSIZED, ..TCP_SYN },
            _ => HIDDEN_TCP,
        };
        let name = format!("declared length {declared}");
        expect(&name, &tcp4(SYN).declared_length(declared).build(), tcp(20));
        let of_payload = if declared == 0 { tcp(20) } else { tcp(0) };
        expect(&name, &tcp6(SYN).declared_length(declared).build(), of_payload);
        expect(&name, &tcp4(SYN).tag(0x8100, 1).declared_length(declared).build(), tcp(20));
    }
    for declared in [1_000, 0x7fff, 0xffff] {
        let malformed = Expected { anomaly: MALFORMED, ..TCP_SYN };
        expect("declared far beyond", &tcp4(SYN).declared_length(declared).build(), malformed);
        expect("declared far beyond", &tcp6(SYN).declared_length(declared).build(), malformed);
    }
}

#[test]
fn padding_is_never_a_header() {
    // A harmless segment, which a trailer may imitate.
    let innocent = tcp4(ACK | FIN).build().split_off(ETHERNET + 20);
    let bare4 = Frame::ip(A4, B4, 6).trailer(&innocent).build();
    expect("IPv4 header alone", &bare4, HIDDEN_TCP);
    // A packet that declares no length cannot be told from one that the kernel has merged, and proves
    // nothing.
    let bare6 = Frame::ip(A6, B6, 6).trailer(&innocent).build();
    let innocent6 = Expected { tcp_flags: Some(ACK | FIN), may_open: false, ..TCP_SYN };
    expect("IPv6 header alone", &bare6, Expected { anomaly: UNSIZED, ..innocent6 });
    for (name, extension) in [
        ("options", Extension::destination_options(0)),
        ("atomic fragment", Extension::fragment(1, 0, false)),
        ("authentication", Extension::authentication(4)),
    ] {
        let frame = Frame::ip(A6, B6, 6).extension(extension.clone()).trailer(&innocent);
        expect(&format!("{name} alone"), &frame.build(), HIDDEN_TCP);
        let hidden = extension.bytes(6);
        let frame = Frame::ip(A6, B6, extension.number()).declared_length(1);
        let frame = frame.trailer(&hidden).trailer(&innocent);
        expect(&format!("{name} in the padding"), &frame.build(), LOST);
    }
    // A complete segment is not changed by what follows it.
    for frame in [tcp4(SYN), tcp6(SYN)] {
        expect("padded", &frame.clone().padded().build(), TCP_SYN);
        expect("trailer", &frame.trailer(&innocent).build(), TCP_SYN);
    }
}

#[test]
fn a_tiny_first_fragment_may_open() {
    let segment = tcp4(ACK).build().split_off(ETHERNET + 20);
    for length in 0..=20 {
        for source in [Frame::ip(A4, B4, 6), Frame::ip(A6, B6, 6)] {
            let frame = source.bytes(&segment[..length]).fragment(1, 0, true).build();
            let tcp_flags = (length > 13).then_some(ACK);
            let expected = Expected {
                ports: if length < 4 { (0, 0) } else { PORTS },
                port: length >= 4,
                tcp_flags,
                fragment: FIRST,
                anomaly: if length < 20 { MALFORMED } else { NONE },
                may_open: tcp_flags.is_none(),
                ..TCP_SYN
            };
            expect(&format!("first fragment with {length} bytes of TCP"), &frame, expected);
        }
    }
}

#[test]
fn a_later_fragment_has_no_ports_and_may_open_where_flags_are() {
    let segment = tcp4(ACK).build().split_off(ETHERNET + 20);
    for offset in [1, 2, 3, 185, 0x1000, 0x1fff] {
        for more in [false, true] {
            for protocol in [6, 17, 132, 1, 58, 50, 253] {
                for source in [Frame::ip(A4, B4, protocol), Frame::ip(A6, B6, protocol)] {
                    let frame = source.bytes(&segment).fragment(1, offset, more).build();
                    let expected = Expected {
                        protocol,
                        anomaly: NONE,
                        fragment: ReferenceFragment::Later(offset),
                        may_open: protocol == 6 && offset == 1,
                        ..HIDDEN_TCP
                    };
                    let name = format!("protocol {protocol}, offset {offset}, more {more}");
                    expect(&name, &frame, expected);
                }
            }
        }
    }
    // An overlapping fragment stays one if the datagram is cut inside it.
    for length in 0..20 {
        let frame = Frame::ip(A4, B4, 6).bytes(&segment[..length]).fragment(1, 1, false).build();
        let fragment = ReferenceFragment::Later(1);
        expect("short overlap", &frame, Expected { fragment, anomaly: NONE, ..HIDDEN_TCP });
    }
}

#[test]
fn eight_extension_headers_are_walked() {
    let extensions = [
        Extension::hop_by_hop(0),
        Extension::destination_options(1),
        Extension::routing(2),
        Extension::fragment(1, 0, false),
        Extension::authentication(3),
        Extension::mobility(0),
        Extension::host_identity(0),
        Extension::shim6(5),
    ];
    for count in 0..=12 {
        let expected = |fragment| match count {
            0..=8 => Expected { fragment, ..TCP_SYN },
            _ => Expected { anomaly: TOO_DEEP, fragment, ..LOST },
        };
        for extension in &extensions {
            let frame = (0..count).fold(tcp6(SYN), |f, _| f.extension(extension.clone()));
            let name = format!("{count} headers {}", extension.number());
            expect(&name, &frame.build(), expected(WHOLE));
        }
        let all = extensions.iter().cycle().take(count).cloned();
        let mixed = all.fold(tcp6(SYN), Frame::extension);
        expect(&format!("{count} headers"), &mixed.build(), expected(WHOLE));
        let mixed = extensions.iter().skip(4).cycle().take(count.saturating_sub(1)).cloned();
        let first = mixed.fold(tcp6(SYN).fragment(1, 0, true), Frame::extension);
        if count > 0 {
            expect(&format!("first fragment, {count} headers"), &first.build(), expected(FIRST));
        }
    }
    // Whatever length is declared, a packet that is too deep is dropped.
    let nine = (0..9).fold(tcp6(SYN), |f, _| f.extension(Extension::destination_options(0)));
    for declared in [0, 1_000] {
        let frame = nine.clone().declared_length(declared).build();
        expect("nine headers of another length", &frame, Expected { anomaly: TOO_DEEP, ..LOST });
    }
}

#[test]
fn a_long_extension_header_ends_inside_the_datagram_or_hides_the_protocol() {
    for extension in [
        Extension::hop_by_hop(255),
        Extension::routing(255),
        Extension::destination_options(255),
        Extension::mobility(255),
        Extension::authentication(255),
    ] {
        let name = format!("header {} of the greatest length", extension.number());
        let length = extension.bytes(6).len() as u16;
        let frame = tcp6(SYN).extension(extension);
        expect(&name, &frame.build(), TCP_SYN);
        expect(&name, &frame.clone().declared_length(length).build(), HIDDEN_TCP);
        expect(&name, &frame.clone().declared_length(length - 1).build(), LOST);
        expect(&name, &frame.declared_length(1).build(), LOST);
    }
    // Eight extension headers of the greatest length.
    let frame = (0..8).fold(tcp6(SYN), |f, _| f.extension(Extension::destination_options(255)));
    expect("eight headers of the greatest length", &frame.build(), TCP_SYN);
}

#[test]
fn authentication_is_walked_in_ipv6_and_final_in_ipv4() {
    for words in 0..=12 {
        let frame = tcp6(SYN).extension(Extension::authentication(words)).build();
        expect(&format!("authentication of {words} words"), &frame, TCP_SYN);
    }
    let quiet = Expected { anomaly: NONE, may_open: false, ..HIDDEN_TCP };
    let header = Extension::authentication(4).bytes(6);
    let frame = Frame::ip(A4, B4, 51).bytes(&header).bytes(&[0; 20]).build();
    expect("authentication in IPv4", &frame, Expected { protocol: 51, ..quiet });
    for protocol in [50, 59] {
        for frame in [Frame::ip(A4, B4, protocol), Frame::ip(A6, B6, protocol)] {
            let frame = frame.payload(40).build();
            expect("ESP or nothing", &frame, Expected { protocol, ..quiet });
        }
    }
}

#[test]
fn a_jumbogram_is_all_that_there_is() {
    let whole = Expected { anomaly: UNSIZED, ..TCP_SYN };
    let jumbo = tcp6(SYN).extension(Extension::jumbo(28)).declared_length(0);
    expect("jumbogram", &jumbo.build(), whole);
    expect("jumbogram with a trailer", &jumbo.clone().trailer(&[0xff; 9]).build(), whole);
    let empty = Frame::ip(A6, B6, 0).declared_length(0).build();
    expect("jumbogram of nothing", &empty, LOST);
    // A kernel that merges packets beyond 64 kB adds no jumbo option.
    let options = tcp6(SYN).extension(Extension::destination_options(0)).declared_length(0);
    expect("options and no length", &options.build(), whole);
}

/// The kernel merges packets like this (BIG TCP), and captures have them before the network card cuts them
/// (TSO).
#[test]
fn a_packet_that_declares_no_length_is_what_its_headers_say() {
    for (flags, may_open) in [(SYN, true), (PSH | ACK, false), (FIN | ACK, false), (RST, false)] {
        let whole = Expected { tcp_flags: Some(flags), may_open, anomaly: UNSIZED, ..TCP_SYN };
        for payload in [0, 6, 1_400, 70_000] {
            for segment in [tcp4(flags), tcp6(flags), tcp4(flags).options(&[1; 8])] {
                let frame = segment.payload(payload).declared_length(0);
                expect("no length", &frame.build(), whole);
                expect("no length, tagged", &frame.tag(0x8100, 7).build(), whole);
            }
        }
    }
    // A packet that is cut is malformed all the same.
    let frame = tcp4(SYN).declared_length(0).build();
    expect("no length, cut", &frame[..frame.len() - 1], Expected { anomaly: MALFORMED, ..TCP_SYN });
    expect("no length, no flags", &frame[..ETHERNET + 20], HIDDEN_TCP);
    let first = tcp4(SYN).fragment(1, 0, true).declared_length(0).build();
    let (fragment, anomaly) = (FIRST, UNSIZED);
    expect("no length, a fragment", &first, Expected { fragment, anomaly, ..TCP_SYN });
}

/// A change to a frame of control traffic after which it is ordinary, or can be forged.
type Change = fn(Frame) -> Frame;

/// Frames of control traffic, and variations that fail each condition once.
#[test]
fn control_traffic_is_recognised_strictly() {
    const LOCAL: [u16; 8] = [0xfe80, 0, 0, 0, 0, 0, 0, 0xbad];
    const UNSPECIFIED: [u16; 8] = [0; 8];
    const ALL_NODES: [u16; 8] = [0xff02, 0, 0, 0, 0, 0, 0, 1];
    let group6 = |last| [0xff02, 0, 0, 0, 0, 0, 0, last];
    let icmp = |from: [u16; 8], to: [u16; 8], kind, hops| {
        Frame::ip(from, to, 58).bytes(&[kind, 0, 0, 0, 0, 0, 0, 0]).ttl(hops)
    };
    let said = |frame: &Frame| {
        let frame = frame.build();
        check(&"control traffic", &frame);
        control(&frame)
    };
    let near = |name| Some((name, false));
    for kind in 0..=255 {
        let is_nd = matches!(kind, 133..=137);
        for from in [LOCAL, UNSPECIFIED, A6] {
            for to in [ALL_NODES, B6, LOCAL] {
                let found = said(&icmp(from, to, kind, 255));
                assert_eq!(found, near("ndp").filter(|_| is_nd), "{kind}");
                for hops in [1, 64, 254] {
                    assert_eq!(said(&icmp(from, to, kind, hops)), None, "{kind} with {hops}");
                }
            }
            let is_mld = match kind {
                130 => from == LOCAL,
                131 | 132 | 143 => from == LOCAL || from == UNSPECIFIED,
                _ => false,
            };
            for alert in [Extension::router_alert(0), Extension::router_alert(2)] {
                let frame = icmp(from, group6(0x16), kind, 1).extension(alert);
                assert_eq!(said(&frame), near("mld").filter(|_| is_mld), "{kind} from {from:x?}");
                assert_eq!(said(&frame.ttl(2)), None);
            }
            let other = icmp(from, group6(0x16), kind, 1).extension(Extension::hop_by_hop(0));
            assert_eq!(said(&other), None);
        }
    }
    let fragment: Change = |frame| frame.fragment(1, 0, true);
    let cut: Change = |frame| frame.declared_length(21);
    for (frame, name) in [
        (Frame::ip(A4, [224, 0, 0, 22], 2).payload(8).ttl(1), "igmp"),
        (Frame::ip(A4, [224, 0, 0, 18], 112).payload(20).ttl(255), "vrrp"),
        (Frame::ip(LOCAL, group6(0x12), 112).payload(20).ttl(255), "vrrp"),
        (Frame::udp(A4, B4, 49_152, 3784).ttl(255), "bfd"),
        (Frame::udp(A6, B6, 49_152, 3784).ttl(255), "bfd"),
        (Frame::ip(A4, [224, 0, 0, 5], 89).payload(24).ttl(1), "ospf"),
        (Frame::ip(A4, [224, 0, 0, 6], 89).payload(24).ttl(1), "ospf"),
        (Frame::ip(LOCAL, group6(5), 89).payload(24).ttl(1), "ospf"),
        (Frame::ip(LOCAL, group6(6), 89).payload(24).ttl(1), "ospf"),
    ] {
        assert_eq!(said(&frame), near(name));
        assert_eq!(said(&frame.clone().ttl(64)), None, "{name} of another hop limit");
        assert_eq!(said(&frame.clone().tag(0x8100, 5)), near(name), "{name}, tagged");
        let expected = near(name).filter(|_| name == "ospf");
        assert_eq!(said(&fragment(frame.clone())), expected, "a fragment of {name}");
        assert_eq!(said(&frame.clone().declared_length(1_000)), None, "{name}, malformed");
    }
    let udp4 = Frame::udp(A4, B4, 68, 67);
    assert_eq!(said(&cut(udp4)), None);
    for (protocol, to) in [(2, B4), (112, B4), (112, [224, 0, 0, 5]), (89, [224, 0, 0, 18])] {
        for hops in [1, 255] {
            let frame = Frame::ip(A4, to, protocol).payload(24).ttl(hops);
            assert_eq!(said(&frame), None, "{protocol} to {to:?}");
        }
    }
    for (frame, hops) in [(Frame::ip(A4, B4, 89), 1), (Frame::ip(LOCAL, B6, 89), 1)] {
        assert_eq!(said(&frame.clone().payload(24).ttl(hops)), Some(("ospf", true)));
        assert_eq!(said(&frame.payload(24).ttl(hops + 1)), None);
    }
    let nobody4 = [0; 4];
    for (from, to) in [(68, 67), (67, 68), (67, 67)] {
        for (address, far) in [
            ([255; 4], Some(false)),
            ([169, 254, 1, 1], Some(false)),
            (B4, Some(true)),
            ([224, 0, 0, 1], None),
        ] {
            let frame = Frame::udp(nobody4, address, from, to).payload(240);
            assert_eq!(said(&frame), far.map(|far| ("dhcp", far)), "{from} to {to} of {address:?}");
            assert_eq!(said(&fragment(frame)), None);
        }
    }
    for (from, to) in [(546, 547), (547, 546), (547, 547)] {
        for (address, far) in [
            ([0xff02, 0, 0, 0, 0, 0, 1, 2], Some(false)),
            (LOCAL, Some(false)),
            (B6, Some(true)),
            ([0xff05, 0, 0, 0, 0, 0, 1, 3], None),
        ] {
            let frame = Frame::udp(LOCAL, address, from, to).payload(40);
            assert_eq!(
                said(&frame),
                far.map(|far| ("dhcp", far)),
                "{from} to {to} of {address:x?}"
            );
        }
    }
    for (from, to) in [(68, 68), (1024, 67), (67, 1024), (546, 547), (53, 53), (68, 3784)] {
        assert_eq!(said(&Frame::udp(A4, [255; 4], from, to).payload(240)), None, "{from} to {to}");
    }
    assert_eq!(said(&Frame::udp(LOCAL, ALL_NODES, 68, 67)), None, "ports of the other version");
    assert_eq!(said(&Frame::tcp(A4, [255; 4], 68, 67, SYN)), None, "TCP");
}

#[test]
fn a_fragment_header_decides_wherever_it_is() {
    let cases = [
        ("atomic", &[(0, false)][..], WHOLE),
        ("first", &[(0, true)], FIRST),
        ("atomic, then first", &[(0, false), (0, true)], FIRST),
        ("first, then atomic", &[(0, true), (0, false)], FIRST),
        ("first twice", &[(0, true), (0, true)], FIRST),
    ];
    for (name, headers, fragment) in cases {
        let frame =
            headers.iter().fold(tcp6(SYN), |f, &(offset, more)| f.fragment(1, offset, more));
        expect(name, &frame.build(), Expected { fragment, ..TCP_SYN });
    }
    for headers in [&[(0, false), (1, false)], &[(0, true), (1, true)]] {
        let frame =
            headers.iter().fold(tcp6(SYN), |f, &(offset, more)| f.fragment(1, offset, more));
        let fragment = ReferenceFragment::Later(1);
        let expected = Expected { fragment, anomaly: NONE, ..HIDDEN_TCP };
        expect("later at last", &frame.build(), expected);
    }
    let options = Extension::destination_options(0);
    let frame = tcp6(SYN).fragment(1, 3, true).extension(options).build();
    let (fragment, protocol) = (ReferenceFragment::Later(3), 60);
    let expected = Expected { fragment, protocol, anomaly: NONE, may_open: false, ..HIDDEN_TCP };
    expect("later fragment of options", &frame, expected);
    for length in 1..8 {
        let frame = tcp6(SYN).fragment(1, 1, true).declared_length(length).build();
        expect("fragment header cut", &frame, LOST);
    }
}

#[test]
fn only_a_syn_without_ack_opens() {
    for flags in 0..=255_u8 {
        let may_open = flags & SYN != 0 && flags & ACK == 0;
        let expected = Expected { tcp_flags: Some(flags), may_open, ..TCP_SYN };
        expect(&format!("flags {flags:#x}"), &tcp4(flags).build(), expected);
        expect(&format!("flags {flags:#x}"), &tcp6(flags).build(), expected);
    }
}

#[test]
fn every_protocol_at_every_length() {
    for protocol in 0..=255 {
        for length in 0..=24 {
            let name = format!("protocol {protocol} with {length} bytes");
            check(&name, &Frame::ip(A4, B4, protocol).payload(length).build());
            check(&name, &Frame::ip(A6, B6, protocol).payload(length).build());
            check(&name, &Frame::ip(A6, B6, protocol).bytes(&vec![0; length]).build());
        }
    }
}

/// Fields are read if they are complete: port 0 is a port, and a port that is cut off is none.
#[test]
fn ports_and_types_are_told_as_far_as_they_are_there() {
    let nothing = Expected { anomaly: NONE, may_open: false, ..HIDDEN_TCP };
    for ports in [PORTS, (0, 0)] {
        let header = [ports.0.to_be_bytes(), ports.1.to_be_bytes(), [0; 2], [0; 2], [0; 2], [0; 2]];
        for (protocol, least) in [(17, 8), (132, 12), (1, 8), (58, 8)] {
            let icmp = matches!(protocol, 1 | 58);
            for length in 0..=12 {
                let port = !icmp && length >= 4;
                let expected = Expected {
                    protocol,
                    ports: if port { ports } else { (0, 0) },
                    port,
                    icmp_type: (icmp && length > 0).then_some(header[0][0]),
                    anomaly: if length < least { MALFORMED } else { NONE },
                    ..nothing
                };
                let name = format!("protocol {protocol} with {length} bytes from port {}", ports.0);
                for source in [Frame::ip(A4, B4, protocol), Frame::ip(A6, B6, protocol)] {
                    let frame = source.bytes(&header.concat()[..length]);
                    expect(&name, &frame.build(), expected);
                    // Whatever else is in the frame, unless no length is declared.
                    if length > 0 {
                        expect(&name, &frame.trailer(&[0xff; 30]).build(), expected);
                    }
                }
            }
        }
    }
}
