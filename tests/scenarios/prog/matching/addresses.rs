//! Limits by source, destination and interface, with exceptions, and by all of these.

use std::net::IpAddr;

use limiter_tests::{
    packet::{ACK, Frame, SYN},
    program::Verdict,
};
use limiter_userspace::policy::Policy;

use super::{super::program, A, B, check, written};

/// A datagram between two addresses.
fn udp(from: &str, to: &str) -> Frame {
    let [from, to]: [IpAddr; 2] = [from, to].map(|address| address.parse().unwrap());
    Frame::udp(from, to, 1, 2).payload(18)
}

#[test]
fn prefixes_and_exceptions_end_where_they_say() {
    let cases: [(&str, &str, &[&str], &[&str]); 8] = [
        (
            "10.1.2.0/24",
            "",
            &["10.1.2.0", "10.1.2.255"],
            &["10.1.1.255", "10.1.3.0", "::ffff:a01:200"],
        ),
        ("10.1.2.3", "", &["10.1.2.3"], &["10.1.2.2", "10.1.2.4"]),
        (
            "[0.0.0.0/1, 192.0.2.0/31]",
            "",
            &["0.0.0.0", "127.255.255.255", "192.0.2.1"],
            &["128.0.0.0", "192.0.2.2", "::"],
        ),
        (
            "\"2001:db8:1::/48\"",
            "",
            &["2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"],
            &["2001:db8:0:ffff:ffff:ffff:ffff:ffff", "2001:db8:2::"],
        ),
        (
            "",
            "10.0.0.0/8",
            &["9.255.255.255", "11.0.0.0", "2001:db8::1"],
            &["10.0.0.0", "10.255.255.255"],
        ),
        // An exception holds even if the limit also names a longer prefix inside it.
        (
            "[10.0.0.0/8, 10.1.2.0/24]",
            "10.1.0.0/16",
            &["10.0.255.255", "10.2.0.0"],
            &["10.1.0.0", "10.1.2.3", "10.1.255.255"],
        ),
        (
            "10.0.0.0/8",
            "[10.1.0.0/16, 10.1.2.0/24, 10.3.0.7]",
            &["10.2.0.0", "10.3.0.6", "10.3.0.8"],
            &["10.1.2.0", "10.1.3.0", "10.3.0.7", "11.0.0.0"],
        ),
        (
            "\"2001:db8::/32\"",
            "[\"2001:db8:1::/64\", 10.0.0.0/8]",
            &["2001:db8:0:ffff::", "2001:db8:1:1::"],
            &["2001:db8:1::", "2001:db8:1::ffff:0:0:0", "10.0.0.1", "192.0.2.1"],
        ),
    ];
    let mut program = program(&Policy::default());
    let other =
        |address: &str| if address.contains(':') { "2001:db8:ffff::1" } else { "198.51.100.1" };
    for (named, excepted, within, beyond) in cases {
        for (name, except) in [("source", "except"), ("destination", "except_destination")] {
            let said = [(name, named), (except, excepted)];
            let said: Vec<_> = said
                .iter()
                .filter(|(_, prefixes)| !prefixes.is_empty())
                .map(|(key, prefixes)| format!("{key}: {prefixes}"))
                .collect();
            let frames = |addresses: &[&str]| {
                let frame = |address: &&str| match name {
                    "source" => udp(address, other(address)),
                    _ => udp(other(address), address),
                };
                addresses.iter().map(frame).collect::<Vec<_>>()
            };
            check(&mut program, &said.join(", "), &frames(within), &frames(beyond));
        }
    }
}

#[test]
fn an_interface_is_the_one_that_a_packet_came_in_by() {
    let mut program = program(&Policy::default());
    program.name_interface(0, "eth0").unwrap();
    program.name_interface(1, "eth1").unwrap();
    let mut neighbour = program.neighbour(1).unwrap();
    for (interfaces, expected) in [
        ("eth0", [Verdict::Drop, Verdict::Pass]),
        ("eth1", [Verdict::Pass, Verdict::Drop]),
        ("[eth1, eth0]", [Verdict::Drop, Verdict::Drop]),
        ("eth", [Verdict::Pass, Verdict::Pass]),
    ] {
        program.forget().unwrap();
        program.apply(&written(&format!("interface: {interfaces}"), "source")).unwrap();
        let frame = udp("10.0.0.1", "10.0.0.2").build();
        let mut run = || {
            let verdicts = [program.run(&frame), neighbour.run(&frame)];
            verdicts.map(|verdict| verdict.unwrap())
        };
        run();
        assert_eq!(run(), expected, "{interfaces}");
    }
    drop(neighbour);
}

/// A packet has to meet all conditions of a `match`.
#[test]
fn a_packet_that_differs_in_one_thing_is_another() {
    let mut program = program(&Policy::default());
    program.name_interface(0, "eth0").unwrap();
    let it = || Frame::tcp(A, B, 5_000, 443, SYN).payload(46);
    let beside = [
        Frame::tcp(A, B, 5_000, 444, SYN).payload(46),
        Frame::udp(A, B, 5_000, 443).payload(58),
        Frame::tcp(A, B, 5_000, 443, SYN | ACK).payload(46),
        Frame::tcp(A, B, 5_000, 443, SYN).payload(45),
        Frame::tcp(A, B, 5_000, 443, SYN).payload(46).fragment(1, 0, true),
        Frame::tcp([10, 0, 1, 1], B, 5_000, 443, SYN).payload(46),
        Frame::tcp([10, 0, 0, 2], B, 5_000, 443, SYN).payload(46),
        Frame::tcp(A, [198, 51, 101, 1], 5_000, 443, SYN).payload(46),
        Frame::tcp(A, [198, 51, 100, 2], 5_000, 443, SYN).payload(46),
    ];
    let said = [
        "protocol: tcp, ports: 443, tcp_flags: syn, length: 100-100, fragments: false",
        "interface: eth0, source: 10.0.0.0/24, except: 10.0.0.2",
        "destination: 198.51.100.0/24, except_destination: 198.51.100.2",
    ];
    check(&mut program, &said.join(", "), &[it(), it().options(&[]).ttl(1)], &beside);
}
