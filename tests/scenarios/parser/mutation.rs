//! Random mutations of frames: of single bits, and of the fields that parsers rely on.

use limiter_tests::packet::{Extension, IPV4, IPV6, MPLS, PPPOE, TAGS, network_layer};

/// Values with a meaning in some header field.
const TELLING: [u8; 28] = [
    0, 1, 2, 3, 4, 5, 6, 8, 17, 20, 32, 40, 43, 44, 50, 51, 58, 59, 60, 0x45, 0x4f, 0x60, 0x81,
    132, 135, 139, 140, 255,
];
/// Protocol numbers of headers that another header follows, in IPv6.
const EXTENSIONS: [u8; 8] = [0, 43, 44, 51, 60, 135, 139, 140];
/// The longest mutated frame, in bytes.
const LONGEST: usize = 4_096;

/// A stream of random numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// The stream for one step of a test.
    pub(crate) fn new(seed: u64, step: u64) -> Self {
        Self(Self(seed ^ step.wrapping_mul(0xd6e8_feb8_6659_fd93)).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next().checked_rem(bound as u64).unwrap_or_default() as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn half(&mut self) -> bool {
        self.next() & 1 == 0
    }
}

/// Mutates `frame` in one way.
pub(crate) fn mutate(random: &mut Random, frame: &mut Vec<u8>, kinds: &[(&str, Vec<u8>)]) {
    match random.below(14) {
        0 => {
            let bit = random.below(frame.len() * 8);
            if let Some(byte) = frame.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        1 => {
            let value = if random.half() { *random.pick(&TELLING) } else { random.byte() };
            let at = random.below(frame.len().min(128));
            set(frame, at, &[value]);
        }
        2 => frame.truncate(random.below(frame.len() + 1)),
        3 => {
            let more = random.below(64);
            frame.extend((0..more).map(|_| random.byte()));
        }
        4 => {
            let (one, other) = (random.below(frame.len()), random.below(frame.len()));
            if !frame.is_empty() {
                frame.swap(one, other);
            }
        }
        5 => {
            // The end of one frame after the beginning of another.
            let (_, other) = random.pick(kinds);
            frame.truncate(random.below(frame.len() + 1));
            frame.extend_from_slice(&other[random.below(other.len())..]);
        }
        6 => {
            let tag = random.pick(&TAGS).to_be_bytes();
            let tags = (0..=random.below(3)).flat_map(|_| [tag[0], tag[1], 0, 7]);
            if frame.len() >= 12 {
                frame.splice(12..12, tags);
            }
        }
        7 | 8 => chain(random, frame),
        9 => length(random, frame),
        10 => fragment(random, frame),
        11 => session(random, frame),
        12 => labels(random, frame),
        _ => set_protocol(random, frame),
    }
    frame.truncate(LONGEST);
}

fn set(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Inserts up to ten extension headers between the IPv6 header and its content.
fn chain(random: &mut Random, frame: &mut Vec<u8>) {
    let Some((IPV6, network)) = network_layer(frame) else {
        return;
    };
    let Some(&next) = frame.get(network + 6) else {
        return;
    };
    if frame.len() < network + 40 {
        return;
    }
    let mut next = next;
    let mut bytes = Vec::new();
    for _ in 0..=random.below(10) {
        let units = if random.below(50) == 0 { random.byte() } else { random.below(3) as u8 };
        let extension = match random.below(9) {
            0 => Extension::hop_by_hop(units),
            1 => Extension::routing(units),
            2 => Extension::fragment(1, 0, false),
            3 => Extension::fragment(1, random.below(3) as u16, random.half()),
            4 => Extension::authentication(units),
            5 => Extension::mobility(units),
            6 => Extension::host_identity(units),
            7 => Extension::shim6(units),
            _ => Extension::destination_options(units),
        };
        bytes.splice(0..0, extension.bytes(next));
        next = extension.number();
    }
    frame.splice(network + 40..network + 40, bytes);
    frame[network + 6] = next;
    if random.below(4) != 0 {
        let length = (frame.len() - network - 40) as u16;
        set(frame, network + 4, &length.to_be_bytes());
    }
}

/// Wraps everything behind the VLAN tags in a PPPoE session.
fn session(random: &mut Random, frame: &mut Vec<u8>) {
    let Some((ether_type, network)) = network_layer(frame) else {
        return;
    };
    let protocol: &[u8] = match (ether_type, random.below(6)) {
        (_, 0) => &[0xc0, 0x21],
        (_, 1) => &[0x02, 0x81],
        (IPV4, 2) => &[0x21],
        (IPV6, 2) => &[0x57],
        (IPV6, _) => &[0x00, 0x57],
        _ => &[0x00, 0x21],
    };
    let mut length = (protocol.len() + frame.len() - network) as u16;
    if random.below(4) == 0 {
        length = random.below(usize::from(length) + 4) as u16;
    }
    let [high, low] = length.to_be_bytes();
    frame.splice(network..network, [&[0x11, 0, 0, 1, high, low], protocol].concat());
    set(frame, network - 2, &PPPOE.to_be_bytes());
}

/// Inserts up to six MPLS labels before the datagram.
fn labels(random: &mut Random, frame: &mut Vec<u8>) {
    let Some((_, network)) = network_layer(frame) else {
        return;
    };
    let count = 1 + random.below(6);
    let bottom = |number| u8::from(number + 1 == count) | random.byte() & 0xfe;
    let stack: Vec<_> = (0..count).map(bottom).flat_map(|third| [0, 1, third, 64]).collect();
    frame.splice(network..network, stack);
    let type_or_protocol = if random.below(4) == 0 { [2, 0x81] } else { MPLS.to_be_bytes() };
    set(frame, network - 2, &type_or_protocol);
}

/// Sets a wrong length: of the datagram, of the header, or of the first extension header.
fn length(random: &mut Random, frame: &mut [u8]) {
    let Some((ether_type, network)) = network_layer(frame) else {
        return;
    };
    // Near the true length, or any number.
    let span = frame.len().saturating_sub(network) + 8;
    let bound = if random.half() { span } else { 0x1_0000 };
    let length = (random.below(bound) as u16).to_be_bytes();
    match (ether_type, random.below(3)) {
        (IPV4, 0) => set(frame, network, &[0x40 | random.below(16) as u8]),
        (IPV4, _) => set(frame, network + 2, &length),
        (IPV6, 0) => set(frame, network + 41, &[random.below(24) as u8]),
        (IPV6, _) => set(frame, network + 4, &length),
        _ => {}
    }
}

/// Turns the packet into a random fragment.
fn fragment(random: &mut Random, frame: &mut [u8]) {
    let Some((ether_type, network)) = network_layer(frame) else {
        return;
    };
    let offset = if random.half() { random.below(3) } else { random.below(0x2000) } as u16;
    let more = u16::from(random.half());
    match ether_type {
        IPV4 => set(frame, network + 6, &((more << 13) | offset).to_be_bytes()),
        IPV6 => set(frame, network + 42, &((offset << 3) | more).to_be_bytes()),
        _ => {}
    }
}

/// Sets another protocol in the IP header.
fn set_protocol(random: &mut Random, frame: &mut [u8]) {
    let Some((ether_type, network)) = network_layer(frame) else {
        return;
    };
    let protocol = match random.below(3) {
        0 => *random.pick(&[1, 6, 6, 6, 17, 58, 132]),
        1 => *random.pick(&EXTENSIONS),
        _ => random.byte(),
    };
    match ether_type {
        IPV4 => set(frame, network + 9, &[protocol]),
        IPV6 => set(frame, network + 6, &[protocol]),
        _ => {}
    }
}
