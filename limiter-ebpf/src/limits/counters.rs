//! What each limit admitted and refused.

use limiter_common::{
    abi::policy::{Settings, half},
    base::tally::add,
    policy::limit::{KEYED, Limit},
};

use crate::{
    kernel::{
        maps::{LIMITS, TALLIES},
        scratch::PacketScratch,
    },
    limits::inline,
    policy::active::settings,
};

/// What a packet was to a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Conform,
    Exceed,
    Monitored,
    /// One that it leaves [near](limiter_common::algorithm::near).
    Near,
}

/// The same to all limits, as sets of them.
#[derive(Clone, Copy)]
pub(crate) struct Outcomes {
    /// Those that it was charged to.
    pub(crate) conform: u64,
    /// That which refused it.
    pub(crate) exceed: u64,
    /// Those that would have.
    pub(crate) monitored: u64,
}

impl Outcomes {
    /// Those of a packet that was admitted by all of these.
    #[inline(always)]
    pub(crate) const fn conform(limits: u64) -> Self {
        Self { conform: limits, exceed: 0, monitored: 0 }
    }

    /// All limits that it was something to.
    #[inline(always)]
    pub(crate) const fn all(&self) -> u64 {
        self.conform | self.exceed | self.monitored
    }

    /// What it was to one of them.
    #[inline(always)]
    pub(crate) const fn of(&self, bit: u64) -> Outcome {
        if self.exceed & bit != 0 {
            Outcome::Exceed
        } else if self.monitored & bit != 0 {
            Outcome::Monitored
        } else {
            Outcome::Conform
        }
    }
}

/// Counts a packet of so many bytes under a limit.
#[inline(always)]
pub(crate) fn count(tally: u32, outcome: Outcome, bytes: u64) {
    if let Some(limit) = TALLIES.get_ptr_mut(tally) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
        // end on a CPU before the next packet.
        let limit = unsafe { &mut *limit };
        let tally = match outcome {
            Outcome::Conform => &mut limit.conform,
            Outcome::Exceed => &mut limit.exceed,
            Outcome::Monitored => &mut limit.monitored,
            Outcome::Near => &mut limit.near,
        };
        add(tally, bytes);
    }
}

/// Counts a packet under the inline limits among these.
#[inline(always)]
pub(crate) fn count_inline(settings: &Settings, outcomes: &Outcomes, bytes: u64) {
    let count_one = #[inline(always)]
    |place: usize, bit: u64| {
        count(settings.tallies[place], outcomes.of(bit), bytes);
        true
    };
    inline::all(settings, outcomes.all(), count_one);
}

/// Counts a packet under the limits among these that have keys of their own, by the policy of an epoch; `of` tells what it was
/// to each, by its bit.
#[inline(always)]
fn count_each_keyed(epoch: u32, limits: u64, bytes: u64, of: impl Fn(u64) -> Outcome) {
    let mut left = limits;
    for _ in 0..KEYED {
        let bit = left & left.wrapping_neg();
        if bit == 0 {
            break;
        }
        left ^= bit;
        if let Some(limit) = LIMITS.get(half(epoch, Limit::row(bit))) {
            count(limit.tally, of(bit), bytes);
        }
    }
}

/// Counts the packet under the limits with keys of their own that admitted it, and those that refused it.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_keyed(epoch: u32, conform: u64, exceed: u64, monitored: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let outcomes = Outcomes { conform, exceed, monitored };
    count_each_keyed(epoch, outcomes.all(), scratch.bytes, |bit| outcomes.of(bit));
    0
}

/// Counts the packet under each of the limits in a set, all of which it leaves nearly used up. Packets that are far from that do
/// not come here.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_near(epoch: u32, limits: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let bytes = scratch.bytes;
    let count_one = #[inline(always)]
    |place: usize, _| {
        count(settings.tallies[place], Outcome::Near, bytes);
        true
    };
    inline::all(settings, limits & !settings.keyed, count_one);
    count_each_keyed(epoch, limits & settings.keyed, bytes, |_| Outcome::Near);
    0
}
