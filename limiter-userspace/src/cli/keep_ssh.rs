//! Keeping the SSH session that a command is given over.

mod connection;

use std::io::{self, IsTerminal as _};

use clap::Args;
use ipnet::IpNet;

use self::connection::Absent;
use super::stderr::warn;
use crate::{
    cli::user::user,
    datapath::maps::Maps,
    error::{Error, Result},
    output::{stream::Output, top},
    policy::{Layers, List, PolicyError, Session, document::format_instant, run_time::Entry},
    query,
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

/// Allows the peer of a session, if there is one, at run time for a while if these could drop it: by what they
/// say, or by a block that a limit made in an instance that runs with these maps. Says what was allowed.
pub(super) fn keep(
    session: Option<Session>,
    layers: &mut Layers,
    maps: Option<&Maps>,
    now: u64,
) -> Result<Option<Kept>> {
    let Some(session) = session else { return Ok(None) };
    let blocked = match maps {
        Some(maps) if layers.view().could_block(&session, now, enough(now)) => {
            maps.is_blocked(layers.policy.source_of(session.peer), query::now())?
        }
        _ => false,
    };
    Ok(allow(&session, layers, blocked, now))
}

/// Until when somebody has to be allowed, who is not renewed then: what has the half of its time left
/// stays as it is.
const fn enough(now: u64) -> u64 {
    now.saturating_add(KEPT / 2)
}

/// Allows the peer of a session if it could be dropped. `blocked` says whether some limit blocks it.
fn allow(session: &Session, layers: &mut Layers, blocked: bool, now: u64) -> Option<Kept> {
    let enough = enough(now);
    let could_block = blocked && layers.view().could_block(session, now, enough);
    if !could_block && !layers.view().could_drop(session, now, enough) {
        return None;
    }
    let source = layers.policy.source_of(session.peer);
    let until = now.saturating_add(KEPT);
    // No entry is longer than a source, and of one as long, a run-time one that allows is asked first.
    let entry = Entry {
        until: Some(until),
        reason: Some("SSH session".to_owned()),
        by: user(),
        since: Some(now),
        ..Entry::new(List::Allow, source)
    };
    // It can only be less than a source, and is a source.
    let _: Result<bool, PolicyError> = layers.run_time.put(&layers.policy, entry, now);
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
    use super::*;
    use crate::policy::{
        Policy,
        document::parse,
        model::{GlobalMode, Listed, Whom},
    };

    const NOW: u64 = 1_800_000_000;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    /// A document that denies a prefix.
    fn denying(prefix: &str) -> Layers {
        let deny = vec![Listed { whom: Whom::Prefix(net(prefix)), until: None }];
        Layers { policy: Policy { deny, ..Policy::default() }, ..Layers::default() }
    }

    #[test]
    fn only_a_peer_that_could_be_dropped_is_allowed() {
        let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
        for prefix in ["203.0.113.0/24", "203.0.113.9/32"] {
            let mut layers = denying(prefix);
            let document = layers.policy.clone();
            assert_eq!(keep(None, &mut layers, None, NOW).unwrap(), None);
            assert_eq!(layers, denying(prefix));
            let kept = Kept { source: net("203.0.113.9/32"), until: NOW + KEPT };
            assert_eq!(allow(&session, &mut layers, false, NOW), Some(kept));
            assert_eq!(allow(&session, &mut layers, false, NOW), None, "it is allowed now");
            assert_eq!((layers.policy, layers.run_time.entries().len()), (document, 1));
        }
        for mut layers in [denying("198.51.100.0/24"), {
            let mut layers = denying("203.0.113.0/24");
            layers.policy.mode = GlobalMode::Monitor;
            layers
        }] {
            assert_eq!(allow(&session, &mut layers, false, NOW), None);
            assert!(layers.run_time.is_empty());
        }
    }

    /// A ban of the same source is set at run time too, and so is as long.
    #[test]
    fn a_session_outlives_a_ban_of_its_own_source_in_either_layer() {
        let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
        let mut layers = denying("203.0.113.9/32");
        let ban = Entry::new(List::Deny, net("203.0.113.9/32"));
        layers.run_time.put(&layers.policy, ban, NOW).unwrap();
        assert!(allow(&session, &mut layers, false, NOW).is_some());
        assert!(!layers.view().could_drop(&session, NOW, NOW + KEPT));
        assert!(layers.view().could_drop(&session, NOW, NOW + KEPT + 1), "it is for a time");
        // Another document changes nothing of it.
        let layers = layers.under(denying("203.0.113.0/24").policy);
        assert!(!layers.view().could_drop(&session, NOW, NOW + KEPT));
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
            let mut layers = Layers { policy: other(rest), ..Layers::default() };
            let allowed = allow(&session, &mut layers, blocked, NOW);
            assert_eq!(allowed.is_some(), kept, "{rest} {blocked}");
            assert_eq!(layers.run_time.entries().len(), usize::from(kept));
            assert_eq!(allow(&session, &mut layers, blocked, NOW), None, "once");
        }
    }

    #[test]
    fn what_is_kept_ends_and_is_renewed_in_time() {
        let session = Session::parse("2001:db8::9 50000 2001:db8::1 22").unwrap();
        let mut layers = denying("2001:db8::/32");
        let entry = |until| Entry { until, ..Entry::new(List::Allow, net("2001:db8::/64")) };
        layers.run_time.put(&layers.policy, entry(Some(NOW + 9)), NOW).unwrap();
        let mut kept = |now| {
            allow(&session, &mut layers, false, now);
            let [entry] = layers.run_time.entries() else { panic!("{:?}", layers.run_time) };
            entry.until.unwrap() - NOW
        };
        assert_eq!(kept(NOW), KEPT);
        assert_eq!(kept(NOW + KEPT / 2), KEPT, "there is enough left");
        assert_eq!(kept(NOW + KEPT / 2 + 1), KEPT / 2 + 1 + KEPT);
        // For ever is more than that.
        layers.run_time.put(&layers.policy, entry(None), NOW).unwrap();
        let before = layers.clone();
        assert_eq!(allow(&session, &mut layers, false, NOW), None);
        assert_eq!(layers, before);
    }

    #[test]
    fn what_is_kept_is_told_by_its_address() {
        let said = |prefix| Kept { source: net(prefix), until: NOW }.said("is");
        let expected = "203.0.113.9 (this SSH session) is kept allowed until 2027-01-15T08:00:00Z;";
        assert!(said("203.0.113.9/32").starts_with(expected), "{}", said("203.0.113.9/32"));
        assert!(said("2001:db8::/64").starts_with("2001:db8::/64 (this"));
    }
}
