//! Compares the compiled matching tables, read as the datapath does, with the policy itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod naive;
mod policies;

use std::{cell::Cell, collections::BTreeMap};

use limiter_common::{
    base::address::Address,
    memory::fragment::{Datagram, follow},
    packet::{
        headers::{Fragment, Packet},
        parse::parse,
    },
    policy::{
        limit::{INLINE, INTERFACES, KEYED},
        matching::{Sets, classify},
    },
};
use limiter_tests::{
    packet::kinds,
    random::{self, Run},
    reference::reference,
};
use limiter_userspace::policy::{
    Assignment, Context, Policy, PolicyError, Tables, compile,
    interfaces::Port,
    model::{KeyPart, Match},
    tallies,
};

use self::{
    naive::Facts,
    policies::{any_policy, limit},
};
use super::parser::mutation::{Random, mutate};

/// The seed of random policies, unless `LIMITER_TEST_SEED` is set.
const SEED: u64 = 0x636c_6173_7369_6679;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The tables, read as the datapath does.
struct Looked<'a> {
    tables: &'a Tables,
    sets: BTreeMap<u32, &'a [u64]>,
}

impl<'a> Looked<'a> {
    fn new(tables: &'a Tables) -> Self {
        let sets = tables.classes.iter().map(|(first, sets)| (*first, sets.as_slice())).collect();
        Self { tables, sets }
    }
}

impl Sets for Looked<'_> {
    fn at(&self, place: u32) -> u64 {
        let (first, sets) = self.sets.range(..=place).next_back().unwrap();
        sets[(place - first) as usize]
    }

    fn destination(&self, packet: &Packet) -> u64 {
        let address = Address { family: packet.source.family, words: packet.destination };
        let longest = self
            .tables
            .destinations
            .iter()
            .filter(|(bits, prefix, _)| shares(&address, prefix, *bits))
            .max_by_key(|(bits, ..)| *bits);
        longest.map_or(self.tables.settings.default_destination_limits, |(.., limits)| *limits)
    }
}

/// Whether two addresses share their first `bits` bits, including those of the family.
fn shares(one: &Address, other: &Address, bits: u32) -> bool {
    let [one, other] = [one, other].map(|address| {
        let [a, b, c, d] = address.words.map(|word| u128::from(u32::from_be(word)));
        (address.family, a << 96 | b << 64 | c << 32 | d)
    });
    let rest = 128 - (bits - Address::FAMILY_BITS);
    one.0 == other.0 && (one.1 ^ other.1).checked_shr(rest).unwrap_or(0) == 0
}

fn context() -> Context {
    let slots = [(0, "eth0"), (7, "veth"), (INTERFACES - 1, "eth1")];
    let interfaces = slots.map(|(slot, name)| Port::new(slot, name, slot + 1)).into();
    Context { interfaces, ..Context::default() }
}

/// The rows of each limit as bits, found by their tallies, which have the name of the limit.
fn rows_of(policy: &Policy, tables: &Tables, held: &Assignment) -> Vec<u64> {
    let tallied = tallies(policy, held).unwrap();
    let bits = |name: &str| {
        let places = tallied.iter().filter(|tallied| tallied.limit == name);
        let rows = places.flat_map(|it| tables.rows.iter().filter(|row| row.tally == it.place));
        rows.fold(0, |bits, row| bits | row.bit)
    };
    policy.limits.iter().map(|limit| bits(&limit.name)).collect()
}

/// 160,000 packets under 200 policies.
#[test]
fn a_packet_is_about_the_limits_that_say_so() {
    let seed = random::seed(SEED).unwrap();
    let kinds = kinds();
    let (mut compiled, mut about, mut not) = (0, 0_u64, 0_u64);
    for run in 0..200 {
        let mut random = Random::new(seed, run);
        let policy = any_policy(&mut random);
        let _run = Run { seed, run, of: &policy };
        let context = context();
        let (tables, held) = match compile(&policy, &Assignment::default(), &context) {
            Ok(compiled) => compiled,
            Err(PolicyError::TooManyAtOnce { limits, .. }) => {
                assert!(limits.len() > KEYED);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        compiled += 1;
        let (looked, rows) = (Looked::new(&tables), rows_of(&policy, &tables, &held));
        let all = rows.iter().fold(0, |all, rows| all | rows);
        for number in 0..800 {
            let (name, mut frame) = random.pick(&kinds).clone();
            for _ in 0..random.below(3) {
                mutate(&mut random, &mut frame, &kinds);
            }
            let port = random.pick(&context.interfaces);
            let mut packet = Packet::UNREADABLE;
            if parse(&frame[..], &mut packet).is_err() {
                continue;
            }
            if packet.fragment.get() != Fragment::Whole {
                let datagram = Datagram::of(&packet, tables.settings.seed);
                assert!(!follow(&mut packet, datagram, &Cell::new(0), 0, true));
            }
            // Packets that the kernel has merged are longer than any frame made here.
            let merged = random.below(8) == 0;
            let longer = *random.pick(&[13, 65_534, 65_535, 65_536, 65_537, 130_000, u64::MAX]);
            let bytes = if merged { longer } else { frame.len() as u64 };
            let frame_of = reference(&frame);
            let facts = Facts { frame: &frame_of, bytes, interface: &port.name };
            let fits =
                policy.limits.iter().zip(&rows).filter(|(limit, _)| facts.fits(limit, &policy));
            let expected = fits.fold(0, |bits, (_, rows)| bits | rows);
            let match_fields = tables.settings.match_fields;
            let limits = classify(&packet, || bytes, || port.slot, match_fields, &looked) & all;
            assert_eq!(limits, expected, "packet {number}, made of {name}: {frame_of:?}");
            // The datapath has places for so many keyed limits, unless the packet hides what it is.
            let keyed = limits & tables.settings.keyed & !tables.settings.drops;
            let keyed = keyed.count_ones() as usize;
            let hides = packet.may_have_ports() || packet.may_have_type();
            assert!(
                hides || keyed <= KEYED,
                "packet {number}, made of {name}, has {keyed}: {frame_of:?}"
            );
            about += u64::from(limits.count_ones());
            not += u64::from((all & !limits).count_ones());
        }
    }
    // Unless limits match and do not match often, the comparison would prove nothing.
    assert!(compiled > 60 && about > 50_000 && not > 50_000, "{compiled} {about} {not}");
}

/// A limit without a word in the entry of the source needs a key. For a packet that hides its protocol, all
/// limits without ports apply. A policy in which these may exceed the places of a packet is refused as a
/// whole.
#[test]
fn more_limits_than_a_packet_can_have_make_no_policy() {
    let compiles = |limits: usize, matching: &dyn Fn(usize) -> (KeyPart, Match)| {
        let mut policy = Policy::default();
        for number in 0..limits {
            let (key, matching) = matching(number);
            policy.limits.push(limit(&format!("limit-{number}"), key, matching, 1));
        }
        match compile(&policy, &Assignment::default(), &context()) {
            Ok(_) => true,
            Err(PolicyError::TooManyAtOnce { limits, .. }) => {
                assert_eq!(limits.len(), KEYED + 1);
                false
            }
            Err(error) => panic!("{error}"),
        }
    };
    let sources = |_| (KeyPart::Source, Match::default());
    assert!(compiles(INLINE + KEYED, &sources) && !compiles(INLINE + KEYED + 1, &sources));
    let protocols = |number| {
        let protocols = vec![if number % 2 == 0 { 6 } else { 17 }];
        (KeyPart::Destination, Match { protocols, ..Match::default() })
    };
    assert!(compiles(KEYED, &protocols) && !compiles(KEYED + 1, &protocols));
    // A port was read only if the protocol is known.
    let ports = |number| {
        let (key, matching) = protocols(number);
        (key, Match { ports: vec![443..=443], ..matching })
    };
    assert!(compiles(2 * KEYED, &ports));
}
