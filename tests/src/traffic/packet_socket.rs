//! Packet sockets, which send and receive whole frames.

use std::{
    io,
    mem::{size_of, size_of_val, zeroed},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context as _, Result};

use crate::{sandbox::Namespace, topology::Port};

/// An `AF_PACKET` socket, bound to an interface.
#[derive(Debug)]
pub(super) struct PacketSocket {
    descriptor: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket for sending. It receives nothing.
    pub(super) fn sending(namespace: &Namespace, port: &Port) -> Result<Self> {
        let open = || Self::open(port.index, 0);
        namespace.inside(open)?.with_context(|| format!("cannot send frames on {}", port.interface))
    }

    /// Opens a socket that receives all incoming frames from now on, each with its VLAN tag, into a buffer of
    /// `buffer` bytes. A `recv` call returns after `patience` without a frame.
    pub(super) fn receiving(
        namespace: &Namespace,
        port: &Port,
        buffer: i32,
        patience: libc::timeval,
    ) -> Result<Self> {
        let open = || {
            // Options are set before binding, because a bound socket receives at once.
            let socket = Self::new()?;
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer)?;
            socket.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)?;
            socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32)?;
            socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
            socket.bind(port.index, libc::ETH_P_ALL as u16)?;
            Ok(socket)
        };
        let result: io::Result<Self> = namespace.inside(open)?;
        result.with_context(|| format!("cannot receive frames on {}", port.interface))
    }

    fn open(interface: u32, protocol: u16) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.bind(interface, protocol)?;
        Ok(socket)
    }

    fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call has no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call gave a new descriptor to us alone.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    fn bind(&self, interface: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: plain old data, for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = interface as i32;
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: an address of that length.
        check(unsafe { libc::bind(self.raw(), (&raw const address).cast(), length) })
    }

    fn set<T>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: a value of that length.
        check(unsafe {
            libc::setsockopt(self.raw(), level, option, std::ptr::from_ref(value).cast(), length)
        })
    }

    /// The number of frames that found no room in the buffer since the last call.
    pub(super) fn dropped(&self) -> io::Result<u32> {
        // SAFETY: plain old data, for which zeros are valid.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: memory of that length.
        check(unsafe {
            libc::getsockopt(
                self.raw(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        })?;
        Ok(statistics.tp_drops)
    }

    pub(super) fn raw(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
