//! Exact models of the algorithms in `limiter-common`, to compare these with.
//!
//! They share no arithmetic with the algorithms: a bucket is a level, a queue its content, GCRA the time at
//! which the next cell is due, a window its counts, a log a list of times, and connections are a map. Levels
//! and times are `i128` multiples of a fraction, so nothing is rounded except the cost of a packet, to
//! [`Flow::grain`]. The models are slow. They copy one rule of the algorithms: a debt beyond a bound means
//! that the clock went back, and resets the state.

mod bucket;
mod cells;
mod connections;
mod log;
mod plan;
mod queue;
mod window;

pub use self::{
    bucket::Bucket,
    cells::Cells,
    connections::{Connections, Says},
    log::SlidingLog,
    plan::{Outcome, Plan},
    queue::Queue,
    window::Window,
};

/// Margin of that bound, in nanoseconds. A debt that exceeds the larger of the bucket and the most expensive
/// packet by what refills in this time means that the clock went back.
pub const LOST: u64 = 1_000_000_000;

/// Rate and cost in fractions, so that both are whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Fractions refilled in each nanosecond.
    pub per_nanosecond: i128,
    /// Fractions that a packet of cost 1 takes.
    pub per_cost: i128,
    /// The cost of a packet, and the depth of a bucket, are rounded down to a multiple of this many
    /// fractions.
    pub grain: i128,
}

impl Flow {
    /// A flow of `packets` (or cost units) per `period` nanoseconds, without rounding.
    #[must_use]
    pub fn exact(packets: i128, period: i128) -> Self {
        Self { per_nanosecond: packets, per_cost: period, grain: 1 }
    }

    /// Fractions that a packet of this cost takes.
    #[must_use]
    pub fn fractions(&self, cost: u64) -> i128 {
        let exact = self.per_cost * i128::from(cost);
        exact - exact.rem_euclid(self.grain)
    }

    /// Fractions refilled in so many nanoseconds.
    fn over(&self, nanoseconds: i128) -> i128 {
        nanoseconds * self.per_nanosecond
    }

    /// The debt, in fractions, beyond which the clock must have gone back. `room` is the depth in fractions,
    /// `dearest` the cost of the most expensive packet.
    fn lost(&self, room: i128, dearest: u64) -> i128 {
        room.max(self.fractions(dearest)) + self.over(LOST.into())
    }
}

/// Whether `left` is at most a fifth of `at_once`.
fn is_last_fifth<T: Into<i128>>(left: T, at_once: T) -> bool {
    left.into() * 5 <= at_once.into()
}

/// The answer of a limit for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet conforms.
    Admit,
    /// The packet exceeds the limit.
    Refuse,
    /// The state is from a time far ahead of now: the clock went back. The packet is refused and the state
    /// reset.
    Lose,
}

/// An exact model of one algorithm.
pub trait Exact {
    /// Decides about a packet of cost `cost` at `now` (nanoseconds), without charging it.
    #[must_use]
    fn look(&self, now: u64, cost: u64) -> Verdict;

    /// Charges a packet at `now` that [`look`](Self::look) admitted.
    fn charge(&mut self, now: u64, cost: u64);

    /// Whether the limit is near after a packet was [charged](Self::charge) at `now`: at most a fifth of the
    /// packets of cost 1 that it admits at once are left.
    #[must_use]
    fn is_near(&self, now: u64) -> bool;

    /// Resets the state at `now` to that of a limit with nothing left to give.
    fn lose(&mut self, now: u64);

    /// Decides about a packet at `now`, charges it if it is admitted, and resets the state if it was lost.
    fn take(&mut self, now: u64, cost: u64) -> bool {
        let verdict = self.look(now, cost);
        match verdict {
            Verdict::Admit => self.charge(now, cost),
            Verdict::Lose => self.lose(now),
            Verdict::Refuse => {}
        }
        verdict == Verdict::Admit
    }
}

/// A model of any algorithm except `concurrent`, which has [`Connections`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// A token bucket.
    Bucket(Bucket),
    /// A leaky bucket.
    Queue(Queue),
    /// GCRA.
    Cells(Cells),
    /// A fixed or a sliding window.
    Window(Window),
    /// A sliding log.
    SlidingLog(SlidingLog),
}

impl Exact for Model {
    fn look(&self, now: u64, cost: u64) -> Verdict {
        match self {
            Self::Bucket(it) => it.look(now, cost),
            Self::Queue(it) => it.look(now, cost),
            Self::Cells(it) => it.look(now, cost),
            Self::Window(it) => it.look(now, cost),
            Self::SlidingLog(it) => it.look(now, cost),
        }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        match self {
            Self::Bucket(it) => it.charge(now, cost),
            Self::Queue(it) => it.charge(now, cost),
            Self::Cells(it) => it.charge(now, cost),
            Self::Window(it) => it.charge(now, cost),
            Self::SlidingLog(it) => it.charge(now, cost),
        }
    }

    fn is_near(&self, now: u64) -> bool {
        match self {
            Self::Bucket(it) => it.is_near(now),
            Self::Queue(it) => it.is_near(now),
            Self::Cells(it) => it.is_near(now),
            Self::Window(it) => it.is_near(now),
            Self::SlidingLog(it) => it.is_near(now),
        }
    }

    fn lose(&mut self, now: u64) {
        match self {
            Self::Bucket(it) => it.lose(now),
            Self::Queue(it) => it.lose(now),
            Self::Cells(it) => it.lose(now),
            Self::Window(it) => it.lose(now),
            Self::SlidingLog(it) => it.lose(now),
        }
    }
}
