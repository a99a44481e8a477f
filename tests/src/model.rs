//! Exact token buckets, to compare the ones in `limiter-common` with.
//!
//! They share no arithmetic with those: a bucket is a level that time fills and packets empty, kept
//! as a whole number of fractions of a token, so nothing is ever rounded. They are slow, in `i128`,
//! and know one thing of the buckets they stand beside: from which debt on a bucket gives up its
//! history, because the clock must have gone back.

/// Packets leave a debt of less than a token. One that takes this many nanoseconds longer to refill
/// than a token is the mark of a clock that went back.
pub const LOST: u64 = 1_000_000_000;

/// A token bucket. A token is `period` fractions, and each nanosecond adds `packets` of them.
///
/// Any fraction of a token is enough for a packet, which takes a whole one: what was missing is a
/// debt, a level below 0, and is refilled first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    packets: i128,
    period: i128,
    capacity: i128,
    level: i128,
    at: u64,
}

/// What a bucket says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is a token for it, or part of one.
    Admit,
    /// There is nothing.
    Refuse,
    /// The bucket is filled from a time that the clock went far back from.
    Lose,
}

impl Bucket {
    /// A full bucket of `burst` tokens at `now` that `packets` tokens are added to every `period`
    /// nanoseconds.
    #[must_use]
    pub fn new(packets: i128, period: i128, burst: u64, now: u64) -> Self {
        let capacity = period * i128::from(burst);
        Self { packets, period, capacity, level: capacity, at: now }
    }

    /// The level at `now`. A time before the last packet has none of what was filled in between, so
    /// going back and forth fills nothing twice.
    fn level_at(&self, now: u64) -> i128 {
        let passed = i128::from(now) - i128::from(self.at);
        (self.level + passed * self.packets).min(self.capacity)
    }

    /// What it says of a packet at `now`; nothing is charged.
    #[must_use]
    pub fn look(&self, now: u64) -> Verdict {
        let level = self.level_at(now);
        if level > 0 {
            Verdict::Admit
        } else if -level > self.capacity + i128::from(LOST) * self.packets {
            Verdict::Lose
        } else {
            Verdict::Refuse
        }
    }

    /// Takes a token at `now`, for a packet that [`look`](Self::look) admitted.
    pub fn charge(&mut self, now: u64) {
        if now >= self.at {
            self.level = self.level_at(now);
            self.at = now;
        }
        self.level -= self.period;
    }

    /// Forgets what it was and is empty at `now`.
    pub fn lose(&mut self, now: u64) {
        self.level = 0;
        self.at = now;
    }

    /// Decides about a packet at `now`, and charges it if it is admitted.
    pub fn admit(&mut self, now: u64) -> bool {
        let verdict = self.look(now);
        match verdict {
            Verdict::Admit => self.charge(now),
            Verdict::Lose => self.lose(now),
            Verdict::Refuse => {}
        }
        verdict == Verdict::Admit
    }
}

/// The buckets of one source, asked from the first to the last, and charged all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<const N: usize> {
    /// The buckets; `None` where there is no limit.
    pub buckets: [Option<Bucket>; N],
}

impl<const N: usize> Plan<N> {
    /// Decides about a packet at `now` that the limits in `applies` are about.
    ///
    /// # Errors
    /// The place of the first bucket that has nothing for it.
    pub fn admit(&mut self, applies: [bool; N], now: u64) -> Result<(), usize> {
        let applicable = |place: &usize| applies[*place];
        for place in (0..N).filter(applicable) {
            let Some(bucket) = &mut self.buckets[place] else { continue };
            match bucket.look(now) {
                Verdict::Admit => {}
                Verdict::Refuse => return Err(place),
                Verdict::Lose => {
                    bucket.lose(now);
                    return Err(place);
                }
            }
        }
        for place in (0..N).filter(applicable) {
            if let Some(bucket) = &mut self.buckets[place] {
                bucket.charge(now);
            }
        }
        Ok(())
    }
}
