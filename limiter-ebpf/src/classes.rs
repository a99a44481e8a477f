//! The limits that a packet is about, looked up in the tables of the policy.

use aya_ebpf::maps::lpm_trie::Key;
use limiter_common::{
    address::Address,
    class::{Sets, classify},
    contract::half,
    packet::Packet,
};

use crate::{
    maps::{CLASSES, DESTINATIONS, SLOT},
    subject::Subject,
};

/// The tables of an epoch.
struct Tables {
    epoch: u32,
    /// See `Settings::elsewhere`.
    elsewhere: u64,
}

impl Sets for Tables {
    #[inline(always)]
    fn at(&self, place: u32) -> u64 {
        // The table has all places, so this is always there.
        CLASSES.get(half(self.epoch, place)).copied().unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn destination(&self, packet: &Packet) -> u64 {
        let address = Address { family: packet.source.family, words: packet.destination };
        let found = DESTINATIONS
            .get(self.epoch & 1)
            .and_then(|prefixes| prefixes.get(&Key::new(Address::BITS, address)));
        match found {
            Some([low, high]) => u64::from(*high) << 32 | u64::from(*low),
            None => self.elsewhere,
        }
    }
}

/// Finds the limits that the subject is about under an epoch.
///
/// The kernel verifies it by itself, once: the ways through it are none of the rest's business.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn classify_subject(epoch: u32, sections: u32, elsewhere: u64) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let tables = Tables { epoch, elsewhere };
    subject.applicable = classify(&subject.packet, subject.bytes, SLOT.load(), sections, &tables);
    0
}
