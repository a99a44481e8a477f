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
    /// How many packets may become samples.
    pub odds: Odds,
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
}

impl Budget {
    /// Nanoseconds whose samples may come at once.
    const BURST: u64 = 100_000_000;

    /// A budget of so many samples a second, from 1 to a billion, of which a tenth may come at once.
    pub fn per_second(samples: u32) -> Self {
        let interval = 1_000_000_000_u64.checked_div(samples.max(1).into()).unwrap_or(0).max(1);
        Self { interval }
    }

    /// Takes a sample out of the budget at `now`, in nanoseconds. Returns whether there was one. The word is the time at
    /// which the next sample is due. Of several CPUs that take one at the same moment, one gets it.
    #[inline(always)]
    pub fn spend(&self, word: &impl Word, now: u64) -> bool {
        let seen = word.load();
        let ahead = Self::BURST.saturating_sub(self.interval);
        // The time of a clock that went back is none.
        let due = if seen > now + ahead + self.interval { now } else { seen };
        if due > now + ahead {
            return false;
        }
        let due = if due < now { now } else { due };
        word.compare_exchange(seen, due + self.interval) == seen
    }
}

/// How many of the packets that are asked for may become samples, in parts of 2^32, drawn at random.
///
/// A budget alone shows who comes first after each of its samples: of senders in step that is always the same one. So the reader
/// has the odds [follow](Self::after) what it is shown, until the budget has some left, and then refuses nothing.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds(pub u64);

impl Odds {
    /// Each of them.
    pub const ALL: Self = Self(1 << 32);

    /// Whether a packet is among them, by a random number of its own.
    #[inline(always)]
    pub const fn win(self, random: u32) -> bool {
        (random as u64) < self.0
    }

    /// The odds after a time in which `shown` packets were shown, and of which the budget had `most`: those by which some three
    /// quarters would have been. At most twice as much as before, or 16 times where nothing was shown, and a quarter where the
    /// budget chose.
    #[must_use]
    pub fn after(self, shown: u64, most: u64) -> Self {
        let odds = u128::from(self.0);
        let next = if shown * 10 >= most * 9 {
            odds / 4
        } else {
            let most_more = if shown == 0 { 16 } else { 2 };
            (odds * u128::from(most) * 3 / (4 * u128::from(shown.max(1)))).min(odds * most_more)
        };
        Self(u64::try_from(next).unwrap_or(u64::MAX).clamp(1, Self::ALL.0))
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
            odds: Odds::ALL,
            reasons: u64::MAX,
            slots: u64::MAX,
            tallies: Sampling::ANY_LIMIT,
            ..Sampling::default()
        }
    }

    /// Two senders in step: one right after the other, and then a rest. Those who are shown are half of each.
    #[test]
    fn odds_show_senders_in_step_as_often_as_they_send() {
        let (budget, word, mut odds) = (Budget::per_second(1_000), Cell::new(0), Odds::ALL);
        let (mut shown, mut random) = ([0_u64; 2], 1_u64);
        for window in 0..200_u64 {
            let mut of_window = 0;
            // 16 samples of the budget, and 16 pairs each millisecond.
            for (at, sender) in (0..16 * 16).flat_map(|at| [(at, 0), (at, 1)]) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let now =
                    SECOND + (window * 16 + at / 16) * 1_000_000 + (at % 16) * 200 + sender * 100;
                if odds.win((random >> 32) as u32) && budget.spend(&word, now) {
                    of_window += 1;
                    shown[sender as usize] += 1;
                }
            }
            odds = odds.after(of_window, 16);
        }
        let [one, other] = shown;
        assert!(one + other > 200 * 16 / 2, "{shown:?}");
        assert!(one.abs_diff(other) < (one + other) / 8, "{shown:?}");
    }

    #[test]
    fn odds_follow_what_is_shown_and_stay_within_their_bounds() {
        assert_eq!(Odds::ALL.after(0, 16), Odds::ALL);
        assert_eq!(Odds::ALL.after(16, 16), Odds(1 << 30));
        assert_eq!(Odds(1_000).after(0, 16), Odds(12_000));
        assert_eq!(Odds(1_000).after(0, 64), Odds(16_000));
        assert_eq!(Odds(1_000).after(1, 16), Odds(2_000));
        assert_eq!(Odds(1_000).after(12, 16), Odds(1_000));
        assert_eq!(Odds(1_200).after(14, 16), Odds(1_028));
        assert_eq!(Odds(3).after(u64::MAX / 10, 16), Odds(1));
        assert!(Odds::ALL.win(u32::MAX) && !Odds(7).win(7) && Odds(7).win(6));
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
