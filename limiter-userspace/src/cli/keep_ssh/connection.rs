//! Finds the SSH session of the user.

use std::{
    env, fmt, fs,
    net::IpAddr,
    os::unix::{ffi::OsStrExt as _, process::parent_id},
};

use crate::policy::{Session, units::quoted};

/// The variable that sshd sets in the environment of a session.
const VARIABLE: &str = "SSH_CONNECTION";

/// The reason why no session was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// No environment has the variable.
    Unsaid,
    /// The variable has a value, but no such connection is open.
    Unfit(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsaid => write!(out, "{VARIABLE} is not set"),
            Self::Unfit(cause) => out.write_str(cause),
        }
    }
}

/// Finds the session in the environment of this process or of an ancestor, as `sudo` and `su` do
/// not pass the variable on. A value counts only if the connection is open: in a `tmux` of
/// yesterday it is that of yesterday. Returns the reason if there is no session.
pub(super) fn find() -> Result<Session, Absent> {
    let mut cause = Absent::Unsaid;
    for said in environments().filter(|said| !said.trim().is_empty()) {
        match Session::parse(&said) {
            Some(session) if is_open(&session) => return Ok(session),
            Some(Session { peer, .. }) => {
                let said = format!("{VARIABLE} says {peer}, and no connection from there is open");
                cause = Absent::Unfit(said);
            }
            None => {
                let said = format!("{VARIABLE} is {}, which is no connection", quoted(&said));
                cause = Absent::Unfit(said);
            }
        }
    }
    Err(cause)
}

/// The values of the variable in this process and in its ancestors.
fn environments() -> impl Iterator<Item = String> {
    const MOST: usize = 64;
    let own = env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
    let parents = std::iter::successors(Some(parent_id()), |process| {
        parent_of(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
    });
    let of_parents = parents.take_while(|process| *process > 1).take(MOST).filter_map(|process| {
        of_environment(&fs::read(format!("/proc/{process}/environ")).unwrap_or_default())
    });
    own.into_iter().chain(of_parents)
}

/// Whether the connection of a session is open on this host.
fn is_open(session: &Session) -> bool {
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().any(|sockets| {
        let sockets = fs::read_to_string(sockets).unwrap_or_default();
        sockets.lines().any(|socket| is_of(socket, session))
    })
}

/// Whether a line of `/proc/net/tcp` is an established connection from the peer.
fn is_of(socket: &str, session: &Session) -> bool {
    const ESTABLISHED: &str = "01";
    let mut words = socket.split_ascii_whitespace().skip(1);
    let (Some(local), Some(remote), Some(state)) = (words.next(), words.next(), words.next())
    else {
        return false;
    };
    let (Some((_, port)), Some((peer, peer_port))) = (end(local), end(remote)) else {
        return false;
    };
    state == ESTABLISHED
        && peer == session.peer
        && session.peer_port.is_none_or(|known| known == peer_port)
        && session.port.is_none_or(|known| known == port)
}

/// Reads one end of a connection in `/proc/net/tcp`: the words of the address in the byte order of
/// this machine, and the port.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address: IpAddr = match *bytes.as_slice() {
        [a, b, c, d] => [a, b, c, d].into(),
        _ => <[u8; 16]>::try_from(bytes).ok()?.into(),
    };
    Some((address.to_canonical(), port))
}

/// The value of the variable in a `/proc/PID/environ`.
fn of_environment(environment: &[u8]) -> Option<String> {
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    })?;
    std::ffi::OsStr::from_bytes(value).to_str().map(str::to_owned)
}

/// The parent in a `/proc/PID/status`.
fn parent_of(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_connection_is_told_from_others() {
        let session = |text: &str| Session::parse(text).unwrap();
        let line = |local: &str, remote: &str, state: &str| {
            format!(
                "   7: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 0 0 1 1 0"
            )
        };
        let v4 = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (host, peer) = (v4([192, 0, 2, 1]), v4([203, 0, 113, 9]));
        let open = line(&format!("{host}:0016"), &format!("{peer}:C350"), "01");
        assert!(is_of(&open, &session("203.0.113.9 50000 192.0.2.1 22")));
        assert!(is_of(&open, &session("::ffff:203.0.113.9 50000 ::ffff:192.0.2.1 22")));
        assert!(is_of(&open, &session("203.0.113.9")));
        for other in ["203.0.113.8 50000 192.0.2.1 22", "203.0.113.9 50001 192.0.2.1 22"] {
            assert!(!is_of(&open, &session(other)), "{other}");
        }
        assert!(!is_of(&open, &session("203.0.113.9 50000 192.0.2.1 2222")));
        let closing = line(&format!("{host}:0016"), &format!("{peer}:C350"), "06");
        assert!(!is_of(&closing, &session("203.0.113.9 50000 192.0.2.1 22")));
        let zeros = "0".repeat(16);
        let mapped = |address: &str| {
            format!("{zeros}{:08X}{address}", u32::from_ne_bytes([0, 0, 0xff, 0xff]))
        };
        let remote = format!("{}:C350", mapped(&peer));
        let open = line(&format!("{}:0016", mapped(&host)), &remote, "01");
        assert!(is_of(&open, &session("203.0.113.9 50000 192.0.2.1 22")));
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        for bad in
            [header, "", "7:", "7: x y 01", "7: 0:0 0:0 01", "7: \u{e9}\u{e9}\u{e9}\u{e9}:1 1:1 01"]
        {
            assert!(!is_of(bad, &session("0.0.0.0 0 0.0.0.0 0")), "{bad}");
        }
    }

    #[test]
    fn the_session_is_found_in_what_proc_says() {
        let environment =
            b"HOME=/root\0NOT_SSH_CONNECTION=x\0SSH_CONNECTION=203.0.113.9 1 2 3\0A=\0";
        assert_eq!(of_environment(environment).as_deref(), Some("203.0.113.9 1 2 3"));
        assert_eq!(of_environment(b"HOME=/\0"), None);
        assert_eq!(parent_of("Name:\tsh\nPid:\t7\nPPid:\t5\n"), Some(5));
        assert_eq!(parent_of("Name:\tsh\n"), None);
    }
}
