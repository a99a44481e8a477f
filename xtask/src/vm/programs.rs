//! The program-run tests on another kernel.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use super::{Shown, boot, guest::End, initramfs, kernel::Kernel};
use crate::{
    child,
    libtest::{self, Counts},
    suite,
    toolchain::Toolchain,
    workspace::HOST_CRATES,
};

/// The module of the tests.
const MODULE: &str = "prog";

/// The variable by which the tests do a part of their work, and how small a part: what takes a
/// minute elsewhere takes half an hour in an emulator.
///
/// No row of packets that two CPUs offer is long enough then to be repeated by the kernel, which
/// patches its code for that. Another CPU that runs this code meanwhile, of this test or of another
/// one, may meet a breakpoint in the emulator that is not there any more, and the guest dies of it.
const DIVISOR: (&str, u32) = ("LIMITER_TEST_DIVISOR", 10);

/// The modules whose tests run on every kernel: by what these show, kernels may differ. They load, read clocks and ticks,
/// set timers, and meet other CPUs, pieces of frames and readers. All others are of arithmetic that is the same once it is
/// loaded, and are dealt out to the kernels.
const EVERYWHERE: [&str; 14] = [
    "prog::accuracy",
    "prog::alarm",
    "prog::clock",
    "prog::cpus",
    "prog::fast_path",
    "prog::frames",
    "prog::lifecycle",
    "prog::notices",
    "prog::object",
    "prog::refused",
    "prog::survey",
    "prog::swap",
    "prog::switch",
    "prog::ticks",
];

/// What is not run, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    (
        "prog::object::the_stack_is_deep_enough",
        "reads the object file, which is the same for every kernel",
    ),
    (
        "prog::object::what_ships_has_no_debug_messages",
        "reads the object file, which is the same for every kernel",
    ),
    (
        "prog::object::words_are_moved_by_compare_and_exchange",
        "reads the object file, which is the same for every kernel",
    ),
    (
        "prog::cpus::a_low_rate_is_kept_on_two_cpus_in_real_time",
        "holds the program to real time, which stands still in an emulator whenever that waits",
    ),
    (
        "prog::cpus::a_rate_is_kept_on_two_cpus_in_real_time",
        "holds the program to real time, which stands still in an emulator whenever that waits",
    ),
];

/// The tests.
pub(super) struct Programs {
    binary: PathBuf,
    /// Their names, without those that are left out.
    tests: Vec<String>,
}

impl Programs {
    pub(super) fn find(toolchain: &Toolchain) -> Result<Self> {
        let binary = test_binary(toolchain)?;
        let listing = child::query(Command::new(&binary).args(["--list", "--format=terse"]))
            .context("cannot list the program-run tests")?;
        let mut tests: Vec<String> = suite::tests_in(&listing)
            .filter(|test| suite::is_in(test, MODULE))
            .map(str::to_owned)
            .collect();
        for (name, _) in LEFT_OUT {
            let Some(place) = tests.iter().position(|test| test == name) else {
                bail!("there is no test {name}, which is to be left out: was it renamed?");
            };
            tests.remove(place);
        }
        for module in EVERYWHERE {
            if !tests.iter().any(|test| suite::is_in(test, module)) {
                bail!(
                    "there is no test in {module}, which is to run on every kernel: was it renamed?"
                );
            }
        }
        Ok(Self { binary, tests })
    }

    /// Says what is run, and what is not.
    pub(super) fn introduce(&self, kernels: usize) {
        let (variable, divisor) = DIVISOR;
        println!(
            "  {} tests of {MODULE}, those of random runs with {variable}={divisor}",
            self.tests.len()
        );
        if kernels > 1 {
            println!(
                "  on every kernel: those of {}; others on one of them each",
                EVERYWHERE.join(", ")
            );
        }
        for (name, why) in LEFT_OUT {
            println!("  left out: {name}: {why}");
        }
        println!(
            "  left out: of tests on two CPUs, how many packets may be dropped undecided and how \
             even the shares are: the emulator stops a CPU while another waits for it"
        );
    }

    /// Boots a kernel, and runs on it its share of the tests among these kernels.
    pub(super) fn run(&self, kernel: Kernel, sharing: &[Kernel]) -> Result<Shown> {
        let (variable, divisor) = DIVISOR;
        let Some(part) = sharing.iter().position(|it| *it == kernel) else {
            bail!("Linux {kernel} has no share of the program-run tests");
        };
        let tests = share(&self.tests, part, sharing.len());
        // One after the other: see `DIVISOR`.
        let commands = format!(
            "{variable}={divisor} integration --exact --show-output --test-threads=1 {}\n",
            tests.join(" ")
        );
        let initramfs = initramfs(kernel, &commands)?;
        initramfs.add_program(&self.binary, "integration")?;
        let mut counts = Counts::default();
        let mut loads = Vec::new();
        let end = boot(kernel, initramfs, |line| {
            if let Some(more) = Counts::parse(line) {
                counts += more;
            } else if libtest::is_note(line) {
                loads.push(line.to_owned());
            }
        })?;
        let (release, status) = match end {
            End::Ran { kernel, status } => (kernel, status),
            End::Broke(how) => bail!("the guest {how}"),
        };
        if counts.tests() != tests.len() {
            bail!("{release}: {} of {} tests ran", counts.tests(), tests.len());
        }
        if status != 0 && counts.failed == 0 {
            bail!("{release}: the tests ended with {status}");
        }
        if loads.is_empty() {
            bail!("{release}: no test said how many instructions the kernel verified");
        }
        let notes: Vec<String> = loads.iter().map(|load| format!("{release}: {load}")).collect();
        Ok((counts, notes))
    }
}

/// The tests of one of so many kernels, which together run all of these.
fn share(tests: &[String], part: usize, parts: usize) -> Vec<&str> {
    let is_everywhere = |test: &str| EVERYWHERE.iter().any(|module| suite::is_in(test, module));
    let mut turn = (0..parts).cycle();
    let tests = tests.iter().map(String::as_str);
    tests.filter(|test| is_everywhere(test) || turn.next() == Some(part)).collect()
}

/// The file of the test target, which cargo tells to the program that it is to run it by.
fn test_binary(toolchain: &Toolchain) -> Result<PathBuf> {
    let mut cargo = toolchain.cargo();
    cargo.arg("test").args(HOST_CRATES).args(["--quiet", "--test", "integration"]);
    // The path comes first, and then what cargo would tell the tests.
    cargo.args(["--config", r#"target.'cfg(all())'.runner=['sh', '-c', 'echo "$0"']"#]);
    let line = child::query(&mut cargo).context("cannot build the program-run tests")?;
    let path = PathBuf::from(line.lines().last().unwrap_or_default().trim());
    if !path.is_file() {
        bail!("cargo does not tell where the program-run tests are, but says: {line}");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_together_run_every_test_and_each_those_that_run_everywhere() {
        let tests: Vec<String> =
            ["alarm", "ahead", "credit", "limits", "alarming", "ticks", "near"]
                .map(|module| format!("prog::{module}::it"))
                .into();
        assert_eq!(share(&tests, 0, 1).len(), tests.len());
        let shares = [share(&tests, 0, 2), share(&tests, 1, 2)];
        assert_eq!(shares.each_ref().map(Vec::len), [5, 4]);
        for test in &tests {
            let number = shares.iter().filter(|share| share.contains(&test.as_str())).count();
            let is_everywhere = ["prog::alarm::it", "prog::ticks::it"].contains(&test.as_str());
            assert_eq!(number, 1 + usize::from(is_everywhere), "{test}");
        }
    }
}
