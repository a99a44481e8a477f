//! The sets of the table of sources.

use limiter_common::{
    abi::{
        layout::shared,
        table::{Debts, PROBATION_SLOTS, Probation, Set, WAYS},
    },
    base::{
        address::Address,
        word::{LOCK_TRIES, Word as _},
    },
    table::{
        lock::SetLock,
        probation::{ProbationFacts, ProbationSlot, SetState},
        set::{self, DebtUntil, Eviction, Place, Tags, Ways},
        untracked::UntrackedAllowance,
    },
};

use crate::kernel::{
    atomics::MapWord,
    barrier::black_box,
    clock,
    maps::{DEBTS, SETS, UNTRACKED},
    scratch::PacketScratch,
};

/// A set.
#[derive(Clone, Copy)]
pub(crate) struct SetRef {
    set: *mut Set,
    number: u32,
}

impl SetRef {
    #[inline(always)]
    pub(crate) fn of(number: u32) -> Option<Self> {
        Some(Self { set: SETS.get_ptr_mut(number)?, number })
    }

    /// Takes the lock of a set; `None` if another CPU has it for too long.
    #[inline(always)]
    pub(crate) fn lock(number: u32) -> Option<Self> {
        let set_ref = Self::of(number)?;
        if set_ref.set_lock().try_take() || wait_for_lock(number) != 0 {
            Some(set_ref)
        } else {
            None
        }
    }

    /// Gives it back, if no entry was given away.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        self.set_lock().give_back_as(self.state());
    }

    /// Gives it back after an entry may have been given away.
    #[inline(always)]
    pub(crate) fn unlock_changed(&self) {
        self.set_lock().give_back_as(self.state().renumbered());
    }

    /// Its state. The lock is held.
    #[inline(always)]
    pub(crate) fn state(&self) -> SetState {
        self.set_lock().state()
    }

    /// Its state, before its tags and debt notes are read without the lock.
    #[inline(always)]
    pub(crate) fn state_before(&self) -> SetState {
        self.set_lock().state_before()
    }

    #[inline(always)]
    fn set_lock(&self) -> SetLock<MapWord> {
        // SAFETY: the set is a map value that was looked up in this run of the program; an aligned word.
        SetLock(unsafe { MapWord::new(&raw mut (*self.set).probation.state) })
    }

    /// Its newcomers. The lock is held.
    #[inline(always)]
    pub(crate) fn probation(&self) -> &Probation {
        // SAFETY: as in `set_lock`. Who holds the lock alone writes there, but for attempts to take it,
        // which change nothing.
        unsafe { &(*self.set).probation }
    }

    /// Whether a source may be one of its newcomers. The lock is not held, so that is a guess.
    #[inline(always)]
    pub(crate) fn may_have_come(&self, source: &Address) -> bool {
        let [first, second, ..] = source.words;
        let differs = |slot: usize| {
            // SAFETY: as in `set_lock`; aligned words, which the holder of the lock may change meanwhile.
            let [a, b] =
                unsafe { (&raw const (*self.set).probation.sources[slot]).read_volatile() };
            a ^ first | b ^ second
        };
        differs(0) == 0 || differs(1) == 0
    }

    /// Puts a newcomer at a place, who owes until then, in nanoseconds, and gives the lock back.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        place: usize,
        source: &Address,
        newcomer: ProbationSlot,
        until: u64,
    ) {
        let place = place & (PROBATION_SLOTS - 1);
        // SAFETY: as in `probation`.
        unsafe {
            let probation = &raw mut (*self.set).probation;
            (&raw mut (*probation).times[place]).write_volatile(newcomer.time);
            (&raw mut (*probation).facts[place]).write_volatile(newcomer.facts.0);
            let [first, second, ..] = source.words;
            (&raw mut (*probation).sources[place][0]).write_volatile(first);
            (&raw mut (*probation).sources[place][1]).write_volatile(second);
        }
        self.set_lock().give_back_as(self.state().with(place, until));
    }

    /// Whether a packet of a source without an entry passes by the [untracked allowance](UntrackedAllowance) of so many in a
    /// tick.
    #[inline(always)]
    pub(crate) fn admit_untracked(&self, most: u64) -> bool {
        let (Some(tick), Some(allowance)) = (clock::tick(), self.allowance()) else { return false };
        let seen = allowance.load();
        match UntrackedAllowance(seen).next(tick as u32, most) {
            Some((next, admitted)) => allowance.compare_exchange(seen, next.0) == seen && admitted,
            None => false,
        }
    }

    /// Ends the untracked allowance until an entry was given, or begins it again.
    #[inline(always)]
    pub(crate) fn set_allowance(&self, ended: bool) {
        let Some(allowance) = self.allowance() else { return };
        let seen = allowance.load();
        if ended != (seen == UntrackedAllowance::ENDED.0) {
            let next =
                if ended { UntrackedAllowance::ENDED } else { UntrackedAllowance::default() };
            // Another CPU may count at this moment: the next who finds no entry ends it then.
            let _: u64 = allowance.compare_exchange(seen, next.0);
        }
    }

    #[inline(always)]
    fn allowance(&self) -> Option<MapWord> {
        // SAFETY: a map value that was just looked up; an aligned word.
        Some(unsafe { MapWord::new(UNTRACKED.get_ptr_mut(self.number)?) })
    }

    /// Forgets the newcomer at a place, who has an entry. The lock is held.
    #[inline(always)]
    pub(crate) fn forget(&self, place: usize) {
        // SAFETY: as in `probation`.
        unsafe {
            let facts = &raw mut (*self.set).probation.facts;
            (&raw mut (*facts)[place & (PROBATION_SLOTS - 1)])
                .write_volatile(ProbationFacts::NONE.0);
        }
    }

    /// Marks a way as that of a source. The lock is held.
    #[inline(always)]
    pub(crate) fn set_tag(&self, way: usize, tag: u8) {
        // SAFETY: as in `set_lock`; the way is one of the set.
        unsafe { (&raw mut (*self.set).tags[way & (WAYS - 1)]).write_volatile(tag) };
    }

    /// The tags of all ways.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Tags {
        // SAFETY: as in `set_lock`; a set is as aligned as two words are, and its tags are as long.
        Tags(unsafe { (&raw const (*self.set).tags).cast::<[u64; 2]>().read_volatile() })
    }

    /// Where the entry of a source is by what the set says: at the way that it has if it may choose, as most have, or
    /// at the first one with its tag, if that has its mark. Unless it is at the former, the packet knows then what was
    /// seen of the set.
    #[inline(always)]
    pub(crate) fn likely(&self, place: Place, scratch: &mut PacketScratch) -> Likely {
        // The compiler knows that a home is below `WAYS`; the verifier of Linux 6.1 has to see it.
        let home = black_box(place.home.into()) & (WAYS - 1);
        if self.tag(home) == place.tag {
            return Likely::Entry(self.entry(home));
        }
        // Before the tags, so that an entry that is given away since is not overlooked.
        scratch.state = self.state_before();
        let tags = self.tags();
        scratch.tags = tags;
        let Some((way, alone)) = tags.first(place.tag) else { return Likely::Nowhere };
        let way = black_box(way) & (WAYS - 1);
        if self.debt(way).tag_ext() == place.tag_ext {
            Likely::Entry(self.entry(way))
        } else if alone {
            Likely::Nowhere
        } else {
            Likely::Elsewhere
        }
    }

    /// The number of the entry of a way.
    #[inline(always)]
    pub(crate) const fn entry(&self, way: usize) -> u32 {
        shared::entry(self.number, way)
    }
}

/// Takes the lock of a set that another CPU had a moment ago; 0 if it has it for too long. The kernel verifies the loop by
/// itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn wait_for_lock(number: u32) -> u32 {
    let Some(set_ref) = SetRef::of(number) else { return 0 };
    let lock = set_ref.set_lock();
    for tries in 1..LOCK_TRIES {
        lock.0.back_off(tries);
        if lock.try_take() {
            return 1;
        }
    }
    0
}

/// Not all ways of a set owe.
pub(crate) const HAS_IDLE: u32 = 0;
/// All ways of a set owe, and none for a single packet.
pub(crate) const ALL_OWE: u32 = 1;
/// All ways of a set owe, and one for a single packet, or only to limits that are gone, or changed since.
pub(crate) const ONE_OWES_LITTLE: u32 = 2;

/// See [`set::all_owe`]. Returns one of the constants above.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn debts_of_set(number: u32, now: u64) -> u32 {
    let Some(notes) = SetRef::of(number).and_then(|set_ref| DebtNotes::of(&set_ref)) else {
        return HAS_IDLE;
    };
    match set::all_owe((0..WAYS).map(|way| notes.at(way)), now) {
        None => HAS_IDLE,
        Some(false) => ALL_OWE,
        Some(true) => ONE_OWES_LITTLE,
    }
}

/// Where a set says that the entry of a source is.
pub(crate) enum Likely {
    /// It may be the one of this number.
    Entry(u32),
    /// It has none, or had none when the set was seen.
    Nowhere,
    /// It is to be looked for.
    Elsewhere,
}

impl SetRef {
    /// The tag of a way; 0 when it is free.
    #[inline(always)]
    pub(crate) fn tag(&self, way: usize) -> u8 {
        // SAFETY: as in `set_lock`; the way is one of the set.
        unsafe { (&raw const (*self.set).tags[way & (WAYS - 1)]).read_volatile() }
    }

    /// What is noted of a way.
    #[inline(always)]
    pub(crate) fn debt(&self, way: usize) -> DebtUntil {
        DebtNotes::of(self).map_or(DebtUntil(0), |notes| notes.at(way))
    }

    /// Changes it. The lock is held.
    #[inline(always)]
    pub(crate) fn set_debt(&self, way: usize, debt: DebtUntil) {
        if let Some(notes) = DebtNotes::of(self) {
            notes.set(way, debt);
        }
    }
}

/// The debt notes of a set, looked up.
pub(super) struct DebtNotes(*mut Debts);

impl DebtNotes {
    #[inline(always)]
    pub(super) fn of(set_ref: &SetRef) -> Option<Self> {
        Some(Self(DEBTS.get_ptr_mut(set_ref.number)?))
    }

    #[inline(always)]
    pub(super) fn at(&self, way: usize) -> DebtUntil {
        // SAFETY: a map value that was looked up in this run; the way is one of the set.
        DebtUntil(unsafe { (&raw const (*self.0)[way & (WAYS - 1)]).read_volatile() })
    }

    #[inline(always)]
    fn set(&self, way: usize, debt: DebtUntil) {
        // SAFETY: as above.
        unsafe { (&raw mut (*self.0)[way & (WAYS - 1)]).write_volatile(debt.0) };
    }
}

/// A set whose lock is held, with what tells what became of the entry of a way. Its debt notes are looked up once, not for each
/// way.
pub(crate) struct LockedSet<E> {
    set_ref: SetRef,
    notes: DebtNotes,
    eviction: E,
}

impl<E: Fn(usize, u64) -> Eviction> LockedSet<E> {
    #[inline(always)]
    pub(crate) fn of(set_ref: SetRef, eviction: E) -> Option<Self> {
        Some(Self { set_ref, notes: DebtNotes::of(&set_ref)?, eviction })
    }
}

impl<E: Fn(usize, u64) -> Eviction> Ways for LockedSet<E> {
    #[inline(always)]
    fn tag(&self, way: usize) -> u8 {
        self.set_ref.tag(way)
    }

    #[inline(always)]
    fn debt(&self, way: usize) -> DebtUntil {
        self.notes.at(way)
    }

    #[inline(always)]
    fn set_debt(&self, way: usize, debt: DebtUntil) {
        self.notes.set(way, debt);
    }

    #[inline(always)]
    fn eviction(&self, way: usize, now: u64) -> Eviction {
        (self.eviction)(way, now)
    }
}
