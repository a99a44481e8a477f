//! The limits that a packet is about, looked up in the tables of the policy.

use aya_ebpf::maps::lpm_trie::Key;
use limiter_common::{
    address::Address,
    class::{Sets, classify, place},
    contract::{Settings, half},
    packet::Packet,
};

use crate::{
    datapath::settings,
    maps::{CLASSES, DESTINATIONS, SLOT},
    opening::recall_opening,
    subject::Subject,
};

/// The tables of an epoch.
struct Tables<'a> {
    epoch: u32,
    settings: &'a Settings,
}

impl Sets for Tables<'_> {
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
            None => self.settings.elsewhere,
        }
    }
}

/// The limits that accept this destination port.
#[inline(always)]
pub(crate) fn by_port(port: u16, epoch: u32, settings: &Settings) -> u64 {
    Tables { epoch, settings }.at(place::PORT + u32::from(port))
}

/// The limits that a packet is about by these properties; `bytes` gives its length.
#[inline(always)]
pub(crate) fn applicable(
    packet: &Packet,
    bytes: impl FnOnce() -> u64,
    sections: u32,
    epoch: u32,
    settings: &Settings,
) -> u64 {
    classify(packet, bytes, || SLOT.load(), sections, &Tables { epoch, settings })
}

/// Finds the limits that the subject is about under an epoch, whatever its source.
#[inline(always)]
pub(crate) fn classify_subject(subject: &mut Subject, epoch: u32, settings: &Settings) {
    subject.classified = epoch.into();
    subject.applicable = u64::MAX;
    if settings.sections != 0 {
        subject.applicable =
            applicable(&subject.packet, || subject.bytes, settings.sections, epoch, settings);
    }
    let subject = subject.reread();
    if subject.applicable & settings.connections != 0 {
        recall_opening(epoch);
    }
}

/// The same once more, where a packet met a change of the policy. The kernel verifies it by itself: the
/// ways through it are none of the rest's business.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn classify_again(epoch: u32) -> u32 {
    if let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) {
        classify_subject(subject, epoch, settings);
    }
    0
}
