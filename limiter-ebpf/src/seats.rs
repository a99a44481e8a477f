//! The ways of a set of the table of sources, while its lock is held.

use core::mem::offset_of;

use limiter_common::{
    address::Address,
    binding::{Binding, PATIENCE},
    contract::{Ages, NEWCOMERS, Newcomers, Set, Source, Turnover, half},
    credit::Credit,
    limit::INLINE,
    newcomer::{Facts, Newcomer, State},
    penalty::Block,
    recent::Recent,
    table::{self, Age, Place, Room, Tags, Usage, WAYS, Ways},
    word::Word as _,
};

use crate::{
    barrier::opaque,
    cell::Plain,
    clock, datapath,
    entry::{Seat, number},
    maps::{AGES, CREDITS, METERS, PROFILES, SETS, SOURCES, TURNOVER},
    source_key::SourceKey,
    subject::Subject,
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
    fn set_credit(&self, ended: bool) {
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

    /// Marks a way as that of a source.
    #[inline(always)]
    pub(crate) fn set_tag(&self, way: usize, tag: u8) {
        // SAFETY: as in `lock`; the way is one of the set.
        unsafe { (&raw mut (*self.set).tags[way & (WAYS - 1)]).write_volatile(tag) };
    }

    /// The tags of all ways.
    #[inline(always)]
    pub(crate) fn tags(&self) -> Tags {
        // SAFETY: as in `lock`; a set is as aligned as two words are, and its tags are as long.
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
        // SAFETY: as in `lock`; the way is one of the set.
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

const IDLE: u64 = 0;
const USED: u64 = 1;
/// Set in the time until which an entry owes for a single packet, or only to limits that are gone, or changed
/// since.
const SINGLE: u64 = 1;

/// Has the memory bring all at once what making an entry at a place reads, most likely: the lock of the
/// set, like any atomic instruction, waits for what was asked for before it, and what is asked for one
/// after the other takes as many times as long.
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
/// Like the other functions here, it is verified by itself, once.
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
    let now = subject.time().now;
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
    count(|turnover| {
        turnover.entries += 1;
        if owes {
            turnover.owing += 1;
        } else if !is_free {
            turnover.idle += 1;
        }
    });
    Seat::new(entry).0
}

/// Counts who comes into the table and who has to go.
#[inline(always)]
pub(crate) fn count(change: impl FnOnce(&mut Turnover)) {
    if let Some(turnover) = TURNOVER.get_ptr_mut(0) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on
        // a CPU before the next packet.
        change(unsafe { &mut *turnover });
    }
}

/// The way of the subject's source, whose place is known, in its set; [`WAYS`] if it has none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_way() -> u32 {
    let Some(subject) = Subject::get() else { return WAYS as u32 };
    let place = subject.place;
    let Some(seats) = Seats::of(place.set, 0) else { return WAYS as u32 };
    let mut found = WAYS;
    for way in 0..WAYS {
        if seats.tag(way) == place.tag
            && seats.age(way).mark() == place.mark
            && let Some(source) = SOURCES.get_ptr_mut(seats.entry(way))
            && is_of(source, subject.key())
        {
            found = way;
            break;
        }
    }
    found as u32
}

/// What became of an entry: one of the constants here, or until when it owes, in nanoseconds.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn usage_of(entry: u32, epoch: u32, now: u64) -> u64 {
    let Some(source) = SOURCES.get_ptr_mut(entry) else { return IDLE };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let (binding, block, packets, known) = unsafe {
        let recent = Recent((&raw const (*source).recent).read_volatile());
        (
            Binding((&raw const (*source).binding).read_volatile()),
            Block((&raw const (*source).blocked).read_volatile()),
            (&raw const (*source).passed.packets).read_volatile()
                + (&raw const (*source).dropped.packets).read_volatile()
                + recent.tally().packets,
            &raw mut (*source).known,
        )
    };
    let blocked = block.until(binding).saturating_sub(now);
    // SAFETY: as above.
    let owes = unsafe { debt(source, u32::MAX, now) }.max(blocked);
    if owes != 0 {
        // Of one packet nobody has to know to what limits it was charged.
        let (places, blocked) = match packets {
            0 | 1 => (0, 0),
            _ if binding.is_under(epoch) => (places_in_force(entry, epoch), blocked),
            _ => (places_in_force(entry, epoch), 0),
        };
        // SAFETY: as above.
        let in_force = unsafe { debt(source, places, now) }.max(blocked);
        return if in_force == 0 { (now + owes) | SINGLE } else { (now + in_force) & !SINGLE };
    }
    // SAFETY: as above; who holds the lock of the set alone writes it.
    unsafe {
        if known.read_volatile() == packets as u32 {
            return IDLE;
        }
        known.write_volatile(packets as u32);
    }
    USED
}

/// How long after `now` an entry owes to the limits at these places, as bits, in nanoseconds; 0 if it does not.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn debt(source: *const Source, places: u32, now: u64) -> u64 {
    let mut most = 0;
    for place in 0..INLINE {
        // SAFETY: as the caller promises; aligned words.
        let (word, scale) = unsafe {
            (
                (&raw const (*source).words[place]).read_volatile(),
                (&raw const (*source).scales[place]).read_volatile(),
            )
        };
        // Without a branch, as each of them doubles what the verifier follows.
        let is_asked = u64::from(places >> place & 1);
        let ahead = table::owes(word, scale * is_asked, now);
        if ahead > most {
            most = ahead;
        }
    }
    most
}

/// The places of the inline limits, as bits, that are in force as they were when an entry was charged to them
/// last: its source owes to them still what it did then. Where sources counted by fewer bits of their addresses then,
/// the entry of a network is taken for one of the source at its beginning.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn places_in_force(entry: u32, epoch: u32) -> u32 {
    let (Some(source), Some(settings)) = (SOURCES.get_ptr(entry), datapath::settings(epoch)) else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let binding = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
    let number = if binding.is_under(epoch) {
        binding.profile()
    } else {
        // SAFETY: as above; who holds the lock of the set alone writes it.
        let address = unsafe { &(*source).address };
        let masked = address.masked(&settings.mask);
        // No packet has such a key any more.
        if (0..masked.words.len()).any(|word| masked.words[word] != address.words[word]) {
            return 0;
        }
        number(address, epoch, settings)
    };
    let Some(profile) = PROFILES.get(half(epoch, number)) else { return 0 };
    let mut places = 0;
    for place in 0..INLINE {
        let Some(meter) = METERS.get(half(epoch, profile.meters[place])) else { continue };
        // SAFETY: as above.
        let (scale, stamp) = unsafe {
            (
                (&raw const (*source).scales[place]).read_volatile(),
                (&raw const (*source).stamps[place]).read_volatile(),
            )
        };
        let differs = u64::from(stamp ^ settings.stamps[place]) | scale ^ meter.gcra.scale().0;
        places |= u32::from(differs == 0) << place;
    }
    places
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

/// Whether an entry is that of a source.
#[inline(always)]
pub(crate) fn is_of(source: *const Source, key: SourceKey) -> bool {
    // SAFETY: the caller looked the entry up in this run of the program; as aligned as words of 64 bits, as is
    // asserted below.
    unsafe { SourceKey::read(&raw const (*source).address) }.is(key)
}

const _: () = assert!(offset_of!(Source, address) % 8 == 0);
