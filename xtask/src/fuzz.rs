//! `cargo xtask fuzz`: runs parsers on inputs from libFuzzer, through cargo-fuzz.
//!
//! The targets are in `fuzz`, a workspace of its own. Without a sanitizer they build on stable Rust.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    child,
    libtest::Counts,
    outcome::{self, Outcome},
    setup,
    step::{self, Extent, Use},
    workspace,
};

/// Seconds for each target in `cargo xtask test`.
pub(crate) const SECONDS: u32 = 30;

/// The seed in `cargo xtask test`. With a seed the inputs are the same in each run, as far as it gets in its
/// time.
pub(crate) const SEED: u32 = 1;

/// Inputs that a target has to read. Fewer would prove nothing.
const FEWEST: u64 = 100;

/// Lines of the output of a failed target that are shown.
const TAIL: usize = 40;

/// A target and the folder of its initial inputs.
struct Target {
    name: &'static str,
    seeds: &'static str,
}

const TARGETS: [Target; 8] = [
    Target { name: "policy", seeds: "limiter-userspace/tests/fixtures/policy" },
    Target { name: "lists", seeds: "fuzz/seeds/lists" },
    Target { name: "captures", seeds: "fuzz/seeds/captures" },
    Target { name: "ratelimit", seeds: "fuzz/seeds/ratelimit" },
    Target { name: "parse", seeds: "fuzz/seeds/parse" },
    Target { name: "requests", seeds: "fuzz/seeds/requests" },
    Target { name: "crowdsec", seeds: "fuzz/seeds/crowdsec" },
    Target { name: "descriptors", seeds: "fuzz/seeds/descriptors" },
];

/// The names of the targets.
pub(crate) const NAMES: [&str; TARGETS.len()] = {
    let [a, b, c, d, e, f, g, h] = &TARGETS;
    [a.name, b.name, c.name, d.name, e.name, f.name, g.name, h.name]
};

/// Installs what is needed, runs one target or all, and reports.
pub(crate) fn run(target: Option<&str>, seconds: u32) -> Result<ExitCode> {
    setup::setup(&[Use::Fuzz], Extent::Install)?;
    // With seed 0, libFuzzer takes a new seed from the clock.
    let outcome = Fuzzers::build()?.run(target, seconds, 0)?;
    let outcomes = [outcome];
    outcome::report(&outcomes);
    Ok(outcome::conclude(&outcomes))
}

/// The built targets.
pub(crate) struct Fuzzers {
    binaries: PathBuf,
}

impl Fuzzers {
    /// Builds all targets.
    pub(crate) fn build() -> Result<Self> {
        step::heading("build the fuzz targets");
        let target = folder();
        let mut cargo = child::cargo();
        let tools = workspace::tools().join("bin");
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(std::iter::once(tools).chain(env::split_paths(&path)))
            .context("the folder of the workspace cannot be put on the PATH")?;
        cargo.env("PATH", path).args(["fuzz", "build", "--sanitizer", "none"]);
        let host = child::query(Command::new("rustc").args(["--print", "host-tuple"]))
            .context("`rustc --print host-tuple` does not tell what this machine is")?;
        cargo.args(["--target", &host, "--target-dir"]).arg(&target);
        child::run(&mut cargo)?;
        Ok(Self { binaries: target.join(host).join("release") })
    }

    /// Runs one target, or all at once, for `seconds`.
    ///
    /// # Errors
    /// Fails if a target cannot be started or waited for. A failing input is no error; the outcome reports
    /// it.
    pub(crate) fn run(&self, target: Option<&str>, seconds: u32, seed: u32) -> Result<Outcome> {
        step::heading("fuzz");
        let start = Instant::now();
        let chosen = TARGETS.iter().filter(|it| target.is_none_or(|target| it.name == target));
        let started: Result<Vec<_>> =
            chosen.map(|target| self.start(target, seconds, seed)).collect();
        let mut counts = Counts::default();
        let (mut notes, mut failures) = (Vec::new(), Vec::new());
        for running in started? {
            match running.end() {
                Ok(note) => {
                    println!("{note}");
                    counts.passed += 1;
                    notes.push(note);
                }
                Err(error) => {
                    failures.push(format!("{error:#}"));
                    counts.failed += 1;
                }
            }
        }
        Ok(Outcome { notes, failures, ..Outcome::new("fuzz", counts, start) })
    }

    fn start(&self, target: &Target, seconds: u32, seed: u32) -> Result<Running> {
        let Target { name, seeds } = target;
        // New inputs go to the first folder. With a seed, those of the previous run are removed.
        let kept = if seed == 0 { "corpus" } else { "corpus-of-seed" };
        let [corpus, artifacts] = [kept, "artifacts"].map(|kind| folder().join(kind).join(name));
        if seed != 0 && corpus.is_dir() {
            fs::remove_dir_all(&corpus)
                .with_context(|| format!("cannot empty {}", corpus.display()))?;
        }
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let seeds = workspace::root().join(seeds);
        if !seeds.is_dir() {
            bail!("there are no inputs for {name} to begin with: {} is gone", seeds.display());
        }
        let log = folder().join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let binary = self.binaries.join(name);
        let mut command = Command::new(&binary);
        command.arg(&corpus).arg(&seeds);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args([format!("-max_total_time={seconds}"), format!("-seed={seed}")]);
        command.args(["-timeout=20", "-rss_limit_mb=1024", "-print_final_stats=1"]);
        let shown = child::show(&command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run `{shown}`"))?;
        Ok(Running { name, binary, log, child })
    }
}

/// The folder where targets are built and their inputs are kept.
fn folder() -> PathBuf {
    workspace::root().join("target/fuzz")
}

/// A running target.
struct Running {
    name: &'static str,
    binary: PathBuf,
    log: PathBuf,
    child: Child,
}

impl Running {
    /// Waits for the end of the target and returns a summary.
    fn end(mut self) -> Result<String> {
        let name = self.name;
        let status = self.child.wait().with_context(|| format!("cannot wait for {name}"))?;
        let log =
            fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let log = String::from_utf8_lossy(&log);
        if !status.success() {
            print_tail(&log);
            let input = artifact(&log).unwrap_or("FILE");
            bail!(
                "the fuzz target {name} failed ({status}); run `{} {input}` for its input alone",
                self.binary.display()
            );
        }
        let inputs = stat(&log, "number_of_executed_units").unwrap_or_default();
        if inputs < FEWEST {
            print_tail(&log);
            bail!("the fuzz target {name} read {inputs} inputs, fewer than {FEWEST}");
        }
        let covered = covered(&log).unwrap_or_default();
        Ok(format!("fuzz {name}: {inputs} inputs, {covered} edges of the program covered"))
    }
}

fn print_tail(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    for line in lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default() {
        println!("    {line}");
    }
}

/// A figure from the statistics that libFuzzer prints at its end.
fn stat(log: &str, name: &str) -> Option<u64> {
    let figure = |line: &str| {
        let figure = line.strip_prefix("stat::")?.strip_prefix(name)?.strip_prefix(':')?;
        figure.trim().parse().ok()
    };
    log.lines().rev().find_map(figure)
}

/// The number of covered edges, from the last progress line.
fn covered(log: &str) -> Option<u64> {
    let figure = |line: &str| line.split_once(" cov: ")?.1.split_whitespace().next()?.parse().ok();
    log.lines().rev().find_map(figure)
}

/// The file with the input that made a target fail.
fn artifact(log: &str) -> Option<&str> {
    let line = log.lines().rev().find(|line| line.contains("Test unit written to "))?;
    line.rsplit_once(' ').map(|(_, path)| path).filter(|path| Path::new(path).is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "#2\tINITED cov: 31 ft: 32 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                       #4096\tDONE   cov: 1201 ft: 3000 corp: 90/4Kb lim: 4096 exec/s: 200 rss: 60Mb\n\
                       Done 4096 runs in 31 second(s)\n\
                       stat::number_of_executed_units: 4096\n\
                       stat::average_exec_per_sec:     132\n";

    #[test]
    fn what_a_target_did_is_read_from_its_log() {
        assert_eq!(stat(LOG, "number_of_executed_units"), Some(4_096));
        assert_eq!(stat(LOG, "number_of"), None);
        assert_eq!(covered(LOG), Some(1_201));
        assert_eq!((stat("", "x"), covered(""), artifact(LOG)), (None, None, None));
    }

    #[test]
    fn the_input_that_fails_is_named() {
        let log = "artifact_prefix='/x/'; Test unit written to /x/crash-da39\nBase64: \n";
        assert_eq!(artifact(log), Some("/x/crash-da39"));
    }

    #[test]
    fn each_target_is_one_of_the_workspace_of_targets_and_has_inputs() {
        let manifest = fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        let names: Vec<&str> = manifest
            .split("[[bin]]\nname = \"")
            .skip(1)
            .filter_map(|part| part.split_once('"').map(|(name, _)| name))
            .collect();
        assert_eq!(names, NAMES);
        for Target { name, seeds } in TARGETS {
            let seeds = fs::read_dir(workspace::root().join(seeds)).unwrap();
            assert!(seeds.count() > 0, "{name}");
        }
    }
}
