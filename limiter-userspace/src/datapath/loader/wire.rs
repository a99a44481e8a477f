//! What an agent and its loader say to each other, over a pair of sockets that keep messages apart.
//!
//! A request names one of the few programs that an agent needs, the sizes of maps, or one of two arrays. It holds no path, no
//! code and no layout, so that whoever has taken an agent over can ask for nothing else. An answer is the program, as a
//! descriptor, or that the maps were made, or the error.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use limiter_common::abi::layout::map;
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

use crate::{
    datapath::sizes::Sizes,
    error::{Error, Failure},
};

/// The bytes of a request, at most.
const REQUEST: usize = 512;
/// The bytes of an answer, at most. The lines that an error quotes from the log of a verifier are bounded.
const ANSWER: usize = 1 << 16;
/// What is said of something that was done.
const DONE: &[u8] = b"{}";

/// What an agent may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Wanted {
    /// The maps of an instance, which are pinned, with these sizes. The kernel adds guards to each use of an array that
    /// somebody without `CAP_PERFMON` made.
    Maps(Sizes),
    /// An array that is made when a policy first needs it, and pinned, if there is none. It is asked for by who changes the
    /// policy.
    Array(OptionalArray),
    /// A program.
    Program(Kind),
}

/// The arrays among the maps that are made when a policy first needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum OptionalArray {
    /// [`map::WIDE_STATE`].
    WideState,
    /// [`map::OFFENCES`].
    Offences,
}

impl OptionalArray {
    /// The array of this name, if it is one of them.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            map::WIDE_STATE => Some(Self::WideState),
            map::OFFENCES => Some(Self::Offences),
            _ => None,
        }
    }
}

/// A program that an agent needs. All are of this build and go by the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Kind {
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
    /// The program `limiter_push`.
    Pusher,
    /// The dispatcher of the interface of a slot.
    Dispatcher {
        /// The slot.
        slot: u32,
        /// Whether packets may lie in several pieces.
        frags: bool,
    },
}

/// A request of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// What is asked for.
    pub(crate) wanted: Wanted,
    /// Whether its maps are those in the second directory. The old tables are in the other one.
    pub(crate) second: bool,
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
    let bytes = serde_json::to_vec(&request)?;
    retry_on_intr(|| send(socket, &bytes, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Whether a system call says that the other end is closed. An end with a message that it did not take is a reset.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Waits for a request: `None` at the end of the agent, an error in it for a message that is no request. Descriptors that came
/// with it are closed by the kernel.
pub(crate) fn next(socket: BorrowedFd<'_>) -> io::Result<Option<Result<Request, Error>>> {
    // A longer message fills the byte more.
    let mut bytes = [0_u8; REQUEST + 1];
    let received = retry_on_intr(|| recv(socket, &mut bytes[..], RecvFlags::empty()));
    let length = match received.map_err(io::Error::from) {
        Ok((_, 0)) => return Ok(None),
        Err(error) if is_end(&error) => return Ok(None),
        received => received?.1,
    };
    let request = serde_json::from_slice(bytes.get(..length).unwrap_or_default());
    Ok(Some(request.map_err(|_| Error::Object {
        action: "load a program".to_owned(),
        reason: "the request names none that an agent needs".to_owned(),
    })))
}

/// Sends an answer.
pub(crate) fn answer(
    socket: BorrowedFd<'_>,
    answer: Result<Option<BorrowedFd<'_>>, &Error>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let (descriptors, said);
    // An empty message would look like the end.
    let text = match answer {
        Ok(None) => DONE,
        Ok(Some(program)) => {
            descriptors = [program];
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            DONE
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
pub(super) fn answered(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<Result<Option<OwnedFd>, Error>>> {
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
    if given.is_some() {
        return Ok(Some(Ok(given)));
    }
    // The descriptor did not fit into this process, or the text not into its place.
    if received.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::Error::other("the answer is cut off"));
    }
    let text = text.get(..received.bytes).unwrap_or_default();
    if text == DONE {
        return Ok(Some(Ok(None)));
    }
    let told: Told = serde_json::from_slice(text)?;
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
        for wanted in [
            Wanted::Maps(Sizes::for_sources(u32::MAX)),
            Wanted::Array(OptionalArray::WideState),
            Wanted::Array(OptionalArray::Offences),
            Wanted::Program(Kind::Main { frags: false }),
            Wanted::Program(Kind::Carrying { frags: true }),
            Wanted::Program(Kind::Carrier),
            Wanted::Program(Kind::Pusher),
            Wanted::Program(Kind::Dispatcher { slot: u32::MAX, frags: true }),
        ] {
            for second in [false, true] {
                let request = Request { wanted, second };
                ask(agent.as_fd(), request).unwrap();
                let came = next(loader.as_fd()).unwrap().unwrap();
                assert_eq!(came.unwrap(), request);
            }
        }
        for bytes in [
            r#"{"wanted":{"Program":"Carrier"}}"#,
            r#"{"wanted":{"Program":"Carrier"},"second":2}"#,
            r#"{"wanted":{"Program":"Carrier"},"second":true,"path":"/"}"#,
            r#"{"wanted":{"Program":"Other"},"second":true}"#,
            "{}",
            &" ".repeat(60_000),
        ] {
            send(&agent, bytes.as_bytes(), SendFlags::NOSIGNAL).unwrap();
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
        answer(loader.as_fd(), Ok(None)).unwrap();
        assert!(answered(agent.as_fd()).unwrap().unwrap().unwrap().is_none());
        answer(loader.as_fd(), Ok(Some(loader.as_fd()))).unwrap();
        let came = answered(agent.as_fd()).unwrap().unwrap().unwrap().unwrap();
        let flags = rustix::io::fcntl_getfd(&came).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        drop(loader);
        ask(agent.as_fd(), Request { wanted: Wanted::Program(Kind::Carrier), second: true })
            .unwrap();
        assert!(next(came.as_fd()).unwrap().unwrap().is_ok());
    }
}
