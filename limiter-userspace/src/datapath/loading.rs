//! What the loader of an agent does: it makes the maps and loads the programs that the agent asks for, one after the other.

use std::os::fd::BorrowedFd;

use super::{
    bpffs::Pins,
    exchange::carry_from,
    loader::wire::{Kind, Request, Wanted, answer, is_end, next},
    maps::Maps,
    program::{Clock, Program, create_maps},
    sys,
};
use crate::error::{Error, Result};

/// Answers the requests that come by a socket, for the instance of these pins, until its other end is closed.
///
/// # Errors
/// What the system says of the socket.
pub(crate) fn serve(pins: &Pins, socket: BorrowedFd<'_>) -> Result<()> {
    let failed = |error| Error::system("hear the agent, which alone starts a loader", error);
    while let Some(request) = next(socket).map_err(failed)? {
        let told = match request.and_then(|request| load(pins, request)) {
            Ok(None) => answer(socket, Ok(None)),
            Ok(Some(mut program)) => program.with_fd(|fd| answer(socket, Ok(Some(fd))))?,
            Err(error) => answer(socket, Err(&error)),
        };
        match told {
            // The agent ended meanwhile.
            Err(error) if is_end(&error) => return Ok(()),
            told => told.map_err(failed)?,
        }
        sys::trim_memory();
    }
    Ok(())
}

/// Does what is asked for, with the maps in one of the directories. Nothing in a request says anything of the old tables: they
/// are looked at here.
fn load(pins: &Pins, request: Request) -> Result<Option<Program>> {
    let Request { wanted, second } = request;
    let (pins, other) = pins.by_side(second);
    let program = match wanted {
        Wanted::Maps(sizes) => {
            sizes.check()?;
            return create_maps(&pins, &sizes).map(|()| None);
        }
        Wanted::Array(array) => {
            return Maps::open_at(&pins)?.make_array(array).map(|()| None);
        }
        Wanted::Program(program) => program,
    };
    // The library would make maps that are missing.
    Maps::open_at(&pins)?;
    let clock = Clock::Monotonic;
    let loaded = match program {
        Kind::Main { frags } => Program::load(&pins, frags, clock),
        Kind::Carrying { frags } => {
            Program::load_carrying(&pins, &carry_from(&other)?, frags, clock)
        }
        Kind::Carrier => Program::load_carrier(&pins, &carry_from(&other)?, clock),
        Kind::Pusher => Program::load_pusher(&pins, clock),
        Kind::Dispatcher { slot, frags } => Program::load_dispatcher(&pins, slot, frags),
    };
    loaded.map(Some)
}
