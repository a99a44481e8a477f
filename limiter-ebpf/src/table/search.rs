//! The searches of the slots of open connections.
//!
//! Those with a loop are verified by themselves, once each. [`Calls`] calls them; [`Row`] also calls those that call them, where
//! there is stack for both calls.

use limiter_common::{
    abi::state::{SLOTS, WideState},
    algorithm::{
        concurrent::{Concurrent, Table},
        sliding_log::{Log, SlidingLog},
    },
    base::slots::Slots,
};

use super::row::Row;

impl Log for Row {
    #[inline(always)]
    fn forget(&self, time: u64) {
        for part in 0..(SLOTS / PART) as u32 {
            forget_part(self.0, part, time);
        }
    }
}

/// Slots of a log that are gone through at once.
const PART: usize = 8;

/// Has the log forget what is to come at `time`, of a part of its slots.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn forget_part(state: *mut WideState, part: u32, time: u64) -> u32 {
    if let Some(row) = given(state) {
        let first = part as usize * PART;
        SlidingLog::forget(&row, first..first + PART, time);
    }
    0
}

impl Table for Row {
    #[inline(always)]
    fn next(&self, leases: &Concurrent, start: Option<usize>, tag: u32, tick: u32) -> usize {
        Calls(*self).next(leases, start, tag, tick)
    }

    #[inline(always)]
    fn twin(&self, leases: &Concurrent, mine: usize, tag: u32, tick: u32) -> usize {
        twin_lease(self.0, mine as u32, tag, tick, leases.idle) as usize
    }

    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        open_leases(self.0, expire, tick)
    }

    #[inline(always)]
    fn room(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        // There is no stack for one call more between this and that with the loop.
        let [low, high] = [0, 1].map(|half| Calls(*self).held(half, leases.silence(), tick));
        free_lease(low, high, leases.limit, tag) as usize
    }

    #[inline(always)]
    fn due(&self, leases: &Concurrent, now: u64, start: usize) -> usize {
        due_lease(self.0, now, leases.idle, start as u32) as usize
    }
}

/// A wide state that a part of the program is given; the verifier wants to see that it is there.
#[inline(always)]
pub(crate) fn given(state: *mut WideState) -> Option<Row> {
    if state.is_null() { None } else { Some(Row(state)) }
}

/// The searches that call those with loops.
#[derive(Clone, Copy)]
pub(super) struct Calls(pub(super) Row);

/// The searches with the loops themselves.
struct Loops(Row);

/// Has the slots of those be the slots of the row.
macro_rules! slots_of_row {
    ($($searches:ty),*) => {$(
        impl Slots for $searches {
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
    )*};
}
slots_of_row!(Calls, Loops);

impl Table for Calls {
    #[inline(always)]
    fn next(&self, leases: &Concurrent, start: Option<usize>, tag: u32, tick: u32) -> usize {
        let name = u64::from(tag) << 32 | u64::from(tick);
        let (start, limit) = start.map_or((0, leases.limit), |start| (start as u32, 0));
        next_lease(self.0.0, start, limit, name, leases.idle) as usize
    }

    #[inline(always)]
    fn held(&self, half: usize, expire: u64, tick: u32) -> u64 {
        held_leases(self.0.0, half as u32, expire, tick)
    }

    #[inline(always)]
    fn due_of(&self, half: usize, leases: &Concurrent, now: u64) -> u64 {
        due_leases(self.0.0, half as u32, leases.idle, now)
    }
}

impl Loops {
    /// The slot at the sum of two numbers of places, the first of which is masked: one instruction less than a check in each
    /// turn of a loop.
    #[inline(always)]
    fn slot(&self, base: usize, offset: usize) -> u64 {
        // SAFETY: both callers keep the sum below `SLOTS`. The array is in a map value that was looked up in this run of the
        // program.
        unsafe { (&raw const (*self.0.0).slots).cast::<u64>().add(base + offset).read_volatile() }
    }
}

impl Table for Loops {
    #[inline(always)]
    fn pair(&self, place: usize) -> [u64; 2] {
        [0, 1].map(|offset| self.slot(place & (SLOTS - 2), offset))
    }

    #[inline(always)]
    fn load_of(&self, half: usize, place: usize) -> u64 {
        self.slot((half & 1) * (SLOTS / 2), place & (SLOTS / 2 - 1))
    }
}

/// See [`Table::next`]: from `start` on if `limit` is 0, otherwise from the place on that the connection tries first. The name is
/// its tag, and the tick.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn next_lease(
    state: *mut WideState,
    start: u32,
    limit: u64,
    name: u64,
    idle: u64,
) -> u64 {
    let Some(row) = given(state) else { return Concurrent::MOST as u64 };
    let start = if limit == 0 { Some(start as usize) } else { None };
    let leases = Concurrent { limit, idle };
    Loops(row).next(&leases, start, (name >> 32) as u32, name as u32) as u64
}

/// See [`Table::held`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn held_leases(state: *mut WideState, half: u32, expire: u64, tick: u32) -> u64 {
    given(state).map_or(0, |row| Loops(row).held(half as usize, expire, tick))
}

/// See [`Table::due_of`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn due_leases(state: *mut WideState, half: u32, idle: u64, now: u64) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    given(state).map_or(0, |row| Loops(row).due_of(half as usize, &leases, now))
}

/// See [`Table::twin`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn twin_lease(state: *mut WideState, mine: u32, tag: u32, tick: u32, idle: u64) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = given(state).map(|row| Calls(row).twin(&leases, mine as usize, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::open`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_leases(state: *mut WideState, expire: u64, tick: u32) -> u64 {
    given(state).map_or(0, |row| Calls(row).open(expire, tick))
}

/// See [`Concurrent::free`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn free_lease(low: u64, high: u64, limit: u64, tag: u32) -> u64 {
    Concurrent { limit, idle: 0 }.free([low, high], tag) as u64
}

/// See [`Table::due`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn due_lease(state: *mut WideState, now: u64, idle: u64, start: u32) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = given(state).map(|row| Calls(row).due(&leases, now, start as usize));
    found.unwrap_or(Concurrent::MOST) as u64
}
