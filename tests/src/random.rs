//! Random test runs that can be repeated.

use std::{env, fmt, num::ParseIntError, thread};

/// The environment variable with the seed of random runs.
pub const SEED_VARIABLE: &str = "LIMITER_TEST_SEED";

/// Returns the seed of random runs: the value of [`SEED_VARIABLE`], else `default`.
///
/// # Errors
/// Fails if the variable is set and not a `u64`.
pub fn seed(default: u64) -> Result<u64, ParseIntError> {
    env::var(SEED_VARIABLE).map_or(Ok(default), |text| text.parse())
}

/// One random run. If it panics, dropping this prints the seed and number that repeat it.
pub struct Run<'a> {
    /// The seed of all runs.
    pub seed: u64,
    /// The number of this run.
    pub run: u64,
    /// The input of the run, printed with the seed.
    pub of: &'a dyn fmt::Debug,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{SEED_VARIABLE}={}, run {}: {:?}", self.seed, self.run, self.of);
        }
    }
}
