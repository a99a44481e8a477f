//! The programs that are measured beside the limiter, and those that make its traffic.

use std::{fs, io};

use anyhow::{Context as _, Result};
use aya::{Ebpf, EbpfLoader, programs::Xdp};
use limiter_common::contract::global;
use limiter_userspace::datapath::{bpffs::Pins, program::Clock};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("LIMITER_BPF_OBJECTS"), "/load"));

/// Passes every frame.
pub(crate) const NOP: &str = "nop";
/// Passes every frame, after giving it a random source.
pub(crate) const NOP_SPOOFED: &str = "nop_spoofed";
/// The limiter, behind a random source.
pub(crate) const LIMITER_SPOOFED: &str = "limiter_spoofed";
/// The limiter, behind one source after the other.
pub(crate) const LIMITER_IN_TURN: &str = "limiter_in_turn";
/// Reads the clock.
pub(crate) const PART_CLOCK: &str = "part_clock";
/// Makes an atomic addition.
pub(crate) const PART_ADD: &str = "part_add";
/// Reads the headers.
pub(crate) const PART_PARSE: &str = "part_parse";
/// Drops every frame.
pub(crate) const DROP: &str = "drop";
/// Sends every frame out.
pub(crate) const SEND: &str = "send";

/// The object, on the maps of an instance.
pub(crate) struct Load(Ebpf);

impl Load {
    /// Opens the object and loads these programs of it. Their limiter works for the instance with
    /// these pins and counts in `slot`; sources that they make are any.
    pub(crate) fn new(pins: &Pins, slot: u32, programs: &[&str]) -> Result<Self> {
        Self::among(pins, slot, u32::MAX, programs)
    }

    /// The same, with sources that differ in these bits alone.
    pub(crate) fn among(pins: &Pins, slot: u32, made: u32, programs: &[&str]) -> Result<Self> {
        // Their limiter shares every map that it has with the instance.
        let maps = pinned(pins).context("cannot list the maps of an instance")?;
        let mut loader = EbpfLoader::new();
        let tick = Clock::Monotonic.tick();
        loader
            .override_global(global::SLOT, &slot, true)
            .override_global(global::TICK, &tick, true)
            .override_global("MADE_BITS", &made, true);
        for map in &maps {
            loader.map_pin_path(map, pins.map(map));
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

/// The names of the maps of an instance.
fn pinned(pins: &Pins) -> io::Result<Vec<String>> {
    let folder = pins.map("");
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().display().to_string())).collect()
}

fn missing(name: &str) -> String {
    format!("the object has no XDP program {name}")
}
