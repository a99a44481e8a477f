//! Limits by port, at the edges of ranges, and for packets without ports.

use limiter_tests::packet::{Extension, Frame};

use super::{
    super::{
        define::{limit, policy_of},
        divisor,
        modes::tally,
        program,
        sent::Sent,
        tokens,
    },
    A, A6, B, B6, check, with_ports, written,
};
use limiter_common::policy::limit::LIMITS;
use limiter_tests::program::Verdict;
use limiter_userspace::policy::Policy;

const TCP_AND_UDP: [u8; 2] = [6, 17];
const SCTP: u8 = 132;

#[test]
fn a_range_of_ports_ends_where_it_says() {
    let cases: [(&str, &[u16], &[u16]); 12] = [
        ("0", &[0], &[1, 65_535]),
        ("65535", &[65_535], &[65_534, 0]),
        // The limit must not match the port with its two bytes swapped.
        ("22", &[22], &[21, 23, 22 << 8]),
        ("443-445", &[443, 444, 445], &[442, 446]),
        ("0-1023", &[0, 1, 1_022, 1_023], &[1_024, 65_535]),
        ("1024-65535", &[1_024, 1_025, 65_534, 65_535], &[1_023, 0]),
        ("0-65535", &[0, 1, 255, 256, 32_767, 32_768, 65_534, 65_535], &[]),
        ("1-65534", &[1, 65_534], &[0, 65_535]),
        ("[22, 80-89, 91-100, 65535]", &[22, 80, 89, 91, 100, 65_535], &[21, 23, 79, 90, 101, 0]),
        ("[80-89, 90-99]", &[80, 89, 90, 99], &[79, 100]),
        ("ssh", &[22], &[21, 23]),
        ("[dns, 8000-8010, https]", &[53, 443, 8_000, 8_010], &[52, 54, 442, 444, 7_999, 8_011]),
    ];
    let mut program = program(&Policy::default());
    for (ports, within, beyond) in cases {
        let to = |to: &u16| with_ports(&TCP_AND_UDP, [5_000, *to]);
        let about: Vec<_> = within.iter().flat_map(to).collect();
        let mut not: Vec<_> = beyond.iter().flat_map(to).collect();
        for (from, to) in within.iter().zip(beyond) {
            // The source port does not matter.
            not.extend(with_ports(&TCP_AND_UDP, [*from, *to]));
        }
        not.extend(with_ports(&[SCTP], [within[0], within[0]]));
        check(&mut program, &format!("protocol: [tcp, udp], ports: {ports}"), &about, &not);
    }
    let about = with_ports(&[SCTP], [5_000, 80]);
    let not = [with_ports(&[SCTP], [80, 81]), with_ports(&TCP_AND_UDP, [80, 80])].concat();
    check(&mut program, "protocol: sctp, ports: 80", &about, &not);
}

#[test]
fn source_ports_are_matched_like_destination_ports() {
    let cases: [(&str, &[u16], &[u16]); 6] = [
        ("0", &[0], &[1, 65_535]),
        ("65535", &[65_535], &[65_534, 0]),
        // Not with its two bytes swapped.
        ("53", &[53], &[52, 54, 53 << 8]),
        ("1024-65535", &[1_024, 65_535], &[1_023, 0]),
        ("[dns, ntp, 11211]", &[53, 123, 11_211], &[52, 54, 122, 124, 11_210, 11_212]),
        ("0-65535", &[0, 255, 256, 32_768, 65_535], &[]),
    ];
    let mut program = program(&Policy::default());
    for (ports, within, beyond) in cases {
        let from = |from: &u16| with_ports(&TCP_AND_UDP, [*from, 5_000]);
        let about: Vec<_> = within.iter().flat_map(from).collect();
        let mut not: Vec<_> = beyond.iter().flat_map(from).collect();
        for (to, from) in within.iter().zip(beyond) {
            // The destination port does not matter.
            not.extend(with_ports(&TCP_AND_UDP, [*from, *to]));
        }
        not.extend(with_ports(&[SCTP], [within[0], within[0]]));
        not.push(Frame::echo(A, B, 1, 2));
        check(&mut program, &format!("protocol: [tcp, udp], source_ports: {ports}"), &about, &not);
    }
    let both = "protocol: udp, source_ports: 53, ports: 5000";
    let not = [[53, 5_001], [54, 5_000]].map(|ports| with_ports(&[17], ports)).concat();
    check(&mut program, both, &with_ports(&[17], [53, 5_000]), &not);
    // A service has destination ports.
    let service = "service: web, source_ports: 53";
    let not = [[53, 81], [80, 80]].map(|ports| with_ports(&[17], ports)).concat();
    check(&mut program, service, &with_ports(&[17], [53, 80]), &not);
    // Ports that are hidden could be any.
    let hidden = [
        Frame::ip(A, B, 17).bytes(&[0, 9]),
        Frame::ip(A, B, 17).bytes(&[9; 8]).fragment(7, 40, false),
        Frame::ip(A6, B6, 17).bytes(&[9; 8]).fragment(7, 40, true),
    ];
    check(&mut program, "protocol: udp, source_ports: 53", &hidden, &with_ports(&[17], [9, 53]));
}

#[test]
fn a_service_is_its_protocols_and_its_ports() {
    let to = |to: &u16| with_ports(&TCP_AND_UDP, [5_000, *to]);
    let about: Vec<_> = [80, 443, 8_000, 8_001, 8_010].iter().flat_map(to).collect();
    let mut not: Vec<_> = [0, 79, 81, 442, 444, 7_999, 8_011, 65_535].iter().flat_map(to).collect();
    not.extend(with_ports(&[SCTP], [80, 80]));
    let mut program = program(&Policy::default());
    check(&mut program, "service: web", &about, &not);
}

/// Compares with a linear search in the ranges.
#[test]
fn every_port_is_within_the_ranges_or_not() {
    let ranges = [0..=0, 53..=53, 1_000..=1_999, 2_000..=2_001, 30_000..=49_151, 65_534..=65_535];
    let named: Vec<_> =
        ranges.iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
    let matching = format!("protocol: udp, ports: [{}]", named.join(", "));
    let mut program = program(&written(&matching, "all"));
    assert_eq!(program.run(&Sent::udp(A, B, [1, 53]).frame()).unwrap(), Verdict::Pass);
    let (mut dropped, mut of) = (0, 0);
    for port in (0..=u16::MAX).step_by(divisor() as usize) {
        let verdict = program.run(&Sent::udp(A, B, [53, port]).frame()).unwrap();
        let within = ranges.iter().any(|range| range.contains(&port));
        assert_eq!(verdict == Verdict::Drop, within, "port {port}");
        (dropped, of) = (dropped + u64::from(within), of + 1);
    }
    assert_eq!(tally(&program, "it"), (1, dropped));
    assert!(dropped > of / 4 && dropped < of / 2, "{dropped} of {of}");
    program.check_accounts().unwrap();
}

/// As many limits as a policy can have divide all ports among them: each packet matches exactly one.
#[test]
fn ranges_that_meet_leave_no_port_out_and_have_none_twice() {
    const PORTS: u16 = ((1 << 16) / LIMITS) as u16;
    let limits = (0..LIMITS as u16).map(|number| {
        let mut limit = limit(&format!("limit-{number}"), &[], tokens(3));
        limit.matching.protocols = vec![6, 17];
        limit.matching.ports = vec![number * PORTS..=number * PORTS + (PORTS - 1)];
        limit
    });
    let mut program = program(&policy_of(limits));
    for number in 0..LIMITS as u16 {
        let (first, last) = (number * PORTS, number * PORTS + (PORTS - 1));
        for frame in [first, last].iter().flat_map(|to| with_ports(&TCP_AND_UDP, [1, *to])) {
            program.run(&frame.build()).unwrap();
        }
        // Eight packets: two ports, two families, two protocols.
        assert_eq!(tally(&program, &format!("limit-{number}")), (3, 5), "limit {number}");
    }
    for number in 0..LIMITS {
        assert_eq!(tally(&program, &format!("limit-{number}")), (3, 5), "limit {number}");
    }
    program.check_accounts().unwrap();
}

/// A first fragment has ports. A later fragment, or a header that is cut off, may have any port, whatever
/// bytes it begins with.
#[test]
fn a_limit_of_ports_is_about_what_has_them() {
    // Bytes that would be another port if they were read as a header.
    let to_53 = [0, 53, 0, 53, 0, 26, 0, 0];
    let first = [
        Frame::udp(A, B, 1, 53).payload(18).fragment(7, 0, true),
        Frame::udp(A6, B6, 1, 53).payload(18).fragment(7, 0, true),
    ];
    // In IPv6, a whole datagram may have a fragment header (RFC 6946).
    let whole = [
        Frame::udp(A, B, 1, 53).payload(18).options(&[1; 8]),
        Frame::udp(A, B, 1, 53).tag(0x88a8, 3).tag(0x8100, 4),
        Frame::udp(A6, B6, 1, 53).payload(18).fragment(7, 0, false),
        Frame::udp(A6, B6, 1, 53).extension(Extension::routing(1)),
    ];
    let cut = [Frame::ip(A, B, 17).bytes(&[0, 53]), Frame::ip(A6, B6, 17).bytes(&[0, 1, 0])];
    let mut later = Vec::new();
    for offset in [1, 2, 40, 8_191] {
        for more in [false, true] {
            later.push(Frame::ip(A, B, 17).bytes(&to_53).fragment(7, offset, more));
            later.push(Frame::ip(A6, B6, 17).bytes(&to_53).fragment(7, offset, more));
        }
    }
    let elsewhere = [
        Frame::udp(A, B, 1, 54).payload(18).fragment(7, 0, true),
        Frame::udp(A6, B6, 1, 54).payload(18).fragment(7, 0, true),
    ];
    let all = |of: &[&[Frame]]| of.concat();
    let mut program = program(&Policy::default());
    let about = all(&[&first, &whole, &cut, &later]);
    let port = "protocol: udp, ports: 53";
    check(&mut program, port, &about, &elsewhere);
    let about = all(&[&first, &later]);
    let not = all(&[&elsewhere, &whole, &cut]);
    check(&mut program, &format!("{port}, fragments: true"), &about, &not);
    let about = all(&[&whole, &cut]);
    let not = all(&[&later, &elsewhere, &first]);
    check(&mut program, &format!("{port}, fragments: false"), &about, &not);
    // A limit without ports matches every fragment.
    let every = all(&[&first, &whole, &cut, &later, &elsewhere]);
    check(&mut program, "protocol: udp", &every, &[Frame::tcp(A, B, 1, 53, 0)]);
    let fragments = all(&[&first, &later, &elsewhere]);
    check(&mut program, "fragments: true", &fragments, &all(&[&whole, &cut]));
    check(&mut program, "fragments: false", &all(&[&whole, &cut]), &fragments);
}
