//! Compares limits on open connections with a model that is a set of connections.

use std::{
    collections::HashMap,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use limiter_common::algorithm::rate::SECOND;
use limiter_tests::{
    model::{Connections, Says},
    packet::{ACK, FIN, Frame, RST, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, Count, KeyPart, Limit},
};

use super::{
    super::{
        NOW, Run,
        define::{limit, policy_of, within},
        is_emulated, most,
        mutation::Random,
        program, seed,
        sent::{Part, Sent, Transport},
    },
    RUNS, STEPS,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

/// A limit on open connections, as a policy document makes it.
fn concurrent(name: &str, parts: &[KeyPart], most: u64, idle: u64) -> Limit {
    let allowance = Allowance::Concurrent { limit: most, idle };
    Limit { count: Count::Connections, ..limit(name, parts, allowance) }
}

fn any_flags(random: &mut Random) -> (u8, Says) {
    match random.below(20) {
        0..=5 => (SYN, Says::Open),
        6 => (RST, Says::Reset),
        7 => (RST | ACK, Says::Reset),
        8 => (FIN | ACK, Says::Finish),
        9 => (SYN | ACK, Says::Data),
        _ => (ACK, Says::Data),
    }
}

fn any_sent(random: &mut Random, most: u64) -> (Sent, Says) {
    let (flags, says) = any_flags(random);
    let ports = [40_000 + random.below(2 * most as usize + 3) as u16, 443];
    let source = [10, 0, *random.pick(&[0, 1]), *random.pick(&[1, 2])].into();
    let transport = Transport::Tcp(ports, flags);
    (Sent { source, destination: B.into(), transport, payload: 0, slot: 0 }, says)
}

fn step(random: &mut Random, most: u64, idle: u64) -> u64 {
    let any = |random: &mut Random, below: u64| random.below(below as usize + 1) as u64;
    match random.below(24) {
        0..=9 => any(random, idle / most / 4),
        10 => any(random, idle / 4),
        11 if random.below(4) == 0 => any(random, 2 * idle),
        12 => 1 << 24,
        _ => 0,
    }
}

#[test]
fn concurrent_decides_as_a_set_of_connections_does() {
    let seed = seed();
    let mut program = program(&Policy::default());
    let (mut steps, mut refused) = (0, 0);
    for run in 0..most(RUNS) {
        let mut random = Random::new(seed, run);
        let bits = [random.below(8), random.below(12)];
        let [most, seconds] = bits.map(|bits| 1 + random.below(1 << bits) as u64);
        let idle = SECOND * seconds;
        let keys = [&[KeyPart::Source][..], &[within(24, 48)], &[], &[KeyPart::Destination]];
        let parts = *random.pick(&keys);
        let limit = concurrent(&format!("limit-{run}"), parts, most, idle);
        let _run = Run { seed, run, of: &limit.clone() };
        let policy = policy_of([limit]);
        program.apply(&policy).unwrap();
        let mut open: HashMap<Vec<Part>, Connections> = HashMap::new();
        let mut now = NOW;
        for number in 0..STEPS {
            let (sent, says) = any_sent(&mut random, most);
            let key = sent.key(parts, &policy).unwrap();
            let connections = open.entry(key).or_insert_with(|| Connections::new(most, idle));
            let Transport::Tcp([port, _], _) = sent.transport else { continue };
            let IpAddr::V4(source) = sent.source else { continue };
            let connection = u64::from(source.to_bits()) << 16 | u64::from(port);
            program.at(now).unwrap();
            let passes = program.run(&sent.frame()).unwrap() == Verdict::Pass;
            let expected = connections.take(now, connection, says);
            assert_eq!(passes, expected, "step {number} at {now}: {sent:?}, {most} {idle}");
            steps += 1;
            refused += u32::from(!passes);
            now += step(&mut random, most, idle);
        }
    }
    program.check_accounts().unwrap();
    println!("{refused} of {steps} refused");
    let passed = steps - refused;
    assert!(is_emulated() || refused.min(passed) * 5 > steps, "{refused} of {steps} refused");
}

/// Packets that are not TCP belong to no connection, and a later fragment does not show its connection.
#[test]
fn what_has_no_connection_is_not_counted() {
    let limit = concurrent("few", &[KeyPart::Source], 1, 60 * SECOND);
    let mut program = program(&policy_of([limit]));
    let tcp = |port, flags| Frame::tcp(A, B, port, 443, flags);
    assert_eq!(program.run(&tcp(1, SYN).build()).unwrap(), Verdict::Pass);
    assert_eq!(program.run(&tcp(2, SYN).build()).unwrap(), Verdict::Drop);
    for frame in [
        Frame::udp(A, B, 2, 443).build(),
        Frame::echo(A, B, 2, 443).build(),
        Frame::sctp(A, B, 2, 443).build(),
        Frame::ip(A, B, 6).payload(64).fragment(9, 40, true).build(),
    ] {
        assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
    }
    // A packet of a connection without a slot needs one, whatever its flags are.
    for flags in [ACK, SYN | ACK, FIN | ACK] {
        assert_eq!(program.run(&tcp(2, flags).build()).unwrap(), Verdict::Drop);
    }
    assert_eq!(program.run(&tcp(1, ACK).payload(100).build()).unwrap(), Verdict::Pass);
    let [(_, state)] = &program.wide_states().unwrap()[..] else { panic!("one source") };
    assert_eq!(state.slots.iter().filter(|slot| **slot != 0).count(), 1);
    program.check_accounts().unwrap();
}

/// Active connections keep their slots. Silent ones lose them, and closing ones sooner.
#[test]
fn places_are_given_up_by_silence_and_by_closing() {
    let limit = concurrent("few", &[KeyPart::Source], 3, 60 * SECOND);
    let mut program = program(&policy_of([limit]));
    let mut sends = |second: u64, port, flags| {
        program.at(NOW + second * SECOND).unwrap();
        let frame = Frame::tcp(A, B, port, 443, flags).build();
        program.run(&frame).unwrap() == Verdict::Pass
    };
    assert!([1, 2, 3].into_iter().all(|port| sends(0, port, SYN)) && !sends(0, 4, SYN));
    // Connection 3 is silent from here on.
    for second in (10..=60).step_by(10) {
        assert!(sends(second, 1, ACK) && sends(second, 2, ACK), "after {second} s");
    }
    assert!(!sends(60, 4, SYN));
    assert!(sends(68, 4, SYN) && !sends(68, 3, ACK), "3 has lost its place");
    assert!(sends(69, 1, FIN | ACK) && !sends(78, 3, SYN) && sends(81, 3, SYN));
    // These connections have no sockets on this host, so a reset closes like a FIN.
    assert!(sends(82, 2, RST) && !sends(91, 5, SYN));
    assert!(sends(82 + 12, 5, SYN) && !sends(82 + 12, 6, SYN));
}

/// For connections with a socket on this host, the socket decides.
#[test]
fn a_closing_connection_has_its_place_as_long_as_its_socket_is_there() {
    let limit = concurrent("few", &[KeyPart::Source], 2, 60 * SECOND);
    let mut program = program(&policy_of([limit]));
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        program.forget().unwrap();
        let listener = TcpListener::bind((address, 0)).unwrap();
        let service = listener.local_addr().unwrap();
        let pair = || {
            let client = TcpStream::connect(service).unwrap();
            (client.local_addr().unwrap().port(), client, listener.accept().unwrap().0)
        };
        let [(first, first_client, first_server), (second, second_client, second_server)] =
            [pair(), pair()];
        let mut sends = |second: u64, port, flags| {
            program.at(NOW + second * SECOND).unwrap();
            let frame = Frame::tcp(address, address, port, service.port(), flags).build();
            program.run(&frame).unwrap() == Verdict::Pass
        };
        // Resets that the sockets do not see, as if their sequence numbers were outside the window.
        assert!(sends(0, first, SYN) && sends(0, second, SYN) && !sends(0, 1, SYN));
        assert!(sends(0, first, RST) && sends(0, second, RST | ACK) && sends(0, 1, RST));
        for second in (1..200).step_by(12) {
            assert!(!sends(second, 1, SYN), "after {second} s");
        }
        assert!(sends(200, second, FIN | ACK) && !sends(220, 1, SYN));
        // A connection that its client closes first leaves no socket behind.
        drop(first_client);
        drop(first_server);
        let mut now = 240;
        assert!(passes_soon(|| sends(next(&mut now), 1, SYN)));
        assert!(!sends(now, first, ACK), "its place is another's");
        // A connection that its server closes first leaves a socket in TIME_WAIT, which does not keep a slot.
        assert!(sends(next(&mut now), 1, FIN | ACK) && !sends(next(&mut now), 3, SYN));
        drop(second_server);
        drop(second_client);
        assert!(passes_soon(|| sends(next(&mut now), 3, SYN)));
        assert!(sends(now, 1, ACK) && !sends(now, 4, SYN), "1 has its place");
    }
    program.check_accounts().unwrap();
}

/// A connection that only the client has closed keeps its slot while the server holds its socket.
#[test]
fn a_connection_that_only_the_client_has_closed_has_its_place() {
    let limit = concurrent("few", &[KeyPart::Source], 1, 60 * SECOND);
    let mut program = program(&policy_of([limit]));
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind((address, 0)).unwrap();
    let service = listener.local_addr().unwrap();
    let client = TcpStream::connect(service).unwrap();
    let (port, mut server) = (client.local_addr().unwrap().port(), listener.accept().unwrap().0);
    let mut sends = |second: u64, port, flags| {
        program.at(NOW + second * SECOND).unwrap();
        let frame = Frame::tcp(address, address, port, service.port(), flags).build();
        program.run(&frame).unwrap() == Verdict::Pass
    };
    assert!(sends(0, port, SYN));
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "it has heard of the end");
    assert!(sends(0, port, FIN | ACK));
    for second in (1..200).step_by(12) {
        assert!(!sends(second, 1, SYN), "after {second} s");
    }
    drop(server);
    let mut now = 200;
    assert!(passes_soon(|| sends(next(&mut now), 1, SYN)));
    // This connection sends nothing more and has no socket.
    assert!(!sends(now + 60, 2, SYN) && sends(now + 68, 2, SYN));
}

/// An attacker who ends many connections evicts the records of the ends of other connections.
#[test]
fn a_connection_whose_end_was_forgotten_has_its_place_for_a_while() {
    let limit = concurrent("few", &[KeyPart::Source], 1, 60 * SECOND);
    let mut program = program(&policy_of([limit]));
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind((address, 0)).unwrap();
    let service = listener.local_addr().unwrap();
    let client = TcpStream::connect(service).unwrap();
    let (port, _server) = (client.local_addr().unwrap().port(), listener.accept().unwrap().0);
    let sends = |program: &mut TestProgram, second: u64, port, flags| {
        program.at(NOW + second * SECOND).unwrap();
        let frame = Frame::tcp(address, address, port, service.port(), flags).build();
        program.run(&frame).unwrap() == Verdict::Pass
    };
    assert!(sends(&mut program, 0, port, SYN) && sends(&mut program, 0, port, RST));
    assert!(!sends(&mut program, 1, 1, SYN), "its socket is there");
    program.forget_endings().unwrap();
    for second in [2, 9] {
        assert!(!sends(&mut program, second, 1, SYN), "after {second} s");
    }
    // The connection goes on.
    assert!(sends(&mut program, 9, port, ACK) && !sends(&mut program, 18, 1, SYN));
    assert!(sends(&mut program, 22, 1, SYN) && !sends(&mut program, 22, port, ACK));
}

/// Advances the second by one.
fn next(second: &mut u64) -> u64 {
    *second += 1;
    *second
}

/// Whether a packet passes soon: the kernel releases closed sockets with a delay.
fn passes_soon(mut sends: impl FnMut() -> bool) -> bool {
    (0..8).any(|_| {
        thread::sleep(Duration::from_millis(20));
        sends()
    })
}
