//! Reads the output of Rust's test harness.

use std::{ops::AddAssign, time::Duration};

use crate::vm::effects;

/// Options that make the harness print the time of each test. The stable harness accepts them because
/// `.cargo/config.toml` sets `RUSTC_BOOTSTRAP`.
pub(crate) const REPORT_TIME: [&str; 2] = ["-Zunstable-options", "--report-time"];

/// The number of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Marked `#[ignore]` in the source.
    pub(crate) ignored: usize,
}

impl Counts {
    /// Reads a line like `test result: ok. 5 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out`;
    /// `None` for any other line.
    fn parse(line: &str) -> Option<Self> {
        let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for figure in figures.split(';') {
            let Some((number, name)) = figure.trim().split_once(' ') else { continue };
            let slot = match name {
                "passed" => &mut counts.passed,
                "failed" => &mut counts.failed,
                "ignored" => &mut counts.ignored,
                _ => continue,
            };
            *slot = number.parse().ok()?;
        }
        Some(counts)
    }

    /// The number of all tests.
    pub(crate) fn tests(self) -> usize {
        self.passed + self.failed + self.ignored
    }
}

/// Whether a line that a test printed is about the verification of the programs.
fn is_note(line: &str) -> bool {
    [" instructions verified, ", " bytes of stack: "].iter().any(|words| line.contains(words))
}

/// Parses a line like `test a::b ... ok <1.250s>` into the name of the test and its time.
fn time(line: &str) -> Option<(&str, Duration)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.split_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
    Some((name, Duration::try_from_secs_f64(seconds).ok()?))
}

/// The results of a run, read line by line.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) counts: Counts,
    /// Lines about the verification.
    pub(crate) notes: Vec<String>,
    /// Lines about what the functions of the programs do, as `prog::kernel` prints them.
    pub(crate) effects: Vec<String>,
    /// The output of failed tests.
    pub(crate) failures: Vec<String>,
    /// The time of each test, if the harness printed it.
    pub(crate) times: Vec<(String, Duration)>,
    /// Whether the next lines are output of failed tests.
    is_failure: bool,
}

impl Run {
    /// The most lines of failed tests that are kept.
    const FAILURES: usize = 200;

    /// Reads the next line of the output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(more) = Counts::parse(line) {
            self.counts += more;
            self.is_failure = false;
        } else if let Some((test, took)) = time(line) {
            self.times.push((test.to_owned(), took));
            if line.contains(" ... FAILED") {
                self.failures.push(line.to_owned());
            }
        } else if line == "failures:" {
            // The first such line is followed by the output of failed tests, the second by their names.
            self.is_failure = !self.is_failure;
        } else if line.starts_with(effects::START) {
            self.effects.push(line.to_owned());
        } else if self.is_failure && self.failures.len() < Self::FAILURES {
            self.failures.push(line.to_owned());
        } else if is_note(line) {
            self.notes.push(line.to_owned());
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 7 filtered out; \
                    finished in 0.53s";
        assert_eq!(Counts::parse(line), Some(Counts { passed: 12, failed: 3, ignored: 1 }));
    }

    #[test]
    fn other_lines_are_not_summaries() {
        for line in ["", "running 3 tests", "test a::b ... ok", "test result: ok", "test result: "]
        {
            assert_eq!(Counts::parse(line), None, "{line}");
        }
        assert_eq!(Counts::parse("test result: ok. many passed; 0 failed"), None);
    }

    #[test]
    fn the_time_of_a_test_is_read() {
        let took = |line| time(line);
        assert_eq!(took("test a::b ... ok <1.250s>"), Some(("a::b", Duration::from_millis(1_250))));
        assert_eq!(took("test a ... FAILED <0.000s>"), Some(("a", Duration::ZERO)));
        for line in ["test a::b ... ok", "test a ... ok <fast>", "test a ... ok <-1s>", "<1s>"] {
            assert_eq!(took(line), None, "{line}");
        }
    }

    #[test]
    fn what_failed_is_read_from_between_what_passed_and_the_names() {
        let output = "test b ... FAILED <0.100s>\nsuccesses:\n\n---- a stdout ----\nfine\n\nsuccesses:\n    a\n\nfailures:\n\n\
                      ---- b stdout ----\nbroken\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed";
        let mut run = Run::default();
        output.lines().for_each(|line| run.read(line));
        assert_eq!(
            run.failures,
            ["test b ... FAILED <0.100s>", "", "---- b stdout ----", "broken", ""]
        );
        assert_eq!(run.counts, Counts { passed: 1, failed: 1, ignored: 0 });
        run.read("failures:");
        (0..1_000).for_each(|_| run.read("broken"));
        assert_eq!(run.failures.len(), Run::FAILURES);
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Counts { passed: 1, failed: 2, ignored: 3 };
        sum += Counts { passed: 10, failed: 20, ignored: 30 };
        assert_eq!(sum, Counts { passed: 11, failed: 22, ignored: 33 });
        assert_eq!(sum.tests(), 66);
    }
}
