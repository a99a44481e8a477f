//! Questions and requests to netlink(7).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use crate::policy::units::printable;

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The one object that the request names.
    One,
    /// Every object of its kind.
    All,
}

/// Which part of the kernel is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// rtnetlink(7).
    Route,
    /// The families that have a number only once they are there.
    Generic,
    /// sock_diag(7).
    Sockets,
}

/// How often a list is read that changes meanwhile.
const TRIES: usize = 16;

/// `struct nlmsghdr`, and what is asked.
#[repr(C)]
struct Request<T> {
    header: libc::nlmsghdr,
    body: T,
}

/// Sends a request of a type to a family, about one object, and gives the bodies of the answers. The
/// body of the request is as in [`ask`].
///
/// # Errors
/// What the system says.
pub(super) fn inquire<T: Copy>(family: Family, kind: u16, body: T) -> io::Result<Vec<Vec<u8>>> {
    Ok(ask_once(family, kind, body, Extent::One)?.unwrap_or_default())
}

/// The same about all objects of a kind; nothing if these changed while they were read.
///
/// # Errors
/// What the system says.
pub(super) fn inquire_all<T: Copy>(
    family: Family,
    kind: u16,
    body: T,
) -> io::Result<Option<Vec<Vec<u8>>>> {
    ask_once(family, kind, body, Extent::All)
}

/// Sends a request of a type, such as `RTM_GETLINK`, and gives the bodies of the answers. The body of the request is of
/// the structures that the type takes, without padding.
///
/// # Errors
/// What the system says, or that the list changed each time while it was read.
pub(super) fn ask<T: Copy>(kind: u16, body: T, extent: Extent) -> io::Result<Vec<Vec<u8>>> {
    for _ in 0..TRIES {
        if let Some(answers) = ask_once(Family::Route, kind, body, extent)? {
            return Ok(answers);
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The same; nothing if the list changed while it was read.
fn ask_once<T: Copy>(
    family: Family,
    kind: u16,
    body: T,
    extent: Extent,
) -> io::Result<Option<Vec<Vec<u8>>>> {
    const NLM_F_DUMP_INTR: u16 = 0x10;
    let socket = open(family)?;
    let dump = if extent == Extent::All { libc::NLM_F_DUMP } else { 0 };
    send(&socket, kind, body, dump)?;
    let mut answers = Vec::new();
    // A socket is answered with some hundred bytes, and is looked up for each block that is pushed.
    let size = if family == Family::Sockets { 4 * 1024 } else { 128 * 1024 };
    let mut buffer = vec![0_u8; size];
    loop {
        let mut rest = receive(&socket, &mut buffer)?;
        while let Some((kind, flags, payload, after)) = next_message(rest) {
            if flags & NLM_F_DUMP_INTR != 0 {
                return Ok(None);
            }
            match i32::from(kind) {
                // A list that the kernel could not give ends with its error.
                libc::NLMSG_DONE if code(payload) < 0 => return Err(refusal(payload)),
                libc::NLMSG_DONE => return Ok(Some(answers)),
                libc::NLMSG_ERROR => return Err(refusal(payload)),
                _ => answers.push(payload.to_vec()),
            }
            rest = after;
        }
        if extent == Extent::One {
            return Ok(Some(answers));
        }
    }
}

/// The kernel did not do what a request asks for. It has the words for that, of the driver or of the
/// kernel; `None` if there are none.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Option<String>);

impl From<io::Error> for Refused {
    fn from(_: io::Error) -> Self {
        Self(None)
    }
}

/// Sends a request that changes something, such as `RTM_SETLINK`, and waits until it is done. The
/// body is as in [`ask`].
///
/// # Errors
/// [`Refused`], also if the request could not be sent.
pub(super) fn change<T: Copy>(kind: u16, body: T) -> Result<(), Refused> {
    let socket = open(Family::Route)?;
    // Older kernels have no words, and refuse this.
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        let on: libc::c_int = 1;
        // SAFETY: an option of that length, which outlives the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_NETLINK,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
    send(&socket, kind, body, libc::NLM_F_ACK)?;
    let mut buffer = vec![0_u8; 16 * 1024];
    let answer = receive(&socket, &mut buffer)?;
    match next_message(answer) {
        Some((kind, flags, payload, _)) if i32::from(kind) == libc::NLMSG_ERROR => {
            acknowledged(flags, payload)
        }
        _ => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}

/// Reads a `struct nlmsgerr`: the error, the header of the request, and then attributes. The header
/// is followed by the body of the request unless `NLM_F_CAPPED` is set.
fn acknowledged(flags: u16, payload: &[u8]) -> Result<(), Refused> {
    const NLM_F_CAPPED: u16 = 0x100;
    const NLMSGERR_ATTR_MSG: u16 = 1;
    const ATTRIBUTES: usize = 4 + size_of::<libc::nlmsghdr>();
    match payload.first_chunk() {
        Some(code) if i32::from_ne_bytes(*code) == 0 => return Ok(()),
        _ => {}
    }
    let attributes = payload.get(ATTRIBUTES..).filter(|_| flags & NLM_F_CAPPED != 0);
    let message = attributes.and_then(|all| attribute(all, NLMSGERR_ATTR_MSG));
    let message = message.map(|text| {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        printable(&String::from_utf8_lossy(&text[..end]), 256)
    });
    Err(Refused(message.filter(|text| !text.is_empty())))
}

/// Receives an answer.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    loop {
        // SAFETY: a buffer as long as said, which outlives the call.
        let received =
            unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(received) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => return Ok(buffer.get(..received).unwrap_or_default()),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

fn open(family: Family) -> io::Result<OwnedFd> {
    let protocol = match family {
        Family::Route => libc::NETLINK_ROUTE,
        Family::Generic => libc::NETLINK_GENERIC,
        Family::Sockets => libc::NETLINK_INET_DIAG,
    };
    let socket_kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no precondition.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, socket_kind, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Sends a request with `flags`, `NLM_F_*`, beside that it is one.
fn send<T: Copy>(socket: &OwnedFd, kind: u16, body: T, flags: i32) -> io::Result<()> {
    let header = libc::nlmsghdr {
        nlmsg_len: size_of::<Request<T>>() as u32,
        nlmsg_type: kind,
        nlmsg_flags: (libc::NLM_F_REQUEST | flags) as u16,
        nlmsg_seq: 0,
        nlmsg_pid: 0,
    };
    let request = Request { header, body };
    // SAFETY: a request of that length, which outlives the call.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), (&raw const request).cast(), size_of::<Request<T>>(), 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The type, the flags and the payload of the first message, and what comes after it.
fn next_message(bytes: &[u8]) -> Option<(u16, u16, &[u8], &[u8])> {
    const HEADER: usize = size_of::<libc::nlmsghdr>();
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let at = |place: usize| Some(u16::from_ne_bytes(*bytes.get(place..)?.first_chunk()?));
    let kind = at(offset_of!(libc::nlmsghdr, nlmsg_type))?;
    let flags = at(offset_of!(libc::nlmsghdr, nlmsg_flags))?;
    let payload = bytes.get(HEADER..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, flags, payload, after))
}

/// Why there is no answer.
fn refusal(payload: &[u8]) -> io::Error {
    match code(payload) {
        0 => io::ErrorKind::InvalidData.into(),
        code => io::Error::from_raw_os_error(code.saturating_neg()),
    }
}

/// The code that an answer begins with.
fn code(payload: &[u8]) -> i32 {
    payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code))
}

/// The payload of the first attribute of a type.
pub(super) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}

/// The types and payloads of attributes, up to one that is broken.
pub(super) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const HEADER: usize = 4;
    /// Flags in the upper bits of the type.
    const TYPE: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let &[a, b, c, d] = rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & TYPE;
        let payload = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_broken_ones_are_not_followed() {
        let attributes = [5, 0, 1, 0, 7, 0, 0, 0, 8, 0, 43, 128, 1, 2, 3, 4];
        assert_eq!(attribute(&attributes, 1), Some(&[7][..]));
        assert_eq!(attribute(&attributes, 43), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&attributes, 2), None);
        for length in 0..attributes.len() {
            assert_eq!(attribute(&attributes[..length], 43), None, "{length}");
        }
        assert_eq!(attribute(&[0; 64], 9), None);
    }

    #[test]
    fn a_refusal_has_the_words_of_the_driver() {
        const CAPPED: u16 = 0x300;
        let code = (-libc::EOPNOTSUPP).to_ne_bytes();
        let mut payload = [&code[..], &[0; 16], &[9, 0, 1, 0], b"no XDP\0\0"].concat();
        payload[20] = 4 + 7;
        let refused = |flags, payload: &[u8]| acknowledged(flags, payload).unwrap_err().0;
        assert_eq!(refused(CAPPED, &payload).as_deref(), Some("no XDP"));
        assert_eq!(refused(0, &payload), None, "the request is before the attributes");
        for length in 0..payload.len() - 1 {
            assert_eq!(refused(CAPPED, &payload[..length]), None, "{length}");
        }
        payload[24] = 0x1b;
        assert!(!refused(CAPPED, &payload).unwrap().contains('\x1b'));
        acknowledged(CAPPED, &[0; 20]).unwrap();
    }

    #[test]
    fn messages_are_read_as_far_as_they_are_whole() {
        let mut bytes = vec![0_u8; 20];
        bytes[..4].copy_from_slice(&18_u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        bytes[16..18].copy_from_slice(b"up");
        let (kind, flags, payload, after) = next_message(&bytes).unwrap();
        assert_eq!((kind, flags, payload, after.len()), (libc::RTM_NEWLINK, 0, &b"up"[..], 0));
        for length in 0..18 {
            assert!(next_message(&bytes[..length]).is_none(), "{length}");
        }
    }
}
