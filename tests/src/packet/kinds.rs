//! One valid frame of every kind that the limiter distinguishes.

use super::{ACK, Extension, FIN, Frame, PSH, RST, SYN};

const A4: [u8; 4] = [192, 0, 2, 17];
const B4: [u8; 4] = [198, 51, 100, 34];
const A6: [u16; 8] = [0x2001, 0xdb8, 0xa, 1, 0x1122, 0x3344, 0x5566, 0x7788];
const B6: [u16; 8] = [0x2001, 0xdb8, 0xb, 2, 0x99aa, 0xbbcc, 0xddee, 0xff01];
const PORTS: (u16, u16) = (40_000, 443);
/// An SCTP chunk that opens an association.
const INIT: [u8; 20] = [1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];

/// Returns every kind of valid frame, with its name: the input of truncation and mutation tests. A sender may
/// send each of them; a receiver may still drop some.
#[must_use]
pub fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let frames =
        [ipv4(), ipv4_fragments(), ipv6(), ipv6_extensions(), tagged(), behind(), not_ip()];
    frames.concat().into_iter().map(|(name, frame)| (name, frame.build())).collect()
}

fn udp4() -> Frame {
    Frame::udp(A4, B4, PORTS.0, 53)
}

fn udp6() -> Frame {
    Frame::udp(A6, B6, PORTS.0, 53)
}

fn tcp4(flags: u8) -> Frame {
    Frame::tcp(A4, B4, PORTS.0, PORTS.1, flags)
}

fn tcp6(flags: u8) -> Frame {
    Frame::tcp(A6, B6, PORTS.0, PORTS.1, flags)
}

fn ipv4() -> Vec<(&'static str, Frame)> {
    vec![
        ("ipv4-udp", udp4().payload(32)),
        ("ipv4-udp-empty", udp4()),
        ("ipv4-udp-empty-padded", udp4().padded()),
        ("ipv4-udp-large", udp4().payload(1_472)),
        ("ipv4-tcp-syn", tcp4(SYN)),
        ("ipv4-tcp-syn-padded", tcp4(SYN).padded()),
        ("ipv4-tcp-syn-ack", tcp4(SYN | ACK)),
        ("ipv4-tcp-ack-payload", tcp4(ACK | PSH).payload(64)),
        ("ipv4-tcp-fin", tcp4(FIN | ACK)),
        ("ipv4-tcp-rst", tcp4(RST)),
        ("ipv4-options-udp", udp4().options(&[1, 1, 1, 0]).payload(8)),
        ("ipv4-options-full-tcp-syn", tcp4(SYN).options(&record_route())),
        ("ipv4-icmp-echo", Frame::echo(A4, B4, 1, 2).payload(56)),
        ("ipv4-sctp-init", Frame::sctp(A4, B4, 5_000, 5_001).bytes(&INIT)),
        ("ipv4-igmp-router-alert", igmp_query()),
        ("ipv4-gre", Frame::ip(A4, B4, 47).bytes(&[0, 0, 8, 0]).bytes(&datagram(&tcp4(SYN)))),
        ("ipv4-in-ipv4", Frame::ip(A4, B4, 4).bytes(&datagram(&tcp4(SYN)))),
        ("ipv4-esp", Frame::ip(A4, B4, 50).payload(40)),
        ("ipv4-ah-tcp-syn", ah_tcp_syn()),
        ("ipv4-unassigned-protocol", Frame::ip(A4, B4, 253).payload(16)),
        ("ipv4-no-payload", Frame::ip(A4, B4, 253)),
    ]
}

fn ipv4_fragments() -> Vec<(&'static str, Frame)> {
    vec![
        ("ipv4-fragment-first-udp", udp4().payload(64).fragment(7, 0, true)),
        ("ipv4-fragment-middle-udp", udp4().payload(64).fragment(7, 9, true)),
        ("ipv4-fragment-last-udp", udp4().payload(5).fragment(7, 17, false)),
        ("ipv4-fragment-first-tcp-syn", tcp4(SYN).payload(4).fragment(8, 0, true)),
        // A tiny fragment: the TCP flags are in the second one (RFC 1858).
        ("ipv4-fragment-tiny-tcp", Frame::ip(A4, B4, 6).payload(8).fragment(9, 0, true)),
        ("ipv4-fragment-overlapping-tcp", tcp4(ACK).payload(16).fragment(9, 1, false)),
        ("ipv4-fragment-furthest", udp4().payload(8).fragment(9, 0x1fff, false)),
        ("ipv4-fragment-options", udp4().options(&[1; 8]).payload(16).fragment(9, 2, true)),
    ]
}

fn ipv6() -> Vec<(&'static str, Frame)> {
    vec![
        ("ipv6-udp", udp6().payload(32)),
        ("ipv6-udp-empty", udp6()),
        ("ipv6-tcp-syn", tcp6(SYN)),
        ("ipv6-tcp-syn-ack", tcp6(SYN | ACK)),
        ("ipv6-tcp-ack-payload", tcp6(ACK).payload(64)),
        ("ipv6-tcp-rst", tcp6(RST)),
        ("ipv6-icmp-echo", Frame::echo(A6, B6, 1, 2).payload(56)),
        ("ipv6-sctp-init", Frame::sctp(A6, B6, 5_000, 5_001).bytes(&INIT)),
        ("ipv6-neighbour-solicitation", solicitation()),
        ("ipv6-no-next-header", Frame::ip(A6, B6, 59)),
        ("ipv6-esp", Frame::ip(A6, B6, 50).payload(40)),
        ("ipv6-in-ipv6", Frame::ip(A6, B6, 41).bytes(&datagram(&tcp6(SYN)))),
        ("ipv6-ipv4-mapped", Frame::udp(A4, B6, 1, 2).payload(8)),
    ]
}

fn ipv6_extensions() -> Vec<(&'static str, Frame)> {
    let eight = [
        Extension::hop_by_hop(0),
        Extension::destination_options(1),
        Extension::routing(2),
        Extension::fragment(3, 0, false),
        Extension::authentication(3),
        Extension::mobility(0),
        Extension::host_identity(4),
        Extension::shim6(0),
    ];
    let eight = eight.into_iter().fold(tcp6(SYN), Frame::extension);
    let chain = |extension: Extension| tcp6(SYN).extension(extension);
    vec![
        ("ipv6-hop-by-hop-udp", udp6().extension(Extension::hop_by_hop(0)).payload(8)),
        ("ipv6-destination-options-tcp-syn", chain(Extension::destination_options(2))),
        ("ipv6-destination-options-longest", chain(Extension::destination_options(255))),
        ("ipv6-routing-tcp-syn", chain(Extension::routing(2))),
        ("ipv6-mobility", Frame::ip(A6, B6, 59).extension(Extension::mobility(1))),
        ("ipv6-host-identity", Frame::ip(A6, B6, 59).extension(Extension::host_identity(4))),
        ("ipv6-shim6-tcp-syn", chain(Extension::shim6(0))),
        ("ipv6-ah-tcp-syn", chain(Extension::authentication(4))),
        ("ipv6-ah-longest", chain(Extension::authentication(255))),
        ("ipv6-jumbogram", udp6().extension(Extension::jumbo(48)).payload(32).declared_length(0)),
        ("ipv6-fragment-atomic-tcp-syn", tcp6(SYN).fragment(5, 0, false)),
        ("ipv6-fragment-first-udp", udp6().payload(64).fragment(6, 0, true)),
        ("ipv6-fragment-middle-udp", udp6().payload(64).fragment(6, 9, true)),
        ("ipv6-fragment-tiny-tcp", Frame::ip(A6, B6, 6).payload(8).fragment(6, 0, true)),
        ("ipv6-fragment-overlapping-tcp", tcp6(ACK).payload(16).fragment(6, 1, false)),
        (
            "ipv6-fragment-of-options",
            tcp6(SYN).fragment(6, 0, true).extension(Extension::destination_options(0)),
        ),
        ("ipv6-fragment-in-fragment", udp6().fragment(6, 0, true).fragment(7, 3, true).payload(24)),
        ("ipv6-eight-extensions-tcp-syn", eight.clone()),
        ("ipv6-nine-extensions-tcp-syn", eight.extension(Extension::destination_options(0))),
    ]
}

fn tagged() -> Vec<(&'static str, Frame)> {
    let tags = |count: u16, frame: Frame| {
        (0..count).fold(frame, |frame, tag| {
            frame.tag([0x88a8, 0x8100, 0x9100][usize::from(tag % 3)], 100 + tag)
        })
    };
    vec![
        ("vlan-ipv4-udp", udp4().tag(0x8100, 5).payload(18)),
        ("vlan-priority-ipv4-tcp-syn", tcp4(SYN).tag(0x8100, 0xe000)),
        ("vlan-service-ipv4-udp", udp4().tag(0x88a8, 5)),
        ("vlan-old-ipv6-udp", udp6().tag(0x9100, 5)),
        ("vlan-ipv6-tcp-syn", tcp6(SYN).tag(0x8100, 5)),
        ("vlan-ipv4-fragment", udp4().tag(0x8100, 5).payload(16).fragment(1, 2, true)),
        ("qinq-ipv4-tcp-syn", tags(2, tcp4(SYN))),
        ("qinq-ipv6-hop-by-hop-udp", tags(2, udp6().extension(Extension::hop_by_hop(0)))),
        ("three-tags-ipv4-udp", tags(3, udp4())),
        ("four-tags-ipv4-tcp-syn", tags(4, tcp4(SYN))),
        ("four-tags-ipv6-tcp-syn", tags(4, tcp6(SYN))),
        ("five-tags-ipv4-udp", tags(5, udp4())),
        ("vlan-arp", arp().tag(0x8100, 5)),
    ]
}

/// IP in PPPoE sessions and behind MPLS labels.
fn behind() -> Vec<(&'static str, Frame)> {
    let options = Extension::destination_options(0);
    vec![
        ("pppoe-ipv4-udp", udp4().pppoe().payload(18)),
        ("pppoe-ipv4-tcp-syn", tcp4(SYN).pppoe()),
        ("pppoe-ipv4-tcp-syn-padded", tcp4(SYN).compressed_pppoe().padded()),
        ("pppoe-ipv4-fragment", udp4().pppoe().payload(16).fragment(3, 4, true)),
        ("pppoe-ipv6-tcp-syn", tcp6(SYN).pppoe()),
        ("pppoe-compressed-ipv6-options-udp", udp6().compressed_pppoe().extension(options)),
        ("vlan-pppoe-ipv4-tcp-syn", tcp4(SYN).tag(0x8100, 7).pppoe()),
        ("qinq-pppoe-ipv6-udp", udp6().tag(0x88a8, 7).tag(0x8100, 7).pppoe()),
        ("pppoe-labels-ipv4-udp", udp4().pppoe().labels(2)),
        ("label-ipv4-udp", udp4().labels(1)),
        ("label-ipv6-tcp-syn", tcp6(SYN).labels(1)),
        ("vlan-two-labels-ipv6-udp", udp6().tag(0x8100, 7).labels(2)),
        ("four-labels-ipv4-tcp-syn", tcp4(SYN).labels(4)),
        ("four-labels-ipv6-fragment", udp6().labels(4).payload(16).fragment(3, 4, true)),
        ("five-labels-ipv4-udp", udp4().labels(5)),
    ]
}

fn not_ip() -> Vec<(&'static str, Frame)> {
    // A bridge protocol data unit behind an LLC header; 802.3 has the length in place of the ethertype.
    let spanning_tree = [&[0x42, 0x42, 3][..], &[0; 35]].concat();
    // The TLVs of chassis, port, time to live, and the end.
    let lldp = [0x02, 2, 7, 1, 0x04, 2, 7, 1, 0x06, 2, 0, 120, 0, 0];
    vec![
        ("arp", arp()),
        ("arp-padded", arp().padded()),
        ("lldp", Frame::other(0x88cc, lldp)),
        ("llc-spanning-tree", Frame::other(38, spanning_tree).padded()),
        (
            "llc-snap",
            Frame::other(28, [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &[0x45; 20]].concat()).padded(),
        ),
        ("mpls-pseudowire", Frame::other(0x8847, [0, 1, 1, 64, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1])),
        // An LCP echo request.
        ("pppoe-lcp", Frame::other(0xc021, [9, 1, 0, 8, 0, 0, 0, 0]).pppoe().padded()),
        ("pppoe-compressed-datagram", Frame::other(0x00fd, [0; 20]).pppoe()),
        ("pppoe-discovery", Frame::other(0x8863, [0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0])),
        ("ethernet-header-alone", Frame::other(0x88b5, [])),
    ]
}

fn arp() -> Frame {
    let request = [0, 1, 8, 0, 6, 4, 0, 1];
    let bytes = [&request[..], &[2, 0, 0, 0, 0, 1], &A4, &[0; 6], &B4].concat();
    Frame::other(0x0806, bytes)
}

/// An IGMP membership query with the router alert option, which mostly occurs on such packets.
fn igmp_query() -> Frame {
    let query = [0x11, 0x64, 0xee, 0x9b, 0, 0, 0, 0];
    Frame::ip(A4, [224, 0, 0, 1], 2).options(&[0x94, 4, 0, 0]).ttl(1).bytes(&query)
}

fn solicitation() -> Frame {
    let group = [0xff02, 0, 0, 0, 0, 1, 0xff00, 1];
    Frame::ip(A6, group, 58).bytes(&[135]).payload(27).ttl(255)
}

fn ah_tcp_syn() -> Frame {
    let segment = &datagram(&tcp4(SYN))[20..];
    Frame::ip(A4, B4, 51).bytes(&Extension::authentication(4).bytes(6)).bytes(segment)
}

/// A record route option of the greatest length (39 bytes), and the end of options.
fn record_route() -> [u8; 40] {
    let mut options = [0; 40];
    options[..3].copy_from_slice(&[7, 39, 4]);
    options
}

/// The bytes behind the Ethernet header of a frame without VLAN tags.
fn datagram(frame: &Frame) -> Vec<u8> {
    frame.build().split_off(14)
}
