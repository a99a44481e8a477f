//! Batches of program runs, long enough to be timed from outside the kernel.

use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};

use super::cpu::thread_time;

/// The length of a batch. The system call itself is less than a thousandth of it.
const BATCH: Duration = Duration::from_millis(10);

/// The time of one batch.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    /// Time of the whole batch, by the CPU clock of the thread.
    pub(crate) time: Duration,
    /// Mean time of a run, as the kernel reports it.
    pub(crate) kernel: Duration,
}

impl Batch {
    /// Nanoseconds per run of a batch of `runs`, by the clock of the thread.
    pub(crate) fn per_run(&self, runs: u32) -> f64 {
        self.time.as_secs_f64() * 1e9 / f64::from(runs)
    }
}

/// Finds the number of runs that take about [`BATCH`].
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

/// Runs a program on a frame `runs` times.
pub(crate) fn run(program: &Xdp, frame: &[u8], runs: u32) -> Result<Batch> {
    let options = TestRunOptions { data_in: Some(frame), repeat: runs, ..Default::default() };
    let start = thread_time()?;
    let result = program.test_run(options).context("the kernel does not run the program")?;
    let time = thread_time()?.saturating_sub(start);
    Ok(Batch { time, kernel: result.duration })
}
