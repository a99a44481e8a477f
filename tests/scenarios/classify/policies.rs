//! Random policies with every property that a limit can match.

use limiter_common::algorithm::rate::Rate;
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, Count, KeyPart, Layer, Limit, Match, Mode, TcpFlags, Whom},
};

use super::{ACK, Random, SYN};

/// Prefixes around the addresses of the frames, and others.
const PREFIXES: [&str; 10] = [
    "0.0.0.0/0",
    "::/0",
    "192.0.2.0/24",
    "198.51.100.0/24",
    "198.51.100.0/25",
    "198.51.100.2/32",
    "2001:db8::/32",
    "2001:db8:0:1::/64",
    "10.0.0.0/8",
    "ff00::/8",
];

fn some<T: Clone>(random: &mut Random, from: &[T], most: usize) -> Vec<T> {
    if random.below(3) > 0 {
        return Vec::new();
    }
    (0..=random.below(most)).map(|_| random.pick(from).clone()).collect()
}

fn prefixes(random: &mut Random) -> Vec<Whom> {
    let whom = |text: &&str| match *text {
        "set" => Whom::Set("set".to_owned()),
        prefix => Whom::Prefix(prefix.parse().unwrap()),
    };
    let mut all = PREFIXES.to_vec();
    all.push("set");
    some(random, &all, 3).iter().map(whom).collect()
}

fn maybe<T>(random: &mut Random, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (random.below(4) == 0).then(|| value(random))
}

fn any_match(random: &mut Random) -> Match {
    let interfaces = ["eth0", "eth1", "veth"].map(str::to_owned);
    Match {
        protocols: some(random, &[6, 6, 17, 1, 58, 132, 50, 0], 2),
        ports: some(random, &[0..=0, 443..=443, 1..=1023, 1024..=65_535, 53..=53, 80..=8080], 2),
        source_ports: some(random, &[0..=0, 53..=53, 1..=1023, 1024..=65_535], 2),
        tcp_flags: maybe(random, |random| {
            let set = *random.pick(&[0, SYN, ACK, 1, 4, 0x12]);
            TcpFlags { set, clear: *random.pick(&[0, ACK, SYN, 5]) & !set }
        }),
        icmp_types: if random.below(3) == 0 {
            some(random, &[0, 8, 128, 129, 135], 3)
        } else {
            vec![]
        },
        fragments: maybe(random, |random| random.below(2) == 0),
        length: maybe(random, |random| {
            random.pick(&[14..=63, 64..=127, 60..=1514, 100..=65_535]).clone()
        }),
        interfaces: some(random, &interfaces, 1),
        destinations: prefixes(random),
        except_destinations: prefixes(random),
        ..Match::default()
    }
}

pub(super) fn any_policy(random: &mut Random) -> Policy {
    let set = PREFIXES[2..4].iter().map(|prefix| prefix.parse().unwrap()).collect();
    let mut policy = Policy::default();
    policy.sets.insert("set".to_owned(), set);
    let keys = [
        KeyPart::Source,
        KeyPart::Source,
        KeyPart::Source,
        KeyPart::Connection,
        KeyPart::Destination,
        KeyPart::DestinationPort,
        KeyPart::Interface,
    ];
    for number in 0..=random.below(24) {
        let burst = 1 + random.below(9) as u64;
        let matching = any_match(random);
        let mut limit = limit(&format!("limit-{number}"), *random.pick(&keys), matching, burst);
        let layers = 1 + random.below(5) / 4;
        limit.layers = vec![limit.layers[0].clone(); layers];
        limit.candidate = (random.below(8) == 0).then_some(limit.layers[0].allowance);
        limit.count = if random.below(4) == 0 { Count::Syns } else { Count::Packets };
        let modes = [Mode::Enforce, Mode::Enforce, Mode::Monitor, Mode::Drop, Mode::Off];
        limit.mode = *random.pick(&modes);
        policy.limits.push(limit);
    }
    policy
}

/// A limit of ten packets a second.
pub(super) fn limit(name: &str, key: KeyPart, matching: Match, burst: u64) -> Limit {
    let allowance = Allowance::TokenBucket { rate: Rate::per_second(10), burst };
    let layers = vec![Layer { allowance, key: None }];
    Limit { matching, layers, ..Limit::new(name, &[key]) }
}
