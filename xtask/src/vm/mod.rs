//! `cargo xtask vm`: runs the tests of the BPF program on other kernels, in an emulator.
//!
//! The emulator translates instruction by instruction. That works on every machine and is slow, so guests
//! show behaviour, not time.

pub(crate) mod archive;
pub(crate) mod effects;
mod guest;
mod initramfs;
pub(crate) mod kernel;
mod old;
mod programs;

use std::{
    panic::resume_unwind,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use self::{guest::End, initramfs::Initramfs, kernel::Kernel, programs::Programs};
use crate::{
    libtest::Run,
    outcome::{self, Outcome},
    setup,
    step::{self, Extent, Use},
    toolchain::Toolchain,
    workspace,
};

/// How long a guest may take: several times what it needs when three guests share two CPUs with other suites.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Installs what is needed, boots these kernels, and reports.
pub(crate) fn run(kernels: &[Kernel]) -> Result<ExitCode> {
    let kernels = if kernels.is_empty() { &Kernel::DEFAULT } else { kernels };
    let toolchain = setup::setup(&[Use::Build], Extent::Install)?;
    archive::provide(kernels, Extent::Install)?;
    let outcomes = run_kernels(kernels, &toolchain)?;
    outcome::report(&outcomes);
    Ok(outcome::conclude(&outcomes))
}

/// Builds what the guests run, and boots these kernels.
pub(crate) fn run_kernels(kernels: &[Kernel], toolchain: &Toolchain) -> Result<Vec<Outcome>> {
    outcome::build_tests(toolchain)?;
    Ok(Guests::prepare(kernels, toolchain)?.run())
}

/// Kernels to boot, and the built programs that run on them.
pub(crate) struct Guests {
    kernels: Vec<Kernel>,
    limiter: PathBuf,
    programs: Programs,
}

impl Guests {
    /// Finds the programs that [`outcome::build_tests`] has built.
    pub(crate) fn prepare(kernels: &[Kernel], toolchain: &Toolchain) -> Result<Self> {
        let limiter = workspace::binary("limiter", false)?;
        let programs = Programs::of(programs::test_binary(toolchain)?)?;
        Ok(Self { kernels: kernels.to_vec(), limiter, programs })
    }

    /// Boots all kernels at once: each keeps about one CPU busy.
    pub(crate) fn run(&self) -> Vec<Outcome> {
        step::heading("vm");
        self.programs.introduce();
        let run = |kernel| {
            let start = Instant::now();
            let shown = match kernel {
                Kernel::V5_10 => old::run(kernel, &self.limiter),
                Kernel::V6_1 | Kernel::V6_12 | Kernel::V7_3 => self.programs.run(kernel),
            };
            match shown {
                Ok(Run { counts, notes, effects, failures, .. }) => {
                    let outcome = Outcome::new(kernel.suite(), counts, start);
                    (Outcome { notes, failures, ..outcome }, (kernel, effects))
                }
                Err(error) => {
                    (Outcome::failure(kernel.suite(), start, &error), (kernel, Vec::new()))
                }
            }
        };
        // An emulator is killed when the thread that started it ends.
        let (mut outcomes, effects): (Vec<_>, Vec<_>) = thread::scope(|scope| {
            let threads: Vec<_> =
                self.kernels.iter().map(|kernel| scope.spawn(|| run(*kernel))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .unzip()
        });
        if let Some(outcome) = outcomes.iter_mut().find(|it| it.suite == Kernel::V6_1.suite()) {
            let differences = effects::differences(&effects);
            outcome.counts.failed += differences.len();
            outcome.failures.extend(differences);
        }
        outcomes
    }
}

/// Boots a kernel, prints its console, and passes every line to `line`.
fn boot(kernel: Kernel, initramfs: Initramfs, mut line: impl FnMut(&str)) -> Result<End> {
    let initramfs = initramfs.pack()?;
    guest::boot(&archive::image(kernel)?, &initramfs, LIMIT, |text| {
        println!("{kernel:<5}| {text}");
        line(text);
    })
}

/// A new folder for the file system of a guest.
fn initramfs(kernel: Kernel, commands: &str) -> Result<Initramfs> {
    Initramfs::new(archive::unpacked(&format!("initramfs-{kernel}")), commands)
}
