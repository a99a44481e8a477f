//! The connection that proves a push.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;

use super::{request::Proof, results::PushResult};
use crate::{datapath::diag, error::Result};

/// For how long the source may have sent nothing.
const SILENT: Duration = Duration::from_secs(60);

/// Why a connection does not prove a push of a user's process; `None` if it does.
pub(super) fn unproven(source: IpNet, user: u32, proof: Proof) -> Result<Option<PushResult>> {
    if !source.contains(&proof.remote.ip()) {
        return Ok(Some(PushResult::Unproven));
    }
    let found = diag::socket(proof.local, proof.remote)?;
    let is_of_a_service = |socket: &diag::Socket| -> Result<bool> {
        let is_others = socket.user.is_some_and(|owner| owner != 0);
        Ok(user == 0 || is_others && diag::is_listened_at(proof.local)?)
    };
    Ok(match found.filter(diag::Socket::is_connected) {
        None => Some(PushResult::Unproven),
        Some(socket) if !is_of_a_service(&socket)? => Some(PushResult::Unproven),
        Some(socket) if socket.silent.is_some_and(|time| time > SILENT) => {
            Some(PushResult::NotAPeer)
        }
        Some(_) => None,
    })
}

/// Whether an address is one that a single host can have. Link-local ones are of another host on each link, and this host's own and
/// those of its gateways are not known.
pub(super) const fn is_of_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast()
                || address.is_link_local())
        }
        IpAddr::V6(address) => {
            !(address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener, TcpStream},
        thread,
    };

    use super::*;

    /// A user that pushes, and is not root.
    const USER: u32 = 65_534;

    /// Accepts a connection, as a user other than root or as the one of this process.
    fn accepted(listener: &TcpListener, is_others: bool) -> TcpStream {
        thread::scope(|scope| {
            let accept = || {
                if is_others {
                    // SAFETY: it has no pointers, and is about this thread alone, which ends.
                    unsafe { libc::setfsuid(USER) };
                }
                listener.accept().unwrap().0
            };
            scope.spawn(accept).join().unwrap()
        })
    }

    #[test]
    fn connections_of_services_prove_and_those_of_root_and_to_other_hosts_do_not() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let host = if address == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let to = SocketAddr::new(host.parse().unwrap(), port);
            for is_others in [false, true] {
                let is_root = !is_others && rustix::process::getuid().is_root();
                let client = TcpStream::connect(to).unwrap();
                let from = client.local_addr().unwrap();
                let source = IpNet::from(from.ip());
                let result =
                    |user, local, remote| unproven(source, user, Proof { remote, local }).unwrap();
                // The kernel completed the handshake, and no process has the connection yet.
                assert_eq!(result(USER, to, from), Some(PushResult::Unproven));
                let _server = accepted(&listener, is_others);
                let expected = is_root.then_some(PushResult::Unproven);
                assert_eq!(result(USER, to, from), expected, "{address} {is_others}");
                assert_eq!(result(0, to, from), None, "{address}: root may");
                // The same connection, as the host has it that opened it.
                assert_eq!(result(USER, from, to), Some(PushResult::Unproven), "{address}");
                assert_eq!(result(0, from, to), None, "{address}");
            }
        }
    }

    #[test]
    fn a_connection_that_this_host_opened_proves_nothing_whoever_opened_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let open = || {
            // SAFETY: it has no pointers, and is about this thread alone, which ends.
            unsafe { libc::setfsuid(USER) };
            TcpStream::connect(to).unwrap()
        };
        let client = thread::scope(|scope| scope.spawn(open).join().unwrap());
        let (local, remote) = (client.local_addr().unwrap(), to);
        let proof = Proof { remote, local };
        let result = unproven(IpNet::from(to.ip()), USER, proof).unwrap();
        assert_eq!(result, Some(PushResult::Unproven));
        assert_ne!(diag::socket(local, remote).unwrap().unwrap().user, Some(0));
    }

    #[test]
    fn a_proof_of_no_connection_proves_nothing_of_root_too() {
        for source in ["192.0.2.9/32", "0.0.0.1/8", "2001:db8::/64", "::1/64"] {
            let result = unproven(source.parse().unwrap(), 0, Proof::NONE).unwrap();
            assert_eq!(result, Some(PushResult::Unproven), "{source}");
        }
    }

    #[test]
    fn addresses_of_many_hosts_are_nobodys() {
        for address in [
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.251",
            "169.254.0.1",
            "::",
            "ff02::1",
            "fe80::1",
            "febf::1",
        ] {
            assert!(!is_of_one_host(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.2.9", "2001:db8::1", "127.0.0.1"] {
            assert!(is_of_one_host(address.parse().unwrap()), "{address}");
        }
    }
}
