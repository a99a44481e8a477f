//! Exact limits, to compare the ones in `limiter-common` with.
//!
//! They share no arithmetic with those: a bucket is a level that time fills and packets empty, a queue
//! is what is in it, cells have the time that the next one is due, windows are counted, a log is a list
//! and connections are a set. Levels and times are kept as whole numbers of fractions, so nothing is ever rounded but what is told to be: what a packet takes. They are slow, in
//! `i128`, and know one thing of the limits they stand beside: from which debt on one gives up its
//! history, because the clock must have gone back.

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

/// Packets leave a debt of what they cost at most. One that takes this many nanoseconds longer to
/// refill is the mark of a clock that went back.
pub const LOST: u64 = 1_000_000_000;

/// How fractions come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Fractions that come in each nanosecond.
    pub per_nanosecond: i128,
    /// Fractions that a packet of cost 1 takes.
    pub per_cost: i128,
    /// What a packet takes, and what there is room for, is rounded down to a multiple of this.
    pub grain: i128,
}

impl Flow {
    /// So many packets, or what they cost, per period of so many nanoseconds; nothing is rounded.
    #[must_use]
    pub fn exact(packets: i128, period: i128) -> Self {
        Self { per_nanosecond: packets, per_cost: period, grain: 1 }
    }

    /// What a packet of this cost takes.
    #[must_use]
    pub fn fractions(&self, cost: u64) -> i128 {
        let exact = self.per_cost * i128::from(cost);
        exact - exact.rem_euclid(self.grain)
    }

    /// What comes in so many nanoseconds.
    fn over(&self, nanoseconds: i128) -> i128 {
        nanoseconds * self.per_nanosecond
    }

    /// From which debt on a clock must have gone back, for packets that cost so much at most and a
    /// room of so many fractions.
    fn lost(&self, room: i128, dearest: u64) -> i128 {
        room.max(self.fractions(dearest)) + self.over(LOST.into())
    }
}

/// Whether so many packets are a fifth of those that pass at once, or less.
fn is_last_fifth<T: Into<i128>>(left: T, at_once: T) -> bool {
    left.into() * 5 <= at_once.into()
}

/// What a limit says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is room for it.
    Admit,
    /// There is none.
    Refuse,
    /// What there is comes from a time that the clock went far back from.
    Lose,
}

/// An exact limit.
pub trait Exact {
    /// What it says of a packet at `now`; nothing is charged.
    #[must_use]
    fn look(&self, now: u64, cost: u64) -> Verdict;

    /// Charges a packet at `now` that [`look`](Self::look) admitted.
    fn charge(&mut self, now: u64, cost: u64);

    /// Whether a packet that was just [charged](Self::charge) at `now` leaves at most a fifth of what the
    /// limit admits at once, in whole packets of cost 1 of which each would pass.
    #[must_use]
    fn is_near(&self, now: u64) -> bool;

    /// Forgets what it was and has nothing left at `now`.
    fn lose(&mut self, now: u64);

    /// Decides about a packet at `now`, and charges it if it is admitted.
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

/// Any of them.
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
