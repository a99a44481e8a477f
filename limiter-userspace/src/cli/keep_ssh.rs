//! Keeping the SSH session that a command is given over.

use std::{
    env, fs,
    io::{self, IsTerminal as _},
    os::unix::{ffi::OsStrExt as _, process::parent_id},
};

use clap::Args;
use ipnet::IpNet;

use crate::{
    error::{Error, Result},
    output::top,
    policy::{
        Policy, Session,
        model::{Listed, Whom},
    },
};

/// What sshd puts into the environment of a session.
const VARIABLE: &str = "SSH_CONNECTION";

#[derive(Debug, Args)]
pub(super) struct KeepSsh {
    /// Allow the address that this SSH session comes from, if it could be cut off; without being
    /// asked, that is done for somebody at a terminal
    #[arg(long, conflicts_with = "no_keep_ssh")]
    keep_ssh: bool,
    /// Do not allow the address that this SSH session comes from
    #[arg(long)]
    no_keep_ssh: bool,
}

impl KeepSsh {
    /// The session that is to be kept, if there is one.
    pub(super) fn session(&self) -> Result<Option<Session>> {
        let interactive = || io::stdin().is_terminal() && io::stdout().is_terminal();
        if self.no_keep_ssh || !(self.keep_ssh || interactive()) {
            return Ok(None);
        }
        match connection().as_deref().and_then(Session::parse) {
            None if self.keep_ssh => Err(Error::NoSession),
            session => Ok(session),
        }
    }
}

/// Allows the peer of a session for ever if the policy could drop it, and says what was allowed.
pub(super) fn keep(session: &Session, policy: &mut Policy, now: u64) -> Option<IpNet> {
    if !policy.could_drop(session, now) {
        return None;
    }
    let source = policy.source_of(session.peer);
    let whom = Whom::Prefix(source);
    // Not by the edit that would refuse it where the source itself is denied: whoever wrote that
    // would like to take it back.
    match policy.allow.iter_mut().find(|listed| listed.whom == whom) {
        Some(listed) => listed.until = None,
        None => policy.allow.push(Listed { whom, until: None }),
    }
    Some(source)
}

/// What is said of a source that was kept.
pub(super) fn kept(source: IpNet) -> String {
    let source = top::name(source.addr(), source.prefix_len());
    format!("{source} (this SSH session) is kept allowed; leave it out with --no-keep-ssh")
}

/// What sshd says of the session: in the environment of this process, or of one that it comes from,
/// since `sudo` and `su` do not pass it on.
fn connection() -> Option<String> {
    const MOST: usize = 64;
    if let Ok(own) = env::var(VARIABLE) {
        return Some(own);
    }
    let mut process = parent_id();
    for _ in 0..MOST {
        if process <= 1 {
            return None;
        }
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        if let Some(found) = of_environment(&environment) {
            return Some(found);
        }
        process = parent_of(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)?;
    }
    None
}

/// The variable in an environment as `/proc` has it.
fn of_environment(environment: &[u8]) -> Option<String> {
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    })?;
    std::ffi::OsStr::from_bytes(value).to_str().map(str::to_owned)
}

/// The parent in a `status` file of `/proc`.
fn parent_of(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{List, model::GlobalMode};

    const NOW: u64 = 1_800_000_000;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn denying(prefix: &str) -> Policy {
        let mut policy = Policy::default();
        policy.add_listed(List::Deny, net(prefix), None, NOW).unwrap();
        policy
    }

    #[test]
    fn only_a_peer_that_could_be_dropped_is_allowed() {
        let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
        let mut policy = denying("203.0.113.0/24");
        assert_eq!(keep(&session, &mut policy, NOW), Some(net("203.0.113.9/32")));
        assert_eq!(policy.allow.len(), 1);
        assert_eq!(keep(&session, &mut policy, NOW), None, "it is allowed now");
        assert_eq!(policy.allow.len(), 1);
        for mut policy in [
            denying("198.51.100.0/24"),
            Policy { mode: GlobalMode::Monitor, ..denying("203.0.113.0/24") },
        ] {
            assert_eq!(keep(&session, &mut policy, NOW), None);
            assert_eq!(policy.allow, []);
        }
    }

    #[test]
    fn an_allowance_that_would_end_holds_for_ever_then() {
        let session = Session::parse("2001:db8::9 50000 2001:db8::1 22").unwrap();
        let mut policy = denying("2001:db8::/32");
        policy.add_listed(List::Allow, net("2001:db8::/64"), Some(NOW + 9), NOW).unwrap();
        assert_eq!(keep(&session, &mut policy, NOW), Some(net("2001:db8::/64")));
        let whom = Whom::Prefix(net("2001:db8::/64"));
        assert_eq!(policy.allow, [Listed { whom, until: None }]);
    }

    #[test]
    fn what_is_kept_is_told_by_its_address() {
        assert!(kept(net("203.0.113.9/32")).starts_with("203.0.113.9 (this SSH session) is kept"));
        assert!(kept(net("2001:db8::/64")).starts_with("2001:db8::/64 (this"));
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
