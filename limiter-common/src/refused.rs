//! Sources that are over their limit, as a CPU remembers them for a while.
//!
//! An over-limit source conforms again at a time that its bucket tells. Until then, every CPU that
//! saw it refused can drop its packets without looking for its entry. Two things that happen to the
//! bucket meanwhile would make it conform earlier: what it was charged with is given back, because a
//! limit that is charged after it refuses the packet, and the clock goes back. Where the first can be, a
//! source is remembered for a [`MOMENT`](Refused::MOMENT); the second ends it.

use crate::{
    address::Address,
    alarm::Alarm,
    contract::Tally,
    gcra::{Gcra, Time},
};

/// A source that a limit refuses for a while.
///
/// It says nothing of packets that a narrower limit is about as well, so that a drop is always
/// counted under the limit that is asked first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The key of the source.
    pub source: Address,
    /// The epoch under which it was refused.
    pub epoch: u32,
    /// The slot of this limit's tally.
    pub tally: u32,
    /// Packets that are to be refused yet before an [alarm](crate::alarm) is trusted.
    pub distrust: u32,
    /// The limits of its profile, as bits.
    pub limits: u64,
    /// The bit of the one that refuses it, whatever the cost of a packet.
    pub bit: u64,
    /// When it was refused, in nanoseconds.
    pub since: u64,
    /// Until when it will be, in nanoseconds.
    pub until: u64,
    /// What was dropped on this account and is not in the totals of the source yet.
    pub dropped: Tally,
}

impl Refused {
    /// Sources that a CPU remembers.
    pub const SLOTS: u32 = 1 << Self::SLOT_BITS;
    const SLOT_BITS: u32 = 10;

    /// The longest time, in nanoseconds, for which a source is remembered.
    pub const LONGEST: u64 = 1_000_000_000;

    /// The same where the bucket may be given something back, or refusals have to be told one by one. For
    /// as long, no other source takes the place.
    pub const MOMENT: u64 = 100_000;

    /// So many packets of a source are refused before an [alarm](crate::alarm) is trusted, and the clock tells of one in
    /// so many after that: one that is late, or is lost, refuses fewer that would conform. A power of two.
    pub const TRUST: u32 = 64;
    /// More than a CPU can refuse in the [longest](Self::LONGEST) time.
    const NO_TRUST: u32 = u32::MAX;

    /// Packets after which the entry is told of those that were dropped; a power of two.
    pub const UNTOLD: u64 = 64;

    /// Where a source is remembered. Sources that share a place take turns in it.
    #[inline(always)]
    pub const fn slot(source: &Address) -> u32 {
        // Multiplicative hashing; the constants are odd and otherwise arbitrary (2^64 divided by the
        // golden ratio, and by the square root of 2).
        let [a, b, c, d] = source.words;
        let high = (a as u64 | (b as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let low = (c as u64 | (d as u64) << 32).wrapping_mul(0xb504_f333_f9de_6485);
        ((high ^ low) >> (u64::BITS - Self::SLOT_BITS)) as u32
    }

    /// Makes it hold from `now` (nanoseconds) on, for `wait` more nanoseconds. Where it has to end in time, no
    /// [alarm](crate::alarm) tells of it; nor of what no alarm is set for.
    #[inline(always)]
    pub const fn hold(&mut self, now: u64, wait: u64, in_time: bool) {
        let wait = if wait < Self::LONGEST { wait } else { Self::LONGEST };
        self.distrust = if in_time || wait < Alarm::LEAST { Self::NO_TRUST } else { Self::TRUST };
        self.since = now;
        self.until = now.saturating_add(wait);
    }

    /// Whether it is about this source.
    #[inline(always)]
    pub const fn is_of(&self, source: &Address) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.source.words, source.words);
        (self.source.family ^ source.family) | (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }

    /// Whether it is about a packet of its source, decided under this epoch, that these limits are
    /// applicable to.
    #[inline(always)]
    pub const fn concerns(&self, epoch: u32, applicable: u64) -> bool {
        self.epoch == epoch && self.is_first(self.limits & applicable)
    }

    /// Whether of these limits the one that refuses the source is asked first.
    #[inline(always)]
    const fn is_first(&self, limits: u64) -> bool {
        limits & self.bit != 0 && limits & (self.bit - 1) == 0
    }

    /// Whether it says that packets are refused: at a time that is up to [`Gcra::SLACK`] ticks old, and
    /// so long after it.
    #[inline(always)]
    pub const fn holds(&self, time: Time) -> bool {
        // A clock that went back may find that the state of the source was lost meanwhile.
        self.since <= time.now && time.now.saturating_add(time.tick * Gcra::SLACK) < self.until
    }

    /// Whether it holds for longer than a tick of so many nanoseconds can tell; otherwise it takes the clock.
    #[inline(always)]
    pub const fn outlasts(&self, tick: u64) -> bool {
        self.until.wrapping_sub(self.since) > tick * Gcra::SLACK
    }

    /// Whether an [alarm](crate::alarm) ever tells that it holds.
    #[inline(always)]
    pub const fn may_trust(&self) -> bool {
        self.distrust <= Self::TRUST
    }

    /// Whether an [alarm](crate::alarm) is trusted to tell that it holds.
    #[inline(always)]
    pub const fn trusts(&self) -> bool {
        self.distrust == 0 && self.dropped.packets & (Self::TRUST as u64 - 1) != 0
    }

    /// Counts a packet of so many bytes that is refused.
    #[inline(always)]
    pub const fn count(&mut self, bytes: u64) {
        self.dropped.packets += 1;
        self.dropped.bytes += bytes;
        self.distrust = self.distrust.saturating_sub(1);
    }

    /// Whether no other source takes the place at `now` (nanoseconds).
    #[inline(always)]
    pub const fn stays(&self, now: u64) -> bool {
        self.holds(Time::exact(now)) && now - self.since < Self::MOMENT
    }

    /// Whether it is time to tell the entry what was dropped.
    #[inline(always)]
    pub const fn is_due(&self) -> bool {
        self.dropped.packets & (Self::UNTOLD - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = Address::v4([203, 0, 113, 9]);
    const SOURCE: u64 = 4;
    const SYN: u64 = 2;
    const ALL: u64 = 8;

    #[test]
    fn sources_have_a_place_and_neighbours_have_another() {
        let slots: [u32; 256] =
            core::array::from_fn(|last| Refused::slot(&Address::v4([203, 0, 113, last as u8])));
        assert!(slots.iter().all(|slot| *slot < Refused::SLOTS));
        let shared = (1..slots.len()).filter(|at| slots[..*at].contains(&slots[*at])).count();
        assert!(shared < 40, "{shared} of 256 neighbours share a place");
        let words: [u32; 4] = [0x2001_0db8, 0, 0, 0];
        for word in 0..4 {
            let mut other = words;
            other[word] ^= 1 << 31;
            let [one, other] = [words, other].map(|words| Refused::slot(&Address::v6(words)));
            assert_ne!(one, other, "word {word} decides nothing");
        }
    }

    #[test]
    fn it_holds_from_the_refusal_until_the_bucket_admits_or_for_so_long_at_most() {
        let holds = |wait, after| {
            let (now, mut refused) = (5_000_000_u64, Refused::default());
            refused.hold(now, wait, false);
            refused.holds(Time::exact(now.wrapping_add_signed(after)))
        };
        assert!(holds(700, 0) && holds(700, 699));
        assert!(!holds(700, 700) && !holds(700, -1) && !holds(0, 0));
        let longest = Refused::LONGEST as i64;
        assert!(holds(u64::MAX, longest - 1) && !holds(u64::MAX, longest));
        assert!(!Refused::default().holds(Time::exact(0)), "nobody is refused at first");
    }

    #[test]
    fn an_old_time_tells_only_what_holds_for_all_that_it_may_be_behind() {
        let (now, tick) = (5_000_000_u64, 1_000_000);
        let mut refused = Refused::default();
        refused.hold(now, 100 * tick, false);
        for behind in 0..=Gcra::SLACK {
            for after in 0..120 * tick / 1_000 {
                let time = now + after * 1_000;
                let old = Time { now: time.saturating_sub(behind * tick), tick };
                let (told, holds) = (refused.holds(old), refused.holds(Time::exact(time)));
                assert!(!told || holds, "{behind} ticks behind, after {after} us");
            }
        }
        assert!(refused.outlasts(tick) && refused.outlasts(0));
        for wait in [1, Gcra::SLACK, Gcra::SLACK + 1] {
            let mut other = Refused::default();
            other.hold(now, wait * tick, false);
            assert_eq!(other.outlasts(tick), other.holds(Time { now, tick }), "{wait} ticks");
        }
        let most = |after| refused.holds(Time { now: now + after, tick });
        assert!(most(0) && most((100 - Gcra::SLACK) * tick - 1));
        assert!(!most((100 - Gcra::SLACK) * tick));
    }

    #[test]
    fn an_alarm_is_trusted_by_who_was_refused_often_and_no_more_than_so_often_in_a_row() {
        let mut refused = Refused::default();
        for _ in 0..2 {
            refused.hold(7, Alarm::LEAST, false);
            let trusts: [bool; 200] = core::array::from_fn(|_| {
                assert!(refused.may_trust());
                let trusts = refused.trusts();
                refused.count(60);
                trusts
            });
            assert!(!trusts[..Refused::TRUST as usize].contains(&true));
            let longest = trusts.split(|trusts| !trusts).map(<[bool]>::len).max();
            assert_eq!(longest, Some(Refused::TRUST as usize - 1));
        }
    }

    #[test]
    fn no_alarm_is_trusted_where_it_has_to_end_in_time_or_none_would_be_set() {
        for (wait, in_time) in
            [(u64::MAX, true), (Alarm::LEAST - 1, false), (Refused::MOMENT, true)]
        {
            let mut refused = Refused::default();
            refused.hold(7, wait, in_time);
            for _ in 0..1_000 {
                assert!(!refused.may_trust() && !refused.trusts(), "{wait} {in_time}");
                refused.count(60);
            }
        }
    }

    #[test]
    fn a_place_is_taken_after_a_moment() {
        let mut refused = Refused::default();
        refused.hold(7, u64::MAX, false);
        assert!(refused.stays(7) && refused.stays(6 + Refused::MOMENT));
        assert!(!refused.stays(7 + Refused::MOMENT) && !refused.stays(6));
        refused.hold(7, 10, false);
        assert!(refused.stays(16) && !refused.stays(17));
    }

    #[test]
    fn it_concerns_packets_that_no_narrower_limit_is_about() {
        let other = Address::v4([203, 0, 113, 8]);
        let limits = SOURCE | SYN | ALL;
        let refused = Refused { source: A, epoch: 7, limits, bit: SOURCE, ..Refused::default() };
        assert!(refused.concerns(7, SOURCE | 1), "it has no other narrower limit");
        assert!(refused.concerns(7, SOURCE | ALL), "a wider one is asked later");
        assert!(!refused.concerns(7, SOURCE | SYN), "syn is asked first");
        assert!(!refused.concerns(7, ALL), "another one");
        assert!(!refused.concerns(8, SOURCE), "another policy");
        assert!(!Refused::default().concerns(0, SOURCE));
        assert!(refused.is_of(&A) && !refused.is_of(&other));
        assert!(!refused.is_of(&Address { family: Address::IPV6, ..A }));
    }
}
