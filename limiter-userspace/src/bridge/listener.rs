//! Where the bridge is asked: Unix sockets, and ports of addresses.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixListener,
    },
    path::PathBuf,
};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    agent::address::{Address, bind_abstract, remove_dead},
    error::{Error, Result},
};

/// Connections that may wait to be accepted, unless the system allows fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4_096;

/// A socket that was bound. The file of a Unix socket is removed with it, or with the `Listener` that it becomes.
#[derive(Debug)]
pub struct Bound {
    address: Address,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// An abstract one has no file.
    Unix(UnixListener, Option<SocketFile>),
}

/// The file of a Unix socket, which is removed with this.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever starts next removes what is left.
        let _: io::Result<()> = fs::remove_file(&self.0);
    }
}

impl Bound {
    /// Binds an address. A Unix socket is for its owner and for the group with this number, else its owner's.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: &Address, group: Option<u32>) -> Result<Self> {
        let failed = |error| Error::system(format!("listen on {address}"), error);
        let bind = || -> io::Result<Socket> {
            let socket = match address {
                Address::Tcp(address) => {
                    let listener = TcpListener::bind(address)?;
                    // The library lets 128 wait.
                    rustix::net::listen(&listener, BACKLOG)?;
                    listener.set_nonblocking(true)?;
                    Socket::Tcp(listener)
                }
                Address::Unix(path) => {
                    remove_dead(path)?;
                    let listener = UnixListener::bind(path)?;
                    let file = SocketFile(path.clone());
                    rustix::net::listen(&listener, BACKLOG)?;
                    if group.is_some() {
                        chown(path, None, group)?;
                    }
                    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                    listener.set_nonblocking(true)?;
                    Socket::Unix(listener, Some(file))
                }
                Address::Abstract(name) => {
                    let listener = bind_abstract(name)?;
                    rustix::net::listen(&listener, BACKLOG)?;
                    listener.set_nonblocking(true)?;
                    Socket::Unix(listener, None)
                }
            };
            Ok(socket)
        };
        Ok(Self { address: address.clone(), socket: bind().map_err(failed)? })
    }

    /// Its address.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Registers it with the runtime of this thread.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn listen(self) -> Result<Listener> {
        let failed = |error| Error::system(format!("listen on {}", self.address), error);
        Ok(match self.socket {
            Socket::Tcp(socket) => {
                Listener::Tcp(tokio::net::TcpListener::from_std(socket).map_err(failed)?)
            }
            Socket::Unix(socket, file) => {
                let listener = tokio::net::UnixListener::from_std(socket).map_err(failed)?;
                Listener::Unix { listener, _file: file }
            }
        })
    }
}

/// A socket that connections are accepted from.
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix { listener: tokio::net::UnixListener, _file: Option<SocketFile> },
}

/// What the bridge is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC, by HTTP/2.
    Grpc,
    /// SPOP 2.0.
    Spop,
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Spop];

    /// Its name in a handshake of TLS (ALPN), if it has one.
    pub(super) const fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Self::Http => Some(b"http/1.1"),
            Self::Grpc => Some(b"h2"),
            Self::Spop => None,
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of this user, on a Unix socket; the kernel tells it (`SO_PEERCRED`).
    User(u32),
    /// Whoever connected from this address; a process of this host, where the listener has a loopback address.
    Address(SocketAddr),
    /// A proxy on another host, whose certificate was verified.
    Certificate,
}

/// A connection of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    /// Waits for a connection.
    ///
    /// # Errors
    /// What the system says, as that there are no more descriptors.
    pub(crate) async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                stream.set_nodelay(true)?;
                // A listener of both families has those of IPv4 as IPv6 writes them.
                let from = match from.ip().to_canonical() {
                    v4 @ IpAddr::V4(_) => SocketAddr::new(v4, from.port()),
                    IpAddr::V6(_) => from,
                };
                (Box::new(stream), Peer::Address(from))
            }
            Self::Unix { listener, .. } => {
                let stream = listener.accept().await?.0;
                let user = stream.peer_cred()?.uid();
                (Box::new(stream), Peer::User(user))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More connections than 128 are made before the first is accepted, by TCP without waiting for a SYN that is sent again.
    #[test]
    fn many_connections_may_wait() {
        let bound = Bound::bind(&"127.0.0.1:0".parse().unwrap(), None).unwrap();
        let Socket::Tcp(listener) = &bound.socket else { panic!("it is no TCP") };
        let address = listener.local_addr().unwrap();
        let patience = std::time::Duration::from_millis(900);
        let connect = |_| std::net::TcpStream::connect_timeout(&address, patience).unwrap();
        assert_eq!((0..400).map(connect).collect::<Vec<_>>().len(), 400);
    }

    #[test]
    fn a_socket_that_is_not_listened_to_leaves_no_file() {
        let path = std::env::temp_dir().join(format!("limiter-bound-{}.sock", std::process::id()));
        let address = Address::Unix(path.clone());
        let bound = Bound::bind(&address, None).unwrap();
        assert!(path.exists());
        drop(bound);
        assert!(!path.exists());
    }
}
