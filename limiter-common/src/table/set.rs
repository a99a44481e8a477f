//! The source table, and that of buckets by other keys: a set-associative table with tags says which entry is whose, and
//! who has to make room. ARCHITECTURE.md tells the rules in section 4; these are the reasons.
//!
//! A set says in one cache line whose its entries may be, by a byte of the hash, so that finding an entry, or that there is
//! none, takes no chain of pointers. An unknown source has such a byte once in 16 times; four more bits, in another line,
//! leave it to look at somebody else's entry for nothing once in 128. Nobody but the holder of a set's lock gives its
//! entries away.
//!
//! Room is made by those that lose nothing by it: an entry whose buckets are full again knows nothing that a new one does
//! not. One that owes is kept, whoever asks: a flood of made-up sources cannot wash a source's state out, nor a source its
//! own. Where all of a set owe, one that has sent a single packet is forgotten. Who makes addresses up gets that one packet
//! of each anyway; it can be had once more for about an eighth of a table's worth of them. For sources to share an overflow
//! entry, a flood has to send two packets from each address, and as many again whenever those are refilled.

use crate::{
    abi::table::{Set, WAYS},
    base::{address::Address, seed::Seed, word::Word},
    memory::cache::Cached,
    policy::limit::BucketKey,
};

/// Where the entry of a source is, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the set.
    pub set: u32,
    /// What the way of its entry is marked with; never 0, with which free ways are.
    pub tag: u8,
    /// The way that the source has if it may choose; below [`WAYS`].
    pub home: u8,
    /// What tells it from most others with the same tag; below 16. It is looked at where the source has not the
    /// way of its choice.
    pub tag_ext: u8,
    /// The slot of the source in the [cache](crate::memory::cache) of a CPU.
    pub slot: u16,
}

impl Place {
    /// The place of a source in a table of so many sets of sources.
    ///
    /// The words of the address are hashed by products of sums with secret terms (pair-multiply-shift,
    /// Thorup, "High Speed Hashing for Integers and Strings", 2015), which two addresses have in common
    /// under one seed of 2^31. Then they are mixed, which keeps apart what is apart, and leaves nothing of
    /// the order of neighbours. Who does not know the seed cannot choose sources that share a set. Nothing
    /// is cut to 32 bits on the way, as that takes a BPF machine two instructions each time.
    #[inline(always)]
    pub const fn of(source: &Address, seed: Seed, sets: u32) -> Self {
        let Address { family, words } = *source;
        let hash = Self::products(words, 0, family, seed.0);
        Self::at(mix(hash), 0, sets)
    }

    /// The place of a key in a table of so many sets of buckets, which are behind those of the sources.
    ///
    /// It is hashed like a source, one half after the other.
    #[inline(always)]
    pub const fn of_key(key: &BucketKey, seed: Seed, sources: u32, sets: u32) -> Self {
        let Seed([k, l, m, n]) = seed;
        let BucketKey { limit_id, protocol, source, destination, ports, whose } = *key;
        let first = Self::products(source, limit_id, ports, [k, l, m, n]);
        let second = Self::products(destination, whose, protocol, [l, m, n, k]);
        Self::at(mix(mix(first).wrapping_add(second)), sources, sets)
    }

    /// The sum of products that [`of`](Self::of) speaks of, of the words of an address and two more.
    #[inline(always)]
    const fn products([a, b, c, d]: [u32; 4], with: u32, and: u32, [k, l, m, n]: [u64; 4]) -> u64 {
        let [first, second] = [(with as u64) << 32 | a as u64, (and as u64) << 32 | b as u64];
        first
            .wrapping_add(k)
            .wrapping_mul(second.wrapping_add(l))
            .wrapping_add((c as u64).wrapping_add(m).wrapping_mul((d as u64).wrapping_add(n)))
    }

    /// The place that a hash tells among so many sets behind the `first` ones.
    #[inline(always)]
    const fn at(hash: u64, first: u32, sets: u32) -> Self {
        let set = first + ((hash >> 32).wrapping_mul(sets as u64) >> 32) as u32;
        let hash = hash ^ hash >> 32;
        let (tag, home) = (hash as u8, (hash >> 8) as u8 & (WAYS as u8 - 1));
        let tag_ext = (hash >> 12) as u8 & 0xf;
        let slot = (hash >> 16) as u16 & (Cached::SLOTS as u16 - 1);
        Self { set, tag: if tag == 0 { 1 } else { tag }, home, tag_ext, slot }
    }
}

/// Keeps apart what is apart, and leaves nothing of the order of neighbours.
#[inline(always)]
const fn mix(hash: u64) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// The tags of a set, as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags(pub [u64; WAYS / 8]);

impl Tags {
    const ONES: u64 = u64::MAX / 0xff;

    /// Whether one of them is this one; with 0, whether a way is free.
    ///
    /// A byte that is zero is one that a borrow goes through to its highest bit, which it does not have
    /// itself (Mycroft's test); whether there is one is told exactly.
    #[inline(always)]
    pub const fn have(self, tag: u8) -> bool {
        let [a, b] = self.like(tag);
        a | b != 0
    }

    /// The first way with this tag, and whether it is known to be the only one.
    ///
    /// The bit of that way alone, shifted to the lowest one of its byte, is multiplied by the number of each byte at the
    /// place that it moves to the highest one.
    #[inline(always)]
    pub const fn first(self, tag: u8) -> Option<(usize, bool)> {
        let [a, b] = self.like(tag);
        let (word, other, from) = if a != 0 { (a, b, 0) } else { (b, 0, WAYS / 2) };
        if word == 0 {
            return None;
        }
        let rest = word & (word - 1);
        let byte = ((word ^ rest) >> 7).wrapping_mul(0x0001_0203_0405_0607) >> 56;
        Some((from + byte as usize, rest | other == 0))
    }

    /// The highest bit of each byte that is this tag, the first way being the lowest one; above the lowest one that is,
    /// perhaps of some that are not.
    #[inline(always)]
    const fn like(self, tag: u8) -> [u64; WAYS / 8] {
        let all = Self::ONES * tag as u64;
        let Self([a, b]) = self;
        [Self::zero(u64::from_le(a) ^ all), Self::zero(u64::from_le(b) ^ all)]
    }

    #[inline(always)]
    const fn zero(word: u64) -> u64 {
        word.wrapping_sub(Self::ONES) & !word & Self::ONES << 7
    }
}

/// What is noted of an entry beside its tag, so that its own lines need not be read: the [mark](Place::tag_ext) of
/// its source, in the 4 highest bits, and until when it was found to owe, in units of 2^22 ns, rounded down, and
/// wrapping. One that was not asked for 6 days may be passed over for some seconds. One that owes for less than a
/// unit may be asked each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebtUntil(pub u32);

impl DebtUntil {
    /// Set while the entry owes for a single packet, or only to limits that are gone, or changed since.
    const SINGLE: u32 = 1;
    const TIME: u32 = 1;
    const TIMES: u32 = (1 << 27) - 1;
    const TAG_EXT: u32 = 28;
    const UNIT: u32 = 22;
    /// An entry is asked again after so many at the latest, 8.6 s: another policy may have come.
    const FARTHEST: u32 = 2_048;
    /// So many before now is the time of one that is not known to owe, also by clocks that are behind.
    const PAST: u32 = 64;

    /// That of an entry that owes until then, in nanoseconds.
    #[inline(always)]
    pub const fn until(time: u64, now: u64, single: bool) -> Self {
        let (until, now) = (time >> Self::UNIT, now >> Self::UNIT);
        let most = now + Self::FARTHEST as u64;
        let until = if until < most { until } else { most };
        Self((until as u32 & Self::TIMES) << Self::TIME | if single { Self::SINGLE } else { 0 })
    }

    /// That of an entry that is not known to owe, made at `now`, in nanoseconds.
    #[inline(always)]
    pub const fn past(now: u64) -> Self {
        let past = ((now >> Self::UNIT) as u32).wrapping_sub(Self::PAST);
        Self((past & Self::TIMES) << Self::TIME)
    }

    /// Whether it says that the entry still owes at `now`, in nanoseconds.
    #[inline(always)]
    pub const fn owes(self, now: u64) -> bool {
        let ahead = (self.0 >> Self::TIME).wrapping_sub((now >> Self::UNIT) as u32) & Self::TIMES;
        0 < ahead && ahead <= Self::FARTHEST
    }

    /// The same of an entry with this [mark](Place::tag_ext).
    #[inline(always)]
    #[must_use]
    pub const fn with_tag_ext(self, tag_ext: u8) -> Self {
        Self(self.0 & ((1 << Self::TAG_EXT) - 1) | (tag_ext as u32) << Self::TAG_EXT)
    }

    /// The [mark](Place::tag_ext) of its entry.
    #[inline(always)]
    pub const fn tag_ext(self) -> u8 {
        (self.0 >> Self::TAG_EXT) as u8
    }

    #[inline(always)]
    const fn is_single(self) -> bool {
        self.0 & Self::SINGLE != 0
    }
}

/// What became of an entry since it was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing, and it owes nothing.
    Idle,
    /// It was used, and owes nothing.
    Referenced,
    /// It owes until then, in nanoseconds, and whether for a single packet, or only to limits that are gone, or
    /// changed since.
    Owes(u64, bool),
}

/// The ways of a set whose lock is held.
pub trait Ways {
    /// The tag of a way; 0 when it is free.
    fn tag(&self, way: usize) -> u8;

    /// The debt of a way.
    fn debt(&self, way: usize) -> DebtUntil;

    /// Changes it.
    fn set_debt(&self, way: usize, debt: DebtUntil);

    /// What became of the entry of a way.
    fn eviction(&self, way: usize, now: u64) -> Eviction;
}

/// A way for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which; [`WAYS`] if there is none.
    pub way: usize,
    /// Whether its entry owes, as only one may that is forgotten.
    pub owes: bool,
}

impl Room {
    const fn at(way: usize) -> Self {
        Self { way, owes: false }
    }
}

/// The way that is to be given to a newcomer at `now`, in nanoseconds.
///
/// Entries are asked in turn, from the one that the newcomer would have if it could choose. One that was used since
/// it was asked last is passed over once.
#[inline(always)]
pub fn room<W: Ways>(ways: &W, place: Place, now: u64) -> Room {
    let home = place.home as usize;
    if ways.tag(home) == 0 {
        return Room::at(home);
    }
    for way in 0..WAYS {
        if ways.tag(way) == 0 {
            return Room::at(way);
        }
    }
    let mut used = false;
    for step in 0..2 * WAYS {
        // Who was not passed over need not be asked again.
        if step == WAYS && !used {
            break;
        }
        let way = (home + step) & (WAYS - 1);
        let debt = ways.debt(way);
        if debt.owes(now) {
            continue;
        }
        match ways.eviction(way, now) {
            Eviction::Idle => return Room::at(way),
            Eviction::Referenced => used = true,
            Eviction::Owes(until, single) => {
                let owes = DebtUntil::until(until, now, single);
                ways.set_debt(way, owes.with_tag_ext(debt.tag_ext()));
            }
        }
    }
    single(ways, home, now)
}

/// The way of an entry that owes, but may be forgotten.
#[inline(always)]
fn single<W: Ways>(ways: &W, home: usize, now: u64) -> Room {
    for step in 0..WAYS {
        let way = (home + step) & (WAYS - 1);
        let debt = ways.debt(way);
        if !debt.is_single() {
            continue;
        }
        match ways.eviction(way, now) {
            Eviction::Owes(until, false) => {
                let owes = DebtUntil::until(until, now, false);
                ways.set_debt(way, owes.with_tag_ext(debt.tag_ext()));
            }
            Eviction::Owes(_, true) => return Room { way, owes: true },
            Eviction::Referenced | Eviction::Idle => return Room::at(way),
        }
    }
    Room::at(WAYS)
}

/// If all ways of a set are noted to owe at `now`, in nanoseconds, whether one of them does for a single packet,
/// or only to limits that are gone, or changed since; otherwise `None`. What was noted of one may have changed:
/// it may have sent more, and the policy be another one.
#[inline(always)]
pub fn all_owe(debts: impl Iterator<Item = DebtUntil>, now: u64) -> Option<bool> {
    let mut single = false;
    for debt in debts {
        if !debt.owes(now) {
            return None;
        }
        single |= debt.is_single();
    }
    Some(single)
}

/// The same of a word that says by itself for how long it `owes`, in nanoseconds: it becomes another one, and what it
/// says then is of no use. `false` too if a packet charges it at this moment.
#[inline(always)]
pub fn retire_by<W: Word>(word: &W, may_owe: bool, owes: impl Fn(u64) -> u64) -> bool {
    let seen = word.load();
    (may_owe || owes(seen) == 0) && word.compare_exchange(seen, seen.wrapping_add(1)) == seen
}

impl Set {
    /// Sets for a table with room for so many entries.
    pub const fn count(entries: u32) -> u32 {
        entries.div_ceil(WAYS as u32)
    }
}
