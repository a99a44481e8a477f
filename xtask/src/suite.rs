//! `cargo xtask test`: runs the suites and says what ran.
//!
//! The tests are built first, once. Then the guests run beside the other suites, and the fuzz targets are built and
//! run, with less of the CPUs than those, as they time nothing.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs, io, iter,
    panic::resume_unwind,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{
    capability, child,
    fuzz::{self, Fuzzers},
    launch,
    libtest::{self, Counts},
    lint,
    outcome::{Outcome, build_tests, is_in, report, run_tests, test, tests_in},
    privilege::Privilege,
    prometheus, setup,
    step::{self, Extent, Use},
    toolchain::Toolchain,
    touched,
    vm::{Guests, kernel::Kernel},
    workspace,
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
    /// Readers of policies, set files, captures and frames on inputs that libFuzzer makes
    Fuzz,
    /// The BPF program on other kernels, in an emulator
    Vm,
}

/// How much of the suites runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What a change needs: of the tests that take long those that it touches, a quarter of the property tests' cases, of
    /// the model checker's orders those with one preemption, no guests and no fuzzers.
    Quick,
    /// Every test; a part of the random runs of `prog`.
    Usual,
    /// Every test, with all its random runs.
    Full,
}

impl Depth {
    /// By what the number of random runs of `prog` is divided.
    const fn divisor(self) -> u32 {
        match self {
            Self::Quick | Self::Usual => 8,
            Self::Full => 1,
        }
    }
}

/// A suite of the test target `integration` of `limiter-tests`.
struct Suite {
    selection: Selection,
    name: &'static str,
    /// Where its tests are. A test belongs to the first suite that has a module of it.
    modules: &'static [&'static str],
    /// How many run at once.
    threads: usize,
}

/// Tests of `prog` and `cli` wait for the kernel now and then: three keep two CPUs busy. Those of `floods` leave most of a
/// CPU to others, and take minutes. The other ones of `netns` time real traffic, or need all CPUs.
static PRIVILEGED: [Suite; 4] = [
    Suite { selection: Selection::Prog, name: "prog", modules: &["prog"], threads: 3 },
    Suite { selection: Selection::Cli, name: "cli", modules: &["cli"], threads: 3 },
    Suite {
        selection: Selection::Netns,
        name: "floods",
        modules: &["netns::lifetime", "netns::package", "netns::services::penalty"],
        threads: 2,
    },
    Suite { selection: Selection::Netns, name: "netns", modules: &["netns"], threads: 1 },
];

impl Suite {
    /// The suite of a test.
    fn of(test: &str) -> Option<&'static Self> {
        PRIVILEGED.iter().find(|suite| suite.modules.iter().any(|module| is_in(test, module)))
    }
}

/// The variable by which property tests choose their inputs, and what it is if it is not set: what
/// passes once passes again. `cargo test` has other inputs each time.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// The variable by which property tests have less than 256 cases each, and how many they have in a quick run.
const CASES: (&str, &str) = ("PROPTEST_CASES", "64");

/// The variable by which the model checker takes the processor from a thread less often than its tests say, and how often
/// it does in a quick run.
const PREEMPTIONS: (&str, &str) = ("LOOM_MAX_PREEMPTIONS", "1");

/// The variable by which `prog` does a part of its random runs.
const DIVISOR: &str = "LIMITER_TEST_DIVISOR";

/// How nice the guests and fuzzers are to the other suites: each gets a third of the CPU that a test of these gets.
const NICE: i32 = 5;

/// How many of the slowest tests are named in the end.
const SLOWEST: usize = 20;

/// Sets up, builds, runs the selected suites, prints what ran, and fails when anything failed or nothing ran.
pub(crate) fn run(selection: Selection, depth: Depth) -> Result<ExitCode> {
    let begin = Instant::now();
    let aside = depth != Depth::Quick;
    let selected = |suite| {
        let left_out = !aside && [Selection::Fuzz, Selection::Vm].contains(&suite);
        selection == suite || selection == Selection::All && !left_out
    };
    let privileged: Vec<_> = PRIVILEGED.iter().filter(|suite| selected(suite.selection)).collect();
    let mut uses = vec![Use::Build];
    let needs = [
        (selected(Selection::Lint), Use::Lint),
        (!privileged.is_empty(), Use::Traffic),
        (selected(Selection::Cli), Use::Monitoring),
        (selected(Selection::Fuzz), Use::Fuzz),
        (selected(Selection::Vm), Use::Kernels),
    ];
    uses.extend(needs.into_iter().filter_map(|(needed, what)| needed.then_some(what)));
    let toolchain = setup::setup(&uses, Extent::Install)?;
    let privilege = if privileged.is_empty() {
        None
    } else {
        let privilege = Privilege::get("the tests load BPF programs and make network namespaces")?;
        capability::require(privilege)?;
        Some(privilege)
    };
    let mut phases = vec![("set-up", begin.elapsed())];

    let mut outcomes = Vec::new();
    if selected(Selection::Lint) {
        outcomes.push(run_lint(&toolchain)?);
    }
    let start = Instant::now();
    let built = Built::new(&toolchain, privilege, depth, selected)?;
    phases.push(("build", start.elapsed()));

    let beside = thread::scope(|scope| -> Result<Vec<Outcome>> {
        let beside = scope.spawn(|| built.run_beside());
        if selected(Selection::Unit) {
            outcomes.push(run_unit(&toolchain, depth)?);
        }
        if let Some(integration) = &built.integration {
            outcomes.extend(integration.run_all(&privileged)?);
        }
        Ok(beside.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    outcomes.extend(beside);
    phases.push(("all of it", begin.elapsed()));
    let code = report(&outcomes);
    report_times(&outcomes, &phases, depth);
    Ok(code)
}

/// Prints how long the parts that are no suites took, and which tests took longest.
fn report_times(outcomes: &[Outcome], phases: &[(&str, Duration)], depth: Depth) {
    let phases: Vec<_> =
        phases.iter().map(|(phase, took)| format!("{phase} {}", step::seconds(*took))).collect();
    println!("time: {}; fuzzers and guests run beside the other suites", phases.join(", "));
    if depth.divisor() > 1 {
        println!(
            "of the random runs of prog one in {} was made; --full makes all",
            depth.divisor()
        );
    }
    let mut times: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.times).collect();
    times.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    times.truncate(SLOWEST);
    if !times.is_empty() {
        println!("the {} slowest tests:", times.len());
    }
    for (test, took) in times {
        println!("{:>10}  {test}", step::seconds(*took));
    }
}

/// What is built before any suite runs.
struct Built<'a> {
    integration: Option<Integration<'a>>,
    /// Whether there are fuzz targets to build.
    fuzzers: bool,
    guests: Option<Guests>,
}

impl<'a> Built<'a> {
    fn new(
        toolchain: &'a Toolchain,
        privilege: Option<Privilege>,
        depth: Depth,
        selected: impl Fn(Selection) -> bool,
    ) -> Result<Self> {
        let tests = [Selection::Unit, Selection::Vm].into_iter().any(&selected);
        if tests || privilege.is_some() {
            build_tests(toolchain)?;
        }
        let integration = match privilege {
            Some(privilege) => Some(Integration::new(privilege, toolchain, depth)?),
            None => None,
        };
        let fuzzers = selected(Selection::Fuzz);
        let guests = selected(Selection::Vm)
            .then(|| Guests::prepare(&Kernel::DEFAULT, toolchain))
            .transpose()?;
        Ok(Self { integration, fuzzers, guests })
    }

    /// Runs what times nothing, on CPUs that the other suites leave.
    fn run_beside(&self) -> Vec<Outcome> {
        // SAFETY: the call has no pointers. Of a thread, it is about that thread and what it starts.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } < 0 {
            println!("guests and fuzzers are not nice: {}", io::Error::last_os_error());
        }
        let mut outcomes = Vec::new();
        if self.fuzzers {
            let start = Instant::now();
            let outcome =
                Fuzzers::build().and_then(|fuzzers| fuzzers.run(None, fuzz::SECONDS, fuzz::SEED));
            outcomes.push(outcome.unwrap_or_else(|error| Outcome::failure("fuzz", start, &error)));
        }
        if let Some(guests) = &self.guests {
            outcomes.extend(guests.run());
        }
        outcomes
    }
}

fn run_lint(toolchain: &Toolchain) -> Result<Outcome> {
    let start = Instant::now();
    let (checks, failed) = lint::run(toolchain)?;
    let counts = Counts { passed: checks - failed, failed, ignored: 0 };
    Ok(Outcome::new("lint", counts, start))
}

fn run_unit(toolchain: &Toolchain, depth: Depth) -> Result<Outcome> {
    step::heading("unit");
    let mut outcome = Outcome::new("unit", Counts::default(), Instant::now());
    let start = Instant::now();
    let mut names = unprivileged_targets()?;
    let mut skipped = None;
    if depth == Depth::Quick {
        let others = touched::other_targets()?;
        names.retain(|name| !others.iter().any(|other| name == other));
        println!("property tests have a quarter of their cases");
        println!("the model checker takes the processor from a thread once at most");
        skipped = touched::other_module()?;
        let left_out: Vec<_> = others.into_iter().chain(skipped).collect();
        if !left_out.is_empty() {
            println!("left out, as nothing in the change asks for them: {}", left_out.join(", "));
        }
    }
    let targets: Vec<OsString> = ["--lib", "--bins"]
        .into_iter()
        .map(OsString::from)
        .chain(names.into_iter().flat_map(|name| ["--test".into(), name]))
        .collect();
    for selection in [targets, vec![OsString::from("--doc")]] {
        let mut cargo = test(toolchain);
        cargo.arg("--no-fail-fast").args(selection).arg("--").args(libtest::REPORT_TIME);
        cargo.args(skipped.iter().flat_map(|module| ["--skip", module]));
        let fewer = if depth == Depth::Quick { &[CASES, PREEMPTIONS][..] } else { &[] };
        for &(variable, value) in iter::once(&SEED).chain(fewer) {
            if env::var_os(variable).is_none() {
                cargo.env(variable, value);
            }
        }
        run_tests(&mut cargo, &mut outcome)?;
    }
    outcome.took = start.elapsed();
    Ok(outcome)
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

/// The test target that needs root's rights.
struct Integration<'a> {
    privilege: Privilege,
    toolchain: &'a Toolchain,
    depth: Depth,
    limiter: String,
    prometheus: String,
}

impl<'a> Integration<'a> {
    /// That which is built.
    fn new(privilege: Privilege, toolchain: &'a Toolchain, depth: Depth) -> Result<Self> {
        let text = |path: PathBuf| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("the path {} is not UTF-8", path.display()))
        };
        let limiter = text(workspace::binary("limiter", false)?)?;
        Ok(Self { privilege, toolchain, depth, limiter, prometheus: text(prometheus::folder())? })
    }

    fn cargo(&self) -> Command {
        let mut cargo = test(self.toolchain);
        cargo.args(["--test", "integration"]);
        let divisor = match env::var(DIVISOR) {
            Ok(divisor) => divisor,
            Err(_) => self.depth.divisor().to_string(),
        };
        let variables = [
            (launch::BINARY, &*self.limiter),
            (prometheus::FOLDER, &self.prometheus),
            (DIVISOR, &divisor),
        ];
        self.privilege.run_by_cargo(&mut cargo, &variables);
        cargo
    }

    /// Runs suites, one after the other.
    fn run_all(&self, suites: &[&Suite]) -> Result<Vec<Outcome>> {
        let tests = self.list()?;
        let touched = match self.depth {
            Depth::Quick => touched::modules(&tests)?,
            Depth::Usual | Depth::Full => BTreeSet::new(),
        };
        let mut outcomes = Vec::new();
        for suite in suites {
            let runs = |test: &&String| {
                Suite::of(test).is_some_and(|of| of.name == suite.name)
                    && (self.depth != Depth::Quick
                        || suite.selection == Selection::Prog
                        || touched.iter().any(|module| is_in(test, module)))
            };
            let chosen: Vec<&String> = tests.iter().filter(runs).collect();
            // Of a change that touches nothing of a suite, that suite has nothing to say.
            if chosen.is_empty() && self.depth == Depth::Quick {
                println!("suite {} is left out: nothing in the change asks for it", suite.name);
            } else {
                outcomes.push(self.run(suite.name, &chosen, suite.threads)?);
            }
        }
        Ok(outcomes)
    }

    /// The names of all tests; an error when some are in none of the modules, and so would never run.
    fn list(&self) -> Result<Vec<String>> {
        let mut list = self.cargo();
        list.args(["--quiet", "--", "--list", "--format=terse"]);
        let listing = child::query(&mut list).context("cannot list the privileged tests")?;
        let tests: Vec<String> = tests_in(&listing).map(str::to_owned).collect();
        let stray = |test: &&String| Suite::of(test).is_none();
        let strays: Vec<&str> = tests.iter().filter(stray).map(String::as_str).collect();
        if !strays.is_empty() {
            bail!("no suite runs these tests: {}", strays.join(", "));
        }
        Ok(tests)
    }

    fn run(&self, suite: &'static str, tests: &[&String], threads: usize) -> Result<Outcome> {
        step::heading(suite);
        let start = Instant::now();
        let mut outcome = Outcome::new(suite, Counts::default(), start);
        if !tests.is_empty() {
            let mut cargo = self.cargo();
            // Whole names: a plain filter also matches in the middle of a name.
            cargo.args(["--", "--exact", "--show-output"]).args(libtest::REPORT_TIME);
            cargo.arg(format!("--test-threads={threads}")).args(tests);
            run_tests(&mut cargo, &mut outcome)?;
        }
        outcome.took = start.elapsed();
        Ok(outcome)
    }
}
