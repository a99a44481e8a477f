//! The BPF object of the benchmarks: reference programs, and the limiter behind traffic generators.

use std::{fs, io};

use anyhow::{Context as _, Result};
use aya::{Ebpf, EbpfLoader, programs::Xdp};
use limiter_common::abi::layout::global;
use limiter_userspace::datapath::{bpffs::Pins, program::Clock};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("LIMITER_BPF_OBJECTS"), "/load"));

/// Program: passes every frame.
pub(crate) const NOP: &str = "nop";
/// Program: writes the made field, then passes the frame.
pub(crate) const NOP_SPOOFED: &str = "nop_spoofed";
/// Program: writes random fields, then runs the limiter.
pub(crate) const LIMITER_SPOOFED: &str = "limiter_spoofed";
/// Program: writes fields made from consecutive numbers, then runs the limiter.
pub(crate) const LIMITER_IN_TURN: &str = "limiter_in_turn";
/// Program: reads the clock.
pub(crate) const PART_CLOCK: &str = "part_clock";
/// Program: makes one atomic addition.
pub(crate) const PART_ADD: &str = "part_add";
/// Program: parses the headers.
pub(crate) const PART_PARSE: &str = "part_parse";
/// Program: drops every frame.
pub(crate) const DROP: &str = "drop";
/// Program: sends every frame back out of its interface.
pub(crate) const SEND: &str = "send";

/// The field that a generator writes into each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// An IPv4 source in `10.0.0.0/8`. The mask says which bits are made.
    Source4(u32),
    /// An IPv6 source, each in another /64.
    Source6,
    /// The TCP source port and sequence number, over IPv4.
    Syn,
}

impl Made {
    /// An IPv4 source of which all bits are made.
    pub(crate) const ANY: Self = Self::Source4(u32::MAX);

    /// The number of the field in the BPF object.
    const fn field(self) -> u32 {
        match self {
            Self::Source4(_) => 0,
            Self::Source6 => 1,
            Self::Syn => 2,
        }
    }
}

/// The loaded object, with the maps of an instance.
pub(crate) struct Load(Ebpf);

impl Load {
    /// Loads these programs. Their limiter is the main program of the instance at `pins`, and counts in `slot`; they
    /// make any IPv4 source.
    pub(crate) fn new(pins: &Pins, slot: u32, programs: &[&str]) -> Result<Self> {
        Self::making(pins, slot, Made::ANY, programs)
    }

    /// Like [`new`](Self::new), with the field that the programs make.
    pub(crate) fn making(pins: &Pins, slot: u32, made: Made, programs: &[&str]) -> Result<Self> {
        // The limiter in this object shares all its maps with the instance.
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

    /// Returns a loaded program.
    pub(crate) fn program(&self, name: &str) -> Result<&Xdp> {
        let program = self.0.program(name).with_context(|| missing(name))?;
        program.try_into().with_context(|| missing(name))
    }

    /// Returns a loaded program, to be attached.
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
