//! Fragments against a model that knows every datagram by name.

use std::{cell::Cell, collections::HashMap};

use limiter_common::{
    base::seed::Seed,
    memory::fragment::{Datagram, WINDOW, WORDS, follow},
    packet::{
        headers::Packet,
        parse::parse,
        protocol::{TCP, UNKNOWN_PROTOCOL},
        reason::Reason,
    },
};
use proptest::prelude::*;

use super::cases;

const UDP: u8 = 17;

/// A fragment of a datagram between two of a few hosts.
#[derive(Clone, Debug)]
struct Part {
    is_v6: bool,
    hosts: (u8, u8),
    identification: u16,
    protocol: u8,
    /// The destination port and the flags of a first fragment.
    first: Option<(u8, u8)>,
}

/// Which datagram it is of, by name.
type Name = (bool, (u8, u8), u16, Option<u8>);

impl Part {
    fn name(&self) -> Name {
        let protocol = (!self.is_v6).then_some(self.protocol);
        (self.is_v6, self.hosts, self.identification, protocol)
    }

    fn packet(&self) -> Packet {
        let offset: u16 = if self.first.is_some() { 0 } else { 40 };
        let (to, flags) = self.first.unwrap_or_default();
        let mut body = vec![0; 32];
        (body[3], body[13]) = (to, flags);
        let mut frame = vec![2; 12];
        let ([a, b], (from, to)) = (self.identification.to_be_bytes(), self.hosts);
        if self.is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 44, 64]);
            frame.extend([[from; 16], [to; 16]].concat());
            let [c, d] = (offset << 3 | 1).to_be_bytes();
            frame.extend([self.protocol, 0, c, d, 1, 2, a, b]);
        } else {
            let [c, d] = (offset | 0x2000).to_be_bytes();
            frame.extend([8, 0, 0x45, 0, 0, 52, a, b, c, d, 64, self.protocol, 0, 0]);
            frame.extend([[from; 4], [to; 4]].concat());
        }
        frame.extend(body);
        let mut packet = Packet::UNREADABLE;
        assert_eq!(parse(&frame[..], &mut packet), Ok(Reason::Fragment));
        packet
    }
}

fn part() -> impl Strategy<Value = Part> {
    let first = prop::option::of((1..4_u8, prop::sample::select(vec![2_u8, 16])));
    let protocol = prop::sample::select(vec![UDP, TCP, 50]);
    (any::<bool>(), (1..3_u8, 1..3_u8), 0..3_u16, protocol, first).prop_map(
        |(is_v6, hosts, identification, protocol, first)| Part {
            is_v6,
            hosts,
            identification,
            protocol,
            first,
        },
    )
}

/// What the model knows of a datagram: what its first said, and when.
struct Noted {
    name: Name,
    protocol: u8,
    port: Option<u16>,
    flags: Option<u8>,
    window: u64,
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// Later fragments follow their first, contradictions are dropped, and nothing else is taken for of the same datagram.
    #[test]
    fn each_follows_its_own_first(
        seed in any::<[u64; 4]>(),
        start in 0..1_u64 << 50,
        steps in prop::collection::vec((part(), 0..WINDOW), 1..80),
    ) {
        let seed = Seed(seed);
        let words: Vec<Cell<u64>> = (0..WORDS).map(|_| Cell::new(0)).collect();
        let mut model = HashMap::<u32, Noted>::new();
        let mut now = start;
        for (part, later) in steps {
            now += later / 8;
            let window = now / WINDOW;
            let mut packet = part.packet();
            let before = packet;
            let datagram = Datagram::of(&packet, seed);
            let place = datagram.place();
            prop_assert!(place < WORDS);
            let overlaps = follow(&mut packet, datagram, &words[place as usize], now, false);
            let known = model.get(&place).filter(|noted| noted.name == part.name());
            if part.first.is_none() {
                prop_assert!(!overlaps);
                let known = known.filter(|noted| window - noted.window < 2);
                let unknown = if part.is_v6 { UNKNOWN_PROTOCOL } else { part.protocol };
                let (protocol, port, flags) = known
                    .map_or((unknown, None, None), |noted| (noted.protocol, noted.port, noted.flags));
                let found = (packet.protocol, packet.port(), packet.tcp_flags.get());
                prop_assert_eq!(found, (protocol, port, flags), "{:?}", part);
                continue;
            }
            prop_assert_eq!(packet, before);
            let (port, flags) = (packet.port(), packet.tcp_flags.get());
            let contradicts = known.is_some_and(|noted| {
                window - noted.window < 3
                    && (noted.protocol, noted.port, noted.flags) != (part.protocol, port, flags)
            });
            prop_assert_eq!(overlaps, contradicts, "{:?}", part);
            if !contradicts {
                let (name, protocol) = (part.name(), part.protocol);
                model.insert(place, Noted { name, protocol, port, flags, window });
            }
        }
    }

    /// Whatever is in a word, it is not taken for a note: of 2^23 one is.
    #[test]
    fn a_word_of_something_else_says_nothing(part in part(), word in any::<u64>(), now in any::<u64>()) {
        let part = Part { first: None, ..part };
        let mut packet = part.packet();
        let datagram = Datagram::of(&packet, Seed([5, 6, 7, 8]));
        prop_assert!(!follow(&mut packet, datagram, &Cell::new(word), now, false));
        prop_assert_eq!(packet.port(), None);
    }
}
