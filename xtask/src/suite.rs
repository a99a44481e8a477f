//! `cargo xtask test`: runs the test suites and reports.
//!
//! The tests are built once, first. Then guests and fuzz targets run beside the other suites with lower
//! priority, because they measure no time.

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
    outcome::{Outcome, build_tests, conclude, is_in, report, run_tests, test, tests_in},
    privilege::Privilege,
    setup,
    step::{self, Extent, Use},
    toolchain::Toolchain,
    touched,
    unpacked::{UNPACKED, Unpacked},
    vm::{Guests, kernel::Kernel},
    wheels::WHEELS,
    workspace,
};

/// The part of `cargo xtask test` that runs.
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
    /// Readers of policies, set files, captures, frames and requests on inputs that libFuzzer makes
    Fuzz,
    /// The BPF program on other kernels, in an emulator
    Vm,
}

/// How much of the suites runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The tests that a change needs: slow tests only if the change touches them, a quarter of the cases of
    /// property tests, schedules with one preemption in the model checker, and neither guests nor fuzzers.
    Quick,
    /// Every test, with part of the random runs of `prog`.
    Usual,
    /// Every test, with all its random runs.
    Full,
}

impl Depth {
    /// The divisor of the number of random runs of `prog`.
    const fn divisor(self) -> u32 {
        match self {
            Self::Quick | Self::Usual => 8,
            Self::Full => 1,
        }
    }
}

/// A suite: part of the test target `integration` of `limiter-tests`.
struct Suite {
    selection: Selection,
    name: &'static str,
    /// The modules of its tests. A test belongs to the first suite with a module that contains it.
    modules: &'static [&'static str],
    /// The number of test threads.
    threads: usize,
}

/// Tests of `prog` and `cli` sometimes wait for the kernel, so three threads keep two CPUs busy. Tests of
/// `floods` take minutes and leave most of a CPU free. The other tests of `netns` time real traffic or need
/// all CPUs.
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
    /// The suite that a test belongs to; `None` if no suite has it.
    fn of(test: &str) -> Option<&'static Self> {
        PRIVILEGED.iter().find(|suite| suite.modules.iter().any(|module| is_in(test, module)))
    }
}

/// The seed of property tests, and its value if it is not set, so that a run can be repeated. Plain `cargo
/// test` takes new inputs each time.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// The number of cases of each property test (256 if it is not set), and its value in a quick run.
const CASES: (&str, &str) = ("PROPTEST_CASES", "64");

/// The most preemptions that the model checker explores (else as its tests say), and its value in a quick
/// run.
const PREEMPTIONS: (&str, &str) = ("LOOM_MAX_PREEMPTIONS", "1");

/// The environment variable with the divisor of the random runs of `prog`.
const DIVISOR: &str = "LIMITER_TEST_DIVISOR";

/// The nice value of guests and fuzzers. Each gets about a third of the CPU time of a test.
const NICE: i32 = 5;

/// The number of slowest tests that are listed.
const SLOWEST: usize = 20;

/// Installs what is needed, builds, runs the selected suites and prints a report. Fails if anything failed or
/// nothing ran.
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
        (!privileged.is_empty(), Use::Dist),
        (selected(Selection::Cli), Use::Servers),
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
        outcomes.push(lint::run(&toolchain));
    }
    let start = Instant::now();
    let ran = Built::new(&toolchain, privilege, depth, selected).and_then(|built| {
        phases.push(("build", start.elapsed()));
        thread::scope(|scope| {
            let beside = scope.spawn(|| built.run_beside());
            if selected(Selection::Unit) {
                outcomes.push(run_unit(&toolchain, depth)?);
            }
            if let Some(integration) = &built.integration {
                outcomes.extend(integration.run_all(&privileged)?);
            }
            outcomes.extend(beside.join().unwrap_or_else(|panic| resume_unwind(panic)));
            Ok(())
        })
    });
    if let Err(error) = ran {
        // What failed before it is told, too.
        conclude(&outcomes);
        return Err(error);
    }
    phases.push(("all of it", begin.elapsed()));
    report(&outcomes);
    report_times(&outcomes, &phases, depth);
    Ok(conclude(&outcomes))
}

/// Prints the time of the phases other than suites, and the slowest tests.
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
    /// Whether fuzz targets are to be built.
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

    /// Runs guests and fuzzers, with lower priority than the other suites.
    fn run_beside(&self) -> Vec<Outcome> {
        // SAFETY: the call has no pointers. It sets the priority of this thread and of the processes it
        // starts.
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

/// The test targets that need no privilege: each file or folder in the `tests` folder of a crate, and the
/// target `model` of the crate `tests`.
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
    /// The folders of programs that are unpacked, by their variables.
    unpacked: Vec<(&'static str, String)>,
}

impl<'a> Integration<'a> {
    /// Finds the built binaries.
    fn new(privilege: Privilege, toolchain: &'a Toolchain, depth: Depth) -> Result<Self> {
        let text = |path: PathBuf| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("the path {} is not UTF-8", path.display()))
        };
        let limiter = text(workspace::binary("limiter", false)?)?;
        let folder = |unpacked: Unpacked| Ok((unpacked.variable, text(unpacked.folder())?));
        let mut unpacked = UNPACKED.into_iter().map(folder).collect::<Result<Vec<_>>>()?;
        for wheels in WHEELS {
            unpacked.push((wheels.variable, text(wheels.folder())?));
        }
        Ok(Self { privilege, toolchain, depth, limiter, unpacked })
    }

    fn cargo(&self) -> Command {
        let mut cargo = test(self.toolchain);
        cargo.args(["--test", "integration"]);
        let divisor = match env::var(DIVISOR) {
            Ok(divisor) => divisor,
            Err(_) => self.depth.divisor().to_string(),
        };
        let mut variables = vec![(launch::BINARY, &*self.limiter), (DIVISOR, &divisor)];
        variables.extend(self.unpacked.iter().map(|(variable, folder)| (*variable, &**folder)));
        self.privilege.run_by_cargo(&mut cargo, &variables);
        cargo
    }

    /// Runs suites one after the other.
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
            // In a quick run, a suite without a touched test is left out.
            if chosen.is_empty() && self.depth == Depth::Quick {
                println!("suite {} is left out: nothing in the change asks for it", suite.name);
            } else {
                outcomes.push(self.run(suite.name, &chosen, suite.threads)?);
            }
        }
        Ok(outcomes)
    }

    /// The names of all tests. Fails if a test is in no module of a suite, because it would never run.
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
            // Exact names, because a plain filter also matches parts of names.
            cargo.args(["--", "--exact", "--show-output"]).args(libtest::REPORT_TIME);
            cargo.arg(format!("--test-threads={threads}")).args(tests);
            run_tests(&mut cargo, &mut outcome)?;
        }
        outcome.took = start.elapsed();
        Ok(outcome)
    }
}
