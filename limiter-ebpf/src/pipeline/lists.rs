//! What is dropped or passes whatever its limits have left: by the lists, and by limits that drop everything.

use limiter_common::packet::reason::Reason;

use crate::{
    kernel::scratch::{Blame, PacketScratch},
    limits::keyed::count_keyed,
    policy::verdict::Verdict,
    table::entry::SourceEntry,
};

/// Decides about a packet of so many bytes by what the lists say of its source, if they name it and it takes no clock
/// to tell.
#[inline(always)]
pub(crate) fn by_lists(entry: &SourceEntry, bytes: u64) -> Option<Verdict> {
    if entry.profile.listed == 0 {
        return None;
    }
    let verdict = Verdict::new(entry.profile.listing_for_ever()?);
    entry.account(verdict.drops(), bytes);
    Some(verdict)
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
