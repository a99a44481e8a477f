//! What an agent and its loader say to each other, over a pair of sockets that keep messages apart.
//!
//! A request names one of the few programs that an agent needs. It holds no path, no code and no layout, so that whoever has
//! taken an agent over can ask for nothing else. An answer is the program, as a descriptor, or the error.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
    },
};
use serde::{Deserialize, Serialize};
use thiserror::Error as Derive;

use crate::error::{Error, Failure};

/// The bytes of a request.
const REQUEST: usize = 2;
/// The bytes of an answer, at most. The lines that an error quotes from the log of a verifier are bounded.
const ANSWER: usize = 1 << 16;

/// A program that an agent may ask for. All are of this build and go by the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The main program.
    Main {
        /// Whether packets may lie in several pieces.
        frags: bool,
    },
    /// The main program that carries over what the old tables have.
    Carrying {
        /// Whether packets may lie in several pieces.
        frags: bool,
    },
    /// The program `limiter_carry`.
    Carrier,
}

impl Wanted {
    const ALL: [Self; 5] = [
        Self::Main { frags: false },
        Self::Main { frags: true },
        Self::Carrying { frags: false },
        Self::Carrying { frags: true },
        Self::Carrier,
    ];
}

/// A request of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The program.
    pub(crate) wanted: Wanted,
    /// Whether its maps are those in the second directory. The old tables are in the other one.
    pub(crate) second: bool,
}

impl Request {
    fn bytes(self) -> [u8; REQUEST] {
        let place = Wanted::ALL.iter().position(|wanted| *wanted == self.wanted);
        [place.unwrap_or_default() as u8, self.second.into()]
    }

    /// The request in these bytes; `None` if they are none.
    fn read(bytes: &[u8]) -> Option<Self> {
        let [place, side] = *bytes else { return None };
        let wanted = *Wanted::ALL.get(usize::from(place))?;
        let second = match side {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { wanted, second })
    }
}

/// The error of a loader, as its agent tells it.
#[derive(Debug, Derive, Deserialize, Serialize)]
#[error("{message}")]
struct Told {
    message: String,
    exit_code: u8,
    remedy: Option<String>,
}

impl Failure for Told {
    fn exit_code(&self) -> u8 {
        self.exit_code
    }

    fn remedy(&self) -> Option<String> {
        self.remedy.clone()
    }
}

/// Sends a request.
pub(super) fn ask(socket: BorrowedFd<'_>, request: Request) -> io::Result<()> {
    retry_on_intr(|| send(socket, &request.bytes(), SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Waits for a request: `None` at the end of the agent, an error in it for a message that is no request. Descriptors that came
/// with it are closed by the kernel.
pub(crate) fn next(socket: BorrowedFd<'_>) -> io::Result<Option<Result<Request, Error>>> {
    // A longer message fills the byte more.
    let mut bytes = [0_u8; REQUEST + 1];
    let (_, length) = retry_on_intr(|| recv(socket, &mut bytes[..], RecvFlags::empty()))?;
    if length == 0 {
        return Ok(None);
    }
    let request = Request::read(bytes.get(..length).unwrap_or_default());
    Ok(Some(request.ok_or_else(|| Error::Object {
        action: "load a program".to_owned(),
        reason: "the request names none that an agent needs".to_owned(),
    })))
}

/// Sends an answer.
pub(crate) fn answer(
    socket: BorrowedFd<'_>,
    answer: Result<BorrowedFd<'_>, &Error>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let (descriptors, said);
    // An empty message would look like the end.
    let text = match answer {
        Ok(program) => {
            descriptors = [program];
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            &b"{}"[..]
        }
        Err(error) => {
            let told = Told {
                message: error.to_string(),
                exit_code: error.exit_code(),
                remedy: error.remedy(),
            };
            said = serde_json::to_vec(&told)?;
            &said[..]
        }
    };
    let text = [IoSlice::new(text)];
    retry_on_intr(|| sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Waits for an answer; `None` if there is no loader any more.
pub(super) fn answered(socket: BorrowedFd<'_>) -> io::Result<Option<Result<OwnedFd, Error>>> {
    let mut text = vec![0_u8; ANSWER];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let mut buffers = [IoSliceMut::new(&mut text)];
        recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let given = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if let Some(program) = given {
        return Ok(Some(Ok(program)));
    }
    // The descriptor did not fit into this process, or the text not into its place.
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("the answer is cut off"));
    }
    let told: Told = serde_json::from_slice(text.get(..received.bytes).unwrap_or_default())?;
    Ok(Some(Err(told.into())))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_request_comes_as_it_was_sent_and_nothing_else_is_one() {
        let (agent, loader) = pair();
        for wanted in Wanted::ALL {
            for second in [false, true] {
                let request = Request { wanted, second };
                ask(agent.as_fd(), request).unwrap();
                let came = next(loader.as_fd()).unwrap().unwrap();
                assert_eq!(came.unwrap(), request);
            }
        }
        for bytes in [&[5, 0][..], &[0, 2], &[255, 255], &[0], &[0, 0, 0], &[1; 200]] {
            send(&agent, bytes, SendFlags::NOSIGNAL).unwrap();
            let came = next(loader.as_fd()).unwrap().unwrap();
            assert!(matches!(came, Err(Error::Object { .. })), "{bytes:?}");
        }
        drop(agent);
        assert!(next(loader.as_fd()).unwrap().is_none());
    }

    #[test]
    fn an_error_keeps_its_words_exit_code_and_remedy() {
        let (agent, loader) = pair();
        let error = Error::Refused {
            program: "limiter",
            kernel: "6.1".to_owned(),
            cause: io::Error::from_raw_os_error(libc::EACCES),
            log: "\u{1}\"\n".repeat(3_000),
        };
        answer(loader.as_fd(), Err(&error)).unwrap();
        let came = answered(agent.as_fd()).unwrap().unwrap().unwrap_err();
        assert_eq!(came.to_string(), error.to_string());
        assert_eq!((came.exit_code(), came.remedy()), (error.exit_code(), error.remedy()));
        drop(loader);
        assert!(answered(agent.as_fd()).unwrap().is_none());
    }

    #[test]
    fn a_descriptor_comes_as_one_that_no_child_inherits() {
        let (agent, loader) = pair();
        answer(loader.as_fd(), Ok(loader.as_fd())).unwrap();
        let came = answered(agent.as_fd()).unwrap().unwrap().unwrap();
        let flags = rustix::io::fcntl_getfd(&came).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        drop(loader);
        ask(agent.as_fd(), Request { wanted: Wanted::Carrier, second: true }).unwrap();
        assert!(next(came.as_fd()).unwrap().unwrap().is_ok());
    }
}
