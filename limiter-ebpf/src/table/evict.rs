//! Making room for a source in its set.

use limiter_common::{
    abi::{
        layout::table_stats,
        table::{Source, WAYS},
    },
    algorithm::{binding::Binding, debt},
    base::word::Word as _,
    table::set::{self, DebtUntil, Eviction, Place, Room},
};

use crate::{
    kernel::{
        atomics::MapWord, barrier::black_box, churn::count_given, clock, maps::SOURCES,
        scratch::PacketScratch,
    },
    table::{
        debt::{IDLE, REFERENCED, SINGLE, debt_of},
        lookup::{EntryId, find_way},
        recall,
        record::{LimitRef, Places},
        set::{LockedSet, SetRef},
    },
};

/// Has the memory bring all at once what making an entry at a place reads, most likely. It comes before the
/// lock of the set is taken: that, like any atomic instruction, waits for what was asked for before it, and
/// what is asked for one after the other takes as many times as long.
#[inline(always)]
pub(crate) fn touch(place: Place) {
    let Some(set_ref) = SetRef::of(place.set) else { return };
    // The compiler knows that a home is below `WAYS`; the verifier of Linux 6.1 has to see it.
    let home = black_box(place.home.into()) & (WAYS - 1);
    let _: DebtUntil = set_ref.debt(home);
    if let Some(source) = SOURCES.get_ptr(set_ref.entry(home)) {
        for line in 0..size_of::<Source>() / LINE {
            // SAFETY: a map value that was just looked up, as long and as aligned as its lines.
            let _: u64 = unsafe { source.byte_add(line * LINE).cast::<u64>().read_volatile() };
        }
    }
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// The [`EntryId`] of the packet's source, whose place is known, in its set, whose lock is held. It is made
/// if there is none, by the `epoch` that it is behind then, at the time of the packet. [`EntryId::SET_FULL`] if there is
/// no room for it.
///
/// Like [`evict`], it is verified by itself, once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_or_insert(epoch: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return EntryId::UNKNOWN.0 };
    let place = scratch.place;
    let Some(set_ref) = SetRef::of(place.set) else { return EntryId::UNKNOWN.0 };
    if set_ref.tags().have(place.tag) {
        let found = find_way() as usize;
        if found < WAYS {
            return set_ref.entry(found);
        }
    }
    // Who was charged in this tick owes in it: a new entry would be full at the time of the tick.
    let now = scratch.by_tick();
    let eviction = |way, now| match debt_of(set_ref.entry(way), epoch, now) {
        IDLE => Eviction::Idle,
        REFERENCED => Eviction::Referenced,
        until => Eviction::Owes(until, until & SINGLE != 0),
    };
    let Some(ways) = LockedSet::of(set_ref, eviction) else { return EntryId::UNKNOWN.0 };
    let Room { way, owes } = set::room(&ways, place, now);
    if way >= WAYS {
        set_ref.set_allowance(true);
        return EntryId::SET_FULL.0;
    }
    let way = scratch.unknown(way) & (WAYS - 1);
    let is_free = set_ref.tag(way) == 0;
    scratch.was_full = u64::from(clock::tick().is_some() && !is_free);
    let may_owe = owes || is_free;
    if evict(set_ref.entry(way), may_owe.into(), epoch, now) == 0 {
        return EntryId::UNKNOWN.0;
    }
    set_ref.set_allowance(false);
    // There is no room on the stack to keep these over the calls.
    let scratch = scratch.reread();
    let (now, place) = (scratch.by_tick(), scratch.place);
    // What the entry will owe for a first packet need not be found out from it.
    let owed = scratch.owed;
    let debt = if owed > now { DebtUntil::until(owed, now, true) } else { DebtUntil::past(now) };
    // Before the tag: a packet that sees the tag alone takes a lock in vain. It needs no order: see `SetLock`.
    set_ref.set_debt(way, debt.with_tag_ext(place.tag_ext));
    set_ref.set_tag(way, place.tag);
    if recall::carries() {
        recall::recall_source(set_ref.entry(way));
    }
    count_given(table_stats::SOURCES, owes, is_free);
    set_ref.entry(way)
}

/// Takes an entry away from whoever has it and gives it to the packet's source; 0 if it owes after
/// all, and may not, or was charged at this moment.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn evict(entry: u32, may_owe: u32, epoch: u32, now: u64) -> u32 {
    let (Some(source), Some(scratch)) = (SOURCES.get_ptr_mut(entry), PacketScratch::get()) else {
        return 0;
    };
    let Some(places) = Places::of(entry, source) else { return 0 };
    let address = &scratch.source;
    // SAFETY: a map value that was just looked up; its fields are aligned words. The caller holds the
    // lock of its set.
    unsafe {
        let binding = MapWord::new(&raw mut (*source).binding);
        let before = binding.load();
        let taken = Binding(before).vacated(epoch);
        let _: u64 = binding.compare_exchange(before, taken.0);
        // What was retired before it is forgiven: nothing, unless the entry may owe and was charged again and again
        // meanwhile.
        let retire = |_, state: LimitRef| {
            let (scale, word) = (state.scale.read_volatile(), MapWord::new(state.word));
            debt::retire(&word, scale, now, may_owe != 0)
        };
        if !places.all(retire) {
            let _: u64 = binding.compare_exchange(taken.0, before);
            return 0;
        }
        places.all(|_, state| {
            state.scale.write_volatile(0);
            state.limit_id.write_volatile(0);
            true
        });
        (&raw mut (*source).pending).write_volatile(0);
        for total in [&raw mut (*source).passed, &raw mut (*source).dropped] {
            (&raw mut (*total).packets).write_volatile(0);
            (&raw mut (*total).bytes).write_volatile(0);
        }
        (&raw mut (*source).address.family).write_volatile(address.family);
        for word in 0..address.words.len() {
            (&raw mut (*source).address.words[word]).write_volatile(address.words[word]);
        }
        (&raw mut (*source).episode).write_volatile(0);
        // Its first packet tells nothing.
        (&raw mut (*source).known).write_volatile(1);
        let _: u64 = binding.compare_exchange(taken.0, taken.unlocked().0);
    }
    1
}
