//! What each limit admitted and refused.

use limiter_common::{abi::policy::Settings, base::tally::add};

use crate::{kernel::maps::TALLIES, limits::inline};

/// What a packet was to a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Conform,
    Exceed,
    Monitored,
    /// One that it leaves [near](crate::limits::near).
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
