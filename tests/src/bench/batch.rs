//! Batches of runs of a program, long enough to be timed from outside.

use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};

use super::cpu::thread_time;

/// How long a batch takes: the call itself is less than a thousandth of it.
const BATCH: Duration = Duration::from_millis(10);

/// How long a batch took, by the thread's clock, and each run of it, by the kernel's.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    /// By the clock of the thread.
    pub(crate) time: Duration,
    /// By the kernel's, of a run.
    pub(crate) kernel: Duration,
}

impl Batch {
    /// Nanoseconds of each of so many runs, by the clock of the thread.
    pub(crate) fn per_run(&self, runs: u32) -> f64 {
        self.time.as_secs_f64() * 1e9 / f64::from(runs)
    }
}

/// The number of runs that takes about as long as [`BATCH`].
pub(crate) fn calibrate(mut run: impl FnMut(u32) -> Result<Batch>) -> Result<u32> {
    let mut runs = 1_000_u32;
    loop {
        let time = run(runs)?.time;
        if time >= BATCH / 2 {
            let scale = BATCH.as_secs_f64() / time.as_secs_f64();
            return Ok((f64::from(runs) * scale) as u32);
        }
        runs = runs.checked_mul(2).context("programs take no time here")?;
    }
}

/// Has the kernel run a program on a frame.
pub(crate) fn run(program: &Xdp, frame: &[u8], runs: u32) -> Result<Batch> {
    let options = TestRunOptions { data_in: Some(frame), repeat: runs, ..Default::default() };
    let start = thread_time()?;
    let result = program.test_run(options).context("the kernel does not run the program")?;
    let time = thread_time()?.saturating_sub(start);
    Ok(Batch { time, kernel: result.duration })
}
