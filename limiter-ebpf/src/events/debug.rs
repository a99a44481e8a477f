//! Debug messages, for whoever works on the datapath: no release has them.
//!
//! Each is made by a function that is verified by itself and called where the stack is shallow. Nothing
//! is told of packets that simply conform, or that a CPU refuses by what it remembers: those are too many.

use aya_log_ebpf::debug;
use limiter_common::{base::address::Address, packet::reason::Reason};

use crate::{kernel::scratch::PacketScratch, table::lookup::EntryId};

/// Tells something of a source, which is what the text begins with.
macro_rules! tell {
    ($source:expr, $text:literal $(, $value:expr)*) => {{
        let Address { family, words } = $source;
        let words = words.map(u32::to_ne_bytes);
        if family == Address::IPV4 {
            debug!((), $text, words[0] $(, $value)*);
        } else {
            debug!((), $text, octets(words) $(, $value)*);
        }
    }};
}

/// Those of an IPv6 address. [`Address::NONE`] becomes `::`.
#[inline(always)]
fn octets(words: [[u8; 4]; 4]) -> [u8; 16] {
    let mut octets = [0; 16];
    let (fours, _) = octets.as_chunks_mut::<4>();
    for (four, word) in fours.iter_mut().zip(words) {
        *four = word;
    }
    octets
}

/// Tells that the headers of the packet cannot be read to their end, if so.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn tell_anomaly() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (source, bytes) = (scratch.packet.source, scratch.bytes);
    if scratch.conform == Reason::Unreadable.index() as u64 {
        debug!((), "unreadable: {} bytes", bytes);
    } else if scratch.conform == Reason::Malformed.index() as u64 {
        tell!(source, "{:i}: malformed: {} bytes", bytes);
    } else if scratch.conform == Reason::TooDeep.index() as u64 {
        debug!((), "too deep: {} bytes", bytes);
    }
    0
}

/// Tells what the entry of the packet's source was bound to.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn tell_binding() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if EntryId(scratch.entry_id) == EntryId::UNKNOWN {
        return 0;
    }
    let (profile, epoch) = (scratch.number, scratch.numbered);
    if EntryId(scratch.entry_id).is_shared() {
        tell!(scratch.source, "{:i}: shares an entry, under epoch {}", epoch);
    } else {
        tell!(scratch.source, "{:i}: bound to profile {} of epoch {}", profile, epoch);
    }
    0
}

/// Tells what limit the packet is over, as a bit, which may be one that only monitors, the place of the
/// reason that it is counted under, and for how long others of its source will be refused for sure.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn tell_refusal(reason: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (bit, wait) = (scratch.refusing.bit, scratch.refusing.wait);
    if bit == 0 {
        return 0;
    }
    tell!(scratch.source, "{:i}: over limit 0x{:x}: reason {}, for {} ns", bit, reason, wait);
    0
}

/// Tells that the packet stayed undecided, and the place of the reason that it is counted under.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn tell_giving_up(reason: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    tell!(scratch.source, "{:i}: given up: reason {}", reason);
    0
}
