//! The places of a table, and who is in them.

use super::Leases;
use crate::slots::Slots;

/// Silences, in ticks.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// A time older than this is moved.
    pub(super) refresh: i64,
    /// A slot whose time is older than this is free.
    expire: i64,
}

impl Leases {
    /// A slot is the time in ticks, this bit, and the tag.
    pub(super) const CLOSES: u64 = 1 << 32;

    #[inline(always)]
    pub(super) const fn tick(now: u64) -> u32 {
        (now >> 24) as u32
    }

    #[inline(always)]
    pub(super) const fn slot(tag: u32, closes: bool, tick: u32) -> u64 {
        let closes = if closes { Self::CLOSES } else { 0 };
        (tag as u64) << 33 | closes | tick as u64
    }

    #[inline(always)]
    pub(super) const fn tag_of(slot: u64) -> u32 {
        (slot >> 33) as u32
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
        let age = Self::age(slot, tick);
        // The bit that says so becomes the distance of the half.
        let expire = (expire >> (slot >> 27 & 32)) as u32 as i64;
        // Negative when one of them is.
        let dead = (age + Self::TOLERANCE) | (expire - age) | (Self::tag_of(slot) as i64 - 1);
        !dead as u64 >> 63
    }

    /// When slots are free, of open connections in the lower half and of closing ones in the upper.
    #[inline(always)]
    pub(super) const fn expiry(&self) -> u64 {
        (self.times(true).expire as u64) << 32 | self.times(false).expire as u32 as u64
    }

    /// The place that a connection tries first, below the limit.
    #[inline(always)]
    const fn home(&self, tag: u32) -> usize {
        match (tag as u64).checked_rem(self.limit) {
            Some(home) => home as usize,
            None => 0,
        }
    }

    /// The connections that have a slot at `now` (nanoseconds).
    #[inline(always)]
    pub fn fill(&self, slots: &impl Table, now: u64) -> u64 {
        slots.open(self, Self::tick(now))
    }

    /// Nanoseconds from `now` until a place becomes free if all connections are silent, at most; 0
    /// when one is free.
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
        } else if slots.open(self, tick) < self.limit {
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
    /// The place of a connection at a tick; [`Leases::MOST`] when it has none.
    #[inline(always)]
    fn find(&self, leases: &Leases, tag: u32, tick: u32) -> usize {
        let (home, expire) = (leases.home(tag), leases.expiry());
        for near in 0..Leases::MOST {
            let place = (home + near) % Leases::MOST;
            let value = self.load(place);
            if Leases::tag_of(value) == tag && Leases::live(value, tick, expire) {
                return place;
            }
        }
        Leases::MOST
    }

    /// Another place of the connection that has this one; [`Leases::MOST`] when there is none.
    #[inline(always)]
    fn twin(&self, leases: &Leases, mine: usize, tag: u32, tick: u32) -> usize {
        let expire = leases.expiry();
        for near in 1..Leases::MOST {
            let place = (mine + near) % Leases::MOST;
            let value = self.load(place);
            if Leases::tag_of(value) == tag && Leases::live(value, tick, expire) {
                return place;
            }
        }
        Leases::MOST
    }

    /// The first free place below the limit, from the one on that the connection tries first;
    /// [`Leases::MOST`] when there is none.
    #[inline(always)]
    fn vacancy(&self, leases: &Leases, tag: u32, tick: u32) -> usize {
        let (home, expire) = (leases.home(tag), leases.expiry());
        let limit = leases.limit as usize;
        for near in 0..Leases::MOST {
            let place = home + near;
            let place = if place < limit { place } else { place.wrapping_sub(limit) };
            if near >= limit || place >= Leases::MOST {
                break;
            }
            let value = self.load(place);
            if !Leases::live(value, tick, expire) {
                return place;
            }
        }
        Leases::MOST
    }

    /// How many connections have a slot at this tick.
    #[inline(always)]
    fn open(&self, leases: &Leases, tick: u32) -> u64 {
        let expire = leases.expiry();
        let mut open = 0;
        for place in 0..Leases::MOST {
            open += Leases::lives(self.load(place), tick, expire);
        }
        open
    }
}
