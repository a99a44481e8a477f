//! The connection that a request came by, as the proxy tells of it.

use std::net::SocketAddr;

use super::super::http::address::address;

/// A connection of TCP that ends at a proxy on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Connection {
    /// Its other end: the peer.
    pub(in crate::bridge) remote: SocketAddr,
    /// The end of the proxy.
    pub(in crate::bridge) local: SocketAddr,
}

impl Connection {
    /// Reads what the proxy tells: address and port of the peer, and those of the proxy, apart by spaces. `None` if it is not
    /// of that form, as for a proxy that is asked on a Unix socket.
    pub(in crate::bridge) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let mut end = || {
            // An address of one link has a zone, which the agent has no use for.
            let address = address(words.next()?)?;
            let port = words.next()?.parse().ok().filter(|port| *port != 0)?;
            Some(SocketAddr::new(address, port))
        };
        let (remote, local) = (end()?, end()?);
        words.next().is_none().then_some(Self { remote, local })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_connection_has_two_ends_with_ports() {
        let parsed = |text| Connection::parse(text).map(|it| (it.remote, it.local));
        let ends = |remote: &str, local: &str| {
            Some((remote.parse::<SocketAddr>().unwrap(), local.parse::<SocketAddr>().unwrap()))
        };
        for (text, expected) in [
            ("192.0.2.9 51812 198.51.100.1 443", ends("192.0.2.9:51812", "198.51.100.1:443")),
            ("::ffff:192.0.2.9 1 ::ffff:198.51.100.1 2", ends("192.0.2.9:1", "198.51.100.1:2")),
            ("2001:db8::9 1 fe80::1%eth0 2", ends("[2001:db8::9]:1", "[fe80::1]:2")),
            // A listener of nginx on a Unix socket, and Caddy before 2.8, tell less.
            ("unix:  unix: ", None),
            ("192.0.2.9 51812  ", None),
            ("192.0.2.9 51812 198.51.100.1 443 7", None),
            ("192.0.2.9 0 198.51.100.1 443", None),
            ("192.0.2.9 65536 198.51.100.1 443", None),
            ("192.0.2.9:51812 198.51.100.1:443", None),
            ("", None),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            let _ = Connection::parse(&text);
        }
    }
}
