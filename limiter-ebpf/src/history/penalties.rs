//! What is known of sources that were over limits with penalties.

use limiter_common::{
    abi::{layout::shared, policy::half},
    base::word::{TRIES, Word as _},
    policy::limit::{LIMITS as LIMIT_COUNT, Limit},
};

use crate::{
    history::offences::{
        self, NONE, count_unrecorded, find_offence, is_offence, lock_offences, make_offence,
        place_offences, unlock_offences,
    },
    kernel::{
        atomics::MapWord,
        maps::{LIMITS, SHARED_SOURCES},
        scratch::PacketScratch,
    },
};

/// Notes that the source of the packet was over the limit in a row from one time to another, and gives until when it is
/// blocked for that, or was; all in nanoseconds. Where the set of the offence has no room, or another CPU has its lock for too
/// long, it is not.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_violation(row: u32, from: u64, to: u64, now: u64) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    place_offences(scratch.binding.epoch());
    if lock_offences() == 0 {
        count_unrecorded();
        return 0;
    }
    let until = count_locked(row, from, to, now);
    unlock_offences();
    note_block(until);
    until
}

/// The same. The lock of the set is held.
#[inline(always)]
fn count_locked(row: u32, from: u64, to: u64, now: u64) -> u64 {
    let (Some(scratch), Some(limit)) = (PacketScratch::get(), LIMITS.get(row)) else { return 0 };
    let line = match find_offence(scratch, limit.penalty.limit) {
        NONE => make_offence(now),
        found => found,
    };
    if line == NONE {
        return 0;
    }
    let Some(record) = offences::record(line) else { return 0 };
    limit.penalty.exceed_from(&offences::words(record), from, to, now)
}

/// Until when a source was blocked last, in nanoseconds: no source is blocked at a later time.
#[inline(always)]
fn latest() -> Option<MapWord> {
    let nobody = SHARED_SOURCES.get_ptr_mut(shared::UNTRACKED)?;
    // SAFETY: a map value that was just looked up; an aligned word.
    Some(unsafe { MapWord::new(&raw mut (*nobody).blocked) })
}

/// Whether any source may be blocked at `now`, in nanoseconds. As long as none is, nobody need be looked up.
#[inline(always)]
pub(crate) fn may_be_blocked(now: u64) -> bool {
    latest().is_none_or(|latest| latest.load() > now)
}

/// Notes that a source is blocked until then, in nanoseconds. If other CPUs note blocks at each of the tries, it is not noted: one of
/// a penalty is by the next refusal.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn note_block(until: u64) -> u32 {
    let Some(latest) = latest() else { return 0 };
    for _ in 0..TRIES {
        let seen = latest.load();
        if seen >= until || latest.compare_exchange(seen, until) == seen {
            break;
        }
    }
    0
}

/// Until when the source of the packet is blocked by the limits in a set, in nanoseconds, or was;
/// `epoch` is that of the limits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn recall_offences(epoch: u32, penalties: u64) -> u64 {
    place_offences(epoch);
    let (mut left, mut until) = (penalties, 0);
    for _ in 0..LIMIT_COUNT {
        let bit = left & left.wrapping_neg();
        if bit == 0 {
            break;
        }
        left ^= bit;
        until = recall_offence(half(epoch, Limit::row(bit)), until);
    }
    until
}

/// The same by the limit in a row, or `until` if that is later. It is verified by itself, and not for each turn of the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn recall_offence(row: u32, until: u64) -> u64 {
    let (Some(scratch), Some(limit)) = (PacketScratch::get(), LIMITS.get(row)) else {
        return until;
    };
    let line = find_offence(scratch, limit.penalty.limit);
    if line == NONE {
        return until;
    }
    let Some(record) = offences::record(line) else { return until };
    let known = offences::words(record);
    let (since, blocked) = (known.since.load_acquire(), known.blocked.load_acquire());
    // A record that was given to another source meanwhile was that of no block.
    if is_offence(line) == NONE {
        return until;
    }
    limit.penalty.until(since, blocked).max(until)
}
