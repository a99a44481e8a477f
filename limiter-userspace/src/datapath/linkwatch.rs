//! Hearing of changes to network interfaces.

use std::{
    io,
    mem::zeroed,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// A socket that hears when an interface of this network namespace comes, goes or changes.
#[derive(Debug)]
pub struct LinkWatch(OwnedFd);

impl LinkWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no precondition.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: plain old data, for which zeros are valid.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: an address of that length, which outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(socket)) }
    }

    /// Waits for a change. What is said of it is not read: whoever hears of one looks at how things are.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self) -> io::Result<()> {
        let mut rest = [0_u8; 256];
        // SAFETY: the buffer is as long as said; a longer message is cut.
        let received =
            unsafe { libc::recv(self.0.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), 0) };
        if received >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Messages were lost, which is as good as having come.
            Some(libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }
}
