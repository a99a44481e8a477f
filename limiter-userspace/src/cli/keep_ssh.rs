//! Keeping the SSH session that a command is given over.

mod connection;

use std::io::{self, IsTerminal as _};

use clap::Args;
use ipnet::IpNet;

use self::connection::Absent;
use super::stderr::warn;
use crate::{
    datapath::maps::Maps,
    error::{Error, Result},
    inquiry,
    output::{stream::Output, top},
    policy::{
        Policy, Session,
        model::{Listed, Whom},
        spec::format_instant,
    },
};

/// For how long a session is kept, in seconds: long enough to notice, and no hole for ever.
const KEPT: u64 = 24 * 3600;

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
    /// The session that is to be kept, if there is one. Warns of one that cannot be.
    pub(super) fn session(&self, output: &Output) -> Result<Option<Session>> {
        let (session, warning) = self.found()?;
        if let Some(warning) = warning {
            warn(&warning, output);
        }
        Ok(session)
    }

    /// The session that is to be kept, if there is one, or why one is not.
    pub(super) fn found(&self) -> Result<(Option<Session>, Option<String>)> {
        let interactive = || io::stdin().is_terminal() && io::stdout().is_terminal();
        if self.no_keep_ssh || !(self.keep_ssh || interactive()) {
            return Ok((None, None));
        }
        match connection::find() {
            Ok(session) => Ok((Some(session), None)),
            Err(cause) if self.keep_ssh => Err(Error::NoSession { cause: cause.to_string() }),
            Err(Absent::Unsaid) => Ok((None, None)),
            Err(cause @ Absent::Unfit(_)) => {
                // Such as in a terminal that outlived the connection that it was opened over.
                Ok((None, Some(format!("no SSH session is kept: {cause}"))))
            }
        }
    }
}

/// A source that is allowed for its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) source: IpNet,
    /// Until when, in seconds of Unix time.
    pub(super) until: u64,
}

/// Allows the peer of a session, if there is one, for a while if the policy could drop it, which comes
/// after `before`: by what it says, or by a block that a limit made in an instance that runs with
/// these maps. Says what was allowed.
pub(super) fn keep(
    session: Option<Session>,
    policy: &mut Policy,
    before: &Policy,
    maps: Option<&Maps>,
    now: u64,
) -> Result<Option<Kept>> {
    let Some(session) = session else { return Ok(None) };
    let blocked = match maps {
        Some(maps) if policy.could_block(&session, enough(now)) => {
            maps.is_blocked(policy.source_of(session.peer), inquiry::now())?
        }
        _ => false,
    };
    Ok(allow(&session, policy, before, blocked, now))
}

/// Until when somebody has to be allowed, who is not renewed then: what has the half of its time left
/// stays as it is, so that a policy that is applied again is the same.
const fn enough(now: u64) -> u64 {
    now.saturating_add(KEPT / 2)
}

/// Allows the peer of a session if it could be dropped. `blocked` says whether some limit blocks it.
fn allow(
    session: &Session,
    policy: &mut Policy,
    before: &Policy,
    blocked: bool,
    now: u64,
) -> Option<Kept> {
    let enough = enough(now);
    let could_block = blocked && policy.could_block(session, enough);
    if !could_block && !policy.could_drop(session, now, enough) {
        return None;
    }
    let source = policy.source_of(session.peer);
    let whom = Whom::Prefix(source);
    let until = before.allow.iter().find(|listed| listed.whom == whom);
    let until = until.and_then(|listed| listed.until).filter(|until| *until >= enough);
    let until = until.unwrap_or_else(|| now.saturating_add(KEPT));
    // Not by the edit that would refuse it where the source itself is denied: whoever wrote that
    // would like to take it back.
    match policy.allow.iter_mut().find(|listed| listed.whom == whom) {
        Some(listed) => listed.until = Some(until),
        None => policy.allow.push(Listed { whom, until: Some(until) }),
    }
    Some(Kept { source, until })
}

impl Kept {
    /// The source, without the length of a whole address.
    pub(super) fn name(self) -> String {
        top::name(self.source.addr(), self.source.prefix_len())
    }

    /// Tells of it, after what was asked for.
    pub(super) fn tell(self, output: &mut Output) -> Result<()> {
        let said = self.said("is");
        if output.is_json() {
            warn(&said, output);
            return Ok(());
        }
        Ok(writeln!(output, "{said}")?)
    }

    /// Tells of what is not done.
    pub(super) fn would_tell(self, output: &mut Output) -> Result<()> {
        Ok(writeln!(output, "{}", self.said("would be"))?)
    }

    /// What is said of it.
    pub(super) fn said(self, is: &str) -> String {
        let (source, until) = (self.name(), format_instant(self.until));
        format!(
            "{source} (this SSH session) {is} kept allowed until {until}; leave it out with \
             --no-keep-ssh"
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{
        List,
        model::GlobalMode,
        spec::{parse, to_yaml},
    };

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
        let before = policy.clone();
        assert_eq!(keep(None, &mut policy, &before, None, NOW).unwrap(), None);
        assert_eq!(policy, before);
        let kept = Kept { source: net("203.0.113.9/32"), until: NOW + KEPT };
        assert_eq!(allow(&session, &mut policy, &before, false, NOW), Some(kept));
        assert_eq!(policy.allow.len(), 1);
        assert_eq!(allow(&session, &mut policy, &before, false, NOW), None, "it is allowed now");
        assert_eq!(policy.allow.len(), 1);
        for mut policy in [
            denying("198.51.100.0/24"),
            Policy { mode: GlobalMode::Monitor, ..denying("203.0.113.0/24") },
        ] {
            let before = policy.clone();
            assert_eq!(allow(&session, &mut policy, &before, false, NOW), None);
            assert_eq!(policy.allow, []);
        }
    }

    #[test]
    fn a_peer_that_a_limit_blocks_is_allowed_where_some_limit_blocks() {
        let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
        let other = |rest: &str| {
            let text = format!(
                "version: 1\nlimits: [{{name: some, key: source, rate: 1/s, \
                 match: {{source: 198.51.100.0/24}}{rest}}}]"
            );
            parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
        };
        for (rest, blocked, kept) in [
            (", penalty: {after: 1s, block: 1h}", true, true),
            (", penalty: {after: 1s, block: 1h}", false, false),
            ("", true, false),
        ] {
            let (before, mut policy) = (Policy::default(), other(rest));
            let allowed = allow(&session, &mut policy, &before, blocked, NOW);
            assert_eq!(allowed.is_some(), kept, "{rest} {blocked}");
            assert_eq!(policy.allow.len(), usize::from(kept));
            assert_eq!(allow(&session, &mut policy, &before, blocked, NOW), None, "once");
        }
    }

    #[test]
    fn what_is_kept_ends_and_is_renewed_in_time() {
        let session = Session::parse("2001:db8::9 50000 2001:db8::1 22").unwrap();
        let whom = Whom::Prefix(net("2001:db8::/64"));
        let mut policy = denying("2001:db8::/32");
        policy.add_listed(List::Allow, net("2001:db8::/64"), Some(NOW + 9), NOW).unwrap();
        let document = denying("2001:db8::/32");
        let mut kept = |now| {
            let before = policy.clone();
            allow(&session, &mut policy, &before, false, now);
            let [entry] = policy.allow.as_slice() else { panic!("{:?}", policy.allow) };
            assert_eq!(entry.whom, whom);
            // Applied again, the same document makes the same policy.
            let mut again = document.clone();
            allow(&session, &mut again, &policy, false, now);
            assert_eq!(again.allow, policy.allow);
            entry.until.unwrap() - NOW
        };
        assert_eq!(kept(NOW), KEPT);
        assert_eq!(kept(NOW + KEPT / 2), KEPT, "there is enough left");
        assert_eq!(kept(NOW + KEPT / 2 + 1), KEPT / 2 + 1 + KEPT);
        // For ever is more than that.
        policy.add_listed(List::Allow, net("2001:db8::/64"), None, NOW).unwrap();
        let before = policy.clone();
        assert_eq!(allow(&session, &mut policy, &before, false, NOW), None);
        assert_eq!(policy, before);
    }

    proptest! {
        /// Whatever the lists have, with what is kept they can be written as a document and read back.
        #[test]
        fn what_is_kept_can_be_read_back(
            edits in prop::collection::vec((0_usize..3, 28_u8..=32, 0_u8..16, 0_u64..60, 0_u8..4), 1..20),
        ) {
            let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
            let mut policy = Policy::default();
            for (list, length, last, hours, kind) in edits {
                let before = policy.clone();
                let prefix = IpNet::new([203, 0, 113, last].into(), length).unwrap().trunc();
                let until = (hours < 40).then_some(NOW + 1 + 3600 * hours);
                let list = [List::Allow, List::Deny, List::Penalty][list];
                // What is refused changes nothing.
                let _ = match kind {
                    0 => policy.del_listed(list, prefix, NOW),
                    _ => policy.add_listed(list, prefix, until, NOW).map(|_| ()),
                };
                allow(&session, &mut policy, &before, false, NOW);
                let text = to_yaml(&policy);
                let read = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files"));
                prop_assert_eq!(read.as_ref().map_err(ToString::to_string), Ok(&policy), "{}", text);
            }
        }
    }

    #[test]
    fn what_is_kept_is_told_by_its_address() {
        let said = |prefix| Kept { source: net(prefix), until: NOW }.said("is");
        let expected = "203.0.113.9 (this SSH session) is kept allowed until 2027-01-15T08:00:00Z;";
        assert!(said("203.0.113.9/32").starts_with(expected), "{}", said("203.0.113.9/32"));
        assert!(said("2001:db8::/64").starts_with("2001:db8::/64 (this"));
    }
}
