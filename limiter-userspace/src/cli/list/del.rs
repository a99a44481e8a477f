//! `limiter allow del` and `limiter deny del`, and what `penalty del` has in common with them.

use std::collections::HashSet;

use clap::Args;
use ipnet::IpNet;
use serde::Serialize;

use super::{
    by_user, check_own, flush,
    given::{GivenOrAll, each_once},
    print, sets,
};
use crate::{
    cli::{change::change, keep_ssh::KeepSsh, progress::Progress, unix},
    datapath::bpffs::Pins,
    error::Result,
    output::{number::grouped, stream::Output},
    policy::{
        Layered, Layers, List, PolicyError,
        run_time::{Entry, Removed},
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Del {
    #[command(flatten)]
    given: GivenOrAll,
    /// Accepted for scripts: what is narrower than a source is taken for its source in any case
    #[arg(long, hide = true)]
    source: bool,
    /// Only their entries of this set, which `add --set` or `--replace` made: those by hand, and of other sets, stay
    #[arg(long, value_name = "SET", value_parser = sets::name)]
    set: Option<String>,
    #[command(flatten)]
    keep: KeepSsh,
}

/// What became of a prefix that was to be taken off a list.
pub(super) struct TakenOff {
    /// The prefix as it was looked for on the list.
    pub(super) prefix: IpNet,
    /// How it was removed; `None` if it was not on the list.
    pub(super) removed: Option<Removed>,
}

/// The JSON schema of what was removed.
pub(super) const REMOVED: &str = "limiter.removed/1";

/// What was removed, in JSON.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    pub(super) list: &'static str,
    pub(super) set: Option<&'a str>,
    /// What became of each prefix that was given.
    pub(super) entries: Vec<ToldEntry>,
    /// The number of run-time entries that were removed.
    pub(super) removed: usize,
    /// Of `penalty del`: the number of sources that limits had blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) freed: Option<usize>,
}

/// What became of a prefix, in JSON.
#[derive(Serialize)]
pub(super) struct ToldEntry {
    src: String,
    result: &'static str,
}

impl<'a> Told<'a> {
    /// What became of the prefixes of a command.
    pub(super) fn of(list: List, set: Option<&'a str>, taken_off: &[TakenOff]) -> Self {
        let entry = |it: &TakenOff| {
            let result = match it.removed {
                Some(Removed::Entry) => "removed",
                Some(Removed::Excepted) => "excepted",
                None => "not_there",
            };
            ToldEntry { src: it.prefix.to_string(), result }
        };
        let removed = taken_off.iter().filter(|it| it.removed == Some(Removed::Entry)).count();
        let entries = taken_off.iter().map(entry).collect();
        Self { list: list.name(), set, entries, removed, freed: None }
    }
}

impl Del {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        let Some(given) = self.given.read()? else {
            return flush(list, self.set.as_deref(), &self.keep, pins, output);
        };
        run(list, self.set.as_deref(), &given, &self.keep, pins, output)
    }
}

/// Takes prefixes off a list, or the entries of a set for them.
pub(super) fn run(
    list: List,
    set: Option<&str>,
    given: &[IpNet],
    keep: &KeepSsh,
    pins: &Pins,
    output: &mut Output,
) -> Result<()> {
    let (session, now) = (keep.session(output)?, unix());
    let progress =
        Progress::of(&format!("{}: deleting {}", list.name(), super::add::prefixes(given.len())));
    let changed = change(pins, session, |layers| {
        let taken_off = match set {
            Some(set) => take_off_set(layers, (list, set), given, now),
            None => take_off(layers, list, given, now)?,
        };
        if list == List::Allow {
            let prefixes: Vec<IpNet> = taken_off.iter().map(|it| it.prefix).collect();
            check_own(session, &prefixes, layers.view(), now)?;
        }
        Ok(taken_off)
    })?;
    drop(progress);
    let told = Told::of(list, set, &changed.said);
    print(&told, &changed, output, || said(list, &changed.said, changed.layered(), now))
}

/// Takes prefixes off a list. What is not on it is no error.
pub(super) fn take_off(
    layers: &mut Layers,
    list: List,
    given: &[IpNet],
    now: u64,
) -> Result<Vec<TakenOff>> {
    let prefixes = listed(layers, (list, None), given);
    let by = by_user(list, IpNet::default(), now);
    let entries = prefixes.iter().map(|prefix| Entry { prefix: *prefix, ..by.clone() }).collect();
    let results = layers.take_off_all(entries, now);
    let taken_off = prefixes.into_iter().zip(results).map(|(prefix, result)| match result {
        Ok(removed) => Ok(TakenOff { prefix, removed: Some(removed) }),
        Err(PolicyError::NotListed { .. }) => Ok(TakenOff { prefix, removed: None }),
        Err(error) => Err(error.into()),
    });
    taken_off.collect()
}

/// Removes the entries of a set for prefixes. What is not in the set is no error.
fn take_off_set(
    layers: &mut Layers,
    set: (List, &str),
    given: &[IpNet],
    now: u64,
) -> Vec<TakenOff> {
    let prefixes = listed(layers, (set.0, Some(set.1)), given);
    let removed = layers.run_time.remove_of_set(set, &prefixes.iter().copied().collect(), now);
    let of = |prefix: IpNet| {
        let removed = removed.contains(&prefix).then_some(Removed::Entry);
        TakenOff { prefix, removed }
    };
    prefixes.into_iter().map(of).collect()
}

/// The prefixes as a list has them, each once: widened to a source, or a single one as it is if that has an entry. An entry that
/// is narrower than a source is not in force, and may be there all the same.
fn listed(layers: &Layers, (list, set): (List, Option<&str>), given: &[IpNet]) -> Vec<IpNet> {
    let is_there = |prefix: IpNet| layers.run_time.get_of(list, prefix, set).is_some();
    match *given {
        [prefix] if is_there(prefix) => vec![prefix],
        _ => each_once(given.iter().map(|prefix| layers.policy.widened(*prefix)).collect()),
    }
}

/// What the other list that drops says of a prefix: who ends a ban wants to know of that.
fn also(list: List, prefix: IpNet, layered: Layered<'_>, now: u64) -> String {
    let other = match list {
        List::Allow => return String::new(),
        List::Deny => List::Penalty,
        List::Penalty => List::Deny,
    };
    let name = other.name();
    layered
        .covering(other, prefix, now)
        .map_or_else(String::new, |by| format!("; `limiter {name} list` still has {by}"))
}

/// The message on prefixes that were taken off a list.
pub(super) fn said(list: List, taken_off: &[TakenOff], layered: Layered<'_>, now: u64) -> String {
    let name = list.name();
    if let [TakenOff { prefix, removed }] = taken_off {
        let still = layered.covering(list, *prefix, now);
        let other = also(list, *prefix, layered, now);
        return match (removed, still) {
            (None, None) => format!("{name}: {prefix} is not on the list{other}"),
            (None, Some(by)) => {
                format!("{name}: {prefix} has no entry of its own; {by} still includes it")
            }
            (Some(removed), still) => {
                let still = still.map_or(other, |by| format!("; {by} still includes it"));
                match removed {
                    Removed::Entry => format!("{name}: deleted {prefix}{still}"),
                    Removed::Excepted => format!(
                        "{name}: {prefix} is an entry of the document, which stays: a run-time \
                         exception takes it off the list{still}"
                    ),
                }
            }
        };
    }
    let count = |what| taken_off.iter().filter(|it| it.removed == what).count();
    let left = layered.run_time.list(list).filter(|it| !it.exception && !it.is_over(now));
    let left: HashSet<IpNet> = left.map(|it| it.prefix).collect();
    let is_left = |it: &&TakenOff| left.contains(&it.prefix);
    let still = taken_off.iter().filter(is_left).count();
    let not_there = taken_off.iter().filter(|it| it.removed.is_none() && !is_left(it)).count();
    let deleted = count(Some(Removed::Entry));
    let mut said = format!("{name}: {} deleted", super::add::prefixes(deleted));
    for (number, words) in [
        (count(Some(Removed::Excepted)), "of the document, which stays: exceptions take them off"),
        (not_there, "not on the list"),
        (still, "still listed, as a set has them"),
    ] {
        if number > 0 {
            said += &format!("; {} {words}", grouped(number as u64));
        }
    }
    said
}
