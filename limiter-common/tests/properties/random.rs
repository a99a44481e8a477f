//! Random runs that repeat: where they start is fixed unless the environment says otherwise.

use std::env;

/// The environment variable that says where random runs start.
const SEED_VARIABLE: &str = "LIMITER_TEST_SEED";

/// A stream of random numbers (SplitMix64), that says how to repeat it when a test fails.
pub(crate) struct Random {
    seed: u64,
    run: u64,
    state: u64,
}

impl Random {
    /// The stream of one run.
    pub(crate) fn new(default: u64, run: u64) -> Self {
        let seed = env::var(SEED_VARIABLE).map_or(default, |text| text.parse().unwrap());
        Self { seed, run, state: seed ^ run.wrapping_mul(0xd6e8_feb8_6659_fd93) }
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `first` to `last`, each length of what is between as likely.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        let bits = self.below(65) as u32;
        let more = self.any().checked_shr(64 - bits).unwrap_or(0);
        first + if more <= last - first { more } else { self.below(last - first + 1) }
    }

    /// Whether something happens that does so once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{SEED_VARIABLE}={}, run {}", self.seed, self.run);
        }
    }
}
