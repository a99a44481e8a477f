//! `cargo xtask test`: runs the suites and says what ran.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{
    capability, child, launch,
    libtest::{self, Counts},
    lint,
    privilege::Privilege,
    prometheus,
    setup::{self, Extent, Use},
    step,
    toolchain::Toolchain,
    vm::{self, kernel::Kernel},
    workspace::{self, HOST_CRATES, MESSAGES},
};

/// What `cargo xtask test` may be confined to.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Selection {
    /// Everything
    All,
    /// Formatting, clippy and documentation
    Lint,
    /// Unit and property tests, which need no privilege
    Unit,
    /// The BPF program run on packets in the kernel, without an interface
    Prog,
    /// Real traffic between network namespaces
    Netns,
    /// The command line
    Cli,
    /// The BPF program on other kernels, in an emulator
    Vm,
}

/// The suites of the test target `integration` of `limiter-tests`: a selection, the module that its
/// tests are in, and whether they run one after the other, because they time real traffic.
const PRIVILEGED: [(Selection, &str, bool); 3] = [
    (Selection::Prog, "prog", false),
    (Selection::Netns, "netns", true),
    (Selection::Cli, "cli", true),
];

/// The modules whose tests run with an object that has debug messages too.
const WITH_MESSAGES: [&str; 2] = ["prog::messages::", "prog::object::"];

/// The variable by which property tests choose their inputs, and what it is if it is not set: what
/// passes once passes again. `cargo test` has other inputs each time.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// What came of a suite.
pub(crate) struct Outcome {
    pub(crate) suite: &'static str,
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    /// What is to be said of it in the end, line by line.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    fn new(suite: &'static str, counts: Counts, start: Instant) -> Self {
        Self { suite, counts, took: start.elapsed(), notes: Vec::new() }
    }

    /// Of one that did not come to its tests.
    fn failure(suite: &'static str, start: Instant) -> Self {
        Self::new(suite, Counts { failed: 1, ..Counts::default() }, start)
    }
}

/// Sets up, runs the selected suites, prints what ran, and fails when anything failed or nothing ran.
pub(crate) fn run(selection: Selection) -> Result<ExitCode> {
    let selected = |suite| selection == Selection::All || selection == suite;
    let privileged: Vec<_> = PRIVILEGED.iter().filter(|(suite, ..)| selected(*suite)).collect();
    let mut uses = vec![Use::Build];
    if selected(Selection::Lint) {
        uses.push(Use::Lint);
    }
    if !privileged.is_empty() {
        uses.push(Use::Traffic);
    }
    if selected(Selection::Cli) {
        uses.push(Use::Monitoring);
    }
    if selected(Selection::Vm) {
        uses.push(Use::Kernels);
    }
    let toolchain = setup::setup(&uses, Extent::Install)?;
    let privilege = if privileged.is_empty() {
        None
    } else {
        let privilege = Privilege::get("the tests load BPF programs and make network namespaces")?;
        capability::require(privilege)?;
        Some(privilege)
    };

    let mut outcomes = Vec::new();
    if selected(Selection::Lint) {
        outcomes.push(run_lint(&toolchain)?);
    }
    if selected(Selection::Unit) {
        outcomes.push(run_unit(&toolchain)?);
    }
    if let Some(privilege) = privilege {
        let start = Instant::now();
        match run_privileged(privilege, &toolchain, &privileged) {
            Ok(suites) => outcomes.extend(suites),
            Err(error) => {
                println!("error: {error:#}");
                outcomes.push(Outcome::failure("build", start));
            }
        }
    }
    if selected(Selection::Vm) {
        let start = Instant::now();
        match vm::run_kernels(&Kernel::DEFAULT, &toolchain) {
            Ok(kernels) => outcomes.extend(kernels),
            Err(error) => {
                println!("error: {error:#}");
                outcomes.push(Outcome::failure("vm", start));
            }
        }
    }
    Ok(report(&outcomes))
}

fn run_lint(toolchain: &Toolchain) -> Result<Outcome> {
    let start = Instant::now();
    let (checks, failed) = lint::run(toolchain)?;
    let counts = Counts { passed: checks - failed, failed, ignored: 0 };
    Ok(Outcome::new("lint", counts, start))
}

fn run_unit(toolchain: &Toolchain) -> Result<Outcome> {
    step::heading("unit");
    let start = Instant::now();
    let mut counts = Counts::default();
    let targets: Vec<OsString> = ["--lib", "--bins"]
        .into_iter()
        .map(OsString::from)
        .chain(unprivileged_targets()?.into_iter().flat_map(|name| ["--test".into(), name]))
        .collect();
    for selection in [targets, vec![OsString::from("--doc")]] {
        let mut cargo = toolchain.cargo();
        cargo.args(["test", "--no-fail-fast"]).args(HOST_CRATES).args(selection);
        let (variable, seed) = SEED;
        if env::var_os(variable).is_none() {
            cargo.env(variable, seed);
        }
        counts += run_tests(&mut cargo, &mut Vec::new())?;
    }
    Ok(Outcome::new("unit", counts, start))
}

/// The test targets that need no privilege: what is in the `tests` folders of the crates, a file or
/// a folder for each, and the target `model` of the crate `tests`, which keeps the others elsewhere.
fn unprivileged_targets() -> Result<Vec<OsString>> {
    let mut names = vec![OsString::from("model")];
    for member in ["limiter-common", "limiter-userspace", "xtask"] {
        let folder = workspace::root().join(member).join("tests");
        if !folder.is_dir() {
            continue;
        }
        for entry in
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
        {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if let Some(name) = path.file_stem()
                && (path.extension() == Some("rs".as_ref()) || path.join("main.rs").is_file())
            {
                names.push(name.to_owned());
            }
        }
    }
    Ok(names)
}

fn run_privileged(
    privilege: Privilege,
    toolchain: &Toolchain,
    suites: &[&(Selection, &'static str, bool)],
) -> Result<Vec<Outcome>> {
    let integration = Integration::build(privilege, toolchain)?;
    let tests = integration.list()?;
    let mut outcomes = Vec::new();
    for (suite, module, serial) in suites {
        outcomes.push(integration.run(module, &tests, *serial)?);
        if *suite == Selection::Prog {
            outcomes.push(integration.run_with_messages()?);
        }
    }
    Ok(outcomes)
}

/// Builds the tests of the target `integration` and the `limiter` that they run, which is given.
pub(crate) fn build_integration(toolchain: &Toolchain) -> Result<PathBuf> {
    step::heading("build the tests of the BPF program");
    let mut cargo = toolchain.cargo();
    cargo.arg("build").args(HOST_CRATES);
    child::run(cargo.args(["--bin", "limiter", "--test", "integration"]))?;
    workspace::binary("limiter", false)
}

/// The test target that needs root's rights.
struct Integration<'a> {
    privilege: Privilege,
    toolchain: &'a Toolchain,
    limiter: String,
    prometheus: String,
}

impl<'a> Integration<'a> {
    /// Builds the tests and the `limiter` that they run, without root's rights.
    fn build(privilege: Privilege, toolchain: &'a Toolchain) -> Result<Self> {
        let text = |path: PathBuf| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("the path {} is not UTF-8", path.display()))
        };
        let limiter = text(build_integration(toolchain)?)?;
        Ok(Self { privilege, toolchain, limiter, prometheus: text(prometheus::folder())? })
    }

    fn cargo(&self, features: &[&str]) -> Command {
        let mut cargo = self.toolchain.cargo();
        cargo.arg("test").args(HOST_CRATES).args(features).args(["--test", "integration"]);
        let variables = [(launch::BINARY, &*self.limiter), (prometheus::FOLDER, &self.prometheus)];
        self.privilege.run_by_cargo(&mut cargo, &variables);
        cargo
    }

    /// The names of all tests; an error when some are in none of the modules, and so would never run.
    fn list(&self) -> Result<Vec<String>> {
        let mut list = self.cargo(&[]);
        list.args(["--quiet", "--", "--list", "--format=terse"]);
        let listing = child::query(&mut list).context("cannot list the privileged tests")?;
        let tests: Vec<String> = tests_in(&listing).map(str::to_owned).collect();
        let stray = |test: &&String| !PRIVILEGED.iter().any(|(_, module, _)| is_in(test, module));
        let strays: Vec<&str> = tests.iter().filter(stray).map(String::as_str).collect();
        if !strays.is_empty() {
            bail!("no suite runs these tests: {}", strays.join(", "));
        }
        Ok(tests)
    }

    fn run(&self, module: &'static str, tests: &[String], serial: bool) -> Result<Outcome> {
        step::heading(module);
        let start = Instant::now();
        let mut cargo = self.cargo(&[]);
        // Whole names: a plain filter also matches in the middle of a name.
        let mut names = tests.iter().filter(|test| is_in(test, module)).peekable();
        let mut notes = Vec::new();
        let counts = if names.peek().is_none() {
            Counts::default()
        } else {
            cargo.args(["--", "--exact", "--show-output"]).args(names);
            if serial {
                cargo.arg("--test-threads=1");
            }
            run_tests(&mut cargo, &mut notes)?
        };
        Ok(Outcome { notes, ..Outcome::new(module, counts, start) })
    }

    /// Runs what is to be said of the datapath with debug messages. All else is about the object that ships.
    fn run_with_messages(&self) -> Result<Outcome> {
        let suite = "messages";
        step::heading(suite);
        let start = Instant::now();
        let mut counts = Counts::default();
        for module in WITH_MESSAGES {
            let mut cargo = self.cargo(&MESSAGES);
            cargo.args(["--", module]);
            let ran = run_tests(&mut cargo, &mut Vec::new())?;
            if ran == Counts::default() {
                bail!("there are no tests {module}, which are to be run with debug messages");
            }
            counts += ran;
        }
        Ok(Outcome::new(suite, counts, start))
    }
}

/// The names in a listing of the test harness.
pub(crate) fn tests_in(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test"))
}

pub(crate) fn is_in(test: &str, module: &str) -> bool {
    test.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

/// Runs tests by cargo, with their output passed through, counts them, and keeps what is to be said
/// in the end.
fn run_tests(cargo: &mut Command, notes: &mut Vec<String>) -> Result<Counts> {
    let shown = child::show(cargo);
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let mut counts = Counts::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("cannot read what `{shown}` prints"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            if let Some(more) = Counts::parse(&line) {
                counts += more;
            } else if libtest::is_note(&line) {
                notes.push(line.into_owned());
            }
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
    if !status.success() && counts.failed == 0 {
        println!("`{shown}` failed ({status})");
        // It did not build, or a test took the whole process down before the summary.
        counts.failed = 1;
    }
    Ok(counts)
}

/// Prints what ran, and gives the exit code that it deserves.
pub(crate) fn report(outcomes: &[Outcome]) -> ExitCode {
    step::heading("what ran");
    println!("  {:<8}{:>8}{:>8}{:>8}{:>12}", "suite", "tests", "passed", "failed", "time");
    let mut total = Counts::default();
    let mut took = Duration::ZERO;
    let mut empty = Vec::new();
    for Outcome { suite, counts, took: suite_took, .. } in outcomes {
        print_row(suite, *counts, *suite_took);
        total += *counts;
        took += *suite_took;
        if counts.tests() == 0 {
            empty.push(*suite);
        }
    }
    print_row("total", total, took);
    println!();
    for note in outcomes.iter().flat_map(|outcome| &outcome.notes) {
        println!("{note}");
    }
    if total.ignored > 0 {
        println!("{} tests are marked #[ignore] and did not run", total.ignored);
    }
    for suite in &empty {
        println!("suite {suite} has no tests, which counts as a failure");
    }
    let failed = total.failed + empty.len();
    println!("{} passed, {failed} failed", total.passed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_row(suite: &str, counts: Counts, took: Duration) {
    let Counts { passed, failed, .. } = counts;
    let (tests, took) = (counts.tests(), step::seconds(took));
    println!("  {suite:<8}{tests:>8}{passed:>8}{failed:>8}{took:>12}");
}

#[cfg(test)]
mod tests {
    use super::*;

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
