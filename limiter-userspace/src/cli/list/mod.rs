//! `limiter allow`, `limiter deny` and `limiter penalty`: the run-time lists.

mod penalty;

use std::time::Duration;

use clap::{Args, Subcommand};
use ipnet::IpNet;

pub(super) use self::penalty::PenaltyCommand;
use super::{
    change::{Changed, change},
    end_of,
    keep_ssh::KeepSsh,
    maps, unix, unix_time,
};
use crate::{
    cli::user::user,
    datapath::bpffs::Pins,
    error::{Error, Result},
    output::{
        lists::{self, ListEntry},
        number::{duration, grouped},
        stream::Output,
    },
    policy::{
        Layered, Layers, List, PolicyError, Session,
        document::{format_instant, parse_instant},
        run_time::{Entry, REASON, Removed, decides},
        units::{parse_duration, parse_prefix},
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum ListCommand {
    /// Add a prefix to the run-time list; no edit of the policy document removes it
    Add(Add),
    /// Remove a prefix from the list; an entry of the document is overridden by a run-time exception
    #[command(visible_alias = "delete")]
    Del(Del),
    /// Show the list: entries of the document, of its sets, and those set at run time
    #[command(visible_alias = "ls")]
    List,
    /// Remove all run-time entries from the list; those of the document stay
    Flush(Flush),
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// An address or a prefix, e.g. 203.0.113.9 or 2001:db8::/48
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Only for this time, e.g. 10m
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    #[command(flatten)]
    more: More,
    #[command(flatten)]
    keep: KeepSsh,
}

/// Options of an entry, beside `--for`.
#[derive(Debug, Args)]
pub(in crate::cli) struct More {
    /// Only until this time, in UTC, e.g. 2027-01-31T18:00:00Z
    #[arg(long, value_name = "INSTANT", conflicts_with = "time", value_parser = instant)]
    until: Option<u64>,
    /// Reason that is shown with the entry, up to 200 characters
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Take the whole source of an address: of IPv6 its /64, unless the policy says otherwise
    #[arg(long)]
    source: bool,
}

#[derive(Debug, Args)]
pub(super) struct Del {
    /// The prefix as it was added
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Take the whole source of an address: of IPv6 its /64, unless the policy says otherwise
    #[arg(long)]
    source: bool,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Flush {
    #[command(flatten)]
    keep: KeepSsh,
}

fn instant(text: &str) -> Result<u64, String> {
    let end = parse_instant(text).ok_or("give it in UTC, such as 2027-01-31T18:00:00Z")?;
    if end <= unix() { Err("that time is past".to_owned()) } else { Ok(end) }
}

fn reason(text: &str) -> Result<String, String> {
    if text.chars().count() > REASON {
        return Err(format!("it has more than {REASON} characters"));
    }
    if text.chars().any(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    Ok(text.to_owned())
}

impl ListCommand {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(Add { prefix, time, more, keep }) => {
                let asked = Asked {
                    time: time
                        .as_deref()
                        .map(parse_duration)
                        .transpose()
                        .map_err(PolicyError::from)?,
                    until: more.until,
                    reason: more.reason.clone(),
                    widened: more.source,
                    session: keep.session(output)?,
                    ..Asked::new(list, parse_prefix(prefix).map_err(PolicyError::from)?)
                };
                asked.run(pins, output)
            }
            Self::Del(del) => del.run(list, pins, output),
            Self::List => {
                let (in_force, now) = (maps(pins)?.in_force()?, unix_time());
                Ok(lists::print(output, list.name(), &of(in_force.layered(), list, now))?)
            }
            Self::Flush(flush) => {
                let (changed, said) = flush.put(list, pins, output)?;
                if output.is_json() {
                    lists::print(
                        output,
                        list.name(),
                        &of(changed.layers.view(), list, unix_time()),
                    )?;
                } else {
                    writeln!(output, "{said}")?;
                }
                changed.tell(output)
            }
        }
    }
}

impl Flush {
    /// Removes the run-time entries of a list. Returns the message on the result.
    fn put(&self, list: List, pins: &Pins, output: &Output) -> Result<(Changed<usize>, String)> {
        let session = self.keep.session(output)?;
        let changed = change(pins, session, |layers| Ok(layers.run_time.flush(list)))?;
        let removed = match changed.said {
            1 => "1 run-time entry".to_owned(),
            more => format!("{} run-time entries", grouped(more as u64)),
        };
        let left = changed.layers.policy.list(list).len();
        let stay = if left == 0 { "" } else { "; what the document has stays" };
        Ok((changed, format!("{}: removed {removed}{stay}", list.name())))
    }
}

impl Del {
    fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        let asked = parse_prefix(&self.prefix).map_err(PolicyError::from)?;
        let (session, now) = (self.keep.session(output)?, unix());
        let changed = change(pins, session, |layers| {
            let prefix = if self.source { layers.policy.widened(asked) } else { asked };
            let removed = layers.take_off(by_user(list, prefix, now), now)?;
            if list == List::Allow {
                check_own(session, prefix, layers.view(), now)?;
            }
            Ok((removed, prefix))
        })?;
        let (taken_off, prefix) = changed.said;
        let layered = changed.layers.view();
        if output.is_json() {
            lists::print(output, list.name(), &of(layered, list, unix_time()))?;
            return changed.tell(output);
        }
        let said = removed(list, prefix, taken_off, layered, now);
        writeln!(output, "{said}")?;
        changed.tell(output)
    }
}

/// The message on a prefix that was taken off a list.
fn removed(list: List, prefix: IpNet, removed: Removed, layered: Layered<'_>, now: u64) -> String {
    let name = list.name();
    let still = layered.covering(list, prefix, now);
    let still = still.map_or_else(String::new, |by| format!("; {by} still includes it"));
    match removed {
        Removed::Entry => format!("{name}: deleted {prefix}{still}"),
        Removed::Excepted => format!(
            "{name}: {prefix} is an entry of the document, which stays: a run-time exception takes it off \
             the list{still}"
        ),
    }
}

/// An entry of this user, set now.
fn by_user(list: List, prefix: IpNet, now: u64) -> Entry {
    Entry { by: user(), since: Some(now), ..Entry::new(list, prefix) }
}

/// A request to put a prefix on a list.
pub(in crate::cli) struct Asked {
    pub(super) list: List,
    pub(super) prefix: IpNet,
    /// How long the entry lasts. Without this and `until`, it does not end.
    pub(super) time: Option<Duration>,
    /// When the entry ends, in seconds of Unix time.
    pub(in crate::cli) until: Option<u64>,
    /// Whether the prefix is widened to the source that it belongs to.
    pub(in crate::cli) widened: bool,
    /// The reason, as the user gave it.
    pub(in crate::cli) reason: Option<String>,
    pub(super) session: Option<Session>,
    /// Whether an entry that lasts longer is kept.
    pub(in crate::cli) never_shorter: bool,
}

impl Asked {
    /// A request without an end.
    pub(in crate::cli) const fn new(list: List, prefix: IpNet) -> Self {
        let (time, until, reason, session) = (None, None, None, None);
        let (widened, never_shorter) = (false, false);
        Self { list, prefix, time, until, widened, reason, session, never_shorter }
    }

    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let (changed, said) = self.put(pins)?;
        if !output.is_json() {
            writeln!(output, "{said}")?;
        } else if self.list == List::Penalty {
            lists::print_penalties(output, &penalty::entries(&maps(pins)?)?)?;
        } else {
            let entries = of(changed.layers.view(), self.list, unix_time());
            lists::print(output, self.list.name(), &entries)?;
        }
        changed.tell(output)
    }

    /// Puts the prefix on the list. Returns the message on the result.
    pub(super) fn put(&self, pins: &Pins) -> Result<(Changed<(bool, IpNet)>, String)> {
        let Self { list, time, session, .. } = *self;
        let (now, until) = (unix(), time.map(end_of).or(self.until));
        let changed = change(pins, session, |layers| {
            let Layers { policy, run_time, .. } = layers;
            let prefix = if self.widened { policy.widened(self.prefix) } else { self.prefix };
            if self.never_shorter {
                run_time.check_longer(list, prefix, until)?;
            }
            let entry = Entry { until, reason: self.reason.clone(), ..by_user(list, prefix, now) };
            let same = run_time.put(policy, entry, now)?;
            if list != List::Allow {
                check_own(session, prefix, layers.view(), now)?;
            }
            Ok((same, prefix))
        })?;
        let (same, prefix) = changed.said;
        let until = until.map_or_else(String::new, |until| {
            let time = time.unwrap_or_else(|| Duration::from_secs(until.saturating_sub(now)));
            format!(" until {} ({})", format_instant(until), duration(time))
        });
        let same = if same { ", instead of the entry that it had" } else { "" };
        // A list that is asked before this one, or an entry with a longer prefix, may decide
        // instead.
        let stated = changed.layers.view().around(prefix);
        let other = decides(&stated, now).filter(|by| by.list != list);
        let other = other.map_or_else(String::new, |by| {
            format!("; {} in {} comes first as long as it is there", by, by.list.name())
        });
        let name = list.name();
        Ok((changed, format!("{name}: {prefix}{until}{same}{other}")))
    }
}

/// Refuses an edit for exactly the source of the session, if that could be dropped, now or when its
/// entry on `allow` ends. To keep the session would leave the edit without effect.
fn check_own(
    session: Option<Session>,
    prefix: IpNet,
    layered: Layered<'_>,
    now: u64,
) -> Result<()> {
    match session {
        Some(session)
            if layered.policy.source_of(session.peer) == prefix
                && layered.could_drop(&session, now, u64::MAX) =>
        {
            Err(Error::OwnSession { prefix })
        }
        _ => Ok(()),
    }
}

/// The entries of a list, those of the document first.
fn of(layered: Layered<'_>, list: List, now: Duration) -> Vec<ListEntry> {
    let document =
        layered.policy.list(list).iter().map(|listed| ListEntry::of_document(listed, now));
    let run_time =
        layered.run_time.list(list).map(|entry| ListEntry::of_run_time(entry, layered, now));
    document.chain(run_time).collect()
}
