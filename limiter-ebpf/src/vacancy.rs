//! Making room for a source in its set.

use limiter_common::{
    binding::Binding,
    contract::{Source, turnover},
    limit::INLINE,
    table::{self, Age, Place, Room, WAYS, Ways as _},
    word::Word as _,
};

use crate::{
    barrier::opaque,
    cell::Plain,
    clock,
    maps::SOURCES,
    seat::{Seat, find_way},
    seats::Seats,
    subject::Subject,
    turnover::count,
};

/// Has the memory bring all at once what making an entry at a place reads, most likely. It comes before the
/// lock of the set is taken: that, like any atomic instruction, waits for what was asked for before it, and
/// what is asked for one after the other takes as many times as long.
#[inline(always)]
pub(crate) fn touch(place: Place) {
    let Some(seats) = Seats::of(place.set, 0) else { return };
    // The compiler knows that a home is below `WAYS`; the verifier of Linux 6.1 has to see it.
    let home = opaque(place.home.into()) & (WAYS - 1);
    let _: Age = seats.age(home);
    if let Some(source) = SOURCES.get_ptr(seats.entry(home)) {
        for line in 0..size_of::<Source>() / LINE {
            // SAFETY: a map value that was just looked up, as long and as aligned as its lines.
            let _: u64 = unsafe { source.byte_add(line * LINE).cast::<u64>().read_volatile() };
        }
    }
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// The [`Seat`] of the subject's source, whose place is known, in its set, whose lock is held. It is made
/// if there is none, by the `epoch` that it is behind then, at the time of the subject.
///
/// Like [`vacate`], it is verified by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn take_seat(epoch: u32) -> u32 {
    let Some(subject) = Subject::get() else { return Seat::OVERFLOW.0 };
    let place = subject.place;
    let Some(seats) = Seats::of(place.set, epoch) else { return Seat::OVERFLOW.0 };
    if seats.tags().have(place.tag) {
        let found = find_way() as usize;
        if found < WAYS {
            return Seat::new(seats.entry(found)).0;
        }
    }
    // Who was charged in this tick owes in it: a new entry would be full at the time of the tick.
    let now = subject.by_tick();
    let Room { way, owes } = table::room(&seats, place, now);
    if way >= WAYS {
        seats.set_credit(true);
        return Seat::OVERFLOW.0;
    }
    let entry = seats.entry(way);
    let is_free = seats.tag(way) == 0;
    subject.was_full = u64::from(clock::tick().is_some() && !is_free);
    let may_owe = owes || is_free;
    if vacate(entry, may_owe.into(), epoch, now) == 0 {
        return Seat::UNKNOWN.0;
    }
    seats.set_credit(false);
    // What the entry will owe for a first packet need not be found out from it.
    let owed = subject.owed;
    let age = if owed > now { Age::until(owed, now, true) } else { Age::past(now) };
    // Before the tag is seen.
    seats.set_age(way, age.marked(place.mark));
    seats.set_tag(way, place.tag);
    count(turnover::SOURCES, |turnover| {
        turnover.entries += 1;
        if owes {
            turnover.owing += 1;
        } else if !is_free {
            turnover.idle += 1;
        }
    });
    Seat::new(entry).0
}

/// Takes an entry away from whoever has it and gives it to the subject's source; 0 if it owes after
/// all, and may not, or was charged at this moment.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn vacate(entry: u32, may_owe: u32, epoch: u32, now: u64) -> u32 {
    let (Some(source), Some(subject)) = (SOURCES.get_ptr_mut(entry), Subject::get()) else {
        return 0;
    };
    let address = &subject.source;
    // SAFETY: a map value that was just looked up; its fields are aligned words. The caller holds the
    // lock of its set.
    unsafe {
        let binding = Plain::new(&raw mut (*source).binding);
        let before = binding.load();
        let taken = Binding(before).vacated(epoch);
        let _: u64 = binding.compare_exchange(before, taken.0);
        for place in 0..INLINE {
            let scale = (&raw const (*source).scales[place]).read_volatile();
            let word = Plain::new(&raw mut (*source).words[place]);
            // What was retired before it is forgiven: nothing, unless the entry may owe and was charged
            // again and again meanwhile.
            if !table::retire(&word, scale, now, may_owe != 0) {
                let _: u64 = binding.compare_exchange(taken.0, before);
                return 0;
            }
        }
        for place in 0..INLINE {
            (&raw mut (*source).scales[place]).write_volatile(0);
            (&raw mut (*source).stamps[place]).write_volatile(0);
        }
        (&raw mut (*source).recent).write_volatile(0);
        for total in [&raw mut (*source).passed, &raw mut (*source).dropped] {
            (&raw mut (*total).packets).write_volatile(0);
            (&raw mut (*total).bytes).write_volatile(0);
        }
        (&raw mut (*source).address.family).write_volatile(address.family);
        for word in 0..address.words.len() {
            (&raw mut (*source).address.words[word]).write_volatile(address.words[word]);
        }
        (&raw mut (*source).refused).write_volatile(0);
        (&raw mut (*source).told).write_volatile(0);
        // Its first packet tells nothing.
        (&raw mut (*source).known).write_volatile(1);
        let _: u64 = binding.compare_exchange(taken.0, taken.unlocked().0);
    }
    1
}
