//! The sets of the table of sources.

use limiter_common::{
    address::Address,
    binding::PATIENCE,
    contract::{Ages, NEWCOMERS, Newcomers, Set},
    credit::Credit,
    newcomer::{Facts, Newcomer, State},
    table::{self, Age, Place, Tags, Usage, WAYS, Ways},
    word::Word as _,
};

use crate::{
    barrier::opaque,
    cell::Plain,
    clock,
    maps::{AGES, CREDITS, SETS},
    subject::Subject,
    usage::{IDLE, SINGLE, USED, usage_of},
};

/// A set.
#[derive(Clone, Copy)]
pub(crate) struct Seats {
    set: *mut Set,
    number: u32,
    /// The epoch that packets go by.
    epoch: u32,
}

impl Seats {
    #[inline(always)]
    pub(crate) fn of(number: u32, epoch: u32) -> Option<Self> {
        Some(Self { set: SETS.get_ptr_mut(number)?, number, epoch })
    }

    /// Takes the lock of a set; `None` if another CPU has it for too long.
    #[inline(always)]
    pub(crate) fn lock(number: u32, epoch: u32) -> Option<Self> {
        let seats = Self::of(number, epoch)?;
        let word = seats.word();
        for _ in 0..PATIENCE {
            let seen = word.load();
            if seen & State::LOCK == 0 && word.compare_exchange(seen, seen | State::LOCK) == seen {
                return Some(seats);
            }
            word.pause();
        }
        None
    }

    /// Gives it back, if no entry was given away.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        self.unlock_as(self.state());
    }

    /// Gives it back after an entry may have been given away.
    #[inline(always)]
    pub(crate) fn unlock_changed(&self) {
        self.unlock_as(self.state().renumbered());
    }

    #[inline(always)]
    fn unlock_as(&self, state: State) {
        // Nobody else writes it. On x86-64, stores are seen in the order in which they were made, and an atomic
        // instruction would wait for them.
        // SAFETY: as in `word`.
        unsafe { (&raw mut (*self.set).newcomers.state).write_volatile(state.unlocked().0) };
    }

    /// Its state.
    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        State(self.word().load())
    }

    #[inline(always)]
    fn word(&self) -> Plain {
        // SAFETY: the set is a map value that was looked up in this run of the program; an aligned word.
        unsafe { Plain::new(&raw mut (*self.set).newcomers.state) }
    }

    /// Its newcomers. The lock is held.
    #[inline(always)]
    pub(crate) fn newcomers(&self) -> &Newcomers {
        // SAFETY: as in `word`. Who holds the lock alone writes there, but for attempts to take it,
        // which change nothing.
        unsafe { &(*self.set).newcomers }
    }

    /// Puts a newcomer at a place, who owes until then, in nanoseconds, and gives the lock back.
    #[inline(always)]
    pub(crate) fn admit(&self, place: usize, source: &Address, newcomer: Newcomer, until: u64) {
        let place = place & (NEWCOMERS - 1);
        // SAFETY: as in `newcomers`.
        unsafe {
            let newcomers = &raw mut (*self.set).newcomers;
            (&raw mut (*newcomers).times[place]).write_volatile(newcomer.time);
            (&raw mut (*newcomers).facts[place]).write_volatile(newcomer.facts.0);
            let [first, second, ..] = source.words;
            (&raw mut (*newcomers).sources[place][0]).write_volatile(first);
            (&raw mut (*newcomers).sources[place][1]).write_volatile(second);
        }
        self.unlock_as(self.state().with(place, until));
    }

    /// See [`table::all_owe`].
    #[inline(always)]
    pub(crate) fn all_owe(&self, now: u64) -> Option<bool> {
        let ages = AGES.get_ptr(self.number);
        // SAFETY: a map value that was just looked up; the way is one of the set.
        let age =
            |ages: *const Ages, way: usize| unsafe { (&raw const (*ages)[way]).read_volatile() };
        table::all_owe((0..WAYS).map(|way| Age(ages.map_or(0, |ages| age(ages, way)))), now)
    }

    /// Whether a packet of a source without an entry is admitted on [credit](Credit), of which so many have it.
    #[inline(always)]
    pub(crate) fn admit_on_credit(&self, most: u64) -> bool {
        let (Some(tick), Some(credit)) = (clock::tick(), self.credit()) else { return false };
        let seen = credit.load();
        match Credit(seen).next(tick as u32, most) {
            Some((next, admitted)) => credit.compare_exchange(seen, next.0) == seen && admitted,
            None => false,
        }
    }

    /// Has no packet admitted on credit until an entry was given, or has them again.
    #[inline(always)]
    pub(crate) fn set_credit(&self, ended: bool) {
        let Some(credit) = self.credit() else { return };
        let seen = credit.load();
        if ended != (seen == Credit::ENDED.0) {
            let next = if ended { Credit::ENDED } else { Credit::default() };
            // Another CPU may count at this moment: the next who finds no entry ends it then.
            let _: u64 = credit.compare_exchange(seen, next.0);
        }
    }

    #[inline(always)]
    fn credit(&self) -> Option<Plain> {
        // SAFETY: a map value that was just looked up; an aligned word.
        Some(unsafe { Plain::new(CREDITS.get_ptr_mut(self.number)?) })
    }

    /// Forgets the newcomer at a place, who has an entry. The lock is held.
    #[inline(always)]
    pub(crate) fn forget(&self, place: usize) {
        // SAFETY: as in `newcomers`.
        unsafe {
            let facts = &raw mut (*self.set).newcomers.facts;
            (&raw mut (*facts)[place & (NEWCOMERS - 1)]).write_volatile(Facts::NONE.0);
        }
    }

    /// Marks a way as that of a source. The lock is held.
    #[inline(always)]
    pub(crate) fn set_tag(&self, way: usize, tag: u8) {
        // SAFETY: as in `word`; the way is one of the set.
        unsafe { (&raw mut (*self.set).tags[way & (WAYS - 1)]).write_volatile(tag) };
    }

    /// The tags of all ways.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Tags {
        // SAFETY: as in `word`; a set is as aligned as two words are, and its tags are as long.
        Tags(unsafe { (&raw const (*self.set).tags).cast::<[u64; 2]>().read_volatile() })
    }

    /// Where the entry of a source is by what the set says: at the way that it has if it may choose, as most have, or
    /// at the first one with its tag, if that has its mark. Unless it is at the former, the subject knows then what was
    /// seen of the set.
    #[inline(always)]
    pub(crate) fn likely(&self, place: Place, subject: &mut Subject) -> Likely {
        // The compiler knows that a home is below `WAYS`; the verifier of Linux 6.1 has to see it.
        let home = opaque(place.home.into()) & (WAYS - 1);
        if self.tag(home) == place.tag {
            return Likely::Entry(self.entry(home));
        }
        // Before the tags, so that an entry that is given away since is not overlooked.
        subject.state = self.state();
        let tags = self.tags();
        subject.tags = tags;
        let Some((way, alone)) = tags.first(place.tag) else { return Likely::Nowhere };
        let way = opaque(way) & (WAYS - 1);
        if self.age(way).mark() == place.mark {
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
        self.number * WAYS as u32 + way as u32
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

impl Ways for Seats {
    #[inline(always)]
    fn tag(&self, way: usize) -> u8 {
        // SAFETY: as in `word`; the way is one of the set.
        unsafe { (&raw const (*self.set).tags[way & (WAYS - 1)]).read_volatile() }
    }

    #[inline(always)]
    fn age(&self, way: usize) -> Age {
        let Some(ages) = AGES.get_ptr(self.number) else { return Age(0) };
        // SAFETY: a map value that was just looked up; the way is one of the set.
        Age(unsafe { (&raw const (*ages)[way & (WAYS - 1)]).read_volatile() })
    }

    #[inline(always)]
    fn set_age(&self, way: usize, age: Age) {
        if let Some(ages) = AGES.get_ptr_mut(self.number) {
            // SAFETY: as above.
            unsafe { (&raw mut (*ages)[way & (WAYS - 1)]).write_volatile(age.0) };
        }
    }

    #[inline(always)]
    fn usage(&self, way: usize, now: u64) -> Usage {
        match usage_of(self.entry(way), self.epoch, now) {
            IDLE => Usage::Idle,
            USED => Usage::Used,
            until => Usage::Owes(until, until & SINGLE != 0),
        }
    }
}
