//! What the system tells of a network device by its name (the ioctls of netdevice(7)).

use std::{
    ffi::CString,
    io,
    mem::zeroed,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// A network device of this network namespace, which need not be there.
pub(crate) struct NetDevice {
    socket: OwnedFd,
    /// Its name, and nothing else.
    request: libc::ifreq,
}

impl NetDevice {
    /// The device of this name.
    pub(crate) fn of(name: &str) -> io::Result<Self> {
        // The kernel would take what is before a zero for the name.
        let name = CString::new(name)?;
        // SAFETY: plain old data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let name = name.as_bytes().iter().take(libc::IFNAMSIZ - 1);
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        // SAFETY: no precondition.
        let socket =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just opened, and nobody else has it.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(socket) }, request })
    }

    /// Has the kernel answer a command, `SIOC*`: in the request that is given back, or at `data`.
    ///
    /// # Safety
    /// If the command takes data, what it makes the kernel read and write at `data` is there.
    pub(crate) unsafe fn ask(
        &self,
        command: libc::c_ulong,
        data: *mut u32,
    ) -> io::Result<libc::ifreq> {
        let mut request = self.request;
        request.ifr_ifru.ifru_data = data.cast();
        // SAFETY: a request that outlives the call, with data as the caller promises.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), command, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_zero_is_none() {
        let kind = NetDevice::of("lo\0").err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput));
    }
}
