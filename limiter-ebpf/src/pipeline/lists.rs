//! What the lists say of a source, where it takes no clock to tell.

use crate::{policy::verdict::Verdict, table::entry::SourceEntry};

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
