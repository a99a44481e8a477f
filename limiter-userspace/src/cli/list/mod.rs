//! `limiter allow`, `limiter deny` and `limiter penalty`: the run-time lists.

mod add;
mod del;
mod given;
mod penalty;
mod push;
mod sets;

use clap::{Args, Subcommand};
use ipnet::IpNet;

pub(super) use self::{
    add::Asked,
    penalty::{PenaltyCommand, entries as blocked},
};
use self::{
    add::{Add, More},
    del::{Del, REMOVED, Told},
};
use super::{
    change::{Changed, change},
    keep_ssh::KeepSsh,
    maps,
    progress::Progress,
    unix_time,
};
use crate::{
    cli::user::user,
    datapath::bpffs::Pins,
    error::{Error, Result},
    output::{
        lists::{self, ListEntry},
        number::grouped,
        stream::Output,
    },
    policy::{Layered, List, Session, run_time::Entry},
};

#[derive(Debug, Subcommand)]
pub(super) enum ListCommand {
    /// Add prefixes to the run-time list; no edit of the policy document removes them
    Add(Add),
    /// Remove prefixes from the list; an entry of the document is overridden by a run-time exception
    #[command(visible_alias = "delete")]
    Del(Del),
    /// Show the list: entries of the document, of its sets, and those set at run time
    #[command(visible_alias = "ls")]
    List,
    /// Remove all run-time entries from the list, or those of a set; those of the document stay
    Flush(Flush),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Flush {
    /// Only the entries of this set, which `add --replace SET` made
    #[arg(long, value_name = "SET", value_parser = sets::name)]
    set: Option<String>,
    #[command(flatten)]
    keep: KeepSsh,
}

impl ListCommand {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(add) => add.run(list, pins, output),
            Self::Del(del) => del.run(list, pins, output),
            Self::List => {
                let (in_force, now) = (maps(pins)?.in_force()?, unix_time());
                Ok(lists::print(
                    output,
                    list.name(),
                    &ListEntry::all(in_force.layered(), list, now),
                )?)
            }
            Self::Flush(Flush { set, keep }) => flush(list, set.as_deref(), keep, pins, output),
        }
    }
}

/// Removes the run-time entries of a list, or those of a set.
fn flush(
    list: List,
    set: Option<&str>,
    keep: &KeepSsh,
    pins: &Pins,
    output: &mut Output,
) -> Result<()> {
    let session = keep.session(output)?;
    let progress = Progress::of(&format!("{}: removing what was set at run time", list.name()));
    let changed = change(pins, session, |layers| {
        Ok(match set {
            Some(set) => layers.run_time.flush_set(list, set),
            None => layers.run_time.flush(list),
        })
    })?;
    drop(progress);
    let told =
        Told { list: list.name(), set, entries: Vec::new(), removed: changed.said, freed: None };
    print(&told, &changed, output, || {
        let removed = match changed.said {
            1 => "1 run-time entry".to_owned(),
            more => format!("{} run-time entries", grouped(more as u64)),
        };
        let of = set.map_or_else(String::new, |set| format!(" of set {set}"));
        let left = changed.layered().policy.list(list).len();
        let stay = if left == 0 { "" } else { "; what the document has stays" };
        format!("{}: removed {removed}{of}{stay}", list.name())
    })
}

/// Prints what was removed: the message on it, or as JSON.
fn print<T>(
    told: &Told<'_>,
    changed: &Changed<T>,
    output: &mut Output,
    said: impl FnOnce() -> String,
) -> Result<()> {
    match output.is_json() {
        true => output.shape(REMOVED, told)?,
        false => writeln!(output, "{}", said())?,
    }
    changed.tell(output)
}

/// An entry of this user, set now.
fn by_user(list: List, prefix: IpNet, now: u64) -> Entry {
    Entry { by: user().map(Into::into), since: Some(now), ..Entry::new(list, prefix) }
}

/// Refuses an edit for exactly the source of the session, if that could be dropped, now or when its
/// entry on `allow` ends. To keep the session would leave the edit without effect.
fn check_own(
    session: Option<Session>,
    prefixes: &[IpNet],
    layered: Layered<'_>,
    now: u64,
) -> Result<()> {
    let Some(session) = session else { return Ok(()) };
    let prefix = layered.policy.source_of(session.peer);
    if prefixes.contains(&prefix) && layered.could_drop(&session, now, u64::MAX) {
        return Err(Error::OwnSession { prefix });
    }
    Ok(())
}
