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

/// Counts a place that was given to a newcomer, and who had to go, if it was not free.
#[inline(always)]
pub(crate) fn count_given(of: u32, owed: bool, was_free: bool) {
    count(of, |table_stats| {
        table_stats.inserted += 1;
        table_stats.evicted_owing += u64::from(owed);
        table_stats.evicted_idle += u64::from(!owed & !was_free);
    });
}
