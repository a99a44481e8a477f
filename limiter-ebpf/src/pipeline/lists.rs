//! What is dropped or passes whatever its limits have left: by the lists, and by limits that drop everything.

use limiter_common::packet::reason::Reason;

use crate::{
    kernel::{
        clock,
        scratch::{Blame, PacketScratch},
    },
    limits::counters::count_keyed,
    policy::verdict::Verdict,
    table::entry::SourceEntry,
};

/// Decides about a packet of so many bytes by what the lists say of its source, and by the block of that. Only what has an end
/// takes the clock to tell.
#[inline(always)]
pub(crate) fn by_lists(entry: &SourceEntry, bytes: u64) -> Option<Verdict> {
    if u64::from(entry.profile.listed) | entry.blocked() == 0 {
        return None;
    }
    let verdict = match entry.profile.listing_for_ever() {
        Some(reason) => Verdict::new(reason),
        None => Verdict(by_clock(entry.binding.epoch()).into()),
    };
    if verdict.is_open() {
        return None;
    }
    entry.account(verdict.drops(), bytes);
    Some(verdict)
}

/// The same by the clock; [`Verdict::OPEN`] if neither decides. A block that is over is forgotten. It is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn by_clock(epoch: u32) -> u32 {
    let entry = PacketScratch::get().and_then(|scratch| SourceEntry::of(scratch, epoch));
    let Some(entry) = entry else { return Verdict::OPEN.0 as u32 };
    let now = clock::now();
    match entry.profile.standing(entry.blocked(), now) {
        Some(reason) => Verdict::new(reason).0 as u32,
        None => {
            entry.forget_block(now);
            Verdict::OPEN.0 as u32
        }
    }
}

/// Drops the packet under an epoch, and counts it under the first of these limits, which
/// [drop](limiter_common::abi::policy::Settings::drops) all that they are about.
#[inline(always)]
pub(crate) fn drop_by_limit(scratch: &mut PacketScratch, epoch: u32, drops: u64) -> Verdict {
    let first = drops & drops.wrapping_neg();
    // A look-up of its tally here is more than Linux 6.1 verifies: samples do that.
    (scratch.blame, scratch.dropping) = (Blame::DROPPING, (first, epoch));
    let monitored = first & scratch.monitored();
    count_keyed(epoch, 0, first ^ monitored, monitored);
    Verdict::new(Reason::Exceed)
}
