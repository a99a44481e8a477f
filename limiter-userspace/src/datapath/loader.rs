//! The loader of an agent: a process of its own, which alone has `CAP_PERFMON`.
//!
//! The kernel asks that right of who loads the main program. Together with `CAP_BPF` it lets a process read kernel memory, so
//! the agent gives it up at its start. [`Loader`] is the agent's end of the connection. What the process itself does is in
//! [`loading`](super::loading).

pub(crate) mod wire;

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};

use self::wire::{Kind, OptionalArray, Request, Wanted, answered, ask, is_end};
use super::sizes::Sizes;
use crate::error::{Error, Result};

/// How long a loader may take for an answer: many times as long as the slowest machine verifies a program.
const PATIENCE: Duration = Duration::from_secs(120);

/// The name of the hidden command that the process runs.
pub(crate) const COMMAND: &str = "loader";

/// A loader that this process started. It ends when this is dropped, or when this process does.
#[derive(Debug)]
pub(crate) struct Loader {
    socket: OwnedFd,
    /// Held while a request waits for its answer.
    process: Mutex<Child>,
}

impl Loader {
    /// Starts a loader for the instance in a directory. It has the rights that this process hands on to what it executes.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let failed = |error| Error::system("start the loader", error);
        // With messages that are kept apart, unlike those of datagrams, the end of one side is seen by the other one.
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)
            .map_err(|error| failed(error.into()))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))
            .map_err(|error| failed(error.into()))?;
        // This very file, also if another one has its name by now.
        let process = Command::new("/proc/self/exe")
            .arg0("limiter")
            .arg(COMMAND)
            .arg("--bpffs")
            .arg(directory)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            // What a terminal sends its foreground is for the agent, which ends the loader.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { socket, process: Mutex::new(process) })
    }

    /// Has a program loaded, for the maps in the second directory or in the first one.
    ///
    /// # Errors
    /// The error of the loader, or [`Error::NoLoader`].
    pub(crate) fn load(&self, program: Kind, second: bool) -> Result<OwnedFd> {
        self.ask(Request { wanted: Wanted::Program(program), second })?.ok_or_else(|| {
            Error::Object {
                action: "have a program loaded by the loader".to_owned(),
                reason: "it gave none".to_owned(),
            }
        })
    }

    /// Has the maps made of an instance, in the second directory or in the first one.
    ///
    /// # Errors
    /// The error of the loader, or [`Error::NoLoader`].
    pub(crate) fn make_maps(&self, sizes: &Sizes, second: bool) -> Result<()> {
        self.ask(Request { wanted: Wanted::Maps(*sizes), second }).map(drop)
    }

    /// Has the map of wide states made, if there is none, in the second directory or in the first one.
    ///
    /// # Errors
    /// The error of the loader, or [`Error::NoLoader`].
    pub(crate) fn make_array(&self, array: OptionalArray, second: bool) -> Result<()> {
        self.ask(Request { wanted: Wanted::Array(array), second }).map(drop)
    }

    fn ask(&self, request: Request) -> Result<Option<OwnedFd>> {
        let mut process = self.process();
        let socket = self.socket.as_fd();
        match ask(socket, request).and_then(|()| answered(socket)) {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(ended(&mut process)),
            Err(error) if is_end(&error) => Err(ended(&mut process)),
            // A late answer would be taken for that to the next request.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _: io::Result<()> = process.kill();
                Err(ended(&mut process))
            }
            Err(error) => Err(Error::system("have a program loaded by the loader", error)),
        }
    }

    /// Checks that the process is there.
    ///
    /// # Errors
    /// [`Error::NoLoader`], or what the system says.
    pub(crate) fn check(&self) -> Result<()> {
        match self.process().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::NoLoader { end: status.to_string() }),
            Err(error) => Err(Error::system("look at the loader", error)),
        }
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a loader that closed its end, which it does by ending.
fn ended(process: &mut Child) -> Error {
    match process.wait() {
        Ok(status) => Error::NoLoader { end: status.to_string() },
        Err(error) => Error::system("look at the loader", error),
    }
}
