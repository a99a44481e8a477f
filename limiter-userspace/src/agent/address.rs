//! Where an agent serves its metrics, and a bridge answers.

use std::{
    fmt, fs, io,
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::FileTypeExt as _,
            net::{SocketAddr as UnixAddress, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    str::FromStr,
};

/// Where something is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of an address.
    Tcp(SocketAddr),
    /// A Unix socket of this path, for its owner and group.
    Unix(PathBuf),
    /// An abstract Unix socket of this name, which processes in a folder of their own (`chroot`) reach, too.
    Abstract(String),
}

/// The most bytes of the name of an abstract socket.
const NAME: usize = 107;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

impl Address {
    /// Whether only processes of this host reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) | Self::Abstract(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }

    /// Who can read what is served there, in words.
    pub fn protection(&self) -> &'static str {
        match self {
            Self::Unix(_) => "for its owner and group",
            Self::Abstract(_) => "for this host",
            Self::Tcp(_) if self.is_local() => "for this host",
            Self::Tcp(_) => "in plain HTTP without TLS, for whoever can reach it",
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.strip_prefix('@') {
                _ if path.starts_with('/') => Ok(Self::Unix(path.into())),
                Some(name) if (1..=NAME).contains(&name.len()) && !name.contains('\0') => {
                    Ok(Self::Abstract(name.to_owned()))
                }
                Some(_) => Err(format!("an abstract name has 1 to {NAME} bytes after the @")),
                None => {
                    Err("the path of a socket begins with /, an abstract name with @".to_owned())
                }
            };
        }
        text.parse()
            .map(Self::Tcp)
            .map_err(|_| "give ADDRESS:PORT, as 127.0.0.1:9180, or unix:PATH".to_owned())
    }
}

/// Listens at an abstract socket, as HAProxy names it (`abns@`): with zeros up to the longest name.
///
/// # Errors
/// What the system says.
pub(crate) fn bind_abstract(name: &str) -> io::Result<UnixListener> {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(NAME, 0);
    UnixListener::bind_addr(&UnixAddress::from_abstract_name(padded)?)
}

/// Removes the socket of a process that was killed: one that nobody listens at.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_this_host_or_of_any() {
        let is_local = |text: &str| text.parse::<Address>().unwrap().is_local();
        for text in ["127.0.0.1:9190", "127.7.7.7:1", "[::1]:9190", "unix:/run/a.sock"] {
            assert!(is_local(text), "{text}");
        }
        for text in ["0.0.0.0:9190", "[::]:9190", "192.0.2.1:80", "[2001:db8::1]:80"] {
            assert!(!is_local(text), "{text}");
        }
        // An IPv4 address that is written as one of IPv6 counts as any other.
        assert!(!is_local("[::ffff:127.0.0.1]:80"));
    }

    #[test]
    fn an_address_says_who_can_read_it() {
        let of = |text: &str| text.parse::<Address>();
        for (text, protection) in [
            ("127.0.0.1:9180", "for this host"),
            ("[::1]:9180", "for this host"),
            ("unix:/run/a.sock", "for its owner and group"),
            ("unix:@limiter-spop", "for this host"),
            ("0.0.0.0:9180", "in plain HTTP without TLS, for whoever can reach it"),
            ("[2001:db8::1]:9180", "in plain HTTP without TLS, for whoever can reach it"),
        ] {
            let address = of(text).unwrap();
            assert_eq!((&*address.to_string(), address.protection()), (text, protection));
        }
        for (text, why) in [
            ("9180", "ADDRESS:PORT"),
            ("name:9180", "ADDRESS:PORT"),
            ("unix:a.sock", "begins with /"),
            ("unix:", "begins with /"),
            ("unix:@", "1 to 107 bytes"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
