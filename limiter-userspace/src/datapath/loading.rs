//! What the loader of an agent does: it loads the programs that the agent asks for, one after the other.

use std::{io, os::fd::BorrowedFd};

use super::{
    bpffs::Pins,
    exchange::carry_from,
    loader::wire::{Request, Wanted, answer, next},
    maps::Maps,
    program::{Clock, Program},
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
            Ok(mut program) => program.with_fd(|fd| answer(socket, Ok(fd)))?,
            Err(error) => answer(socket, Err(&error)),
        };
        match told {
            // The agent ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            told => told.map_err(failed)?,
        }
        sys::trim_memory();
    }
    Ok(())
}

/// Loads a program for the maps in one of the directories. The old tables are looked at here: what the agent says of them does
/// not count.
fn load(pins: &Pins, request: Request) -> Result<Program> {
    let Request { wanted, second } = request;
    let (pins, other) = pins.by_side(second);
    // The library would make maps that are missing.
    Maps::open_at(&pins)?;
    let clock = Clock::Monotonic;
    match wanted {
        Wanted::Main { frags } => Program::load(&pins, frags, clock),
        Wanted::Carrying { frags } => {
            Program::load_carrying(&pins, &carry_from(&other)?, frags, clock)
        }
        Wanted::Carrier => Program::load_carrier(&pins, &carry_from(&other)?, clock),
    }
}
