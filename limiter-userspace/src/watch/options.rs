//! The options of a watch, and its errors.

use crate::{
    error::Failure,
    output::{number::duration, stream::OutputError},
};
use std::{io, time::Duration};
use thiserror::Error;

/// The options of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time between two readings, from [`Options::SHORTEST`] to [`Options::LONGEST`].
    pub interval: Duration,
    /// The number of readings to show; `None` for no end.
    pub count: Option<u64>,
    /// How long to watch after the first reading; `None` for no end.
    pub length: Option<Duration>,
    /// Whether to print lines, also on a terminal.
    pub lines: bool,
    /// Whether keys cannot change the policy.
    pub read_only: bool,
}

impl Options {
    /// The shortest interval.
    pub const SHORTEST: Duration = Duration::from_millis(50);
    /// The longest interval.
    pub const LONGEST: Duration = Duration::from_hours(24);

    /// The options for a single line, about one interval.
    pub const fn once(interval: Duration) -> Self {
        Self { interval, count: Some(1), length: None, lines: true, read_only: true }
    }

    /// Checks that the interval is in its range.
    ///
    /// # Errors
    /// [`WatchError::Interval`].
    pub fn check(&self) -> Result<(), WatchError> {
        if (Self::SHORTEST..=Self::LONGEST).contains(&self.interval) {
            Ok(())
        } else {
            Err(WatchError::Interval(self.interval))
        }
    }
}

/// An error of a watch that is not one of its data source.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The interval is out of range.
    #[error(
        "the interval {} is out of range: give {} to {}",
        duration(*.0), duration(Options::SHORTEST), duration(Options::LONGEST)
    )]
    Interval(Duration),
    /// A line cannot be written to standard output.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The terminal cannot be drawn on, or read from.
    #[error("cannot draw on the terminal: {0}; pipe the output to get lines")]
    Terminal(io::Error),
    /// The runtime or the signal handlers cannot be set up.
    #[error("cannot wait for the next reading: {0}")]
    Wait(io::Error),
}

impl Failure for WatchError {
    fn exit_code(&self) -> u8 {
        if matches!(self, Self::Interval(_)) { 2 } else { 1 }
    }
}
