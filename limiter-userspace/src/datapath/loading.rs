//! What the loader of an agent does: it loads the programs that the agent asks for, one after the other.

use std::os::fd::BorrowedFd;

use super::{
    bpffs::Pins,
    exchange::carry_from,
    loader::{
        is_end,
        wire::{Request, Wanted, answer, next},
    },
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
    loop {
        let request = match next(socket) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            // The agent ended with an answer that it did not take.
            Err(error) if is_end(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let told = match request.and_then(|request| load(pins, request)) {
            Ok(None) => answer(socket, Ok(None)),
            Ok(Some(mut program)) => program.with_fd(|fd| answer(socket, Ok(Some(fd))))?,
            Err(error) => answer(socket, Err(&error)),
        };
        match told {
            Err(error) if is_end(&error) => return Ok(()),
            told => told.map_err(failed)?,
        }
        sys::trim_memory();
    }
}

/// Does what is asked for, with the maps in one of the directories. Nothing in a request says anything of the old tables: they
/// are looked at here.
fn load(pins: &Pins, request: Request) -> Result<Option<Program>> {
    let Request { wanted, second } = request;
    let (pins, other) = pins.by_side(second);
    if let Wanted::Maps(sizes) = wanted {
        sizes.check()?;
        return create_maps(&pins, &sizes).map(|()| None);
    }
    let clock = Clock::Monotonic;
    // The library would make maps that are missing.
    Maps::open_at(&pins)?;
    let program = match wanted {
        Wanted::Maps(_) | Wanted::Main { frags: false } => Program::load(&pins, false, clock),
        Wanted::Main { frags: true } => Program::load(&pins, true, clock),
        Wanted::Carrying { frags } => {
            Program::load_carrying(&pins, &carry_from(&other)?, frags, clock)
        }
        Wanted::Carrier => Program::load_carrier(&pins, &carry_from(&other)?, clock),
        Wanted::Dispatcher { slot, frags } => Program::load_dispatcher(&pins, slot, frags),
    };
    program.map(Some)
}
