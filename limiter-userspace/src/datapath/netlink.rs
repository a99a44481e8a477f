//! Questions to rtnetlink(7).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The one object that the request names.
    One,
    /// Every object of its kind.
    All,
}

/// How often a list is read that changes meanwhile.
const TRIES: usize = 16;

/// `struct nlmsghdr`, and what is asked.
#[repr(C)]
struct Request<T> {
    header: libc::nlmsghdr,
    body: T,
}

/// Sends a request of a type, such as `RTM_GETLINK`, and gives the bodies of the answers. The body of the request is of
/// the structures that the type takes, without padding.
///
/// # Errors
/// What the system says, or that the list changed each time while it was read.
pub(super) fn ask<T: Copy>(kind: u16, body: T, extent: Extent) -> io::Result<Vec<Vec<u8>>> {
    for _ in 0..TRIES {
        if let Some(answers) = ask_once(kind, body, extent)? {
            return Ok(answers);
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The same; nothing if the list changed while it was read.
fn ask_once<T: Copy>(kind: u16, body: T, extent: Extent) -> io::Result<Option<Vec<Vec<u8>>>> {
    const NLM_F_DUMP_INTR: u16 = 0x10;
    let socket = send(kind, body, extent)?;
    let mut answers = Vec::new();
    let mut buffer = vec![0_u8; 128 * 1024];
    loop {
        // SAFETY: a buffer as long as said, which outlives the call.
        let received =
            unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let Ok(received) = usize::try_from(received) else {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        };
        let mut rest = buffer.get(..received).unwrap_or_default();
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some((kind, flags, payload, after)) = next_message(rest) {
            if flags & NLM_F_DUMP_INTR != 0 {
                return Ok(None);
            }
            match i32::from(kind) {
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

/// A socket on which an answer is to come.
fn send<T: Copy>(kind: u16, body: T, extent: Extent) -> io::Result<OwnedFd> {
    let socket_kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no precondition.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, socket_kind, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let dump = if extent == Extent::All { libc::NLM_F_DUMP } else { 0 };
    let header = libc::nlmsghdr {
        nlmsg_len: size_of::<Request<T>>() as u32,
        nlmsg_type: kind,
        nlmsg_flags: (libc::NLM_F_REQUEST | dump) as u16,
        nlmsg_seq: 0,
        nlmsg_pid: 0,
    };
    let request = Request { header, body };
    // SAFETY: a request of that length, which outlives the call.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), (&raw const request).cast(), size_of::<Request<T>>(), 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
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
    match payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
        0 => io::ErrorKind::InvalidData.into(),
        code => io::Error::from_raw_os_error(code.saturating_neg()),
    }
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
