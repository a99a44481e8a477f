//! Samples of dropped packets: which ones the datapath shows to a reader, and what it shows of them.
//!
//! Nothing is shown until a reader asks for it, and only for as long as it goes on asking: [`Sampling::until`] is a time
//! that the reader moves on. A reader that was killed leaves a time that passes.

use crate::base::{
    address::{Address, Mask},
    word::Word,
};

/// What a reader wants to see of dropped packets. Nobody reads if all of it is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Until when there is a reader, in nanoseconds of the clock that packets go by; 0 if there is none.
    pub until: u64,
    /// The word of the [`Budget`].
    pub next: u64,
    /// How many samples there are.
    pub budget: Budget,
    /// Bit set of the reasons to show, at [`Reason::index`](crate::packet::reason::Reason::index).
    pub reasons: u64,
    /// Bit set of the slots of interfaces to show.
    pub slots: u64,
    /// Bit set of the tallies of limits to show, 64 in each word; all ones if the limit does not matter.
    pub tallies: [u64; 2],
    /// The prefix of the sources to show; [`Address::NONE`] if the source does not matter.
    pub source: Address,
    /// The bits of an address that are compared with that prefix.
    pub mask: Mask,
    /// The process that reads.
    pub process: u64,
}

/// How many samples there are, as a token bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Nanoseconds from one sample to the next, in the long run.
    pub interval: u64,
    /// Nanoseconds by which samples may come before that: those of a burst but one.
    pub depth: u64,
}

impl Budget {
    /// A budget of so many samples a second, from 1 to a billion, of which a tenth may come at once.
    pub fn per_second(samples: u32) -> Self {
        let samples = u64::from(samples).max(1);
        let interval = 1_000_000_000_u64.checked_div(samples).unwrap_or(0).max(1);
        Self { interval, depth: (samples / 10).saturating_sub(1) * interval }
    }

    /// Takes a sample out of the budget at `now`, in nanoseconds. Returns whether there was one. The word is the time at
    /// which the next sample is due. Of several CPUs that take one at the same moment, one gets it.
    #[inline(always)]
    pub fn spend(&self, word: &impl Word, now: u64) -> bool {
        let seen = word.load();
        // The time of a clock that went back is none.
        let due = if seen > now + self.depth + self.interval { now } else { seen };
        if due > now + self.depth {
            return false;
        }
        let due = if due < now { now } else { due };
        word.compare_exchange(seen, due + self.interval) == seen
    }
}

impl Sampling {
    /// The number that stands for no limit.
    pub const NO_LIMIT: u32 = u32::MAX;
    /// A set of [`tallies`](Self::tallies) for which the limit does not matter.
    pub const ANY_LIMIT: [u64; 2] = [u64::MAX; 2];

    /// Whether its reader may want to see a packet of this reason that came in by the interface of this slot.
    #[inline(always)]
    pub const fn may_want(&self, reason: u32, slot: u32) -> bool {
        self.reasons >> (reason & 63) & self.slots >> (slot & 63) & 1 != 0
    }

    /// Whether its reader wants to see a packet: by its reason, the slot of its interface, the tally of the limit that it is
    /// over or [`NO_LIMIT`](Self::NO_LIMIT), and its source.
    #[inline(always)]
    pub fn wants(&self, reason: u32, slot: u32, tally: u32, source: &Address) -> bool {
        let [low, high] = self.tallies;
        let of_limit = if tally < 64 {
            low >> tally & 1 != 0
        } else if tally < 128 {
            high >> (tally & 63) & 1 != 0
        } else {
            low & high == u64::MAX
        };
        let any_source = self.source.family == Address::NONE.family;
        self.may_want(reason, slot)
            && of_limit
            && (any_source || source.masked(&self.mask) == self.source)
    }
}

/// A dropped packet, or one that would have been dropped if it were not only monitored.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it came in, in nanoseconds of the clock that packets go by.
    pub time: u64,
    /// Bytes of the frame.
    pub bytes: u32,
    /// How many of them are in [`data`](Self::data).
    pub captured: u32,
    /// The reason that it was counted under, at its [`index`](crate::packet::reason::Reason::index). One that passes frames is
    /// that of a packet which would have been dropped.
    pub reason: u32,
    /// The slot of the tally of the limit that it was over, or [`Sampling::NO_LIMIT`].
    pub tally: u32,
    /// The slot of the interface that it came in by.
    pub slot: u32,
    /// 0.
    pub unused: u32,
    /// The first bytes of the frame. Those beyond [`captured`](Self::captured) have no meaning.
    pub data: [u8; SNAPPED],
}

/// The most bytes of a frame that are shown.
pub const SNAPPED: usize = 128;

const _: () = {
    assert!(size_of::<Sampling>() == 112 && size_of::<Sample>() == 160);
};

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn all() -> Sampling {
        Sampling {
            reasons: u64::MAX,
            slots: u64::MAX,
            tallies: Sampling::ANY_LIMIT,
            ..Sampling::default()
        }
    }

    #[test]
    fn a_budget_holds_over_any_time() {
        for rate in [1, 7, 10, 1_000, 10_000] {
            let budget = Budget::per_second(rate);
            let word = Cell::new(0);
            let count = |from: u64, seconds: u64| {
                // Many more packets than the budget has.
                let step = SECOND / (u64::from(rate) * 20);
                (0..seconds * SECOND / step)
                    .filter(|at| budget.spend(&word, from + at * step))
                    .count()
            };
            let (rate, burst) = (rate as usize, (rate as usize / 10).max(1));
            let shown = count(5 * SECOND, 3);
            // Steps of a twentieth of the interval lose up to as much of it.
            let least = 3 * rate * 20 / 21;
            assert!((least..=3 * rate + burst).contains(&shown), "{rate}: {shown}");
            // After a rest, no more than a burst comes at once.
            let at_once = (0..1_000).filter(|_| budget.spend(&word, 60 * SECOND)).count();
            assert_eq!(at_once, burst.min(1_000), "{rate}");
        }
    }

    #[test]
    fn a_clock_that_went_back_shows_something() {
        let (budget, word) = (Budget::per_second(1_000), Cell::new(0));
        assert!(budget.spend(&word, 1_000 * SECOND));
        assert!(budget.spend(&word, SECOND));
        assert!(budget.spend(&word, SECOND + SECOND / 1_000));
    }

    #[test]
    fn a_reader_chooses_by_reason_interface_limit_and_source() {
        let source = Address::v4([192, 0, 2, 1]);
        let six = Address::v6([0x2001, 2, 3, 4]);
        let none = Sampling::NO_LIMIT;
        let wants =
            |sampling: Sampling, reason, slot, tally| sampling.wants(reason, slot, tally, &source);
        let deny = Sampling { reasons: 1 << 9, ..all() };
        assert!(wants(deny, 9, 0, none) && !wants(deny, 8, 0, 3));
        let slot = Sampling { slots: 1 << 63, ..all() };
        assert!(wants(slot, 8, 63, 3) && !wants(slot, 8, 62, 3));
        let limit = Sampling { tallies: [1 << 3, 1 << 63], ..all() };
        assert!(wants(limit, 8, 0, 3) && wants(limit, 8, 0, 127));
        assert!(!wants(limit, 8, 0, 4) && !wants(limit, 8, 0, 126) && !wants(limit, 9, 0, none));
        let mask = Mask::new(24, 0);
        let prefix = Sampling { source: Address::v4([192, 0, 2, 0]), mask, ..all() };
        assert!(prefix.wants(8, 0, 3, &source));
        assert!(!prefix.wants(8, 0, 3, &Address::v4([192, 0, 3, 1])));
        assert!(!prefix.wants(8, 0, 3, &six));
        // All of IPv6, and nothing else.
        let family = Sampling { source: Address::v6([0; 4]), ..all() };
        assert!(family.wants(8, 0, 3, &six) && !family.wants(8, 0, 3, &source));
    }
}
