//! Network interfaces and what XDP programs are on them.

use std::{
    ffi::CString,
    fs, io,
    mem::{offset_of, size_of, zeroed},
    os::unix::fs::MetadataExt as _,
};

use super::{netdevice::NetDevice, sys};
use crate::{
    error::{Error, Result},
    policy::units::printable,
};

/// An interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
}

impl Interface {
    /// The interface of this name.
    ///
    /// # Errors
    /// [`Error::UnknownInterface`].
    pub fn find(name: &str) -> Result<Self> {
        let interfaces = list()?;
        let index = CString::new(name).ok().and_then(|name| sys::interface_index(&name));
        // By its index, because the name that was given may be an alternative one.
        match interfaces.iter().find(|interface| Some(interface.index) == index) {
            Some(interface) => Ok(interface.clone()),
            None => Err(Error::UnknownInterface {
                name: printable(name, 32),
                existing: interfaces.into_iter().map(|interface| interface.name).collect(),
            }),
        }
    }

    /// Whether frames of this interface begin with an Ethernet header, as those of the loopback
    /// interface do too.
    ///
    /// # Errors
    /// [`Error::NotEthernet`], or what the system says.
    pub fn check_ethernet(&self) -> Result<()> {
        let failed = |error| Error::system(format!("look at the interface {}", self.name), error);
        let device = NetDevice::of(&self.name).map_err(failed)?;
        match device.link_layer().map_err(failed)? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
            kind => Err(Error::NotEthernet { interface: self.name.clone(), kind }),
        }
    }

    /// How it is now, all by one request.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn state(&self) -> io::Result<LinkState> {
        const IFLA_STATS64: u16 = 23;
        const IFLA_XDP: u16 = 43;
        const IFLA_XDP_PROG_ID: u16 = 4;
        /// Places in `struct rtnl_link_stats64`.
        const RX_PACKETS: usize = 0;
        const RX_MISSED: usize = 15;
        let (flags, attributes) = link(self.index)?;
        let program = attribute(&attributes, IFLA_XDP)
            .and_then(|xdp| attribute(xdp, IFLA_XDP_PROG_ID))
            .and_then(|id| id.first_chunk().copied());
        let counters = attribute(&attributes, IFLA_STATS64).unwrap_or_default();
        let counter = |place: usize| {
            let bytes = counters.get(place * 8..).and_then(|rest| rest.first_chunk().copied());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(LinkState {
            is_up: flags & libc::IFF_UP as u32 != 0,
            program: program.map(u32::from_ne_bytes),
            received: counter(RX_PACKETS),
            missed: counter(RX_MISSED),
        })
    }

    /// The id of the XDP program on it, whoever put it there.
    pub fn program(&self) -> Option<u32> {
        self.state().ok()?.program
    }
}

/// What there is on an interface, and how packets come in by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Whether it was set up.
    pub(crate) is_up: bool,
    /// The id of the XDP program on it, whoever put it there.
    pub(crate) program: Option<u32>,
    /// Packets that were received.
    pub(crate) received: u64,
    /// Packets that the device had no room for, which nothing saw.
    pub(crate) missed: u64,
}

/// The interfaces of this network namespace.
///
/// # Errors
/// What the system says.
pub fn list() -> Result<Vec<Interface>> {
    let interfaces =
        sys::interfaces().map_err(|error| Error::system("list the network interfaces", error))?;
    Ok(interfaces.into_iter().map(|(index, name)| Interface { name, index }).collect())
}

/// What tells this network namespace from others.
///
/// # Errors
/// What the system says.
pub fn namespace() -> Result<u64> {
    fs::metadata("/proc/thread-self/ns/net")
        .map(|namespace| namespace.ino())
        .map_err(|error| Error::system("look at the network namespace", error))
}

#[repr(C)]
struct Request {
    header: libc::nlmsghdr,
    link: Link,
}

/// `struct ifinfomsg` of rtnetlink(7).
#[repr(C)]
struct Link {
    family: u8,
    pad: u8,
    kind: u16,
    index: i32,
    flags: u32,
    change: u32,
}

/// Asks rtnetlink for all that it knows of an interface: its flags and attributes.
fn link(index: u32) -> io::Result<(u32, Vec<u8>)> {
    const FLAGS: usize = size_of::<libc::nlmsghdr>() + offset_of!(Link, flags);
    // SAFETY: plain system calls on a socket of our own, with buffers that outlive them.
    let reply = unsafe {
        let socket = libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        );
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut request: Request = zeroed();
        request.header.nlmsg_len = size_of::<Request>() as u32;
        request.header.nlmsg_type = libc::RTM_GETLINK;
        request.header.nlmsg_flags = libc::NLM_F_REQUEST as u16;
        request.link.index = index as i32;
        let mut reply = vec![0_u8; 32 * 1024];
        let sent = libc::send(socket, (&raw const request).cast(), size_of::<Request>(), 0);
        let received = if sent < 0 {
            -1
        } else {
            libc::recv(socket, reply.as_mut_ptr().cast(), reply.len(), 0)
        };
        let error = io::Error::last_os_error();
        libc::close(socket);
        if received < 0 {
            return Err(error);
        }
        reply.truncate(received as usize);
        reply
    };
    if let Some(error) = refusal(&reply) {
        return Err(error);
    }
    let flags = reply.get(FLAGS..).and_then(|rest| rest.first_chunk().copied());
    let attributes = reply.get(size_of::<Request>()..).unwrap_or_default();
    Ok((flags.map_or(0, u32::from_ne_bytes), attributes.to_vec()))
}

/// Why there is no answer in a reply; `None` if there is one.
fn refusal(reply: &[u8]) -> Option<io::Error> {
    const KIND: usize = offset_of!(libc::nlmsghdr, nlmsg_type);
    let kind = reply.get(KIND..).and_then(|rest| rest.first_chunk().copied());
    if kind.map(u16::from_ne_bytes) == Some(libc::RTM_NEWLINK) {
        return None;
    }
    let code =
        reply.get(size_of::<libc::nlmsghdr>()..).and_then(|rest| rest.first_chunk().copied());
    let code = code.map_or(0, i32::from_ne_bytes);
    Some(match code {
        0 => io::ErrorKind::InvalidData.into(),
        code => io::Error::from_raw_os_error(code.saturating_neg()),
    })
}

/// The payload of the first attribute of a type.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    const HEADER: usize = 4;
    const NESTED: u16 = 1 << 15;
    while let Some(&[a, b, c, d]) = attributes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & !NESTED;
        let payload = attributes.get(HEADER..length)?;
        if kind == wanted {
            return Some(payload);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// The name in a record, fit for a terminal.
pub(super) fn recorded(name: &[u8; 16]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    printable(&String::from_utf8_lossy(&name[..end]), name.len())
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
    fn what_is_gone_is_no_interface_without_a_program() {
        let gone = Interface { name: "gone".to_owned(), index: 999_999 };
        assert_eq!(gone.state().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_interface_is_found() {
        let lo = Interface::find("lo").unwrap();
        assert!(list().unwrap().contains(&lo));
        assert_eq!(lo.program(), None);
        assert!(matches!(
            Interface::find("no such\n"),
            Err(Error::UnknownInterface { existing, .. }) if existing.contains(&"lo".to_owned())
        ));
    }
}
