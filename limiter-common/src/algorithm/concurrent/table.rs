//! The places of a table, and who is in them.

use super::Concurrent;
use crate::base::slots::Slots;

/// Silences, in ticks.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// A time older than this is moved.
    pub(super) refresh: i64,
    /// A slot whose time is older than this is free.
    expire: i64,
}

impl Concurrent {
    /// A slot is the time in ticks, these two bits, and the tag. This one says that the connection said
    /// that it is done.
    pub(super) const CLOSES: u64 = 1 << 32;
    /// And this one that its socket was on this host at that time.
    pub(super) const HERE: u64 = 1 << 33;

    #[inline(always)]
    pub(super) const fn tick(now: u64) -> u32 {
        (now >> 24) as u32
    }

    #[inline(always)]
    pub(super) const fn slot(tag: u32, flags: u64, tick: u32) -> u64 {
        (tag as u64) << 34 | flags | tick as u64
    }

    /// Ticks since the time of a slot; negative when it is still to come.
    #[inline(always)]
    pub(super) const fn age(slot: u64, tick: u32) -> i64 {
        tick.wrapping_sub(slot as u32) as i32 as i64
    }

    #[inline(always)]
    pub(super) const fn times(&self, closes: bool) -> Times {
        let silence = if closes && self.idle > Self::CLOSING { Self::CLOSING } else { self.idle };
        let refresh = (silence >> 27) as i64;
        // The last packet may have come so long after the time of the slot, and both are cut to
        // ticks; then the silence itself, rounded up.
        let expire = (silence >> 24) as i64 + refresh + 2;
        Times { refresh, expire }
    }

    /// Whether a connection holds this slot. One from far ahead, before the clock went back, is held
    /// by none: nobody knows its age.
    #[inline(always)]
    pub(super) const fn live(slot: u64, tick: u32, expire: u64) -> bool {
        Self::dead(slot, tick, expire) >= 0
    }

    /// Negative if no connection holds the slot. It has no branch: the verifier follows each path through a loop that counts,
    /// and where there is one only it does not see how much was counted.
    #[inline(always)]
    const fn dead(slot: u64, tick: u32, expire: u64) -> i64 {
        // The bit that says that it closes becomes the distance of the half.
        let range = (expire >> (slot >> 27 & 32)) as u32;
        let since = tick.wrapping_add(Self::TOLERANCE).wrapping_sub(slot as u32);
        (range as i64 - since as i64) | ((slot >> 34) as i64 - 1)
    }

    /// The ticks from the latest time that a slot may have to the oldest one, where it may be so many ticks old: one distance
    /// tells both.
    #[inline(always)]
    const fn range(expire: i64) -> u64 {
        (expire + Self::TOLERANCE as i64) as u32 as u64
    }

    /// When slots count as free, of open connections in the lower half and of closing ones in the
    /// upper, each as a [range](Self::range).
    #[inline(always)]
    pub(super) const fn expiry(&self) -> u64 {
        Self::range(self.times(true).expire) << 32 | Self::range(self.times(false).expire)
    }

    /// When slots are free by silence alone, whatever a connection said, in both halves, as [`Table::held`] takes it.
    #[inline(always)]
    pub const fn silence(&self) -> u64 {
        let expire = Self::range(self.times(false).expire);
        expire << 32 | expire
    }

    /// Negative if the socket of the connection in this slot [is due](Self::is_due) to be looked up, without a branch.
    #[inline(always)]
    pub(super) const fn due(&self, slot: u64, tick: u32) -> i64 {
        let (age, least) = (Self::age(slot, tick), self.times(true).expire);
        // Where there was a socket, it is due at any age, unless a look-up has moved its time ahead.
        let is_here = !age & (slot << 30) as i64;
        let is_late = least - age;
        (is_late | is_here) & (slot << 31) as i64
    }

    /// The same as [`Table::room`], given the places that are [held](Table::held).
    #[inline(always)]
    pub const fn free(&self, [low, high]: [u64; 2], tag: u32) -> usize {
        if (low.count_ones() + high.count_ones()) as u64 >= self.limit {
            return Self::MOST;
        }
        let [below_low, below_high] = before(self.limit);
        first([!low & below_low, !high & below_high], self.home(tag))
    }

    /// What a connection is sought by at a tick, beyond its own [`home`](Self::home).
    #[inline(always)]
    const fn sought(&self, tag: u32, tick: u32) -> Sought {
        let (expire, range) = (self.times(false).expire as u32, self.silence() as u32);
        Sought {
            tag: tag as u64,
            oldest: (tick.wrapping_sub(expire) as u64) << 32,
            range: range as u64 + 1,
        }
    }

    /// The place that a connection tries first, below the limit.
    #[inline(always)]
    const fn home(&self, tag: u32) -> usize {
        match (tag as u64).checked_rem(self.limit) {
            Some(home) => home as usize,
            None => 0,
        }
    }

    /// The connections that have a slot at `now` (nanoseconds). One that is closing and silent for
    /// [`CLOSING`](Self::CLOSING) is not counted, though its socket may be there still.
    #[inline(always)]
    pub fn fill(&self, slots: &impl Table, now: u64) -> u64 {
        slots.open(self.expiry(), Self::tick(now))
    }

    /// The connections that may hold a slot at `now` (nanoseconds): those that are closing count as long as open ones, as their
    /// sockets may be there still.
    #[inline(always)]
    pub fn held(&self, slots: &impl Table, now: u64) -> u64 {
        slots.open(self.silence(), Self::tick(now))
    }

    /// Nanoseconds from `now` until fewer connections than the limit are open if all are silent, at most, and no
    /// socket holds a place; 0 when fewer are. More than the limit are open where it was lowered.
    ///
    /// Connections that end make it shorter and packets make it longer, so this says nothing of when
    /// a packet conforms. `u64::MAX` when the limit is 0. Not for the packet path.
    #[inline(never)]
    pub fn wait(&self, slots: &impl Table, now: u64) -> u64 {
        let (ends, open) = self.ends(slots, Self::tick(now));
        match open.checked_sub(self.limit as usize).and_then(|last| ends.get(last)) {
            _ if self.limit == 0 => u64::MAX,
            None => 0,
            Some(end) => (end.unsigned_abs() << 24) - (now & 0xff_ffff),
        }
    }

    /// Nanoseconds from `now` until no connection has a place if all are silent, at most; 0 when none
    /// has. Not for the packet path.
    #[inline(never)]
    pub fn rest(&self, slots: &impl Table, now: u64) -> u64 {
        let (ends, open) = self.ends(slots, Self::tick(now));
        open.checked_sub(1).map_or(0, |last| (ends[last].unsigned_abs() << 24) - (now & 0xff_ffff))
    }

    /// Ticks until each slot that is held becomes free without another packet, at least 1, the first one first; and how many are
    /// held.
    fn ends(&self, slots: &impl Table, tick: u32) -> ([i64; Self::MOST], usize) {
        let (mut ends, mut open) = ([i64::MAX; Self::MOST], 0);
        for place in 0..Self::MOST {
            let slot = slots.load(place);
            if Self::live(slot, tick, self.expiry()) {
                ends[open] =
                    self.times(slot & Self::CLOSES != 0).expire - Self::age(slot, tick) + 1;
                open += 1;
            }
        }
        ends.sort_unstable();
        (ends, open)
    }
}

/// A connection, as slots are compared with it: with as few instructions as can be, as the verifier counts them for each slot.
#[derive(Clone, Copy)]
struct Sought {
    tag: u64,
    /// The oldest time of a slot that is not free by silence, in the upper half.
    oldest: u64,
    /// Ticks from that to beyond the latest time.
    range: u64,
}

impl Sought {
    /// Negative if it holds the slot.
    #[inline(always)]
    const fn is(self, slot: u64) -> i64 {
        let (after, differs) =
            ((slot << 32).wrapping_sub(self.oldest) >> 32, slot >> 34 ^ self.tag);
        (after as i64 - self.range as i64) & (differs as i64 - 1)
    }
}

/// A bit for each place of a half of a table, the lowest one for its first place.
type Places = u64;

/// Places of a half.
const HALF: usize = Places::BITS as usize;

/// The places before one, in both halves, without a branch. One beyond the last is allowed.
#[inline(always)]
const fn before(place: u64) -> [Places; 2] {
    let some = (1 << (place % HALF as u64)) - 1;
    let [half, all] = [(place >> 6 & 1).wrapping_neg(), (place >> 7).wrapping_neg()];
    [some | half | all, some & half | all]
}

/// The first place of these from `start` on, in both halves; [`Concurrent::MOST`] when there is none.
#[inline(always)]
const fn first([low, high]: [Places; 2], start: usize) -> usize {
    let [before_low, before_high] = before(start as u64 % Concurrent::MOST as u64);
    let (from, places) = if low & !before_low != 0 {
        (0, low & !before_low)
    } else if high & !before_high != 0 {
        (HALF, high & !before_high)
    } else if low != 0 {
        (0, low)
    } else if high != 0 {
        (HALF, high)
    } else {
        return Concurrent::MOST;
    };
    // Its trailing zeros, which BPF has no instruction to count.
    from + ((places & places.wrapping_neg()) - 1).count_ones() as usize
}

/// Searches of a table. The first three go through its places, and the others call them. The kernel half has most of them
/// verified by themselves, and has loops begin at a place that the verifier does not know: it would follow each outcome on its
/// own otherwise.
pub trait Table: Slots {
    /// The first place from about `start` on, or from that on which it tries first, that the connection with this tag holds
    /// at a tick; [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn next(&self, leases: &Concurrent, start: Option<usize>, tag: u32, tick: u32) -> usize {
        let sought = leases.sought(tag, tick);
        let start = start.unwrap_or_else(|| leases.home(tag));
        // Two places a turn, with one branch: where the verifier learns something of each place, it follows each turn on its
        // own.
        for near in 0..HALF {
            let place = (start + 2 * near) & (Concurrent::MOST - 2);
            let [even, odd] = self.pair(place).map(|slot| sought.is(slot));
            if even | odd < 0 {
                return place + (!even as u64 >> 63) as usize;
            }
        }
        Concurrent::MOST
    }

    /// The places of a half that connections hold at a tick, when slots are free so: the times of open connections in the
    /// lower half and of closing ones in the upper.
    #[inline(always)]
    fn held(&self, half: usize, expire: u64, tick: u32) -> u64 {
        let mut dead: Places = 0;
        for place in 0..HALF {
            let slot = self.load_of(half, place);
            dead = dead >> 1 | Concurrent::dead(slot, tick, expire) as u64 & 1 << 63;
        }
        !dead
    }

    /// The places of a half whose connections [are due](Concurrent::is_due) to be looked up.
    #[inline(always)]
    fn due_of(&self, half: usize, leases: &Concurrent, now: u64) -> u64 {
        let (tick, mut due): (_, Places) = (Concurrent::tick(now), 0);
        for place in 0..HALF {
            let slot = self.load_of(half, place);
            due = due >> 1 | leases.due(slot, tick) as u64 & 1 << 63;
        }
        due
    }

    /// The slots at an even place and at the one after it.
    #[inline(always)]
    fn pair(&self, place: usize) -> [u64; 2] {
        [self.load(place), self.load(place + 1)]
    }

    /// The slot at a place of a half.
    #[inline(always)]
    fn load_of(&self, half: usize, place: usize) -> u64 {
        self.load(half * HALF + place)
    }

    /// Another place of the connection that has this one; [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn twin(&self, leases: &Concurrent, mine: usize, tag: u32, tick: u32) -> usize {
        let found = self.next(leases, Some((mine | 1) + 1), tag, tick);
        if found / 2 != mine / 2 {
            return found;
        }
        // The last of the pairs is its own one.
        let is_beside = leases.sought(tag, tick).is(self.load(mine ^ 1)) < 0;
        if is_beside { mine ^ 1 } else { Concurrent::MOST }
    }

    /// How many connections have a slot at this tick, when slots are free as [`held`](Self::held) says.
    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        let [low, high] = [0, 1].map(|half| self.held(half, expire, tick).count_ones());
        (low + high).into()
    }

    /// The first free place below the limit, from the one on that the connection tries first; [`Concurrent::MOST`] when as
    /// many connections have a slot as may, or when there is none.
    #[inline(always)]
    fn room(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        leases.free([0, 1].map(|half| self.held(half, leases.silence(), tick)), tag)
    }

    /// The first place from `start` on whose connection [is due](Concurrent::is_due) to be looked up;
    /// [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn due(&self, leases: &Concurrent, now: u64, start: usize) -> usize {
        first([0, 1].map(|half| self.due_of(half, leases, now)), start)
    }
}
