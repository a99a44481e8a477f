//! Leases and remembered refusals of limits by keys that the source does not tell, such as connections and destinations.

use std::net::IpAddr;

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
    memory::cache::Cached,
};
use limiter_tests::{
    packet::{ACK, Frame},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    model::{KeyPart, Limit},
};

use super::{
    NOW, bucket,
    define::{limit, policy_of},
    leased::{A, BURST, RATE, TICK, pass, ticking},
    per_second,
};

const B: [u8; 4] = [198, 51, 100, 1];
const C: [u8; 4] = [198, 51, 100, 2];
/// Packets in a tick that make a CPU lease as many at once as it ever does.
const MANY: u64 = 80;

fn by(name: &str, part: KeyPart, burst: u64) -> Limit {
    limit(name, &[part], per_second(RATE, burst))
}

fn by_connection(burst: u64) -> Policy {
    policy_of([by("connection", KeyPart::Connection, burst)])
}

fn from_port(port: u16) -> Vec<u8> {
    Frame::udp(A, B, port, 53).build()
}

/// The packets charged to the buckets of a policy with one limit, in all, if no time has passed.
fn charged(program: &TestProgram, burst: u64) -> u64 {
    charged_where(program, burst, |_| true)
}

/// The packets charged to the buckets with these ports.
fn charged_where(program: &TestProgram, burst: u64, wanted: impl Fn(u32) -> bool) -> u64 {
    let bucket = Rate::per_second(RATE).bucket(burst, 1).unwrap();
    let buckets = program.buckets().unwrap().into_iter();
    let words = buckets.filter(|(key, _)| wanted(key.ports)).map(|(_, state)| state.word);
    words.map(|word| bucket.spent(word, NOW) / bucket.interval).sum()
}

/// Two connections of a source have buckets, and leases, of their own. Each gets its burst, to the packet.
#[test]
fn each_connection_is_held_to_its_limit_through_leases() {
    const BURST: u64 = 4_000;
    let mut program = ticking(&by_connection(BURST));
    let (mut passed, mut leases) = ([0; 2], 0);
    for round in 0..400 {
        for (number, passed) in passed.iter_mut().enumerate() {
            let port = 1_000 + number as u16;
            // Batches of different lengths, so that a CPU changes from one to the other amid a lease.
            let packets = if round % 2 == number { 7 } else { 23 };
            *passed += program.run_many(&from_port(port), packets).unwrap();
            let of_it = |ports: u32| ports >> 16 == u32::from(port);
            let charged = charged_where(&program, BURST, of_it);
            assert!((*passed..*passed + Cached::MOST_LEASED).contains(&charged), "{charged}");
            leases += u64::from(charged > *passed);
        }
    }
    assert_eq!(passed, [BURST; 2]);
    assert!(leases > 100, "{leases} times something was leased");
    let tally = program.tally("connection").unwrap();
    assert_eq!((tally.conform.packets, tally.exceed.packets), (2 * BURST, 4_000));
    program.check_accounts().unwrap();
}

/// A lease is spent by packets with the same key alone. The frames differ in one part of the key each.
#[test]
fn what_one_key_has_leased_is_spent_by_no_other() {
    let from = |last: u16| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
    let to = [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1];
    let four = [
        Frame::udp(A, B, 1_000, 53),
        Frame::udp(A, B, 1_001, 53),
        Frame::udp(A, B, 1_000, 54),
        Frame::udp(A, C, 1_000, 53),
        Frame::tcp(A, B, 1_000, 53, ACK),
    ];
    // Both are of one source, which is a /64.
    let six = [Frame::udp(from(1), to, 1_000, 53), Frame::udp(from(2), to, 1_000, 53)];
    for frames in [&four[..], &six] {
        let mut program = ticking(&by_connection(BURST));
        let mut passed = 0;
        let first = frames[0].build();
        pass(&mut program, &first, MANY);
        passed += MANY;
        while charged(&program, BURST) == passed {
            pass(&mut program, &first, 1);
            passed += 1;
        }
        let left = charged(&program, BURST) - passed;
        for frame in &frames[1..] {
            pass(&mut program, &frame.build(), 1);
            passed += 1;
            assert_eq!(charged(&program, BURST) - passed, left, "it is charged by itself");
        }
        // What was leased is there still.
        for spent in 1..=left {
            pass(&mut program, &first, 1);
            assert_eq!(charged(&program, BURST) - passed - spent, left - spent);
        }
        assert_eq!(program.buckets().unwrap().len(), frames.len());
        program.check_accounts().unwrap();
    }
}

/// Packets behind a VLAN tag are decided by another part of the program, and spend the same leases.
#[test]
fn all_framings_of_a_connection_have_one_lease() {
    let mut program = ticking(&by_connection(BURST));
    let plain = Frame::udp(A, B, 1_000, 53);
    let frames = [plain.build(), plain.clone().tag(0x8100, 5).build()];
    let (mut passed, mut before, mut leases) = (0, 0, 0);
    for round in 0..2 * MANY {
        pass(&mut program, &frames[round as usize % 2], 1);
        passed += 1;
        let left = charged(&program, BURST) - passed;
        assert!(left + 1 == before || before == 0 && left <= passed / 4, "{left} after {passed}");
        leases += u64::from(before == 0 && left > 0);
        before = left;
    }
    assert!(leases >= 5, "{leases} leases");
    program.check_accounts().unwrap();
}

/// A source that opens connections of one packet each leases nothing: what its own limit is charged is what passes. None of
/// them takes a slot of the cache.
#[test]
fn a_flood_of_new_connections_leases_nothing() {
    let limits =
        [by("connection", KeyPart::Connection, BURST), by("own", KeyPart::Source, 2 * BURST)];
    let mut program = ticking(&policy_of(limits));
    let source = Address::v4(A);
    for port in 1..=3_000 {
        pass(&mut program, &from_port(port), 1);
    }
    let bucket = Rate::per_second(RATE).bucket(2 * BURST, 1).unwrap();
    let word = program.source(&source).unwrap().unwrap().words[0];
    assert_eq!(bucket.spent(word, NOW) / bucket.interval, 3_000);
    assert_eq!(program.maps().outstanding_of(&source).unwrap(), Default::default());
    // A connection that goes on leases as before.
    pass(&mut program, &from_port(1), MANY);
    let word = program.source(&source).unwrap().unwrap().words[0];
    assert!(bucket.spent(word, NOW) / bucket.interval >= 3_000 + MANY);
    assert_ne!(program.maps().outstanding_of(&source).unwrap(), Default::default());
    program.check_accounts().unwrap();
}

/// A destination gets its burst once, however many sources and connections hold leases, and loses a quarter at most.
#[test]
fn what_sources_hold_of_a_destination_is_within_its_limit() {
    const BURST: u64 = 4_000;
    let mut program = ticking(&policy_of([by("destination", KeyPart::Destination, BURST)]));
    let mut passed = [0; 2];
    for round in 0..4 * BURST {
        let source = [192, 0, 2, (round / 50 % 40) as u8];
        for (passed, to) in passed.iter_mut().zip([B, C]) {
            let frame = Frame::udp(source, to, (round % 7) as u16 + 1, 53).build();
            *passed += program.run_many(&frame, 1).unwrap();
        }
    }
    for passed in passed {
        assert!((BURST - BURST / 4..=BURST).contains(&passed), "{passed} of {BURST}");
    }
    assert_eq!(program.tally("destination").unwrap().conform.packets, passed[0] + passed[1]);
    program.check_accounts().unwrap();
}

/// What a connection is refused, the CPU remembers for this connection.
#[test]
fn a_refused_connection_is_dropped_by_the_cache_and_another_one_passes() {
    const BURST: u64 = 4_000;
    let mut program = ticking(&by_connection(BURST));
    assert_eq!(program.run_many(&from_port(1_000), 2 * BURST as u32).unwrap(), BURST);
    let dropped = |program: &TestProgram| {
        program.maps().outstanding_of(&Address::v4(A)).unwrap().dropped.packets
    };
    let before = dropped(&program);
    assert_eq!(program.run(&from_port(1_000)).unwrap(), Verdict::Drop);
    assert_ne!(dropped(&program), before, "the CPU counts it alone");
    pass(&mut program, &from_port(1_001), MANY);
    program.at(NOW + TICK).unwrap();
    let brought = RATE * TICK / 1_000_000_000;
    let passed = program.run_many(&from_port(1_000), 2 * BURST as u32).unwrap();
    assert!((brought - 1..=brought + 1).contains(&passed), "{passed} of {brought}");
    program.check_accounts().unwrap();
}

/// What its own limit refuses a source, the CPU remembers whatever destination the packets are for: a flood to many
/// destinations is dropped as cheaply as one to a single one.
#[test]
fn a_refused_source_is_dropped_by_the_cache_whatever_the_destination() {
    const BURST: u64 = 4_000;
    let limits =
        [by("own", KeyPart::Source, BURST), by("destination", KeyPart::Destination, 120_000)];
    let mut program = ticking(&policy_of(limits));
    let to = |last: u8| Frame::udp(A, [198, 51, 100, last], 1_000, 53).build();
    assert_eq!(program.run_many(&to(1), 2 * BURST as u32).unwrap(), BURST);
    let key = Address::v4(A);
    for last in 2..60 {
        let before = program.maps().outstanding_of(&key).unwrap().dropped.packets;
        assert_eq!(program.run(&to(last)).unwrap(), Verdict::Drop);
        assert_ne!(program.maps().outstanding_of(&key).unwrap().dropped.packets, before, "{last}");
    }
    assert_eq!(program.buckets().unwrap().len(), 1, "no bucket was made for the others");
    let tally = program.tally("own").unwrap();
    assert_eq!((tally.conform.packets, tally.exceed.packets), (BURST, BURST + 58));
    program.check_accounts().unwrap();
}

/// A source is a network here, and each of its addresses has a limit of its own. The first address has no rest of the key. What is
/// remembered of it is said of no other one, also where all were refused by the network before.
#[test]
fn a_refusal_of_the_first_address_of_a_network_is_of_no_other_one() {
    let one = KeyPart::SourcePrefix { ipv4: 32, ipv6: 128 };
    let slow = bucket(Rate { packets: 1, period: 3_600 * SECOND }, 2);
    let mut program = ticking(&policy_of([
        limit("network", &[KeyPart::Source], per_second(1, 6)),
        limit("address", &[one], slow),
    ]));
    let from = |last: u16| {
        let [source, to] = [(2, last), (3, 9)]
            .map(|(net, last)| IpAddr::from([0x2001, 0xdb8, 1, net, 0, 0, 0, last]));
        Frame::udp(source, to, 5_000, 9).build()
    };
    for last in [0, 1] {
        assert_eq!(program.run_many(&from(last), 9).unwrap(), 2);
    }
    program.at(NOW + SECOND).unwrap();
    // Part of a token is enough for a packet, and the next one takes an hour.
    assert_eq!(program.run_many(&from(0), 9).unwrap(), 1);
    assert_eq!(program.run_many(&from(2), 9).unwrap(), 2);
    assert!(program.run_many(&from(3), 9).unwrap() <= 1, "of the network");
    program.at(NOW + 10 * SECOND).unwrap();
    assert_eq!(program.run_many(&from(0), 9).unwrap(), 0, "of the first address");
    assert_eq!(program.run_many(&from(4), 9).unwrap(), 2);
    program.check_accounts().unwrap();
}
