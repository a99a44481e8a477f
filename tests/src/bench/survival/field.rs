//! An instance shared by established and made-up sources.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use limiter_tests::{packet::Frame, sandbox::BPFFS};
use limiter_userspace::{
    datapath::{
        bpffs::Pins,
        instance::Instance,
        main_program,
        program::{Clock, Program},
        sizes::Sizes,
    },
    policy::{Bucket, Builtin, Policy},
};

use super::{
    super::{
        load::{LIMITER_SPOOFED, Load},
        place::Place,
        slot,
    },
    ROOM,
};

const TARGET: [u8; 4] = [198, 51, 100, 1];
/// The slots that count the packets of established sources and of made-up ones.
const ESTABLISHED_SLOT: u32 = 0;
const FLOOD_SLOT: u32 = 1;

/// The instance, with a dispatcher for the packets of established sources.
pub(crate) struct Field {
    instance: Instance,
    program: Program,
    load: Load,
    made: Instant,
}

/// A [`Field`] with the program for made-up sources attached, so that a flood starts without delay.
pub(crate) struct Flooded<'a>(&'a mut Field);

impl Field {
    /// Makes an instance without sources, with this limit per source.
    pub(crate) fn new(limit: Bucket) -> Result<Self> {
        let pins = Pins::new(format!("{BPFFS}/survival"));
        let mut policy = Policy::default();
        policy.set_default(Builtin::Source, limit)?;
        let sizes = Sizes {
            sources: ROOM,
            buckets: 1 << 12,
            wide_states: 1 << 11,
            overrides: 1,
            further: false,
            buckets_made: false,
        };
        let instance = Instance::open_or_create(&pins, &sizes, &policy, None)?;
        main_program::put(&pins, &mut Program::load(&pins, false, Clock::Monotonic)?, false)?;
        let program = Program::load_dispatcher(&pins, ESTABLISHED_SLOT, false)?;
        let load = Load::new(&pins, FLOOD_SLOT, &[LIMITER_SPOOFED])?;
        Ok(Self { instance, program, load, made: Instant::now() })
    }

    /// Sends packets of an established source and returns how many passed.
    pub(crate) fn send(&mut self, source: u32, packets: u64) -> Result<u64> {
        let frame = frame(source);
        let program = self.program.xdp()?;
        let mut passed = 0;
        for _ in 0..packets {
            passed += u64::from(run(program, &frame, 1)?);
        }
        Ok(passed)
    }

    /// Runs `work`, which may send floods.
    pub(crate) fn flooded(
        &mut self,
        place: &mut Place,
        work: impl FnOnce(&mut Flooded<'_>) -> Result<()>,
    ) -> Result<()> {
        let held = place.take(self.load.program_mut(LIMITER_SPOOFED)?)?;
        work(&mut Flooded(self))?;
        place.leave(self.load.program_mut(LIMITER_SPOOFED)?, held)
    }

    /// The time since the instance was made.
    pub(crate) fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Removes the instance.
    pub(crate) fn close(self) -> Result<()> {
        let Self { instance, program, load, .. } = self;
        drop((program, load));
        Ok(instance.close()?)
    }
}

impl Flooded<'_> {
    /// Sends packets, each from a made-up source.
    pub(crate) fn flood(&mut self, packets: u32) -> Result<()> {
        run(self.0.load.program(LIMITER_SPOOFED)?, &frame(0), packets).map(drop)
    }

    /// Sends packets of an established source and returns how many passed.
    pub(crate) fn send(&mut self, source: u32, packets: u64) -> Result<u64> {
        self.0.send(source, packets)
    }

    /// The number of made-up packets that passed, from the counters.
    pub(crate) fn flood_passed(&self) -> Result<u64> {
        let snapshot = slot::snapshot(&self.0.instance, FLOOD_SLOT)?;
        Ok(snapshot.interfaces.iter().map(|interface| interface.passed.packets).sum())
    }
}

/// A packet of an established source.
fn frame(source: u32) -> Vec<u8> {
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + source * 257);
    Frame::udp(source, TARGET, 40_000, 53).padded().build()
}

/// Runs a program on a frame `times` times, and returns whether the last run passed it.
fn run(program: &Xdp, frame: &[u8], times: u32) -> Result<bool> {
    const XDP_DROP: u32 = 1;
    const XDP_PASS: u32 = 2;
    let options = TestRunOptions { data_in: Some(frame), repeat: times, ..Default::default() };
    let result = program.test_run(options).context("the kernel does not run the program")?;
    match result.return_value {
        XDP_DROP => Ok(false),
        XDP_PASS => Ok(true),
        other => bail!("the program returned {other}, which is no verdict"),
    }
}
