//! The tests of the BPF program on another kernel.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use super::{boot, guest::End, initramfs, kernel::Kernel};
use crate::{child, libtest::Run, outcome, toolchain::Toolchain};

/// The environment variable with the divisor of test runs, and its value. What takes a minute on this machine
/// takes half an hour in the emulator.
const DIVISOR: (&str, u32) = ("LIMITER_TEST_DIVISOR", 10);

/// The environment variable that tells the tests that a CPU may be stopped while another one waits for it.
const EMULATED: &str = "LIMITER_TEST_EMULATED";

/// The module with the tests that run on every kernel: everything in which kernels may differ. The other
/// tests of the program concern arithmetic, which is the same on every kernel that loads it. The suite `prog`
/// runs both.
const MODULE: &str = "prog::kernel";

/// The tests, and the file that contains them.
pub(super) struct Programs {
    binary: PathBuf,
    tests: Vec<String>,
}

impl Programs {
    /// The tests in a file that cargo has built.
    pub(super) fn of(binary: PathBuf) -> Result<Self> {
        let listing = child::query(Command::new(&binary).args(["--list", "--format=terse"]))
            .with_context(|| format!("`{} --list` does not list its tests", binary.display()))?;
        Ok(Self { binary, tests: of_kernels(&listing)? })
    }

    /// Prints which tests run.
    pub(super) fn introduce(&self) {
        let (variable, divisor) = DIVISOR;
        println!("  on each kernel, with {variable}={divisor}: {}", self.tests.join(", "));
    }

    /// Boots a kernel and runs the tests on it.
    pub(super) fn run(&self, kernel: Kernel) -> Result<Run> {
        let (variable, divisor) = DIVISOR;
        // One test at a time, as one thread runs both CPUs.
        let commands = format!(
            "{EMULATED}=1 {variable}={divisor} integration --exact --show-output --test-threads=1 {}\n",
            self.tests.join(" ")
        );
        let initramfs = initramfs(kernel, &commands)?;
        initramfs.add_program(&self.binary, "integration")?;
        let mut ran = Run::default();
        let end = boot(kernel, initramfs, |line| ran.read(line))?;
        let fault = match end {
            End::Broke(how) => Some(format!("the guest {how}")),
            End::Ran { kernel: release, .. } if !release.starts_with(&format!("{kernel}.")) => {
                Some(format!("the guest runs Linux {release}, not {kernel}"))
            }
            End::Ran { .. } if ran.counts.tests() != self.tests.len() => {
                Some(format!("{} of {} tests ran", ran.counts.tests(), self.tests.len()))
            }
            End::Ran { status, .. } if status != 0 && ran.counts.failed == 0 => {
                Some(format!("the tests ended with {status}"))
            }
            End::Ran { .. } if ran.notes.is_empty() => {
                Some("no test said how many instructions the kernel verified".to_owned())
            }
            End::Ran { .. } => None,
        };
        // What tests printed before stays.
        if let Some(fault) = fault {
            ran.failures.push(format!("Linux {kernel}: {fault}"));
            ran.counts.failed += 1;
        }
        Ok(ran)
    }
}

/// The tests of [`MODULE`] in a listing of the test harness.
fn of_kernels(listing: &str) -> Result<Vec<String>> {
    let tests = outcome::tests_in(listing).filter(|test| outcome::is_in(test, MODULE));
    let tests: Vec<String> = tests.map(str::to_owned).collect();
    if tests.is_empty() {
        bail!("there are no tests in {MODULE}, which are to run on every kernel: was it renamed?");
    }
    Ok(tests)
}

/// The path of the test binary, which cargo passes to the runner.
pub(super) fn test_binary(toolchain: &Toolchain) -> Result<PathBuf> {
    let mut cargo = outcome::test(toolchain);
    cargo.args(["--quiet", "--test", "integration"]);
    // The runner prints its first argument, the path.
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
    fn the_tests_of_one_module_run_on_every_kernel() {
        let listing = "prog::kernel::loads: test\nprog::kernels::x: test\nprog::key::y: test\n";
        assert_eq!(of_kernels(listing).unwrap(), ["prog::kernel::loads"]);
        let said = of_kernels("prog::key::y: test\n").unwrap_err().to_string();
        assert!(said.contains(MODULE), "{said}");
    }
}
