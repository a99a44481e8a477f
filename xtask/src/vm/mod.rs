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
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use self::{guest::End, initramfs::Initramfs, kernel::Kernel, programs::Programs};
use crate::{
    libtest::Counts,
    setup::{self, Extent, Use},
    step,
    suite::{self, Outcome},
    toolchain::Toolchain,
};

/// How long a guest may take: twice what one does where two guests share two CPUs.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Sets up, boots these kernels, and says what came of each.
pub(crate) fn run(kernels: &[Kernel]) -> Result<ExitCode> {
    let kernels = if kernels.is_empty() { &Kernel::DEFAULT } else { kernels };
    let toolchain = setup::setup(&[Use::Build], Extent::Install)?;
    archive::provide(kernels, Extent::Install)?;
    Ok(suite::report(&run_kernels(kernels, &toolchain)?))
}

/// Boots these kernels, all at once: most of the time each has one of its CPUs at work.
pub(crate) fn run_kernels(kernels: &[Kernel], toolchain: &Toolchain) -> Result<Vec<Outcome>> {
    let limiter = suite::build_integration(toolchain)?;
    let programs = Programs::find(toolchain)?;
    step::heading("vm");
    // In one order, and none twice.
    let sharing: Vec<_> = Kernel::DEFAULT.into_iter().filter(|it| kernels.contains(it)).collect();
    if !sharing.is_empty() {
        programs.introduce(sharing.len());
    }
    let run = |kernel| {
        let start = Instant::now();
        let shown = match kernel {
            Kernel::V5_10 => old::run(kernel, &limiter),
            Kernel::V6_1 | Kernel::V6_12 => programs.run(kernel, &sharing),
        };
        outcome(kernel, shown, start)
    };
    // An emulator ends with the thread that started it.
    Ok(thread::scope(|scope| {
        let threads: Vec<_> = kernels.iter().map(|kernel| scope.spawn(|| run(*kernel))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    }))
}

fn outcome(kernel: Kernel, shown: Result<Shown>, start: Instant) -> Outcome {
    let (counts, notes) = shown.unwrap_or_else(|error| {
        let counts = Counts { failed: 1, ..Counts::default() };
        (counts, vec![format!("Linux {kernel}: {error:#}")])
    });
    Outcome { suite: kernel.suite(), counts, took: start.elapsed(), notes }
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
