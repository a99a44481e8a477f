//! Keeps the SSH session of the user from being cut off by a command.

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

/// How long a session is allowed, in seconds: long enough to notice a mistake, and not for ever.
const KEPT: u64 = 24 * 3600;

#[derive(Debug, Args)]
pub(super) struct KeepSsh {
    /// Allow the address of this SSH session if the command could cut it off; on a terminal, that is the
    /// default
    #[arg(long, conflicts_with = "no_keep_ssh")]
    keep_ssh: bool,
    /// Do not allow the address of this SSH session
    #[arg(long)]
    no_keep_ssh: bool,
}

impl KeepSsh {
    /// The session that is to be kept, if there is one. Warns of a session that cannot be kept.
    pub(super) fn session(&self, output: &Output) -> Result<Option<Session>> {
        let (session, warning) = self.found()?;
        if let Some(warning) = warning {
            warn(&warning, output);
        }
        Ok(session)
    }

    /// The session that is to be kept, if there is one, and the warning if it cannot be kept.
    pub(super) fn found(&self) -> Result<(Option<Session>, Option<String>)> {
        // A list may come by the standard input, and the output go to a file: the errors of somebody at a terminal go there.
        let interactive = || io::stderr().is_terminal();
        if self.no_keep_ssh || !(self.keep_ssh || interactive()) {
            return Ok((None, None));
        }
        match connection::find() {
            Ok(session) => Ok((Some(session), None)),
            Err(cause) if self.keep_ssh => Err(Error::NoSession { cause: cause.to_string() }),
            Err(Absent::Unsaid) => Ok((None, None)),
            Err(cause @ Absent::Unfit(_)) => {
                // For example in a terminal multiplexer that outlived the connection.
                Ok((None, Some(format!("no SSH session is kept: {cause}"))))
            }
        }
    }
}

/// A source that is allowed for the sake of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) source: IpNet,
    /// When the entry ends, in seconds of Unix time.
    pub(super) until: u64,
}

/// Adds a run-time entry that allows the peer of a session, if it could be dropped: by these lists
/// and limits, or by a block that a limit made in the instance with these maps. Returns the source
/// that was allowed.
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

/// A session that is allowed until this time needs no new entry: at least half of the time is left.
const fn enough(now: u64) -> u64 {
    now.saturating_add(KEPT / 2)
}

/// Allows the peer of a session if it could be dropped. `blocked` says whether a limit blocks it
/// now.
fn allow(session: &Session, layers: &mut Layers, blocked: bool, now: u64) -> Option<Kept> {
    let enough = enough(now);
    let could_block = blocked && layers.view().could_block(session, now, enough);
    if !could_block && !layers.view().could_drop(session, now, enough) {
        return None;
    }
    let source = layers.policy.source_of(session.peer);
    let until = now.saturating_add(KEPT);
    // No entry has a longer prefix. Of entries with this prefix, a run-time one that allows goes
    // before all others.
    let entry = Entry {
        until: Some(until),
        reason: Some("SSH session".into()),
        by: user().map(Into::into),
        since: Some(now),
        ..Entry::new(List::Allow, source)
    };
    // Fails only for a prefix that is narrower than a source.
    let _: Result<bool, PolicyError> = layers.run_time.put(&layers.policy, entry, now);
    Some(Kept { source, until })
}

impl Kept {
    /// The source: its address, or its prefix if that counts as one source.
    pub(super) fn name(self) -> String {
        top::name(self.source.addr(), self.source.prefix_len())
    }

    /// Reports the entry, after the result of the command.
    pub(super) fn tell(self, output: &mut Output) -> Result<()> {
        let said = self.said("is");
        if output.is_json() {
            warn(&said, output);
            return Ok(());
        }
        Ok(writeln!(output, "{said}")?)
    }

    /// Reports the entry that a dry run would have made.
    pub(super) fn would_tell(self, output: &mut Output) -> Result<()> {
        Ok(writeln!(output, "{}", self.said("would be"))?)
    }

    /// The message on the entry, with this verb.
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

    /// The run-time ban has the prefix of the source, like the entry that allows it.
    #[test]
    fn a_session_outlives_a_ban_of_its_own_source_in_either_layer() {
        let session = Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap();
        let mut layers = denying("203.0.113.9/32");
        let ban = Entry::new(List::Deny, net("203.0.113.9/32"));
        layers.run_time.put(&layers.policy, ban, NOW).unwrap();
        assert!(allow(&session, &mut layers, false, NOW).is_some());
        assert!(!layers.view().could_drop(&session, NOW, NOW + KEPT));
        assert!(layers.view().could_drop(&session, NOW, NOW + KEPT + 1), "it is for a time");
        // A new document does not change the run-time entry.
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
        // An entry without an end is long enough.
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
