//! The state of limits on requests: what each key is charged.
//!
//! A set-associative table, as that of the kernel state, in which a key may be in two sets of [`WAYS`] entries, by two parts of
//! its hash:
//!
//! * A key that owes nothing is as good as a new one, so its entry is given to another key when its set is full. A key that owes
//!   is never evicted.
//! * A newcomer goes to its second set only when all keys of its first set owe. When those of both do, one of them is moved to
//!   the other set that it may be in. When none can be moved, the newcomer is charged to the shared state of its row. That
//!   befalls the first one when more than 90 % of all keys owe.
//! * Each set notes until when all keys that a newcomer could replace owe. So a flood of newcomers does not read these keys again and
//!   again. Whatever lowers what a key owes resets the note.
//! * Each set counts the keys that it is the first set of and that are in their second one. So most look-ups need one set.
//!
//! **One owner.** A process has the table alone, by a lock on its file, and one thread decides at a time. So words are
//! loaded and stored one after the other, without an exchange. Whoever counts open requests for monitoring reads them meanwhile.
//!
//! **What outlives the process.** The state lies in memory that may be a file on tmpfs; the tags by which sets are searched are
//! computed from it at the start. A process that is killed stops between two of its stores, and all stores before are seen by
//! the next process. So the order of stores in the program is all that counts. The compiler keeps it, as each is a release
//! store:
//!
//! * A charge is one store of one word. Of a request that is being charged to several limits, some may be charged and some
//!   not; nobody was given its answer.
//! * A re-scaled state is written beside the old one. The store of a word of the key then says which of both holds.
//! * An entry that changes hands is freed first, then filled, and gets its key last.
//! * A key that is moved has its new entry before the old one is freed. The next process frees one of two with the same key.
//! * A place of an open request is one store, after that of the stamp of its key.
//! * A log counts an event before it writes the time of it. What was not written is found by its lap, and is given the time of
//!   the last event, at the next start.

use std::{cell::Cell, iter::repeat, ops::Deref, path::Path, sync::atomic::Ordering};

pub use limiter_common::abi::table::WAYS;
use limiter_common::{
    algorithm::{
        concurrent::Concurrent,
        kind::Kind,
        meter::{Measure, Meter},
        policer::Policer as _,
        sliding_log::SlidingLog,
    },
    base::slots::Slots as _,
};

use self::file::Opened;
#[cfg(not(fuzzing))]
pub(super) use self::file::open_file;
pub use self::{error::TableError, file::Began};
pub(super) use self::{
    layout::{Area, Entry, Key, MOST_SHARED},
    memory::{StateWord, WideSlots},
};
use self::{
    layout::{Field, Layout},
    memory::Memory,
};

mod error;
mod file;
mod layout;
mod memory;

/// What a state of open requests is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// A key of a row of this class.
    Class(u16),
    /// All keys of a row that have no entry.
    Shared(Entry),
}

/// How long no key is moved after none could be, in nanoseconds. A search asks up to 34 sets, and those that noted nothing are read.
const REST: u64 = 1_000_000;

/// The entries of a table. A clone is of the same entries, and any thread may read it while the owner of the table decides: of an entry
/// that changes hands meanwhile, it reads some of both.
#[derive(Clone, Debug)]
pub struct Entries {
    memory: Memory,
    layout: Layout,
}

/// Until when a set has no room for a newcomer.
#[derive(Clone, Copy, Debug, Default)]
struct Full {
    /// For newcomers of this class, which has its share of the set; for all without it.
    class: Option<u16>,
    /// When the first of the entries that they could have owes nothing any more, in nanoseconds.
    until: u64,
}

/// The state of limits on requests.
#[derive(Debug)]
pub struct Table {
    entries: Entries,
    seed: [u64; 2],
    /// For each set, the tags of its entries: of the keys, then of those with slots. 0 is a free entry.
    tags: Box<[[Cell<u32>; WAYS]]>,
    /// For each set, how many keys that it is the first set of are in their second one.
    away: Box<[Cell<u32>]>,
    /// For each set, until when it has no room. What lowers what a key of the set owes resets it.
    full: Box<[Cell<Full>]>,
    /// When keys of each area are moved again, in nanoseconds.
    moves_from: [Cell<u64>; 2],
    /// The entries that have a key.
    keys: Cell<usize>,
    began: Began,
}

impl Table {
    /// The number of keys of a table, unless another one is asked for.
    pub const KEYS: usize = 262_144;
    /// The largest number of keys; they take 1.5 GiB.
    pub const MOST_KEYS: usize = 1 << 24;

    /// A table with room for so many keys, rounded up to whole sets, at most [`MOST_KEYS`](Self::MOST_KEYS). Its state ends with
    /// it.
    pub fn in_memory(keys: usize) -> Self {
        let layout = Layout::new(keys);
        let memory = Memory::owned(layout.words());
        // Each kernel that limiter runs on has random numbers.
        let seed = crate::datapath::sys::random().unwrap_or_default();
        Self::new(memory, layout, seed, Began::New)
    }

    /// The table in a file, which is made if it is not there. It has room for so many keys, rounded up to whole sets. State
    /// that another process left is kept, unless it is of another boot or of another layout: [`began`](Self::began) tells. What owes
    /// something in a table of another size is moved to this one; it is lost if the process is killed meanwhile.
    ///
    /// The file takes all of its memory at once. It has to be on a file system in memory, as a page that is written to a disk can
    /// stall a decision.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn open(path: &Path, keys: usize) -> Result<Self, TableError> {
        if keys > Self::MOST_KEYS {
            return Err(TableError::TooManyKeys { keys, most: Self::MOST_KEYS });
        }
        let (layout, now) = (Layout::new(keys), crate::datapath::sys::monotonic());
        let Opened { memory, seed, began, before } = file::open(path, &layout, now)?;
        let mut table = Self::new(memory, layout, seed, began);
        match began {
            Began::Kept => table.recover(),
            Began::Resized { .. } => table.adopt(&before, now),
            _ => {}
        }
        Ok(table)
    }

    fn new(memory: Memory, layout: Layout, seed: [u64; 2], began: Began) -> Self {
        let tags = (0..layout.sets()).map(|_| Default::default()).collect();
        let away = vec![Cell::new(0); layout.sets()].into();
        let full = vec![Cell::default(); layout.sets()].into();
        let entries = Entries { memory, layout };
        let (moves_from, keys) = (Default::default(), Cell::new(0));
        Self { entries, seed, tags, away, full, moves_from, keys, began }
    }

    /// How the table began.
    pub const fn began(&self) -> Began {
        self.began
    }

    /// The entries that have a key. Keys that owe nothing any more are among them.
    pub const fn keys(&self) -> usize {
        self.keys.get()
    }

    /// The bytes that the state takes.
    pub const fn bytes(&self) -> usize {
        self.entries.layout.words() * size_of::<u64>()
    }

    /// Its entries.
    pub(super) fn entries(&self) -> Entries {
        self.entries.clone()
    }

    /// What keys are hashed by, random; the same as long as the state is kept.
    pub(super) const fn seed(&self) -> [u64; 2] {
        self.seed
    }

    /// The entry of a key; `None` if it has none.
    #[inline]
    pub(super) fn find(&self, area: Area, key: Key) -> Option<Entry> {
        let first = self.layout.first_set(area, key);
        // Most keys are there. The tags would be a second cache miss, which the first one has to wait for.
        let home = self.layout.entry(first, key.home());
        if self.key(home) == key {
            return Some(home);
        }
        match self.find_in(first, key) {
            None if self.away[first].get() > 0 => self.find_in_second(area, key),
            found => found,
        }
    }

    /// Apart, so that other look-ups keep their registers.
    #[cold]
    #[inline(never)]
    fn find_in_second(&self, area: Area, key: Key) -> Option<Entry> {
        self.find_in(self.layout.second_set(area, key), key)
    }

    #[inline]
    fn find_in(&self, set: usize, key: Key) -> Option<Entry> {
        let mut ways = same(&self.tags[set], key.tag());
        while ways != 0 {
            let entry = self.layout.entry(set, ways.trailing_zeros() as usize);
            if self.key(entry) == key {
                return Some(entry);
            }
            ways &= ways - 1;
        }
        None
    }

    /// An entry that a key without one can have at `now`, in nanoseconds: a free one, or one whose key owes nothing, but for
    /// those that are `taken`. `None` if there is none. Where the class of the key has `share` entries of a set already, only
    /// one of those can be had: so a flood of keys of one row leaves room for the others. Keys that are not `taken` may be moved
    /// for it.
    pub(super) fn vacancy(
        &self,
        area: Area,
        key: Key,
        now: u64,
        share: usize,
        taken: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let sets = [self.layout.first_set(area, key), self.layout.second_set(area, key)];
        let vacancy =
            sets.into_iter().find_map(|set| self.vacancy_in(set, key, now, share, &taken));
        vacancy.or_else(|| self.make_room(area, sets, key, now, share, &taken))
    }

    fn vacancy_in(
        &self,
        set: usize,
        key: Key,
        now: u64,
        share: usize,
        taken: &impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let class = self.bound(set, key, share);
        let full = self.full[set].get();
        if now < full.until && (full.class.is_none() || full.class == class) {
            return None;
        }
        let entries = || self.open_to(set, key, class);
        let owes = |entry: Entry| match self.is_free(entry) {
            true => 0,
            false => self.owes(entry, now),
        };
        let is_free = |entry: &Entry| self.is_free(*entry) && !taken(*entry);
        let is_idle = |entry: &Entry| owes(*entry) == 0 && !taken(*entry);
        let found = entries().find(is_free).or_else(|| entries().find(is_idle));
        if found.is_none() {
            let rest = entries().map(owes).min().unwrap_or_default();
            self.full[set].set(Full { class, until: now.saturating_add(rest) });
        }
        found
    }

    fn is_free(&self, entry: Entry) -> bool {
        self.tags[entry.set()][entry.way()].get() == 0
    }

    /// Moves a key that owes from one of these sets to the other one that it may be in. Returns the entry that it had; `None` if
    /// no key can be moved.
    #[cold]
    fn make_room(
        &self,
        area: Area,
        sets: [usize; 2],
        key: Key,
        now: u64,
        share: usize,
        taken: &impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let moves_from = &self.moves_from[area as usize];
        if now < moves_from.get() {
            return None;
        }
        let open = |set| self.open_to(set, key, self.bound(set, key, share));
        let entries = sets.into_iter().flat_map(open);
        let moved = entries.filter(|entry| !taken(*entry)).find_map(|from| {
            let key = self.key(from);
            let other = match self.layout.first_set(area, key) {
                first if first == from.set() => self.layout.second_set(area, key),
                first => first,
            };
            // Its class has no more of that set then than it has of this one: so no set gets more than a share.
            let share = self.entries_of(from.set(), key.class()).count();
            Some((from, self.vacancy_in(other, key, now, share, taken)?))
        });
        let Some((from, to)) = moved else {
            moves_from.set(now.saturating_add(REST));
            return None;
        };
        self.write_entry(
            to,
            self.key(from),
            self.word(from).get(),
            self.measure(from),
            self.loaded(from),
        );
        self.free(from);
        Some(from)
    }

    /// The class of a key, where that has its `share` of a set: the key can have an entry of its class alone.
    fn bound(&self, set: usize, key: Key, share: usize) -> Option<u16> {
        (self.entries_of(set, key.class()).count() >= share).then(|| key.class())
    }

    /// The entries of a set that a key can have if they are free or idle, its home first: all of them, or those of the class that
    /// it is [bound](Self::bound) to.
    fn open_to(&self, set: usize, key: Key, bound: Option<u16>) -> impl Iterator<Item = Entry> {
        let entries = (0..WAYS).map(move |way| self.layout.entry(set, (key.home() + way) % WAYS));
        entries.filter(move |entry| bound.is_none_or(|class| self.is_of(*entry, class)))
    }

    /// The entries of a set that a class has.
    fn entries_of(&self, set: usize, class: u16) -> impl Iterator<Item = Entry> {
        let entries = (0..WAYS).map(move |way| self.layout.entry(set, way));
        entries.filter(move |entry| self.is_of(*entry, class))
    }

    fn is_of(&self, entry: Entry, class: u16) -> bool {
        let tag = self.tags[entry.set()][entry.way()].get();
        tag != 0 && tag >> 16 == u32::from(class)
    }

    /// Gives an entry to a key, with the state in which nothing is charged by this meter at `now`, in nanoseconds.
    pub(super) fn insert(&self, entry: Entry, key: Key, meter: &Meter, now: u64) {
        self.put(entry, &Stored::new(key, fresh(meter, now), meter.measure()));
    }

    /// Re-scales the state of an entry to a meter at `now`, in nanoseconds. State of another algorithm begins anew.
    #[inline]
    pub(super) fn carry(&self, entry: Entry, meter: &Meter, now: u64) {
        let (from, to) = (self.measure(entry), meter.measure());
        if from != to {
            self.carry_from(entry, meter, from, now);
        }
    }

    #[cold]
    fn carry_from(&self, entry: Entry, meter: &Meter, from: Measure, now: u64) {
        let is_same = from.kind() == meter.kind && from != Measure::default();
        let old = self.word(entry).get();
        let mut word = if is_same { meter.carry(old, from, now) } else { fresh(meter, now) };
        if is_same
            && meter.kind == Kind::Concurrent.number()
            && meter.concurrent().held(&self.slots(entry), now) > 0
        {
            // Its places are open for the new time, whenever the last one was taken.
            word = SlidingLog::begun_at(now);
        }
        self.lowered(entry);
        let other = self.state(entry).other();
        self.write(entry, other, word, meter.measure());
        self.store(entry, Field::SECOND, self.key(entry).second(other));
    }

    /// The shared states of these keys of rows, at most [`MOST_SHARED`] of them: those that they have, or others that nobody of
    /// these has.
    pub(super) fn claim_shared(&self, keys: &[Key]) -> Vec<Entry> {
        let mut claimed = vec![None; keys.len()];
        let mut others = Vec::new();
        for entry in self.layout.shared() {
            let key = self.key(entry);
            match keys.iter().position(|wanted| *wanted == key) {
                Some(at) if claimed[at].is_none() => claimed[at] = Some(entry),
                _ => others.push(entry),
            }
        }
        // Free ones are taken first, then those of rows that are gone.
        others.sort_by_key(|entry| !self.key(*entry).is_none());
        let mut others = others.into_iter();
        let claimed = claimed.into_iter().zip(keys).filter_map(|(own, key)| {
            own.or_else(|| {
                let entry = others.next()?;
                self.put(entry, &Stored::new(*key, 0, Measure::default()));
                Some(entry)
            })
        });
        claimed.collect()
    }

    /// Gives back the places with these tags of a key, or of one of these shared states, at `now` in nanoseconds. Returns how many
    /// of them were not given back before, or taken by others after their time.
    pub(super) fn release(
        &self,
        key: Key,
        mut shared: impl Iterator<Item = Entry>,
        tags: impl Iterator<Item = u32>,
        now: u64,
    ) -> u64 {
        let shared = || shared.find(|entry| self.key(*entry) == key);
        let Some(entry) = self.find(Area::Wide, key).or_else(shared) else { return 0 };
        let measure = self.measure(entry);
        if measure.kind() != Kind::Concurrent.number() {
            return 0;
        }
        let slots = self.slots(entry);
        let released = tags.filter(|tag| Concurrent::release(&slots, *tag)).count();
        if measure.concurrent().held(&slots, now) == 0 {
            // It owes nothing, so another key can have the entry.
            self.store(entry, self.state(entry), 0);
            self.lowered(entry);
        }
        released as u64
    }

    /// Notes that the key of an entry may owe less than before.
    pub(super) fn lowered(&self, entry: Entry) {
        if let Some(full) = self.full.get(entry.set()) {
            full.set(Full::default());
        }
    }

    /// Gives an entry to a key with this state.
    fn put(&self, entry: Entry, stored: &Stored) {
        let slots = stored.slots.iter().copied();
        self.write_entry(entry, stored.key, stored.word, stored.measure, slots);
    }

    /// Gives an entry to a key with this state; slots that are missing are 0. It is free meanwhile.
    fn write_entry(
        &self,
        entry: Entry,
        key: Key,
        word: u64,
        measure: Measure,
        slots: impl Iterator<Item = u64>,
    ) {
        self.free(entry);
        let places = self.layout.slots(entry).into_iter().flatten();
        for (place, slot) in places.zip(slots.chain(repeat(0))) {
            self.memory[place].store(slot, Ordering::Release);
        }
        let state = Field::STATES[0];
        self.write(entry, state, word, measure);
        self.store(entry, Field::SECOND, key.second(state));
        self.store(entry, Field::FIRST, key.first());
        self.index(entry, key);
    }

    /// Takes an entry from its key, if it has one.
    fn free(&self, entry: Entry) {
        if let Some(tags) = self.tags.get(entry.set())
            && tags[entry.way()].replace(0) != 0
        {
            self.keys.update(|keys| keys - 1);
            let first = self.layout.first_set(self.layout.area(entry), self.key(entry));
            if first != entry.set() {
                self.away[first].update(|away| away.saturating_sub(1));
            }
        }
        self.lowered(entry);
        self.store(entry, Field::FIRST, 0);
    }

    /// Has a key found in its entry. A shared state is found by its row.
    fn index(&self, entry: Entry, key: Key) {
        let Some(tags) = self.tags.get(entry.set()) else { return };
        tags[entry.way()].set(key.tag());
        self.keys.update(|keys| keys + 1);
        let first = self.layout.first_set(self.layout.area(entry), key);
        if first != entry.set() {
            self.away[first].update(|away| away + 1);
        }
    }

    /// Makes the state that another process left fit for use: computes the tags, completes logs, and frees entries that no
    /// process can have left.
    fn recover(&self) {
        for entry in self.layout.entries().filter(|entry| !self.key(*entry).is_none()) {
            if self.is_sound(entry) {
                self.complete(entry);
                self.index(entry, self.key(entry));
            } else {
                self.store(entry, Field::FIRST, 0);
            }
        }
    }

    /// Takes over what was [owed](Entries::owing) at `now`, in nanoseconds, in a table of another size.
    fn adopt(&mut self, before: &Owing, now: u64) {
        for (entry, stored) in self.layout.shared().zip(&before.shared) {
            self.put(entry, stored);
        }
        let (mut kept, mut lost) = (0, 0);
        for stored in &before.keys {
            let area = if stored.slots.is_empty() { Area::Keys } else { Area::Wide };
            match self.vacancy(area, stored.key, now, WAYS, |_| false) {
                Some(entry) => {
                    self.put(entry, stored);
                    kept += 1;
                }
                None => {
                    lost += 1;
                    // The clock stands still here. A table that is much smaller is not searched for each key.
                    if lost < self.tags.len() {
                        self.moves_from = Default::default();
                    }
                }
            }
        }
        self.began = Began::Resized { kept, lost };
    }

    fn write(&self, entry: Entry, state: Field, word: u64, measure: Measure) {
        self.store(entry, state, word);
        self.store(entry, state.next(), measure.scale);
        self.store(entry, state.next().next(), measure.span);
    }

    fn store(&self, entry: Entry, field: Field, word: u64) {
        self.memory[self.layout.place(entry, field)].store(word, Ordering::Release);
    }
}

impl Entries {
    /// What owes something at `now`, in nanoseconds.
    fn owing(&self, now: u64) -> Owing {
        let mut owing = Owing::default();
        for entry in self.layout.entries() {
            if self.key(entry).is_none() || !self.is_sound(entry) || self.owes(entry, now) == 0 {
                continue;
            }
            self.complete(entry);
            match self.layout.is_shared(entry) {
                true => owing.shared.push(self.stored(entry)),
                false => owing.keys.push(self.stored(entry)),
            }
        }
        owing
    }

    /// Whether a process can have left an entry that has a key.
    fn is_sound(&self, entry: Entry) -> bool {
        let kind = self.measure(entry).kind();
        let fits = |area| self.layout.area(entry) == area && self.is_in_place(entry);
        match Kind::of(kind) {
            other if other.number() != kind => false,
            _ if self.layout.is_shared(entry) => true,
            Kind::Bucket | Kind::Fixed | Kind::Sliding => fits(Area::Keys),
            Kind::SlidingLog | Kind::Concurrent => fits(Area::Wide),
        }
    }

    /// Whether a key is where it belongs: in its first set, or in its second one and not in its first one, too.
    fn is_in_place(&self, entry: Entry) -> bool {
        let (area, key) = (self.layout.area(entry), self.key(entry));
        let first = self.layout.first_set(area, key);
        let is_in_first = || (0..WAYS).any(|way| self.key(self.layout.entry(first, way)) == key);
        entry.set() == first || entry.set() == self.layout.second_set(area, key) && !is_in_first()
    }

    /// Writes the events of a log that a process counted and did not write. Each place of open requests is whole.
    fn complete(&self, entry: Entry) {
        if self.measure(entry).kind() == Kind::SlidingLog.number() {
            let (slots, control) = (self.slots(entry), self.word(entry).get());
            for place in 0..SlidingLog::MOST {
                slots.store(place, SlidingLog::copied(&slots, control, control, place));
            }
        }
    }

    /// The word of an entry's state.
    #[inline]
    pub(super) fn word(&self, entry: Entry) -> StateWord<'_> {
        StateWord(&self.memory[self.layout.place(entry, self.state(entry))])
    }

    /// The slots of an entry that has some; of any other, none.
    #[inline]
    pub(super) fn slots(&self, entry: Entry) -> WideSlots<'_> {
        WideSlots(self.layout.slots(entry).map_or(&[], |slots| &self.memory[slots]))
    }

    /// Nanoseconds from `now` until an entry owes nothing.
    fn owes(&self, entry: Entry, now: u64) -> u64 {
        self.measure(entry).owes(self.word(entry).get(), now)
    }

    /// What the slots of an entry hold.
    fn loaded(&self, entry: Entry) -> impl Iterator<Item = u64> {
        self.slots(entry).0.iter().map(|slot| slot.load(Ordering::Relaxed))
    }

    /// What an entry holds.
    fn stored(&self, entry: Entry) -> Stored {
        let slots = self.loaded(entry).collect();
        let (word, measure) = (self.word(entry).get(), self.measure(entry));
        Stored { key: self.key(entry), word, measure, slots }
    }

    /// How many places each key of open requests has at `now`, in nanoseconds: its class, or its shared state, and the places.
    pub(super) fn places(&self, now: u64) -> impl Iterator<Item = (Open, u64)> {
        let entries = self.layout.with_slots();
        entries.filter_map(move |entry| {
            let (key, measure) = (self.key(entry), self.measure(entry));
            if key.is_none() || measure.kind() != Kind::Concurrent.number() {
                return None;
            }
            let of = match self.layout.is_shared(entry) {
                true => Open::Shared(entry),
                false => Open::Class(key.class()),
            };
            let is_idle = self.owes(entry, now) == 0;
            let held = if is_idle { 0 } else { measure.concurrent().held(&self.slots(entry), now) };
            (held > 0).then_some((of, held))
        })
    }

    /// The key of an entry.
    #[inline]
    pub(super) fn key(&self, entry: Entry) -> Key {
        Key::read([Field::FIRST, Field::SECOND].map(|field| self.load(entry, field)))
    }

    /// Which of its two states an entry has.
    #[inline]
    fn state(&self, entry: Entry) -> Field {
        Field::STATES[(self.load(entry, Field::SECOND) & 1) as usize]
    }

    /// What the state of an entry is measured in.
    #[inline]
    fn measure(&self, entry: Entry) -> Measure {
        let state = self.state(entry);
        let [scale, span] =
            [state.next(), state.next().next()].map(|field| self.load(entry, field));
        Measure { scale, span }
    }

    #[inline]
    fn load(&self, entry: Entry, field: Field) -> u64 {
        self.memory[self.layout.place(entry, field)].load(Ordering::Relaxed)
    }
}

impl Deref for Table {
    type Target = Entries;

    #[inline]
    fn deref(&self) -> &Entries {
        &self.entries
    }
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    key: Key,
    word: u64,
    measure: Measure,
    /// Those that are missing are 0.
    slots: Vec<u64>,
}

/// What owed something in a table of another size.
#[derive(Debug, Default)]
struct Owing {
    keys: Vec<Stored>,
    /// The shared states of rows.
    shared: Vec<Stored>,
}

impl Stored {
    /// A state without slots, or with empty ones.
    const fn new(key: Key, word: u64, measure: Measure) -> Self {
        Self { key, word, measure, slots: Vec::new() }
    }
}

/// The word of a state in which nothing is charged at `now`, in nanoseconds.
fn fresh(meter: &Meter, now: u64) -> u64 {
    if meter.is_wide() { 0 } else { meter.fresh(now) }
}

/// The ways with this tag, as a set of bits.
#[inline]
fn same(tags: &[Cell<u32>; WAYS], tag: u32) -> u32 {
    tags.iter().enumerate().fold(0, |ways, (way, own)| ways | u32::from(own.get() == tag) << way)
}

#[cfg(test)]
mod tests;
