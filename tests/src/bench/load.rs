//! The programs that are measured beside the limiter, and those that make its traffic.

use std::{fs, io};

use anyhow::{Context as _, Result};
use aya::{Ebpf, EbpfLoader, programs::Xdp};
use limiter_common::abi::layout::global;
use limiter_userspace::datapath::{bpffs::Pins, program::Clock};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("LIMITER_BPF_OBJECTS"), "/load"));

/// Passes every frame.
pub(crate) const NOP: &str = "nop";
/// Passes every frame, after writing what is made.
pub(crate) const NOP_SPOOFED: &str = "nop_spoofed";
/// The limiter, behind what is made at random.
pub(crate) const LIMITER_SPOOFED: &str = "limiter_spoofed";
/// The limiter, behind what is made of one number after the other.
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

/// What the programs of the object write into each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// An IPv4 source of which these bits are made; the others are those of `10.0.0.0/8`.
    Source4(u32),
    /// An IPv6 source of a /64 of its own.
    Source6,
    /// The source port and the sequence number of TCP over IPv4.
    Syn,
}

impl Made {
    /// Any IPv4 source.
    pub(crate) const ANY: Self = Self::Source4(u32::MAX);

    /// The number of the field in the object.
    const fn field(self) -> u32 {
        match self {
            Self::Source4(_) => 0,
            Self::Source6 => 1,
            Self::Syn => 2,
        }
    }
}

/// The object, on the maps of an instance.
pub(crate) struct Load(Ebpf);

impl Load {
    /// Opens the object and loads these programs of it. Their limiter works for the instance with
    /// these pins and counts in `slot`; sources that they make are any.
    pub(crate) fn new(pins: &Pins, slot: u32, programs: &[&str]) -> Result<Self> {
        Self::making(pins, slot, Made::ANY, programs)
    }

    /// The same, whose programs make this.
    pub(crate) fn making(pins: &Pins, slot: u32, made: Made, programs: &[&str]) -> Result<Self> {
        // Their limiter shares every map that it has with the instance.
        let maps = pinned(pins).context("cannot list the maps of an instance")?;
        let mut loader = EbpfLoader::new();
        let tick = Clock::Monotonic.tick();
        let (field, bits) = match made {
            Made::Source4(bits) => (made.field(), bits),
            Made::Source6 | Made::Syn => (made.field(), u32::MAX),
        };
        loader
            .override_global(global::SLOT, &slot, true)
            .override_global(global::TICK, &tick, true)
            .override_global("MADE_BITS", &bits, true)
            .override_global("MADE_FIELD", &field, true);
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
