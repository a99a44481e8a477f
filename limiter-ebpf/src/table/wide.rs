//! Wide states: the slots beside the buckets of limits that keep logs of events or lists of connections.
//!
//! A wide state has the number of its bucket, counted from the first one that has any. It changes hands with the bucket.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use limiter_common::{
    abi::state::{Bucket, SLOTS, WideState},
    algorithm::{
        binding::Binding,
        concurrent::{Concurrent, Table},
        kind::WideKind,
        meter::Meter,
        sliding_log::SlidingLog,
    },
    base::{slots::Slots, word::Word as _},
    policy::limit::KEYED,
};

use crate::{
    kernel::{
        atomics::BoundWord,
        barrier::black_box,
        maps::{BUCKETS, OLD_WIDE_STATE, WIDE_STATE_REF},
        scratch::PacketScratch,
    },
    policy::active::settings,
    table::recall::carries,
};

/// The slots of a wide state.
#[derive(Clone, Copy)]
pub(crate) struct Row(pub(crate) *mut WideState);

impl Row {
    #[inline(always)]
    fn at(&self, place: usize) -> Option<*mut u64> {
        let place = black_box(place);
        if place >= SLOTS {
            return None;
        }
        // SAFETY: the place is within the array, which is in a map value that was looked up in this
        // run of the program.
        Some(unsafe { (&raw mut (*self.0).slots).cast::<u64>().add(place) })
    }
}

impl Slots for Row {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        // SAFETY: see `at`; an aligned word.
        self.at(place).map_or(0, |word| unsafe { word.read_volatile() })
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        if let Some(slot) = self.at(place) {
            // SAFETY: see `at`; an aligned word.
            unsafe { slot.write_volatile(word) };
        }
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.at(place).map_or(0, |word| {
            // SAFETY: see `at`; an aligned word.
            unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, current, new).0 }
        })
    }
}

impl Table for Row {
    #[inline(always)]
    fn find(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        find_lease(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn twin(&self, leases: &Concurrent, mine: usize, tag: u32, tick: u32) -> usize {
        twin_lease(self.0, mine as u32, tag, tick, leases.idle) as usize
    }

    #[inline(always)]
    fn vacancy(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        lease_vacancy(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        open_leases(self.0, tick, expire)
    }

    #[inline(always)]
    fn due(&self, leases: &Concurrent, now: u64, start: usize) -> usize {
        due_lease(self.0, now, leases.idle, start as u32) as usize
    }
}

/// The searches themselves, with the loops that [`Table`] has of them.
pub(crate) struct Search(Row);

impl Search {
    /// A wide state that a part of the program is given; the verifier wants to see that it is there.
    #[inline(always)]
    pub(crate) fn of(state: *mut WideState) -> Option<Self> {
        if state.is_null() { None } else { Some(Self(Row(state))) }
    }
}

impl Slots for Search {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        self.0.load(place)
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        self.0.store(place, word);
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.0.compare_exchange(place, current, new)
    }
}

impl Table for Search {}

/// See [`Table::find`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_lease(state: *mut WideState, tag: u32, tick: u32, limit: u64, idle: u64) -> u64 {
    let found = Search::of(state).map(|table| table.find(&Concurrent { limit, idle }, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::twin`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn twin_lease(state: *mut WideState, mine: u32, tag: u32, tick: u32, idle: u64) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = Search::of(state).map(|table| table.twin(&leases, mine as usize, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::vacancy`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease_vacancy(
    state: *mut WideState,
    tag: u32,
    tick: u32,
    limit: u64,
    idle: u64,
) -> u64 {
    let found =
        Search::of(state).map(|table| table.vacancy(&Concurrent { limit, idle }, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::open`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_leases(state: *mut WideState, tick: u32, expire: u64) -> u64 {
    Search::of(state).map_or(0, |table| table.open(expire, tick))
}

/// See [`Table::due`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn due_lease(state: *mut WideState, now: u64, idle: u64, start: u32) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = Search::of(state).map(|table| table.due(&leases, now, start as usize));
    found.unwrap_or(Concurrent::MOST) as u64
}

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
        let first = settings(scratch.binding.epoch())?.first_wide();
        let number = scratch.keyed.entries[at].wrapping_sub(first);
        WIDE_STATE_REF.get(0)?.get_ptr_mut(number).map(Row)
    }

    /// That with a number among the buckets.
    #[inline(always)]
    pub(super) fn at(epoch: u32, entry: u32, bound: Binding) -> Option<Self> {
        let bucket: *mut Bucket = BUCKETS.get_ptr_mut(entry)?;
        let first = settings(epoch)?.first_wide();
        let state = WIDE_STATE_REF.get(0)?.get_ptr_mut(entry.wrapping_sub(first))?;
        // SAFETY: a map value that was just looked up; its fields are aligned words.
        unsafe {
            let binding = &raw const (*bucket).binding;
            let control = BoundWord::new(&raw mut (*bucket).word, binding, bound);
            Some(Self { control, slots: Row(state), binding })
        }
    }

    /// Whether it has no more than one event or connection at `now`, in nanoseconds.
    #[inline(always)]
    pub(super) fn holds_one(&self, meter: &Meter, now: u64) -> bool {
        match WideKind::of(meter.kind) {
            WideKind::SlidingLog => {
                meter.sliding_log().is_single(self.control.load(), &self.slots, now)
            }
            WideKind::Concurrent => meter.concurrent().held(&self.slots, now) <= 1,
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

/// What becomes of the slots of an entry that changes hands: they are emptied, all bits or all but the laps of a log, or they are
/// filled already.
const ZEROS: u32 = 0;
const LAPS: u32 = 1;
const FILLED: u32 = 2;

/// Gives the wide state of an entry to the key at a place of the packet: empty, or filled with what the old table knows of that
/// key. `old` is the number of the kind of what was there. The entry is locked, and its word is retired.
#[inline(always)]
pub(super) fn give_wide(entry: u32, at: u32, old: u64) {
    let how = begin_wide(entry, at, old);
    if how == FILLED {
        return;
    }
    for part in 0..(SLOTS / AT_ONCE) as u32 {
        empty_slots(entry, part, how);
    }
}

/// Begins that with the control word, and with what the old table knows. Returns what becomes of the slots.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin_wide(entry: u32, at: u32, old: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return FILLED };
    let Some(wide) = Wide::at(scratch.binding.epoch(), entry, Binding(0)) else { return FILLED };
    let keyed = &scratch.keyed;
    if carries() && keyed.recalled_wide != 0 {
        if let Some(from) = OLD_WIDE_STATE.get_ptr_mut(keyed.recalled_wide - 1) {
            for place in 0..SLOTS {
                wide.slots.store(place, Row(from).load(place));
            }
        }
        return FILLED;
    }
    // A log goes on after a log: a CPU that writes an event for the key before at this moment writes what its slot is to hold.
    // The time of the last event stays too: no control word is ever as one before.
    let new = keyed.kinds[at as usize & (KEYED - 1)].into();
    match (WideKind::of(new), WideKind::of(old)) {
        (WideKind::SlidingLog, WideKind::SlidingLog) => return LAPS,
        (WideKind::SlidingLog, WideKind::Concurrent) | (WideKind::Concurrent, _) => {}
    }
    let control = wide.control.load();
    // Only the holder of the lock changes a retired word.
    let _: u64 = wide.control.compare_exchange(control, 0);
    ZEROS
}

/// Slots that are emptied by one call.
const AT_ONCE: usize = 32;

/// Empties a part of the slots of an entry. A loop over all would be verified slot by slot.
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
