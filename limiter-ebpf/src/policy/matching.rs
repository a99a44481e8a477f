//! The limits that a packet is about, looked up in the tables of the policy.

use aya_ebpf::maps::lpm_trie::Key;
use limiter_common::{
    abi::policy::{Settings, half},
    base::address::Address,
    packet::headers::Packet,
    policy::matching::{Sets, classify, offset},
};

use crate::kernel::maps::{DESTINATIONS, MATCHING, packet_slot};

/// The tables of an epoch.
struct Tables<'a> {
    epoch: u32,
    settings: &'a Settings,
}

impl Sets for Tables<'_> {
    #[inline(always)]
    fn at(&self, place: u32) -> u64 {
        // The table has all places, so this is always there.
        MATCHING.get(half(self.epoch, place)).copied().unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn destination(&self, packet: &Packet) -> u64 {
        let address = Address { family: packet.source.family, words: packet.destination };
        let found = DESTINATIONS
            .get(self.epoch & 1)
            .and_then(|prefixes| prefixes.get(&Key::new(Address::BITS, address)));
        match found {
            Some([low, high]) => u64::from(*high) << 32 | u64::from(*low),
            None => self.settings.default_destination_limits,
        }
    }
}

/// The limits that accept this destination port.
#[inline(always)]
pub(crate) fn by_port(port: u16, epoch: u32, settings: &Settings) -> u64 {
    Tables { epoch, settings }.at(offset::PORT + u32::from(port))
}

/// The limits that a packet is about by these properties; `bytes` gives its length.
#[inline(always)]
pub(crate) fn applicable(
    packet: &Packet,
    bytes: impl FnOnce() -> u64,
    match_fields: u32,
    epoch: u32,
    settings: &Settings,
) -> u64 {
    classify(packet, bytes, packet_slot, match_fields, &Tables { epoch, settings })
}
