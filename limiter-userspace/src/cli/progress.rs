//! The progress of a command, on a terminal.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// The least time of a command that is reported.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// The steps of a command, on one line of standard error, if that is a terminal.
pub(super) struct Progress {
    begun: Instant,
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { begun: Instant::now(), shown: io::stderr().is_terminal() && !dumb }
    }

    /// A progress that shows this step from now on.
    pub(super) fn of(what: &str) -> Self {
        let progress = Self::new();
        progress.step(what);
        progress
    }

    /// Replaces the step that is shown.
    pub(super) fn step(&self, what: &str) {
        if self.shown {
            let _: io::Result<()> = write!(io::stderr(), "\r\x1b[K{what} ...");
        }
    }

    /// Clears the line. Returns the time since the beginning.
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

/// The words for the time of a command, from [`WORTH_TELLING`] on; else empty.
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
