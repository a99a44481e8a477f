//! Runs the program on frames and counts them.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use limiter_common::base::tally::Tally;

/// The shortest frame that the kernel runs a program on: an Ethernet header.
pub const SHORTEST: usize = 14;

/// The longest frame, in bytes, that the kernel passes to a program in one piece. A longer one is in several
/// pieces, which needs the program for such packets.
pub const LONGEST: usize = 3_520;

/// The verdict of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `XDP_PASS`
    Pass,
    /// `XDP_DROP`
    Drop,
}

/// The program, which any thread may run.
pub struct Runner<'a> {
    xdp: &'a Xdp,
    /// The longest frame that the program accepts, in bytes.
    longest: usize,
    offered: &'a Offered,
}

/// Counts of the frames that the program was run on, to compare its counters with.
#[derive(Default)]
pub(super) struct Offered {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Offered {
    pub(super) fn tally(&self) -> Tally {
        Tally {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl<'a> Runner<'a> {
    pub(super) fn new(xdp: &'a Xdp, longest: usize, offered: &'a Offered) -> Self {
        Self { xdp, longest, offered }
    }

    /// Runs the program on a frame of at least [`SHORTEST`] bytes.
    ///
    /// # Errors
    /// Fails if the kernel refuses the run, or if the program returns neither `XDP_PASS` nor `XDP_DROP`.
    pub fn run(&self, frame: &[u8]) -> Result<Verdict> {
        self.repeat(frame, 1)
    }

    /// Runs the program on the same frame `times` times.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_many(&self, frame: &[u8], times: u32) -> Result<()> {
        // The kernel can repeat a run by itself, but waits for an RCU grace period first. That pays off only
        // for many runs.
        const WORTH_WAITING: u32 = 20_000;
        if times >= WORTH_WAITING {
            self.repeat(frame, times).map(drop)
        } else {
            (0..times).try_for_each(|_| self.repeat(frame, 1).map(drop))
        }
    }

    fn repeat(&self, frame: &[u8], times: u32) -> Result<Verdict> {
        const XDP_DROP: u32 = 1;
        const XDP_PASS: u32 = 2;
        // The kernel would put the rest of a longer frame where this program cannot read it.
        ensure!(frame.len() <= self.longest, "a frame of {} bytes is too long", frame.len());
        let mut options = TestRunOptions::new();
        (options.data_in, options.repeat) = (Some(frame), times);
        let result = self.xdp.test_run(options).context("cannot run the program")?;
        self.offered.add(times.into(), u64::from(times) * frame.len() as u64);
        match result.return_value {
            XDP_DROP => Ok(Verdict::Drop),
            XDP_PASS => Ok(Verdict::Pass),
            other => bail!("the program returned {other}, which is no verdict"),
        }
    }
}
