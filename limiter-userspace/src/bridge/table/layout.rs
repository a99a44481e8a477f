//! Where what lies in the memory of a table.
//!
//! In words of 64 bits: the header; the entries of keys whose state is a word, those of keys with slots beside it, and the
//! shared states of rows; then the slots of both.

use std::ops::Range;

use limiter_common::{abi::table::WAYS, algorithm::sliding_log::SlidingLog};

/// Words of the header: a page.
pub(super) const HEADER: usize = 512;
/// Words of an entry: a cache line.
const ENTRY: usize = 8;
/// For so many keys there is one with slots, which takes 17 times the room.
const KEYS_PER_WIDE: usize = 32;
/// Rows that can have a shared state.
pub(in crate::bridge) const MOST_SHARED: usize = 1_024;

/// Entries with one kind of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Area {
    /// The state is a word.
    Keys,
    /// The state is a log or places of open requests: a word, and slots.
    Wide,
}

/// The number of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bridge) struct Entry(u32);

impl Entry {
    /// The set that the entry belongs to, of all sets. A shared state is in none.
    pub(super) const fn set(self) -> usize {
        self.0 as usize / WAYS
    }

    pub(super) const fn way(self) -> usize {
        self.0 as usize % WAYS
    }
}

/// A word of an entry. The first two have the key. Then come two states, each with its word, and the two words of its
/// [`Measure`](limiter_common::algorithm::meter::Measure); the lowest bit of the key's second word tells which of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field(usize);

impl Field {
    /// The first word of the key; 0 in a free entry.
    pub(super) const FIRST: Self = Self(0);
    /// The second word of the key.
    pub(super) const SECOND: Self = Self(1);
    /// The words of both states.
    pub(super) const STATES: [Self; 2] = [Self(2), Self(5)];

    /// The field after this one.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The word of the other state.
    pub(super) fn other(self) -> Self {
        let [one, two] = Self::STATES;
        if self == one { two } else { one }
    }
}

/// A row and what a request has of its key, as 111 bits of a keyed hash and the [class](Self::class) of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::bridge) struct Key([u64; 2]);

impl Key {
    /// The key with this hash.
    pub(in crate::bridge) fn new([first, second]: [u64; 2]) -> Self {
        Self([first.max(1), second & !1])
    }

    /// The same key, of a row of this class.
    #[inline]
    pub(in crate::bridge) const fn of_class(self, class: u16) -> Self {
        let Self([first, second]) = self;
        Self([first, second & (u64::MAX >> 16) | (class as u64) << 48])
    }

    /// What tells the rows apart that the keys of a set are of: 16 bits of the hash of the row.
    pub(super) const fn class(self) -> u16 {
        (self.0[1] >> 48) as u16
    }

    /// The key in these two words of an entry.
    pub(super) const fn read([first, second]: [u64; 2]) -> Self {
        Self([first, second & !1])
    }

    /// Whether these are the words of a free entry.
    #[inline]
    pub(super) const fn is_none(self) -> bool {
        self.0[0] == 0
    }

    /// Both words of it.
    pub(in crate::bridge) const fn words(self) -> [u64; 2] {
        self.0
    }

    pub(super) const fn first(self) -> u64 {
        self.0[0]
    }

    /// The second word, where the state at this field holds.
    pub(super) fn second(self, state: Field) -> u64 {
        self.0[1] | u64::from(state == Field::STATES[1])
    }

    /// The way that the key has in its set where that is free.
    #[inline]
    pub(super) const fn home(self) -> usize {
        // Bits of the hash that neither the set nor the tag has.
        (self.0[0] >> 16) as usize % WAYS
    }

    /// What of the key is compared first; not 0. Its upper half is the class.
    #[inline]
    pub(super) fn tag(self) -> u32 {
        u32::from(self.class()) << 16 | (self.0[0] as u32 & 0xffff).max(1)
    }
}

/// How much there is of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    keys: usize,
    wide: usize,
}

impl Layout {
    /// The layout with room for so many keys.
    pub(super) fn new(keys: usize) -> Self {
        let keys = keys.clamp(1, super::Table::MOST_KEYS).next_multiple_of(WAYS);
        Self { keys, wide: (keys / KEYS_PER_WIDE).max(1).next_multiple_of(WAYS) }
    }

    /// The layout of these [`sizes`](Self::sizes); `None` if there is none.
    pub(super) fn of_sizes(sizes: [u64; 3]) -> Option<Self> {
        let layout = Self::new(usize::try_from(sizes[0]).ok()?);
        (layout.sizes() == sizes).then_some(layout)
    }

    /// What tells the layout from that of another size.
    pub(super) const fn sizes(&self) -> [u64; 3] {
        [self.keys as u64, self.wide as u64, MOST_SHARED as u64]
    }

    /// All words.
    pub(super) const fn words(&self) -> usize {
        self.slots_begin() + (self.wide + MOST_SHARED) * SlidingLog::MOST
    }

    /// The sets of both areas.
    pub(super) const fn sets(&self) -> usize {
        (self.keys + self.wide) / WAYS
    }

    /// All entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.all()).map(|number| Entry(number as u32))
    }

    /// The entries that have slots.
    pub(super) fn with_slots(&self) -> impl Iterator<Item = Entry> + use<> {
        (self.keys..self.all()).map(|number| Entry(number as u32))
    }

    /// The shared states.
    pub(super) fn shared(&self) -> impl Iterator<Item = Entry> {
        (self.keys + self.wide..self.all()).map(|number| Entry(number as u32))
    }

    pub(super) const fn is_shared(&self, entry: Entry) -> bool {
        entry.0 as usize >= self.keys + self.wide
    }

    /// The set of a key, unless that has no room.
    #[inline]
    pub(super) const fn first_set(&self, area: Area, key: Key) -> usize {
        // The upper half of the hash, as the lower one is the tag.
        self.set(area, key.0[0] >> 32)
    }

    /// The set of a key when its first one has no room. It may be the same.
    #[inline]
    pub(super) const fn second_set(&self, area: Area, key: Key) -> usize {
        // Bits between the class and the one that says which state holds.
        self.set(area, key.0[1] >> 16 & 0xffff_ffff)
    }

    /// The set of 32 bits of a hash.
    #[inline]
    const fn set(&self, area: Area, bits: u64) -> usize {
        let (first, entries) = match area {
            Area::Keys => (0, self.keys),
            Area::Wide => (self.keys, self.wide),
        };
        let share = bits * (entries / WAYS) as u64;
        first / WAYS + (share >> 32) as usize
    }

    /// The area of an entry.
    pub(super) const fn area(&self, entry: Entry) -> Area {
        if (entry.0 as usize) < self.keys { Area::Keys } else { Area::Wide }
    }

    /// An entry of a set.
    #[inline]
    pub(super) const fn entry(&self, set: usize, way: usize) -> Entry {
        Entry((set * WAYS + way) as u32)
    }

    /// The place of a word of an entry.
    #[inline]
    pub(super) const fn place(&self, entry: Entry, field: Field) -> usize {
        HEADER + entry.0 as usize * ENTRY + field.0
    }

    /// The places of the slots of an entry; `None` if its state is a word.
    pub(super) fn slots(&self, entry: Entry) -> Option<Range<usize>> {
        let number = (entry.0 as usize).checked_sub(self.keys)?;
        let begin = self.slots_begin() + number * SlidingLog::MOST;
        Some(begin..begin + SlidingLog::MOST)
    }

    const fn all(&self) -> usize {
        self.keys + self.wide + MOST_SHARED
    }

    const fn slots_begin(&self) -> usize {
        HEADER + self.all() * ENTRY
    }
}
