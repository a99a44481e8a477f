//! TCP connections from a chosen address, ended by FIN, by RST, or by a drop.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::sandbox::Namespace;

/// An open connection to a server that answers line by line.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// How long [`open`](Self::open) waits for an answer: less than the second after which the kernel repeats
    /// the SYN, so that each attempt is one packet.
    const PATIENCE: Duration = Duration::from_millis(900);
    /// How long [`connect_from`] waits, while the kernel repeats the SYN, and how long an answer to a line
    /// may take.
    const ANSWER: Duration = Duration::from_secs(20);

    /// Opens a connection from an address of `client`; `None` if the server does not answer within 900 ms.
    ///
    /// # Errors
    /// Fails if a system call fails, or if the server refuses the connection.
    pub fn open(client: &Namespace, from: IpAddr, to: SocketAddr) -> Result<Option<Self>> {
        Self::open_within(client, from, to, Self::PATIENCE)
    }

    /// Like [`open`](Self::open), waiting for `patience`. After one second the kernel repeats the SYN.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_within(
        client: &Namespace,
        from: IpAddr,
        to: SocketAddr,
        patience: Duration,
    ) -> Result<Option<Self>> {
        let open = || {
            let socket = begin(Some((from, 0).into()), to)?;
            if !is_answered(&socket, patience)? {
                return Ok(None);
            }
            let stream = TcpStream::from(socket);
            stream.take_error()?.map_or(Ok(()), Err)?;
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Self::ANSWER))?;
            stream.set_write_timeout(Some(Self::ANSWER))?;
            Ok(Some(Self { stream }))
        };
        let opened: io::Result<Option<Self>> = client.inside(open)?;
        opened.with_context(|| format!("cannot open a connection from {from} to {to}"))
    }

    /// Sets how long an answer to a line may take, from now on.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// The local port.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.stream.local_addr()?.port())
    }

    /// Reads the next line, without its end.
    ///
    /// # Errors
    /// Fails if the connection ends or times out before the end of the line, or if the line is not UTF-8.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            if byte == *b"\n" {
                return String::from_utf8(line).map_err(io::Error::other);
            }
            line.extend(byte);
        }
    }

    /// Sends a line and returns the answer.
    ///
    /// # Errors
    /// As [`hear`](Self::hear).
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        self.hear()
    }

    /// Closes the connection (FIN) and waits until the other side closes it too.
    ///
    /// # Errors
    /// Fails if reading or writing fails.
    pub fn close(mut self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        self.stream.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// Aborts the connection (RST).
    ///
    /// # Errors
    /// Fails if the socket option cannot be set.
    pub fn reset(self) -> io::Result<()> {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let length = size_of_val(&linger) as libc::socklen_t;
        let (socket, linger) = (self.stream.as_raw_fd(), (&raw const linger).cast());
        // SAFETY: a value of that length.
        check(unsafe {
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, linger, length)
        })
    }
}

impl From<Connection> for TcpStream {
    fn from(connection: Connection) -> Self {
        connection.stream
    }
}

/// Opens a connection from an address and port, in the network namespace of the thread.
///
/// # Errors
/// Fails if the port is taken, or if the server refuses or does not answer within 20 s.
pub fn connect_from(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = begin(Some(from), to)?;
    if !is_answered(&socket, Connection::ANSWER)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::from(socket);
    stream.take_error()?.map_or(Ok(()), Err)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends the first SYN of a connection and does not wait for an answer. `from` is the local address and port;
/// port 0 lets the kernel choose.
pub(super) fn begin(from: Option<SocketAddr>, to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no pointers.
    let socket = unsafe { libc::socket(family, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave a new descriptor to us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    if let Some(from) = from {
        call(libc::bind, &socket, from)?;
    }
    match call(libc::connect, &socket, to) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// The type of `bind` and `connect`.
type Call =
    unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

fn call(call: Call, socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(it) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: it.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(it.ip().octets()) },
                sin_zero: [0; 8],
            };
            call_with(call, socket, &address)
        }
        SocketAddr::V6(it) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: it.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: it.ip().octets() },
                sin6_scope_id: 0,
            };
            call_with(call, socket, &address)
        }
    }
}

fn call_with<T>(call: Call, socket: &OwnedFd, address: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: an address of that length.
    check(unsafe { call(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), length) })
}

/// Waits until the connection is open or refused; false if neither happens within `patience`.
fn is_answered(socket: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one description of a socket.
    match unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as libc::c_int) } {
        0 => Ok(false),
        result => check(result.min(0)).map(|()| true),
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
