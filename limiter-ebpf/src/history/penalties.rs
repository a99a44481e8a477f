//! What is known of sources that were over limits with penalties.

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::{
    abi::{layout::shared, policy::half, state::Offence as Known},
    algorithm::binding::PATIENCE,
    base::word::Word as _,
    policy::{
        limit::{LIMITS as LIMIT_COUNT, Limit},
        penalty::Offence,
    },
};

use crate::kernel::{
    atomics::{MapWord, load_acquire},
    maps::{LIMITS, OFFENCES_REF, SHARED_SOURCES},
    scratch::PacketScratch,
};

static NEW: Known = Known::NEW;

/// Notes that the source of the packet was over the limit in a row from one time to another, and gives until when it is
/// blocked for that, or was; all in nanoseconds. Where the table has no room, it is not.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn count_violation(row: u32, from: u64, to: u64, now: u64) -> u64 {
    let (Some(scratch), Some(limit)) = (PacketScratch::get(), LIMITS.get(row)) else { return 0 };
    let Some(offences) = OFFENCES_REF.get(0) else { return 0 };
    scratch.offence.source = scratch.source;
    scratch.offence.limit = limit.penalty.limit;
    let found = offences.get_ptr_mut(&scratch.offence).or_else(|| {
        // Another CPU may have made it first, which is as good.
        let _: Result<(), i32> = offences.insert(&scratch.offence, &NEW, u64::from(BPF_NOEXIST));
        offences.get_ptr_mut(&scratch.offence)
    });
    let Some(known) = found else { return 0 };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let [began, last, since, blocked, blocks] = unsafe {
        [
            &raw mut (*known).began,
            &raw mut (*known).last,
            &raw mut (*known).since,
            &raw mut (*known).blocked,
            &raw mut (*known).blocks,
        ]
        .map(|word| MapWord::new(word))
    };
    let offence = Offence { began, last, since, blocked, blocks };
    let until = limit.penalty.exceed_from(&offence, from, to, now);
    note_block(until);
    until
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

/// Notes that a source is blocked until then, in nanoseconds.
#[inline(always)]
fn note_block(until: u64) {
    let Some(latest) = latest() else { return };
    // As often as it takes: CPUs that are first make it later.
    for _ in 0..PATIENCE {
        let seen = latest.load();
        if seen >= until || latest.compare_exchange(seen, until) == seen {
            break;
        }
    }
}

/// Until when the source of the packet is blocked by the limits in a set, in nanoseconds, or was;
/// `epoch` is that of the limits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn recall_offences(epoch: u32, penalties: u64) -> u64 {
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
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
extern "C" fn recall_offence(row: u32, until: u64) -> u64 {
    let (Some(scratch), Some(limit)) = (PacketScratch::get(), LIMITS.get(row)) else {
        return until;
    };
    scratch.offence.source = scratch.source;
    scratch.offence.limit = limit.penalty.limit;
    let Some(known) =
        OFFENCES_REF.get(0).and_then(|offences| offences.get_ptr_mut(&scratch.offence))
    else {
        return until;
    };
    // SAFETY: aligned words of a map value that was just looked up.
    let (since, blocked) = unsafe {
        (load_acquire(&raw const (*known).since), (&raw const (*known).blocked).read_volatile())
    };
    limit.penalty.until(since, blocked).max(until)
}
