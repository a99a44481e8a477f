//! The hash of connections.

use std::hash::{DefaultHasher, Hasher as _};

use limiter_common::{
    base::{
        address::Address,
        seed::Seed,
        siphash::{SipHash, SipHash128},
    },
    packet::headers::{Packet, Ports},
};
use proptest::prelude::*;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::cases;

/// Bits of the addresses, ports, what is hashed with them, and the key, in this order.
const BITS: u32 = 32 * (8 + 1 + 1 + 4);

proptest! {
    #![proptest_config(cases(2_000))]

    /// The hasher of the standard library is the same one, of the key 0.
    #[test]
    fn it_is_that_of_the_standard_library(words in prop::collection::vec(any::<u64>(), 0..9)) {
        let (mut ours, mut theirs) = (SipHash::new([0, 0]), DefaultHasher::new());
        for word in words {
            ours = ours.word(word);
            theirs.write_u64(word);
        }
        prop_assert_eq!(ours.finish(), theirs.finish());
    }

    #[test]
    fn its_128_bits_are_those_of_others(
        key in any::<[u64; 2]>(), words in prop::collection::vec(any::<u64>(), 0..9)
    ) {
        let (mut ours, mut theirs) =
            (SipHash128::new(key), SipHasher13::new_with_keys(key[0], key[1]));
        for word in words {
            ours = ours.word(word);
            theirs.write_u64(word);
        }
        prop_assert_eq!(ours.finish(), <[u64; 2]>::from(theirs.finish128().as_u64()));
    }

    /// Each bit of a connection, of what is hashed with it and of the key makes another hash, and so do
    /// two bits that a weaker hash would let cancel each other out.
    #[test]
    fn no_bits_cancel_each_other_out(
        words in any::<[u32; 8]>(), ports in any::<(u16, u16)>(), protocol in any::<u8>(),
        what in any::<u32>(), seed in any::<[u32; 4]>(), bits in (0..BITS, 0..BITS),
    ) {
        let flipped = |bits: &[u32]| {
            let (mut words, mut ports, mut what, mut seed) = (words, ports, what, seed);
            for &bit in bits {
                let flip = 1_u32 << (bit % 32);
                match bit / 32 {
                    word @ 0..8 => words[word as usize] ^= flip,
                    8 => {
                        ports.0 ^= flip as u16;
                        ports.1 ^= (flip >> 16) as u16;
                    }
                    9 => what ^= flip,
                    word => seed[word as usize - 10] ^= flip,
                }
            }
            let [a, b, c, d, destination @ ..] = words;
            let packet = Packet {
                source: Address { family: Address::IPV6, words: [a, b, c, d] },
                destination,
                ports: Ports { source: ports.0, destination: ports.1 },
                protocol,
                ..Packet::UNREADABLE
            };
            let [e, f, g, h] = seed.map(u64::from);
            packet.hash(Seed([0, 0, e << 32 | f, g << 32 | h]), what)
        };
        let hash = flipped(&[]);
        prop_assert_ne!(hash, flipped(&[bits.0]));
        if bits.0 / 32 != bits.1 / 32 {
            prop_assert_ne!(hash, flipped(&[bits.0, bits.1]));
        }
    }
}
