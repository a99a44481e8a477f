//! Wide states: the slots beside the buckets of limits that keep logs of events or lists of connections.
//!
//! A wide state has the number of its bucket, counted from the first one that has any. It changes hands with the bucket.

use limiter_common::{
    abi::state::{Bucket, SLOTS},
    algorithm::{binding::Binding, kind::WideKind, meter::Meter, sliding_log::SlidingLog},
    base::{slots::Slots, word::Word as _},
    policy::limit::KEYED,
};

use crate::{
    kernel::{
        atomics::BoundWord,
        maps::{BUCKETS, OLD_WIDE_STATE, WIDE_STATE_REF},
        scratch::PacketScratch,
    },
    policy::active::settings,
    table::{recall::carries, row::Row, search::Calls},
};

/// A bucket with its wide state.
#[derive(Clone, Copy)]
pub(crate) struct Wide {
    /// The control word of a log, or the stamp of connections.
    pub(crate) control: BoundWord,
    pub(crate) slots: Row,
    binding: *const u64,
}

impl Wide {
    /// That of the key at a place of the packet, as it was sought.
    #[inline(always)]
    pub(crate) fn of(scratch: &PacketScratch, at: usize) -> Option<Self> {
        let bound = Binding(scratch.keyed.bindings[at]);
        Self::at(scratch.binding.epoch(), scratch.keyed.entries[at], bound)
    }

    /// The slots of the same alone.
    #[inline(always)]
    pub(crate) fn slots_of(scratch: &PacketScratch, at: usize) -> Option<Row> {
        slots_at(scratch.binding.epoch(), scratch.keyed.entries[at])
    }

    /// That with a number among the buckets.
    #[inline(always)]
    pub(super) fn at(epoch: u32, entry: u32, bound: Binding) -> Option<Self> {
        let bucket: *mut Bucket = BUCKETS.get_ptr_mut(entry)?;
        let slots = slots_at(epoch, entry)?;
        // SAFETY: a map value that was just looked up; its fields are aligned words.
        unsafe {
            let binding = &raw const (*bucket).binding;
            let control = BoundWord::new(&raw mut (*bucket).word, binding, bound);
            Some(Self { control, slots, binding })
        }
    }

    /// Whether it has no more than one event or connection at `now`, in nanoseconds.
    #[inline(always)]
    pub(super) fn holds_one(&self, meter: &Meter, now: u64) -> bool {
        match WideKind::of(meter.kind) {
            WideKind::SlidingLog => {
                meter.sliding_log().is_single(self.control.load(), &self.slots, now)
            }
            WideKind::Concurrent => meter.concurrent().held(&Calls(self.slots), now) <= 1,
        }
    }

    /// Whether it is still that of the key that it was sought for.
    #[inline(always)]
    pub(crate) fn is_kept(&self, scratch: &PacketScratch, at: usize) -> bool {
        // SAFETY: an aligned word of a map value that was looked up in this run.
        let binding = Binding(unsafe { self.binding.read_volatile() });
        !binding.is_locked() && binding.is_like(Binding(scratch.keyed.bindings[at]))
    }
}

/// The slots of the entry with a number among the buckets.
#[inline(always)]
fn slots_at(epoch: u32, entry: u32) -> Option<Row> {
    let first = settings(epoch)?.first_wide();
    WIDE_STATE_REF.get(0)?.get_ptr_mut(entry.wrapping_sub(first)).map(Row)
}

/// What becomes of the slots of an entry that changes hands: they are emptied, all bits or all but the laps of a log, or they are
/// copied from the old table, as those of a list or of a log.
const ZEROS: u32 = 0;
const LAPS: u32 = 1;
const LIST: u32 = 2;
const LOG: u32 = 3;

/// Gives the wide state of an entry to the key at a place of the packet: empty, or filled with what the old table knows of that
/// key. `old` is the number of the kind of what was there. The entry is locked, and its word is retired.
#[inline(always)]
pub(super) fn give_wide(entry: u32, at: u32, old: u64) {
    let how = begin_wide(entry, at, old);
    for part in 0..PARTS {
        if carries() && how == LOG {
            copy_log_slots(entry, part);
        } else if carries() && how == LIST {
            copy_list_slots(entry, part);
        } else {
            empty_slots(entry, part, how);
        }
    }
}

/// Begins that with the control word. Returns what becomes of the slots.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin_wide(entry: u32, at: u32, old: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return ZEROS };
    let Some(wide) = Wide::at(scratch.binding.epoch(), entry, Binding(0)) else { return ZEROS };
    // A log goes on after a log: a CPU that writes an event for the key before at this moment writes what its slot is to hold.
    // The time of the last event stays too: no control word is ever as one before.
    let new = WideKind::of(scratch.keyed.kinds[at as usize & (KEYED - 1)].into());
    let (is_log, goes_on) = match (new, WideKind::of(old)) {
        (WideKind::SlidingLog, WideKind::SlidingLog) => (true, true),
        (WideKind::SlidingLog, WideKind::Concurrent) => (true, false),
        (WideKind::Concurrent, _) => (false, false),
    };
    let control = wide.control.load();
    if !goes_on {
        // Only the holder of the lock changes a retired word.
        let _: u64 = wide.control.compare_exchange(control, 0);
    }
    if carries() && scratch.keyed.recalled_wide != 0 {
        if !is_log {
            return LIST;
        }
        let recalled = scratch.keyed.recalled.word;
        // Also a copy goes on with the numbers.
        let to = if goes_on { control } else { recalled };
        scratch.keyed.copied = [recalled, to];
        scratch.keyed.recalled.word = SlidingLog::numbered(recalled, to);
        return LOG;
    }
    if goes_on { LAPS } else { ZEROS }
}

/// Slots that are emptied or copied by one call. A loop over all would be verified slot by slot.
const AT_ONCE: usize = 32;
const PARTS: u32 = (SLOTS / AT_ONCE) as u32;

/// The slots of an entry, and those that were recalled for it.
#[inline(always)]
fn new_and_old(scratch: &PacketScratch, entry: u32) -> Option<[Row; 2]> {
    let new = slots_at(scratch.binding.epoch(), entry)?;
    let old = OLD_WIDE_STATE.get_ptr_mut(scratch.keyed.recalled_wide.wrapping_sub(1))?;
    Some([new, Row(old)])
}

/// Copies a part of the slots that were recalled; `slot` gives one of them as it is to be.
#[inline(always)]
fn copy_slots(entry: u32, part: u32, slot: impl Fn(&Row, [u64; 2], usize) -> u64) {
    if carries()
        && let Some(scratch) = PacketScratch::get()
        && let Some([new, old]) = new_and_old(scratch, entry)
    {
        let first = part as usize * AT_ONCE;
        for place in first..first + AT_ONCE {
            new.store(place, slot(&old, scratch.keyed.copied, place));
        }
    }
}

/// The same of a log.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy_log_slots(entry: u32, part: u32) -> u32 {
    copy_slots(entry, part, |old, [control, to], place| {
        SlidingLog::copied(old, control, to, place)
    });
    0
}

/// The same of a list.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy_list_slots(entry: u32, part: u32) -> u32 {
    copy_slots(entry, part, |old, _, place| old.load(place));
    0
}

/// Empties a part of the slots of an entry.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn empty_slots(entry: u32, part: u32, how: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let Some(wide) = Wide::at(scratch.binding.epoch(), entry, Binding(0)) else { return 0 };
    let keeps = 0_u64.wrapping_sub(how.into());
    for place in 0..AT_ONCE {
        let place = part as usize * AT_ONCE + place;
        let slot = wide.slots.load(place);
        // A CPU that was about to write for the key before may do so at this moment.
        let _: u64 = wide.slots.compare_exchange(place, slot, SlidingLog::emptied(slot) & keeps);
    }
    0
}
