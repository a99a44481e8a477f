//! Who comes into the tables, and who has to go.

use limiter_common::abi::counters::TableStats;

use crate::kernel::maps::TABLE_STATS;

/// Counts on this CPU, of one of [these](limiter_common::abi::layout::table_stats).
#[inline(always)]
pub(crate) fn count(of: u32, change: impl FnOnce(&mut TableStats)) {
    if let Some(table_stats) = TABLE_STATS.get_ptr_mut(of) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on
        // a CPU before the next packet.
        change(unsafe { &mut *table_stats });
    }
}
