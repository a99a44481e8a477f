//! Random runs that say how to repeat them.

use std::{env, fmt, num::ParseIntError, thread};

/// The environment variable that says where random runs start.
pub const SEED_VARIABLE: &str = "LIMITER_TEST_SEED";

/// Where random runs start: at `default`, unless the environment variable says otherwise.
///
/// # Errors
/// The variable is no number.
pub fn seed(default: u64) -> Result<u64, ParseIntError> {
    env::var(SEED_VARIABLE).map_or(Ok(default), |text| text.parse())
}

/// One random run; says how to repeat it when anything in it fails.
pub struct Run<'a> {
    /// Where the runs start.
    pub seed: u64,
    /// The number of this one.
    pub run: u64,
    /// What it is about.
    pub of: &'a dyn fmt::Debug,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{SEED_VARIABLE}={}, run {}: {:?}", self.seed, self.run, self.of);
        }
    }
}
