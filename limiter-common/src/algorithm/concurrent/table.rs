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
        Self::lives(slot, tick, expire) != 0
    }

    /// 1 or 0, without a branch: the verifier follows each path through a loop that counts, and where
    /// there is one only it does not see how much was counted.
    #[inline(always)]
    const fn lives(slot: u64, tick: u32, expire: u64) -> u64 {
        !Self::dead(slot, tick, expire) as u64 >> 63
    }

    /// 1 or 0 as [`lives`](Self::lives), of the connection with this tag.
    #[inline(always)]
    const fn is_of(slot: u64, tag: u32, tick: u32, expire: u64) -> u64 {
        // Negative if the tag is another one.
        let other = -((Self::tag_of(slot) ^ tag) as i64);
        !(Self::dead(slot, tick, expire) | other) as u64 >> 63
    }

    /// Negative if no connection holds the slot.
    #[inline(always)]
    const fn dead(slot: u64, tick: u32, expire: u64) -> i64 {
        let age = Self::age(slot, tick);
        // The bit that says so becomes the distance of the half.
        let expire = (expire >> (slot >> 27 & 32)) as u32 as i64;
        // Negative when one of them is.
        (age + Self::TOLERANCE) | (expire - age) | (Self::tag_of(slot) as i64 - 1)
    }

    /// When slots count as free, of open connections in the lower half and of closing ones in the
    /// upper.
    #[inline(always)]
    pub(super) const fn expiry(&self) -> u64 {
        (self.times(true).expire as u64) << 32 | self.times(false).expire as u32 as u64
    }

    /// When slots are free by silence alone, whatever a connection said, as [`expiry`](Self::expiry)
    /// has it.
    #[inline(always)]
    pub(super) const fn silence(&self) -> u64 {
        let expire = self.times(false).expire as u32 as u64;
        expire << 32 | expire
    }

    /// 1 or 0, without a branch, as [`lives`](Self::lives).
    #[inline(always)]
    pub(super) const fn due(&self, slot: u64, tick: u32) -> u64 {
        // The age that is too young still: none where there was a socket, but one that a look-up has
        // moved ahead.
        let young = (-1_i32 as u32 as u64) << 32 | self.times(true).expire as u32 as u64;
        // The bit that says so becomes the distance of the half.
        let young = (young >> (slot >> 28 & 32)) as u32 as i32 as i64;
        // One sign says both: with a branch for each, the verifier follows each turn of a search three times.
        ((young - Self::age(slot, tick)) as u64 & slot << 31) >> 63
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

    /// Nanoseconds from `now` until a place becomes free if all connections are silent, at most, and no
    /// socket holds one; 0 when one is free.
    ///
    /// Connections that end make it shorter and packets make it longer, so this says nothing of when
    /// a packet conforms. `u64::MAX` when the limit is 0. Not for the packet path.
    #[inline(never)]
    pub fn wait(&self, slots: &impl Table, now: u64) -> u64 {
        let tick = Self::tick(now);
        let mut soonest = i64::MAX;
        for place in 0..Self::MOST {
            let slot = slots.load(place);
            if Self::live(slot, tick, self.expiry()) {
                let left = self.left(slot, tick);
                soonest = if left < soonest { left } else { soonest };
            }
        }
        if self.limit == 0 {
            u64::MAX
        } else if slots.open(self.expiry(), tick) < self.limit {
            0
        } else {
            (soonest.unsigned_abs() << 24) - (now & 0xff_ffff)
        }
    }

    /// Nanoseconds from `now` until no connection has a place if all are silent, at most; 0 when none
    /// has. Not for the packet path.
    #[inline(never)]
    pub fn rest(&self, slots: &impl Table, now: u64) -> u64 {
        let tick = Self::tick(now);
        let mut last = 0;
        for place in 0..Self::MOST {
            let slot = slots.load(place);
            if Self::live(slot, tick, self.expiry()) {
                let left = self.left(slot, tick);
                last = if left > last { left } else { last };
            }
        }
        (last.unsigned_abs() << 24).saturating_sub(now & 0xff_ffff)
    }

    /// Ticks until a slot that is held becomes free without another packet, at least 1.
    #[inline(always)]
    const fn left(&self, slot: u64, tick: u32) -> i64 {
        self.times(slot & Self::CLOSES != 0).expire - Self::age(slot, tick) + 1
    }
}

/// Searches of a table, which the kernel half has verified by themselves. Each begins at a place that
/// the verifier does not know: it would follow each outcome on its own otherwise.
pub trait Table: Slots {
    /// The place of a connection at a tick; [`Concurrent::MOST`] when it has none.
    #[inline(always)]
    fn find(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        let (home, expire) = (leases.home(tag), leases.silence());
        for near in 0..Concurrent::MOST {
            let place = (home + near) % Concurrent::MOST;
            if Concurrent::is_of(self.load(place), tag, tick, expire) != 0 {
                return place;
            }
        }
        Concurrent::MOST
    }

    /// Another place of the connection that has this one; [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn twin(&self, leases: &Concurrent, mine: usize, tag: u32, tick: u32) -> usize {
        let expire = leases.silence();
        for near in 1..Concurrent::MOST {
            let place = (mine + near) % Concurrent::MOST;
            if Concurrent::is_of(self.load(place), tag, tick, expire) != 0 {
                return place;
            }
        }
        Concurrent::MOST
    }

    /// The first free place below the limit, from the one on that the connection tries first;
    /// [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn vacancy(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        let (home, expire) = (leases.home(tag), leases.silence());
        // A mask keeps the place within the table, and one branch asks for both conditions: where the
        // verifier learns something of the limit in each turn, it follows each turn on its own.
        for near in 0..Concurrent::MOST {
            let place = (home + near) % Concurrent::MOST;
            let below = (place as u64).wrapping_sub(leases.limit) >> 63;
            if below > Concurrent::lives(self.load(place), tick, expire) {
                return place;
            }
        }
        Concurrent::MOST
    }

    /// The first place from `start` on whose connection [is due](Concurrent::is_due) to be looked up;
    /// [`Concurrent::MOST`] when there is none.
    #[inline(always)]
    fn due(&self, leases: &Concurrent, now: u64, start: usize) -> usize {
        let tick = Concurrent::tick(now);
        for near in 0..Concurrent::MOST {
            let place = start.wrapping_add(near) % Concurrent::MOST;
            if leases.due(self.load(place), tick) != 0 {
                return place;
            }
        }
        Concurrent::MOST
    }

    /// How many connections have a slot at this tick, when slots are free so: the times of open
    /// connections in the lower half and of closing ones in the upper.
    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        let mut open = 0;
        for place in 0..Concurrent::MOST {
            open += Concurrent::lives(self.load(place), tick, expire);
        }
        open
    }
}
