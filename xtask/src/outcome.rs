//! Results of test suites, and how tests are built and run.

use crate::{
    child,
    libtest::{Counts, Run},
    step,
    toolchain::Toolchain,
    workspace::{HOST_CRATES, MESSAGES},
};
use anyhow::{Context as _, Result};
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// The result of a suite.
pub(crate) struct Outcome {
    pub(crate) suite: &'static str,
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    /// Lines to print behind the table.
    pub(crate) notes: Vec<String>,
    /// What failed, and the output of failed tests. It is printed last.
    pub(crate) failures: Vec<String>,
    /// The time of each test, if the harness printed it.
    pub(crate) times: Vec<(String, Duration)>,
}

impl Outcome {
    pub(crate) fn new(suite: &'static str, counts: Counts, start: Instant) -> Self {
        Self {
            suite,
            counts,
            took: start.elapsed(),
            notes: Vec::new(),
            failures: Vec::new(),
            times: Vec::new(),
        }
    }

    /// The result of a suite that failed before its tests ran.
    pub(crate) fn failure(suite: &'static str, start: Instant, error: &anyhow::Error) -> Self {
        let counts = Counts { failed: 1, ..Counts::default() };
        let failures = vec![format!("{suite}: {error:#}")];
        Self { failures, ..Self::new(suite, counts, start) }
    }
}

/// Builds all tests, and the `limiter` binary that they run.
pub(crate) fn build_tests(toolchain: &Toolchain) -> Result<()> {
    step::heading("build the tests");
    child::run(test(toolchain).arg("--no-run"))
}

/// The `cargo test` command for everything that [`build_tests`] builds.
pub(crate) fn test(toolchain: &Toolchain) -> Command {
    let mut cargo = toolchain.cargo();
    cargo.arg("test").args(HOST_CRATES).args(MESSAGES);
    cargo
}

/// The names of the tests in a listing of the test harness.
pub(crate) fn tests_in(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test"))
}

pub(crate) fn is_in(test: &str, module: &str) -> bool {
    test.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

/// Runs tests through cargo, passes their output on, and adds counts, notes and times to `outcome`.
pub(crate) fn run_tests(cargo: &mut Command, outcome: &mut Outcome) -> Result<()> {
    let shown = child::show(cargo);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let mut run = Run::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("cannot read what `{shown}` prints"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            run.read(&line);
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !status.success() && run.counts.failed == 0 {
        // The build failed, or a test ended the whole process before the summary.
        run.failures.push(format!("`{shown}` failed ({status})"));
        run.counts.failed += 1;
    }
    outcome.counts += run.counts;
    outcome.notes.extend(run.notes);
    outcome.failures.extend(run.failures);
    outcome.times.extend(run.times);
    Ok(())
}

/// Prints a table of the suites.
pub(crate) fn report(outcomes: &[Outcome]) {
    step::heading("what ran");
    println!("  {:<8}{:>8}{:>8}{:>8}{:>12}", "suite", "tests", "passed", "failed", "time");
    let mut took = Duration::ZERO;
    for Outcome { suite, counts, took: suite_took, .. } in outcomes {
        print_row(suite, *counts, *suite_took);
        took += *suite_took;
    }
    print_row("total", total(outcomes), took);
    println!();
    for note in outcomes.iter().flat_map(|outcome| &outcome.notes) {
        println!("{note}");
    }
}

/// Prints what failed and how many tests passed, behind all else that is to be printed. Returns the exit code.
pub(crate) fn conclude(outcomes: &[Outcome]) -> ExitCode {
    for line in outcomes.iter().flat_map(|outcome| &outcome.failures) {
        println!("{line}");
    }
    let total = total(outcomes);
    let empty: Vec<_> =
        outcomes.iter().filter(|it| it.counts.tests() == 0).map(|it| it.suite).collect();
    if total.ignored > 0 {
        println!("{} tests are marked #[ignore] and did not run", total.ignored);
    }
    for suite in &empty {
        println!("suite {suite} has no tests, which counts as a failure");
    }
    if outcomes.is_empty() {
        println!("no suite ran, which counts as a failure");
    }
    let failed = total.failed + empty.len() + usize::from(outcomes.is_empty());
    println!("{} passed, {failed} failed", total.passed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn total(outcomes: &[Outcome]) -> Counts {
    outcomes.iter().fold(Counts::default(), |mut total, outcome| {
        total += outcome.counts;
        total
    })
}

pub(crate) fn print_row(suite: &str, counts: Counts, took: Duration) {
    let Counts { passed, failed, .. } = counts;
    let (tests, took) = (counts.tests(), step::seconds(took));
    println!("  {suite:<8}{tests:>8}{passed:>8}{failed:>8}{took:>12}");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_suite_that_broke_tells_what_is_printed_last() {
        let error = anyhow::anyhow!("no emulator");
        let Outcome { counts, failures, .. } = Outcome::failure("6.1", Instant::now(), &error);
        assert_eq!((counts.failed, failures), (1, vec!["6.1: no emulator".to_owned()]));
    }

    #[test]
    fn a_run_that_fails_without_a_test_is_told() {
        let mut outcome = Outcome::new("unit", Counts::default(), Instant::now());
        run_tests(Command::new("sh").args(["-c", "exit 7"]), &mut outcome).unwrap();
        assert_eq!((outcome.counts.failed, outcome.failures.len()), (1, 1));
        assert!(outcome.failures[0].contains("exit 7"), "{:?}", outcome.failures);
    }

    #[test]
    fn a_listing_gives_the_names_of_tests_alone() {
        let listing = "cli::errors: test\nprog::speed: benchmark\n\n1 test, 1 benchmark\n";
        assert_eq!(tests_in(listing).collect::<Vec<_>>(), ["cli::errors"]);
    }

    #[test]
    fn a_test_belongs_to_the_module_it_starts_with() {
        assert!(is_in("prog::parser::vlan", "prog"));
        assert!(!is_in("programs::vlan", "prog"));
        assert!(!is_in("cli::prog::vlan", "prog"));
    }
}
