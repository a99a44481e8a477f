//! `limiter allow`, `limiter deny` and `limiter penalty`.

mod penalty;

use clap::{Args, Subcommand};
use ipnet::IpNet;

pub(super) use self::penalty::PenaltyCommand;
use super::{
    change, end_of,
    keep_ssh::{KeepSsh, keep, kept},
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
pub(super) enum ListCommand<A: Addition> {
    /// Put the sources in a prefix on the list
    Add(A),
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
}

/// To a list that drops.
#[derive(Debug, Args)]
pub(super) struct AddDropped {
    #[command(flatten)]
    add: Add,
    #[command(flatten)]
    keep: KeepSsh,
}

/// An entry to be added.
pub(super) trait Addition: Args {
    /// The entry.
    fn add(&self) -> &Add;

    /// The session that it must not cut off.
    fn session(&self) -> Result<Option<Session>>;
}

impl Addition for Add {
    fn add(&self) -> &Self {
        self
    }

    fn session(&self) -> Result<Option<Session>> {
        Ok(None)
    }
}

impl Addition for AddDropped {
    fn add(&self) -> &Add {
        &self.add
    }

    fn session(&self) -> Result<Option<Session>> {
        self.keep.session()
    }
}

#[derive(Debug, Args)]
pub(super) struct Del {
    /// The prefix as it was added
    #[arg(value_name = "PREFIX")]
    prefix: String,
}

impl<A: Addition> ListCommand<A> {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(addition) => {
                let Add { prefix, time } = addition.add();
                let asked = Asked {
                    list,
                    prefix: parse_prefix(prefix).map_err(PolicyError::from)?,
                    time: time.as_deref(),
                    session: addition.session()?,
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
        let now = unix();
        let (policy, ()) = change(pins, |policy| Ok(policy.del_listed(list, prefix, now)?))?;
        if output.is_json() {
            return Ok(output.json(&of(&policy, list, now))?);
        }
        let still = policy.covering(list, prefix, now);
        let still = still.map_or_else(String::new, |by| format!("; {by} still includes it"));
        Ok(writeln!(output, "{}: deleted {prefix}{still}", list.name())?)
    }
}

/// What is to be put on a list.
struct Asked<'a> {
    list: List,
    prefix: IpNet,
    time: Option<&'a str>,
    session: Option<Session>,
}

impl Asked<'_> {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let Self { list, prefix, .. } = *self;
        let time = self.time.map(parse_duration).transpose().map_err(PolicyError::from)?;
        let (now, until) = (unix(), time.map(end_of));
        let (policy, (displaced, source)) = change(pins, |policy| {
            let displaced = policy.add_listed(list, prefix, until, now)?;
            Ok((displaced, self.keep(policy, now)?))
        })?;
        if output.is_json() {
            return Ok(output.json(&of(&policy, list, now))?);
        }
        let until = until.map_or_else(String::new, |until| {
            let time = duration(time.unwrap_or_default());
            format!(" until {} ({time})", format_instant(until))
        });
        let Displaced { same, narrower } = displaced;
        let same = if same { ", instead of the entry that it had" } else { "" };
        let narrower = match narrower {
            0 => String::new(),
            1 => ", with 1 entry for less of it".to_owned(),
            more => format!(", with {more} entries for less of it"),
        };
        writeln!(output, "{}: {prefix}{until}{same}{narrower}", list.name())?;
        if let Some(source) = source {
            writeln!(output, "{}", kept(source))?;
        }
        Ok(())
    }

    /// Allows the peer of the session, if it is within the prefix.
    fn keep(&self, policy: &mut Policy, now: u64) -> Result<Option<IpNet>> {
        let Some(session) = self.session.filter(|session| self.prefix.contains(&session.peer))
        else {
            return Ok(None);
        };
        // There would be nobody left for the entry to be about.
        if policy.source_of(session.peer) == self.prefix && policy.could_drop(&session, now) {
            return Err(Error::OwnSession { prefix: self.prefix });
        }
        Ok(keep(&session, policy, now))
    }
}

/// The entries of a list.
fn of(policy: &Policy, list: List, now: u64) -> Vec<ListEntry> {
    policy.list(list).iter().map(|listed| ListEntry::new(listed, now)).collect()
}
