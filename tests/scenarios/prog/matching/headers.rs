//! Limits by protocol, TCP flags, ICMP type and length.

use std::net::IpAddr;

use limiter_tests::{
    packet::Frame,
    program::{Clock, SMALL, TestProgram},
};
use limiter_userspace::policy::Policy;

use super::{
    super::{NOW, program},
    A, A6, B, B6, check,
};

/// Whether a number is that of an upper-layer protocol, not of an extension header of either family.
fn is_upper(protocol: u8) -> bool {
    ![0, 43, 44, 51, 60, 135, 139, 140].contains(&protocol)
}

#[test]
fn a_protocol_is_the_number_in_the_header() {
    let frames = |protocol: u8| {
        let both = [Frame::ip(A, B, protocol), Frame::ip(A6, B6, protocol)];
        both.map(|frame| frame.payload(40))
    };
    let mut program = program(&Policy::default());
    for (protocols, numbers) in
        [("tcp", &[6][..]), ("[udp, gre]", &[17, 47]), ("[icmp, icmpv6, 254]", &[1, 58, 254])]
    {
        // 255 stands for a chain of headers that hides the protocol, so every protocol may be meant.
        let named = |protocol: &u8| numbers.contains(protocol) || *protocol == 255;
        let (about, not): (Vec<u8>, Vec<u8>) =
            (0..=u8::MAX).filter(|protocol| is_upper(*protocol)).partition(named);
        let [about, not]: [Vec<_>; 2] =
            [about, not].map(|of| of.into_iter().flat_map(frames).collect());
        check(&mut program, &format!("protocol: {protocols}"), &about, &not);
    }
}

#[test]
fn flags_are_set_and_not_set() {
    let tcp = |flags: u8| [Frame::tcp(A, B, 1, 2, flags), Frame::tcp(A6, B6, 1, 2, flags)];
    // Flags that cannot be read, or that are in another fragment, may be set or not.
    let unknown = [
        Frame::ip(A, B, 6).payload(13),
        Frame::ip(A6, B6, 6).payload(8),
        Frame::ip(A, B, 6).payload(8).fragment(1, 0, true),
        Frame::ip(A6, B6, 6).payload(16).fragment(1, 1, false),
        Frame::ip(A, B, 6).payload(16).fragment(1, 2, false),
        Frame::ip(A6, B6, 6).payload(16).fragment(1, 2, true),
    ];
    let none = [
        Frame::udp(A, B, 1, 2).payload(18),
        Frame::sctp(A6, B6, 1, 2).payload(18),
        Frame::ip(A, B, 17).payload(16).fragment(1, 2, false),
    ];
    let cases: [(&str, u8, u8, usize); 7] = [
        ("syn", 0x02, 0x10, 64),
        ("\"syn,ack\"", 0x12, 0, 64),
        ("\"!syn\"", 0, 0x02, 128),
        ("[fin, \"!ack\"]", 0x01, 0x10, 64),
        ("[ece, cwr, \"!syn\"]", 0xc0, 0x02, 32),
        ("[fin, psh, urg]", 0x29, 0, 32),
        ("[fin, syn, rst, psh, ack, urg, ece, cwr]", 0xff, 0, 1),
    ];
    let mut program = program(&Policy::default());
    for (flags, set, clear, number) in cases {
        let fits = |bits: &u8| bits & set == set && bits & clear == 0;
        let (about, not): (Vec<u8>, Vec<u8>) = (0..=u8::MAX).partition(fits);
        assert_eq!(about.len(), number);
        let mut about: Vec<_> = about.into_iter().flat_map(tcp).collect();
        let mut not: Vec<_> = not.into_iter().flat_map(tcp).collect();
        about.extend_from_slice(&unknown);
        not.extend_from_slice(&none);
        check(&mut program, &format!("tcp_flags: {flags}"), &about, &not);
    }
}

#[test]
fn a_type_of_icmp_is_that_of_its_family() {
    let icmp = |kind: u8| Frame::ip(A, B, 1).bytes(&[kind, 0, 0, 0, 0, 1, 0, 1]);
    let icmpv6 = |kind: u8| Frame::ip(A6, B6, 58).bytes(&[kind, 0, 0, 0, 0, 1, 0, 1]);
    let mut program = program(&Policy::default());
    for (protocol, types, numbers, v4) in [
        ("icmp", "echo-request", &[8][..], true),
        ("icmp", "[echo-reply, 255]", &[0, 255], true),
        ("icmpv6", "echo-request", &[128], false),
        ("icmpv6", "[packet-too-big, 0]", &[2, 0], false),
    ] {
        let (about, not): (Vec<u8>, Vec<u8>) =
            (0..=u8::MAX).partition(|kind| numbers.contains(kind));
        let [mut about, mut not]: [Vec<Frame>; 2] = [about, not].map(|kinds| {
            kinds.into_iter().map(|kind| if v4 { icmp(kind) } else { icmpv6(kind) }).collect()
        });
        not.extend(numbers.iter().map(|kind| if v4 { icmpv6(*kind) } else { icmp(*kind) }));
        // The protocol number of ICMP in the other family is not ICMP here.
        not.push(Frame::udp(A, B, u16::from(numbers[0]) << 8, 2).payload(18));
        let (from, to, number): (IpAddr, IpAddr, u8) =
            if v4 { (A.into(), B.into(), 1) } else { (A6.into(), B6.into(), 58) };
        let part = |offset, more| {
            let frame = Frame::ip(from, to, number);
            frame.bytes(&[numbers[0]; 8]).fragment(1, offset, more)
        };
        // A later fragment, or a header that is cut off, may have any type.
        about.extend([part(1, true), part(2, false), part(0, true), Frame::ip(from, to, number)]);
        let matching = format!("protocol: {protocol}, icmp_type: {types}");
        check(&mut program, &matching, &about, &not);
    }
    let both = "protocol: [icmp, icmpv6], icmp_type: [echo-request, 17]";
    let about = [icmp(8), icmp(17), icmpv6(128), icmpv6(17)];
    check(&mut program, both, &about, &[icmp(0), icmp(18), icmpv6(127), icmpv6(129)]);
}

/// The length is that of the frame, with tags and padding.
#[test]
fn lengths_end_where_they_say() {
    let udp = |length: usize| Frame::udp(A, B, 1, 2).payload(length - 42);
    let udp6 = |length: usize| Frame::udp(A6, B6, 1, 2).payload(length - 62);
    let tagged = |length: usize| Frame::udp(A, B, 1, 2).tag(0x8100, 5).payload(length - 46);
    let with_trailer = |length: usize| udp(length - 10).trailer(&[0; 10]);
    let frames = |lengths: &[usize]| {
        let four =
            |length: &usize| [udp(*length), udp6(*length), tagged(*length), with_trailer(*length)];
        lengths.iter().flat_map(four).collect::<Vec<_>>()
    };
    let mut program = program(&Policy::default());
    for (length, within, beyond) in [
        ("64-128", &[64, 65, 127, 128][..], &[63, 129, 1_514][..]),
        ("100", &[100], &[99, 101]),
        ("1514-65535", &[1_514, 3_000], &[1_513]),
        ("14-65535", &[63, 3_000], &[]),
    ] {
        check(&mut program, &format!("length: {length}"), &frames(within), &frames(beyond));
    }
    let padded = Frame::udp(A, B, 1, 2).padded();
    check(&mut program, "length: 60", &[padded], &[Frame::udp(A, B, 1, 2)]);
    // Too short for any IP header: all such frames are of one source.
    let [ends, longer] = [&[][..], &[0x45][..]].map(|bytes| Frame::other(0x0800, bytes));
    check(&mut program, "length: 14", &[ends], &[longer]);

    let mut program = TestProgram::with_frags(SMALL, &Policy::default(), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    for (length, within, beyond) in [
        ("9000-9014", &[9_000, 9_014][..], &[8_999, 9_015][..]),
        // The greatest length that a policy can name also stands for all longer frames.
        ("65535", &[65_535, 65_536, 66_000], &[65_534]),
    ] {
        let [within, beyond] =
            [within, beyond].map(|of| of.iter().map(|length| udp(*length)).collect::<Vec<_>>());
        check(&mut program, &format!("length: {length}"), &within, &beyond);
    }
    program.close().unwrap();
}
