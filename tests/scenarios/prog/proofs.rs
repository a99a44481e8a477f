//! Proofs: a source is blocked only if its refused packets belong to a connection with a socket on this host.

use std::{
    io::Read as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
};

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    memory::refused_syn::RefusedSyn,
    packet::reason::Reason,
};
use limiter_tests::{
    packet::{ACK, FIN, Frame, RST, SYN},
    program::TestProgram,
    traffic::connect_from,
};
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, KeyPart, Limit, Penalty, TcpFlags, Unproven},
};

use super::{
    NOW,
    define::{limit, policy_of, within},
    penalties::reason_at,
    program, tokens,
};

const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const PENALTY: Penalty =
    Penalty { backoff: 2, max: 200 * SECOND, ..Penalty::new(10 * SECOND, 60 * SECOND) };
/// The initial sequence number of the SYNs; the next one wraps to 0.
const FIRST: u32 = u32::MAX;

/// A limit of one packet a day, with a penalty.
fn strict(parts: &[KeyPart]) -> Limit {
    let allowance =
        Allowance::LeakyBucket { rate: Rate { packets: 1, period: 86_400 * SECOND }, depth: 1 };
    Limit { penalty: Some(PENALTY), ..limit("strict", parts, allowance) }
}

/// The limit, for SYNs alone.
fn strict_syns(parts: &[KeyPart]) -> Limit {
    let mut limit = strict(parts);
    limit.matching.protocols = vec![6];
    limit.matching.tcp_flags = Some(TcpFlags { set: SYN, clear: ACK });
    limit
}

/// A host that talks to itself. The program finds its sockets by the addresses and ports of frames.
struct Loopback {
    listener: TcpListener,
    service: SocketAddr,
}

impl Loopback {
    fn new(address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let service = listener.local_addr().unwrap();
        Self { listener, service }
    }

    /// A port that no socket uses.
    fn free_port(&self) -> u16 {
        let it = TcpListener::bind((self.service.ip(), 0)).unwrap();
        it.local_addr().unwrap().port()
    }

    /// Opens a connection from a port and returns both ends.
    fn open(&self, port: u16) -> (TcpStream, TcpStream) {
        let client = connect_from((self.service.ip(), port).into(), self.service).unwrap();
        (client, self.listener.accept().unwrap().0)
    }

    /// A frame from a port to the service.
    fn frame(&self, port: u16, flags: u8, sequence: u32) -> Vec<u8> {
        let address = self.service.ip();
        Frame::tcp(address, address, port, self.service.port(), flags).sequence(sequence).build()
    }
}

/// Runs a frame each second from time `from` on, and returns the reasons.
fn each_second(
    program: &mut TestProgram,
    from: u64,
    seconds: u64,
    frame: impl Fn(u64) -> Vec<u8>,
) -> Vec<Reason> {
    let run = |second| reason_at(program, from + second * SECOND, &frame(second));
    (0..seconds).map(run).collect()
}

/// The refused packets that were proven, and those that were not.
fn violations(program: &TestProgram) -> (u64, u64) {
    let stats = program.maps().event_stats().unwrap();
    (stats.proven, stats.unproven)
}

/// Sends a SYN each second, for longer than it takes to be blocked; all are refused. Returns the time of the
/// last one.
fn refuse_syns(program: &mut TestProgram, host: &Loopback, port: u16, from: u64) -> u64 {
    let refused = each_second(program, from, 12, |_| host.frame(port, SYN, FIRST));
    assert_eq!(refused, [Reason::Exceed; 12]);
    from + 11 * SECOND
}

/// Forged packets do not get a source blocked that has a connection to this host.
#[test]
fn forged_excess_blocks_nobody() {
    let mut program = program(&Policy::default());
    for address in ADDRESSES {
        let host = Loopback::new(address);
        let port = host.free_port();
        let (_client, _server) = host.open(port);
        program.forget().unwrap();
        program.apply(&policy_of([strict(&[KeyPart::Source])])).unwrap();
        assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
        let before = violations(&program);
        let other = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
        let elsewhere: IpAddr =
            if address.is_ipv4() { [198, 51, 100, 1].into() } else { other.into() };
        let service = host.service.port();
        let forged: [&dyn Fn(u64) -> Frame; 9] = [
            // SYNs: each of another connection, as in a flood; all of one; of the open connection itself.
            &|second| Frame::tcp(address, address, second as u16 + 1, service, SYN),
            &|_| Frame::tcp(address, address, 9, service, SYN),
            &|_| Frame::tcp(address, address, port, service, SYN),
            // Segments to the listening socket, to a port without a socket, and to the right ports of another
            // host.
            &|_| Frame::tcp(address, address, 9, service, ACK),
            &|_| Frame::tcp(address, address, port, 9, ACK),
            &|_| Frame::tcp(address, elsewhere, port, service, ACK),
            &|_| Frame::tcp(address, address, port, service, RST),
            &|_| Frame::udp(address, address, port, service).payload(18),
            &|_| Frame::tcp(address, address, port, service, ACK).fragment(1, 0, true),
        ];
        let mut now = NOW;
        for (number, frame) in forged.iter().enumerate() {
            now += SECOND;
            let reasons = each_second(&mut program, now, 30, |second| frame(second).build());
            assert_eq!(reasons, [Reason::Exceed; 30], "{address}: {number}");
            now += 30 * SECOND;
        }
        let after = violations(&program);
        assert_eq!((after.0 - before.0, after.1 - before.1), (0, 30 * forged.len() as u64));
    }
    program.check_accounts().unwrap();
}

#[test]
fn an_open_connection_that_stays_over_its_limit_is_blocked() {
    let mut program = program(&Policy::default());
    for address in ADDRESSES {
        for parts in [&[KeyPart::Source][..], &[within(24, 48)], &[KeyPart::Connection]] {
            let host = Loopback::new(address);
            let port = host.free_port();
            let (client, mut server) = host.open(port);
            program.forget().unwrap();
            program.apply(&policy_of([strict(parts)])).unwrap();
            let before = violations(&program);
            let mut reasons = each_second(&mut program, NOW, 6, |_| host.frame(port, ACK, 7));
            // The client has closed the connection, the server has not (CLOSE_WAIT).
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
            let finish = |_| host.frame(port, FIN | ACK, 7);
            reasons.extend(each_second(&mut program, NOW + 6 * SECOND, 7, finish));
            let mut expected = vec![Reason::Conform];
            expected.extend([Reason::Exceed; 11]);
            expected.push(Reason::Penalty);
            assert_eq!(reasons, expected, "{address} {parts:?}");
            let after = violations(&program);
            assert_eq!((after.0 - before.0, after.1 - before.1), (11, 0));
        }
    }
    program.check_accounts().unwrap();
}

/// The SYNs of a client count as its own once a connection follows them.
#[test]
fn refused_syns_count_once_a_connection_follows_them() {
    let mut program = program(&Policy::default());
    for address in ADDRESSES {
        for parts in [&[KeyPart::Source][..], &[within(24, 48)]] {
            // A second limit leases packets, except for limits with a penalty.
            let beside = limit("beside", &[KeyPart::Source], tokens(1 << 20));
            for limits in [vec![strict_syns(parts)], vec![strict_syns(parts), beside]] {
                let host = Loopback::new(address);
                let port = host.free_port();
                program.forget().unwrap();
                program.apply(&policy_of(limits)).unwrap();
                assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
                let before = violations(&program);
                let last = refuse_syns(&mut program, &host, port, NOW + SECOND);
                let now = last + 20 * SECOND;
                // The handshake ends with this segment; the socket is not full before that. Other packets of
                // the source prove nothing.
                let segment = host.frame(port, ACK, FIRST.wrapping_add(1));
                assert_eq!(reason_at(&mut program, now, &segment), Reason::Conform);
                let (_client, _server) = host.open(port);
                for other in [
                    host.frame(port, RST, FIRST.wrapping_add(1)),
                    host.frame(port + 1, ACK, FIRST.wrapping_add(1)),
                    host.frame(1, ACK, 8),
                ] {
                    for _ in 0..2 {
                        assert_eq!(reason_at(&mut program, now + 1, &other), Reason::Conform);
                    }
                }
                assert_eq!(violations(&program), (before.0, before.1 + 12));
                // The segment that proves the SYNs passes, and is the last one that does.
                assert_eq!(reason_at(&mut program, now + 2, &segment), Reason::Conform);
                assert_eq!(violations(&program), (before.0 + 1, before.1 + 12));
                for at in [now + 3, now + 60 * SECOND - 256] {
                    assert_eq!(reason_at(&mut program, at, &segment), Reason::Penalty);
                }
                // The proof counts once; after the block, the earlier offences do not count again.
                for at in [now + 60 * SECOND + 2, now + 60 * SECOND + 3] {
                    assert_eq!(reason_at(&mut program, at, &segment), Reason::Conform);
                }
            }
        }
    }
    program.check_accounts().unwrap();
}

/// A record of a refused SYN is compared with one segment only. If it were compared with all segments of a
/// long connection, any forged number would match one of them.
#[test]
fn a_segment_of_another_number_ends_what_a_refused_syn_may_prove() {
    let mut program = program(&policy_of([strict_syns(&[KeyPart::Source])]));
    for other in [FIRST, FIRST.wrapping_add(1 << 20)] {
        let host = Loopback::new(ADDRESSES[0]);
        let port = host.free_port();
        program.forget().unwrap();
        program.apply(&policy_of([strict_syns(&[KeyPart::Source])])).unwrap();
        assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
        let last = refuse_syns(&mut program, &host, port, NOW + SECOND);
        let (before, now) = (violations(&program), last + 20 * SECOND);
        let (_client, _server) = host.open(port);
        for sequence in [other, FIRST.wrapping_add(1), FIRST.wrapping_add(2)] {
            let segment = host.frame(port, ACK, sequence);
            assert_eq!(reason_at(&mut program, now, &segment), Reason::Conform, "{sequence:#x}");
        }
        assert_eq!(violations(&program), before);
    }
    program.check_accounts().unwrap();
}

/// A source that gets a connection now and then is refused before each: the refusals add up to a block.
#[test]
fn refused_syns_of_one_connection_after_the_other_add_up_unless_there_is_a_rest() {
    let mut program = program(&policy_of([strict_syns(&[KeyPart::Source])]));
    let host = Loopback::new(ADDRESSES[0]);
    for (rest, times) in [(8, 3), (12, 20)] {
        program.forget().unwrap();
        assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
        let mut open = Vec::new();
        let mut blocked = None;
        for time in 1..=times {
            let port = host.free_port();
            let now = NOW + time * rest * SECOND;
            for at in [now, now + SECOND / 10] {
                assert_eq!(reason_at(&mut program, at, &host.frame(port, SYN, 7)), Reason::Exceed);
            }
            open.push(host.open(port));
            for at in [now + SECOND, now + SECOND + 1] {
                if reason_at(&mut program, at, &host.frame(port, ACK, 8)) == Reason::Penalty {
                    blocked.get_or_insert(time);
                }
            }
            if blocked.is_some() {
                break;
            }
        }
        // Blocked from second 8 to 24; never if it rests for 12 s.
        assert_eq!(blocked, (rest == 8).then_some(3), "{rest} s");
    }
    program.check_accounts().unwrap();
}

/// Records of refused SYNs may be evicted or too old; then they block no source.
#[test]
fn refused_syns_are_remembered_for_a_while() {
    let mut program = program(&policy_of([strict_syns(&[KeyPart::Source])]));
    let host = Loopback::new(ADDRESSES[0]);
    for (later, forgets, counts) in [
        (RefusedSyn::SPAN, false, true),
        (RefusedSyn::SPAN + 1, false, false),
        (SECOND, true, false),
    ] {
        program.forget().unwrap();
        assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
        let port = host.free_port();
        let last = refuse_syns(&mut program, &host, port, NOW + SECOND);
        let _open = host.open(port);
        if forgets {
            program.forget_refused_syns().unwrap();
        }
        let segment = host.frame(port, ACK, FIRST.wrapping_add(1));
        assert_eq!(reason_at(&mut program, last + later, &segment), Reason::Conform);
        let expected = if counts { Reason::Penalty } else { Reason::Conform };
        assert_eq!(reason_at(&mut program, last + later + 1, &segment), expected, "{later}");
    }
    program.check_accounts().unwrap();
}

/// Forging SYNs before a connection is opened requires guessing its initial sequence number.
#[test]
fn forged_syns_before_a_connection_is_opened_block_nobody() {
    let mut program = program(&policy_of([strict_syns(&[KeyPart::Source])]));
    let host = Loopback::new(ADDRESSES[0]);
    let port = host.free_port();
    assert_eq!(reason_at(&mut program, NOW, &host.frame(1, SYN, 7)), Reason::Conform);
    for (number, sequence) in [0, 1 << 30, 1 << 31, 3 << 30].into_iter().enumerate() {
        let now = NOW + 20 * number as u64 * SECOND + SECOND;
        let reasons = each_second(&mut program, now, 12, |_| host.frame(port, SYN, sequence));
        assert_eq!(reasons, [Reason::Exceed; 12]);
    }
    // The real connection begins with another number.
    let _open = host.open(port);
    for at in 1..1_000 {
        let segment = host.frame(port, ACK, (1 << 20) + 1_460 * at);
        let reason = reason_at(&mut program, NOW + 80 * SECOND + u64::from(at), &segment);
        assert_eq!(reason, Reason::Conform);
    }
    // Even with the right number, SYNs during an open connection prove nothing, because none follows.
    let last = refuse_syns(&mut program, &host, port, NOW + 100 * SECOND);
    let segment = host.frame(port, ACK, FIRST.wrapping_add(1));
    for at in [last + SECOND, last + SECOND + 1] {
        assert_eq!(reason_at(&mut program, at, &segment), Reason::Conform);
    }
    assert_eq!(violations(&program).0, 0);
    program.check_accounts().unwrap();
}

/// Without proof, a source is blocked only if the policy says so. A monitored limit records nothing.
#[test]
fn it_is_the_word_of_the_policy_that_blocks_without_proof() {
    for (unproven, expected) in
        [(Unproven::Ignore, Reason::Exceed), (Unproven::Block, Reason::Penalty)]
    {
        let penalty = Some(Penalty { unproven, ..PENALTY });
        let it = Limit { penalty, ..strict(&[KeyPart::Source]) };
        let mut program = program(&policy_of([it]));
        let host = Loopback::new(ADDRESSES[0]);
        let frames = [SYN, ACK].map(|flags| host.frame(9, flags, 7));
        for (number, frame) in frames.iter().enumerate() {
            let begin = NOW + 1_000 * number as u64 * SECOND;
            let reasons = each_second(&mut program, begin, 14, |_| frame.clone());
            assert_eq!(reasons.last(), Some(&expected), "{unproven:?} {number}");
        }
        program.check_accounts().unwrap();
    }
}
