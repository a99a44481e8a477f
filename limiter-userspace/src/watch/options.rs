//! What a watch is asked for, and why it fails.

use crate::output::{number::duration, stream::OutputError};
use std::{io, time::Duration};
use thiserror::Error;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time between two readings, from [`Options::SHORTEST`] to [`Options::LONGEST`].
    pub interval: Duration,
    /// How many readings to show.
    pub count: Option<u64>,
    /// How long to watch after the first reading.
    pub length: Option<Duration>,
    /// Whether lines are wanted on a terminal too.
    pub lines: bool,
    /// Whether no key changes anything.
    pub read_only: bool,
}

impl Options {
    /// The shortest interval.
    pub const SHORTEST: Duration = Duration::from_millis(50);
    /// The longest interval.
    pub const LONGEST: Duration = Duration::from_hours(24);

    /// One line over one interval.
    pub const fn once(interval: Duration) -> Self {
        Self { interval, count: Some(1), length: None, lines: true, read_only: true }
    }

    pub(super) fn check(&self) -> Result<(), WatchError> {
        if (Self::SHORTEST..=Self::LONGEST).contains(&self.interval) {
            Ok(())
        } else {
            Err(WatchError::Interval(self.interval))
        }
    }
}

/// Why a watch failed, apart from its reader.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The interval is out of range.
    #[error(
        "the interval {} is out of range: give {} to {}",
        duration(*.0), duration(Options::SHORTEST), duration(Options::LONGEST)
    )]
    Interval(Duration),
    /// Standard output did not take a line.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The terminal failed.
    #[error("cannot draw on the terminal: {0}; pipe the output to get lines")]
    Terminal(io::Error),
    /// The system did not let it wait.
    #[error("cannot wait for the next reading: {0}")]
    Wait(io::Error),
}
