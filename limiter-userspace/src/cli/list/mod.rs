//! `limiter allow`, `limiter deny` and `limiter penalty`.

mod penalty;

use std::time::Duration;

use clap::{Args, Subcommand};
use ipnet::IpNet;

pub(super) use self::penalty::PenaltyCommand;
use super::{
    change::{Changed, change},
    end_of,
    keep_ssh::KeepSsh,
    maps, unix,
};
use crate::{
    datapath::bpffs::Pins,
    error::{Error, Result},
    output::{
        lists::{self, ListEntry},
        number::duration,
        stream::Output,
    },
    policy::{
        List, Policy, PolicyError, Session,
        edit_lists::Displaced,
        spec::format_instant,
        units::{parse_duration, parse_prefix},
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum ListCommand {
    /// Put the sources in a prefix on the list
    Add(Add),
    /// Take a prefix off the list
    #[command(visible_alias = "delete")]
    Del(Del),
    /// Show the list
    #[command(visible_alias = "ls")]
    List,
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// An address or a prefix, e.g. 203.0.113.9 or 2001:db8::/48
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Only for so long, e.g. 10m
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(super) struct Del {
    /// The prefix as it was added
    #[arg(value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    keep: KeepSsh,
}

impl ListCommand {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(Add { prefix, time, keep }) => {
                let asked = Asked {
                    list,
                    prefix: parse_prefix(prefix).map_err(PolicyError::from)?,
                    time: time
                        .as_deref()
                        .map(parse_duration)
                        .transpose()
                        .map_err(PolicyError::from)?,
                    session: keep.session(output)?,
                    never_shorter: false,
                };
                asked.run(pins, output)
            }
            Self::Del(del) => del.run(list, pins, output),
            Self::List => {
                let (policy, now) = (maps(pins)?.policy()?, unix());
                Ok(lists::print(output, list.name(), &of(&policy, list, now))?)
            }
        }
    }
}

impl Del {
    fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        let prefix = parse_prefix(&self.prefix).map_err(PolicyError::from)?;
        let (session, now) = (self.keep.session(output)?, unix());
        let changed = change(pins, session, |policy| {
            policy.del_listed(list, prefix, now)?;
            if list == List::Allow { check_own(session, prefix, policy, now) } else { Ok(()) }
        })?;
        let policy = &changed.policy;
        if output.is_json() {
            lists::print(output, list.name(), &of(policy, list, now))?;
            return changed.tell(output);
        }
        let still = policy.covering(list, prefix, now);
        let still = still.map_or_else(String::new, |by| format!("; {by} still includes it"));
        writeln!(output, "{}: deleted {prefix}{still}", list.name())?;
        changed.tell(output)
    }
}

/// What is to be put on a list.
pub(in crate::cli) struct Asked {
    pub(super) list: List,
    pub(super) prefix: IpNet,
    /// For how long; for ever without one.
    pub(super) time: Option<Duration>,
    pub(super) session: Option<Session>,
    /// Whether an entry that holds longer stays as it is.
    pub(in crate::cli) never_shorter: bool,
}

impl Asked {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let (changed, said) = self.put(pins)?;
        if !output.is_json() {
            writeln!(output, "{said}")?;
        } else if self.list == List::Penalty {
            lists::print_penalties(output, &penalty::entries(&maps(pins)?)?)?;
        } else {
            lists::print(output, self.list.name(), &of(&changed.policy, self.list, unix()))?;
        }
        changed.tell(output)
    }

    /// Puts it on the list, and says what came of it, in a line.
    pub(super) fn put(&self, pins: &Pins) -> Result<(Changed<()>, String)> {
        let Self { list, prefix, time, session, .. } = *self;
        let (now, until) = (unix(), time.map(end_of));
        let mut displaced = Displaced::default();
        let changed = change(pins, session, |policy| {
            if self.never_shorter {
                policy.check_longer(list, prefix, until)?;
            }
            displaced = policy.add_listed(list, prefix, until, now)?;
            if list != List::Allow {
                check_own(session, prefix, policy, now)?;
            }
            Ok(())
        })?;
        let until = until.map_or_else(String::new, |until| {
            let time = duration(time.unwrap_or_default());
            format!(" until {} ({time})", format_instant(until))
        });
        let same = if displaced.same { ", instead of the entry that it had" } else { "" };
        let narrower = match displaced.narrower {
            0 => String::new(),
            1 => ", with 1 entry for less of it".to_owned(),
            more => format!(", with {more} entries for less of it"),
        };
        Ok((changed, format!("{}: {prefix}{until}{same}{narrower}", list.name())))
    }
}

/// Refuses an edit that is about nobody but a session that could be cut off by it, now or when what
/// allows it ends: kept, there would be nobody left for it to be about.
fn check_own(session: Option<Session>, prefix: IpNet, policy: &Policy, now: u64) -> Result<()> {
    match session {
        Some(session)
            if policy.source_of(session.peer) == prefix
                && policy.could_drop(&session, now, u64::MAX) =>
        {
            Err(Error::OwnSession { prefix })
        }
        _ => Ok(()),
    }
}

/// The entries of a list.
fn of(policy: &Policy, list: List, now: u64) -> Vec<ListEntry> {
    policy.list(list).iter().map(|listed| ListEntry::new(listed, now)).collect()
}
