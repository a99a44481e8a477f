//! The programs that are measured beside the limiter, and those that make its traffic.

use anyhow::{Context as _, Result};
use aya::{Ebpf, EbpfLoader, programs::Xdp};
use limiter_common::contract::{global, map};
use limiter_userspace::datapath::bpffs::Pins;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("LIMITER_BPF_OBJECTS"), "/load"));

/// Passes every frame.
pub(crate) const NOP: &str = "nop";
/// Passes every frame, after giving it a random source.
pub(crate) const NOP_SPOOFED: &str = "nop_spoofed";
/// The limiter, behind a random source.
pub(crate) const LIMITER_SPOOFED: &str = "limiter_spoofed";
/// Drops every frame.
pub(crate) const DROP: &str = "drop";
/// Sends every frame out.
pub(crate) const SEND: &str = "send";

/// The maps that the limiter in the object shares with an instance.
const MAPS: [&str; 14] = [
    map::HEAD,
    map::LIMITS,
    map::CLASSES,
    map::PROFILES,
    map::METERS,
    map::PREFIXES,
    map::DESTINATIONS,
    map::SOURCES,
    map::BUCKETS,
    map::SHARED_SOURCES,
    map::REFUSED,
    map::COUNTERS,
    map::TALLIES,
    map::TEST_CLOCK,
];

/// The object, on the maps of an instance.
pub(crate) struct Load(Ebpf);

impl Load {
    /// Opens the object and loads these programs of it. Their limiter works for the instance with
    /// these pins and counts in `slot`.
    pub(crate) fn new(pins: &Pins, slot: u32, programs: &[&str]) -> Result<Self> {
        let mut loader = EbpfLoader::new();
        loader.override_global(global::SLOT, &slot, true);
        for name in MAPS {
            loader.map_pin_path(name, pins.map(name));
        }
        let mut load =
            Self(loader.load(OBJECT).context("cannot open the programs that make load")?);
        for name in programs {
            let xdp = load.program_mut(name)?;
            xdp.load().with_context(|| format!("cannot load the program {name}"))?;
        }
        Ok(load)
    }

    /// One of the programs that were loaded.
    pub(crate) fn program(&self, name: &str) -> Result<&Xdp> {
        let program = self.0.program(name).with_context(|| missing(name))?;
        program.try_into().with_context(|| missing(name))
    }

    /// The same, to be attached.
    pub(crate) fn program_mut(&mut self, name: &str) -> Result<&mut Xdp> {
        let program = self.0.program_mut(name).with_context(|| missing(name))?;
        program.try_into().with_context(|| missing(name))
    }
}

fn missing(name: &str) -> String {
    format!("the object has no XDP program {name}")
}
