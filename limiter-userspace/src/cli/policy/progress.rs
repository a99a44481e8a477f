//! What a command is at, for who waits for it.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// From which time on it is told how long a command took.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// The steps of a command, each in the place of the one before. They are on the standard error
/// output, if that is a terminal.
pub(super) struct Progress {
    begun: Instant,
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), shown: io::stderr().is_terminal() }
    }

    /// Says what is done next.
    pub(super) fn step(&self, what: &str) {
        if self.shown {
            let _: io::Result<()> = write!(io::stderr(), "\r\x1b[K{what} …");
        }
    }

    /// Says nothing more; gives the time that it took.
    pub(super) fn end(self) -> Duration {
        self.begun.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _: io::Result<()> = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// How long something took, if that is worth telling.
pub(super) fn took(time: Duration) -> String {
    if time < WORTH_TELLING {
        return String::new();
    }
    format!(" in {:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_timed() {
        assert_eq!(took(Duration::from_millis(999)), "");
        assert_eq!(took(Duration::from_millis(2_345)), " in 2.3 s");
    }
}
