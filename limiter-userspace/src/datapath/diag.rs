//! Looking up a TCP connection of this network namespace, by sock_diag(7).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use thiserror::Error;

use super::netlink::{Family, attribute, inquire, inquire_all};
use crate::error::{Error, Failure, Result};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`, and its bit in a request.
const INFO: u16 = 2;
const ASKS_INFO: u8 = 1 << (INFO - 1);
/// `INET_DIAG_NOCOOKIE`.
const NO_COOKIE: u32 = u32::MAX;
/// The bytes of a `struct inet_diag_msg`, before its attributes.
const MESSAGE: usize = 72;
/// Where it has the user and the inode of the socket.
const USER: usize = 64;
const INODE: usize = 68;
/// `TCP_LISTEN`.
const LISTEN: u8 = 10;
/// Where a `struct tcp_info` has when data, and when an acknowledgment, was last received, in milliseconds before.
const RECEIVED: [usize; 2] = [52, 56];

/// `struct inet_diag_req_v2`, with its `struct inet_diag_sockid`. Ports and addresses are in network order.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    family: u8,
    protocol: u8,
    extensions: u8,
    pad: u8,
    states: u32,
    local_port: [u8; 2],
    remote_port: [u8; 2],
    local: [u8; 16],
    remote: [u8; 16],
    interface: u32,
    cookie: [u32; 2],
}

const _: () = assert!(size_of::<Request>() == 56);

/// A socket that the kernel finds for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// Its state, of `include/net/tcp_states.h`.
    state: u8,
    /// The user of the process that made or accepted it; `None` where no process has it: it is not accepted yet, or closed.
    pub(crate) user: Option<u32>,
    /// Since when the other end has sent nothing; `None` for one that is closing and tells nothing.
    pub(crate) silent: Option<Duration>,
}

impl Socket {
    /// Whether the other end completed the handshake, and may send still: ESTABLISHED, FIN_WAIT1, FIN_WAIT2 or CLOSE_WAIT. A
    /// socket that listens is found for any other end, also for one that was forged.
    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.state, 1 | 4 | 5 | 8)
    }
}

/// The kernel has no part that looks up connections.
#[derive(Debug, Error)]
#[error(
    "the kernel looks up no TCP connection, as its module tcp_diag is missing: no connection proves a block"
)]
struct Missing;

impl Failure for Missing {
    fn remedy(&self) -> Option<String> {
        Some(
            "`modprobe tcp_diag` loads it, and `echo tcp_diag > /etc/modules-load.d/limiter.conf` at each start"
                .to_owned(),
        )
    }
}

/// Looks up the socket of a connection between these ends; `None` if there is none.
///
/// # Errors
/// That the kernel looks up no connections, with the remedy, or what the system says.
pub(crate) fn socket(local: SocketAddr, remote: SocketAddr) -> Result<Option<Socket>> {
    let family = match (local.ip(), remote.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => libc::AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => libc::AF_INET6,
        _ => return Ok(None),
    };
    let request = Request {
        states: u32::MAX,
        local_port: local.port().to_be_bytes(),
        remote_port: remote.port().to_be_bytes(),
        local: octets(local.ip()),
        remote: octets(remote.ip()),
        ..Request::of_no_state(family, libc::IPPROTO_TCP)
    };
    match inquire(Family::Sockets, BY_FAMILY, request) {
        Ok(answers) => Ok(answers.first().and_then(|answer| read(answer))),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => check().map(|()| None),
        Err(error) => Err(failed(error)),
    }
}

/// Checks that the kernel looks up connections. Where it does not, it says of each that there is none.
///
/// # Errors
/// That its module is missing, with the remedy, or what the system says.
pub(crate) fn check() -> Result<()> {
    // A module that is in use is not taken away.
    static FOUND: AtomicBool = AtomicBool::new(false);
    if !FOUND.load(Relaxed) {
        if !is_there(libc::IPPROTO_TCP).map_err(failed)? {
            return Err(Missing.into());
        }
        FOUND.store(true, Relaxed);
    }
    Ok(())
}

/// Whether the kernel looks up sockets of a protocol. It loads the module for that, if it can.
fn is_there(protocol: i32) -> io::Result<bool> {
    let nothing = Request::of_no_state(libc::AF_INET, protocol);
    match inquire_all(Family::Sockets, BY_FAMILY, nothing) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("look up a connection", error)
}

impl Request {
    /// A request for sockets of any ends in none of their states.
    const fn of_no_state(family: i32, protocol: i32) -> Self {
        Self {
            family: family as u8,
            protocol: protocol as u8,
            extensions: ASKS_INFO,
            pad: 0,
            states: 0,
            local_port: [0; 2],
            remote_port: [0; 2],
            local: [0; 16],
            remote: [0; 16],
            interface: 0,
            cookie: [NO_COOKIE; 2],
        }
    }
}

/// Whether a socket listens for connections to this end: at its address, or at any.
///
/// # Errors
/// As [`socket`].
pub(crate) fn is_listened_at(local: SocketAddr) -> Result<bool> {
    let nobody = match local.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let found = socket(local, SocketAddr::new(nobody, 0))?;
    Ok(found.is_some_and(|socket| socket.state == LISTEN))
}

fn read(answer: &[u8]) -> Option<Socket> {
    let &[_, state, ..] = answer.first_chunk::<MESSAGE>()?;
    let word = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let user = word(USER).filter(|_| word(INODE).is_some_and(|inode| inode != 0));
    let info = attribute(answer.get(MESSAGE..)?, INFO);
    let at = |at: usize| Some(u32::from_ne_bytes(*info?.get(at..)?.first_chunk()?));
    let silent = RECEIVED.into_iter().filter_map(at).min();
    Some(Socket { state, user, silent: silent.map(|it| Duration::from_millis(it.into())) })
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_connection_is_found_by_both_ends_and_a_listener_is_no_proof() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            // Of a listener for both families, the socket of an IPv4 connection is one of IPv6.
            let host =
                if address == "[::]:0" { "127.0.0.1" } else { address.rsplit_once(':').unwrap().0 };
            let mut client = TcpStream::connect(format!("{host}:{port}")).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let (local, remote) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
            let found = socket(local, remote).unwrap().unwrap();
            assert!(found.is_connected(), "{address}: {found:?}");
            assert!(found.silent.unwrap() < Duration::from_secs(60));
            assert_eq!(found.user, Some(rustix::process::getuid().as_raw()));
            // A listener is found at the end of the service alone.
            assert!(is_listened_at(local).unwrap(), "{address}");
            assert!(!is_listened_at(remote).unwrap(), "{address}");
            // Nobody has this port.
            let forged = SocketAddr::new(remote.ip(), remote.port() ^ 1);
            let found = socket(local, forged).unwrap();
            assert!(!found.is_some_and(|it| it.is_connected()), "{address}: {found:?}");
            let other = SocketAddr::new(local.ip(), local.port() ^ 1);
            assert!(!socket(other, remote).unwrap().is_some_and(|it| it.is_connected()));
            // The client sends no more, and is answered still.
            client.shutdown(Shutdown::Write).unwrap();
            server.read_to_end(&mut Vec::new()).unwrap();
            assert_eq!(socket(local, remote).unwrap().unwrap().state, 8, "CLOSE_WAIT");
            assert!(socket(local, remote).unwrap().unwrap().is_connected());
            server.write_all(b"x").unwrap();
            drop(server);
            client.read_to_end(&mut Vec::new()).unwrap();
            let closed = socket(local, remote).unwrap();
            assert!(!closed.is_some_and(|it| it.is_connected()), "{closed:?}");
        }
    }

    #[test]
    fn a_kernel_that_looks_up_nothing_is_told_from_one_that_finds_nothing() {
        check().unwrap();
        // No kernel has a module for this protocol.
        assert!(!is_there(200).unwrap());
        let error = Error::from(Missing);
        assert!(error.to_string().contains("module tcp_diag is missing"), "{error}");
        assert!(error.remedy().unwrap().contains("modprobe tcp_diag"));
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let mut answer = [0; MESSAGE];
        answer[1] = 10;
        assert!(!read(&answer).unwrap().is_connected());
        for length in 0..MESSAGE {
            assert_eq!(read(&answer[..length]), None);
        }
    }
}
