//! The programs of a case.

use std::time::{Duration, Instant};

use anyhow::Result;
use aya::programs::Xdp;
use limiter_userspace::datapath::{
    bpffs::Pins,
    main_program,
    program::{Clock, Program},
};

use super::{
    batch,
    case::{Case, Sources},
    load::{LIMITER_IN_TURN, LIMITER_SPOOFED, Load, Made, NOP, NOP_SPOOFED},
};

/// Up to this number, tracked sources send [`OFTEN`] packets before the measurement; more sources send one.
const MET_OFTEN: u32 = 1 << 18;
/// Packets per source before the measurement.
const OFTEN: u64 = 65;

/// The cost of loading the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading {
    /// Instructions that the verifier processed; `None` if the kernel does not report them.
    pub(crate) instructions: Option<u32>,
    /// The time to open the object and the maps, verify the program and compile it.
    pub(crate) time: Duration,
}

/// The limiter of a case, as packets come to it, and its baseline.
pub(crate) enum Programs {
    Plain(Program, Load),
    /// Both programs are in the object that makes the sources.
    Made(Load),
}

impl Programs {
    /// Loads the programs of a case, for a slot of its instance.
    pub(crate) fn load(
        case: &Case,
        slot: u32,
        pins: &Pins,
        loading: &mut Vec<Loading>,
    ) -> Result<Self> {
        let made = match case.sources {
            Sources::One => None,
            Sources::NewConnections => Some(Made::Syn),
            Sources::MadeUp => Some(Made::ANY),
            Sources::MadeUp6 => Some(Made::Source6),
            Sources::Tracked(number) => Some(Made::Source4(number - 1)),
        };
        // The cases of an instance share its main program, as interfaces do.
        if slot == 0 {
            let start = Instant::now();
            let mut program = Program::load(pins, false, Clock::Monotonic)?;
            let time = start.elapsed();
            main_program::put(pins, &mut program, false)?;
            let instructions = program.xdp()?.info()?.verified_instruction_count();
            loading.push(Loading { instructions, time });
        }
        if let Some(made) = made {
            let programs = [NOP_SPOOFED, LIMITER_SPOOFED, LIMITER_IN_TURN];
            return Ok(Self::Made(Load::making(pins, slot, made, &programs)?));
        }
        let dispatcher = Program::load_dispatcher(pins, slot, false)?;
        Ok(Self::Plain(dispatcher, Load::new(pins, slot, &[NOP])?))
    }

    pub(crate) fn limiter(&mut self) -> Result<&mut Xdp> {
        match self {
            Self::Plain(program, _) => Ok(program.xdp()?),
            Self::Made(load) => load.program_mut(LIMITER_SPOOFED),
        }
    }

    pub(crate) fn baseline(&mut self) -> Result<&mut Xdp> {
        match self {
            Self::Plain(_, load) => load.program_mut(NOP),
            Self::Made(load) => load.program_mut(NOP_SPOOFED),
        }
    }

    /// Puts the sources of a case into the table before it is measured.
    pub(crate) fn meet_sources(&mut self, case: &Case) -> Result<()> {
        match (case.sources, &*self) {
            // The table is filled, so that every new source or connection has to evict another one.
            (Sources::MadeUp | Sources::MadeUp6 | Sources::NewConnections, _) => {
                let full = case.setting.sizes().sources;
                for _ in 0..2 {
                    batch::run(self.limiter()?, &case.frame, full)?;
                }
            }
            (Sources::Tracked(number), Self::Made(load)) => {
                let times = if number <= MET_OFTEN { OFTEN } else { 1 };
                for _ in 0..times {
                    batch::run(load.program(LIMITER_IN_TURN)?, &case.frame, number)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
