//! `cargo xtask vm`: the programs on other kernels, in an emulator.
//!
//! The guests are translated instruction by instruction, which every machine can do and which is
//! slow: what they show is behaviour, never time.

pub(crate) mod archive;
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
    libtest::Counts,
    outcome::{self, Outcome},
    setup,
    step::{self, Extent, Use},
    toolchain::Toolchain,
    workspace,
};

/// How long a guest may take: some times what it does where three guests share two CPUs with other suites.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Sets up, boots these kernels, and says what came of each.
pub(crate) fn run(kernels: &[Kernel]) -> Result<ExitCode> {
    let kernels = if kernels.is_empty() { &Kernel::DEFAULT } else { kernels };
    let toolchain = setup::setup(&[Use::Build], Extent::Install)?;
    archive::provide(kernels, Extent::Install)?;
    Ok(outcome::report(&run_kernels(kernels, &toolchain)?))
}

/// Builds what the guests run, and boots these kernels.
pub(crate) fn run_kernels(kernels: &[Kernel], toolchain: &Toolchain) -> Result<Vec<Outcome>> {
    outcome::build_tests(toolchain)?;
    Ok(Guests::prepare(kernels, toolchain)?.run())
}

/// Kernels that are to be booted, with what runs on them. All of it is built.
pub(crate) struct Guests {
    kernels: Vec<Kernel>,
    limiter: PathBuf,
    programs: Programs,
}

impl Guests {
    /// Checks that what is to run is there, of what [`outcome::build_tests`] builds.
    pub(crate) fn prepare(kernels: &[Kernel], toolchain: &Toolchain) -> Result<Self> {
        let limiter = workspace::binary("limiter", false)?;
        let programs = Programs::of(programs::test_binary(toolchain)?)?;
        Ok(Self { kernels: kernels.to_vec(), limiter, programs })
    }

    /// Boots all kernels at once: most of the time each has one of its CPUs at work.
    pub(crate) fn run(&self) -> Vec<Outcome> {
        step::heading("vm");
        self.programs.introduce();
        let run = |kernel| {
            let start = Instant::now();
            let shown = match kernel {
                Kernel::V5_10 => old::run(kernel, &self.limiter),
                Kernel::V6_1 | Kernel::V6_12 | Kernel::V7_3 => self.programs.run(kernel),
            };
            outcome(kernel, shown, start)
        };
        // An emulator ends with the thread that started it.
        thread::scope(|scope| {
            let threads: Vec<_> =
                self.kernels.iter().map(|kernel| scope.spawn(|| run(*kernel))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    }
}

fn outcome(kernel: Kernel, shown: Result<Shown>, start: Instant) -> Outcome {
    let (counts, notes) = shown.unwrap_or_else(|error| {
        let counts = Counts { failed: 1, ..Counts::default() };
        (counts, vec![format!("Linux {kernel}: {error:#}")])
    });
    Outcome { notes, ..Outcome::new(kernel.suite(), counts, start) }
}

/// What a kernel showed: how many checks it passed, and what there is to say of it in the end.
type Shown = (Counts, Vec<String>);

/// Boots a kernel and shows its console; every line is handed to `line` too.
fn boot(kernel: Kernel, initramfs: Initramfs, mut line: impl FnMut(&str)) -> Result<End> {
    let initramfs = initramfs.pack()?;
    guest::boot(&archive::image(kernel)?, &initramfs, LIMIT, |text| {
        println!("{kernel:<5}| {text}");
        line(text);
    })
}

/// A folder for what a guest is to see, while it is put together.
fn initramfs(kernel: Kernel, commands: &str) -> Result<Initramfs> {
    Initramfs::new(archive::unpacked(&format!("initramfs-{kernel}")), commands)
}
