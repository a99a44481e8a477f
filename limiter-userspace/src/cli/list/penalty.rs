//! `limiter penalty`.

use clap::{Args, Subcommand};
use ipnet::IpNet;

use super::{
    Asked, Flush, More,
    del::{self, TakenOff, Told},
    flush,
    given::some,
    given::{Given, GivenOrAll},
    print, push, sets,
};
use crate::{
    cli::{change::change, keep_ssh::KeepSsh, maps, unix, unix_time},
    datapath::{bpffs::Pins, maps::Maps, offences::Disjoint},
    error::Result,
    output::{
        lists::{self, PenaltyEntry},
        number::grouped,
        stream::Output,
    },
    policy::{Layered, List, PolicyError, units::parse_time},
    query::{self, Inquiry},
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PenaltyCommand {
    /// Block the sources in prefixes for a while
    Add(Add),
    /// End the blocks that commands made of prefixes, and all blocks that limits made in them
    #[command(visible_alias = "delete")]
    Del(Lift),
    /// List blocked sources, whether commands or limits blocked them
    #[command(visible_alias = "ls")]
    List,
    /// End all blocks that commands made, or those of a set; those that limits made, and pushed ones, stay
    Flush(Flush),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Add {
    #[command(flatten)]
    given: Given,
    /// For how long, e.g. 10m, 1h30m, or 600 for seconds
    #[arg(
        long = "for",
        value_name = "TIME",
        required_unless_present = "until",
        allow_hyphen_values = true
    )]
    time: Option<String>,
    #[command(flatten)]
    more: More,
    /// Push the blocks of single sources into the running tables: at once, however long the lists are. They are in no policy,
    /// and end with their time or when the last interface is detached
    #[arg(long, conflicts_with_all = ["until", "reason", "replace", "set"])]
    push: bool,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Lift {
    #[command(flatten)]
    given: GivenOrAll,
    /// Only their entries of this set, which `add --set` or `--replace` made: other blocks by hand, and those by limits, stay
    #[arg(long, value_name = "SET", value_parser = sets::name)]
    set: Option<String>,
    /// Only the blocks that `add --push` or another process pushed: others stay, and the policy is not put in force again
    #[arg(long, conflicts_with = "set")]
    push: bool,
    #[command(flatten)]
    keep: KeepSsh,
}

impl PenaltyCommand {
    pub(in crate::cli) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(Add { given, time: Some(time), push: true, keep, .. }) => {
                let time = parse_time(time).map_err(PolicyError::from)?;
                push::push(&some(given.read()?)?, time, keep, pins, output)
            }
            Self::Add(Add { given, time, more, keep, .. }) => {
                let session = keep.session(output)?;
                Asked::read(List::Penalty, given, time.as_deref(), more, session)?.run(pins, output)
            }
            Self::Del(lift) => lift.run(pins, output),
            Self::List => Ok(lists::print_penalties(output, &entries(&maps(pins)?)?)?),
            Self::Flush(Flush { set, keep }) => {
                flush(List::Penalty, set.as_deref(), keep, pins, output)
            }
        }
    }
}

/// All blocks: those by hand, then those by limits and pushes.
pub(in crate::cli) fn entries(maps: &Maps) -> Result<Vec<PenaltyEntry>> {
    let (in_force, now, at) = (maps.in_force()?, unix_time(), query::now());
    let blocked = Inquiry::new(maps, at)?.blocked(at)?;
    Ok(PenaltyEntry::all(in_force.layered(), &blocked, now))
}

/// The result of ending blocks.
struct Lifted {
    /// What became of each prefix on the list of blocks by hand.
    taken_off: Vec<TakenOff>,
    /// The number of sources in the prefixes that limits had blocked.
    by_limits: usize,
    /// Whether anything of a source in the prefixes was forgotten.
    known: bool,
}

impl Lift {
    /// Ends the blocks of prefixes by hand, and the blocks by limits of the sources in them.
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let given = self.given.read()?;
        if self.push {
            return push::lift(given.as_deref(), pins, output);
        }
        let Some(given) = given else {
            return flush(List::Penalty, self.set.as_deref(), &self.keep, pins, output);
        };
        if let Some(set) = &self.set {
            return del::run(List::Penalty, Some(set), &given, &self.keep, pins, output);
        }
        let (session, now) = (self.keep.session(output)?, unix());
        let mut maps = maps(pins)?;
        let changed = change(pins, session, |layers| {
            let at = query::now();
            let blocked = Inquiry::new(&maps, at)?.blocked(at)?;
            let taken_off = del::take_off(layers, List::Penalty, &given, now)?;
            let prefixes: Vec<IpNet> = taken_off.iter().map(|it| it.prefix).collect();
            let lifted = Disjoint::of(&prefixes);
            let by_limits = blocked.iter().filter(|it| lifted.has(it.source.addr())).count();
            // This also forgets blocks that only another policy would enforce.
            let known = maps.forgive(&prefixes)?;
            Ok(Lifted { taken_off, by_limits, known })
        })?;
        let Lifted { taken_off, by_limits, .. } = &changed.said;
        let told = Told { freed: Some(*by_limits), ..Told::of(List::Penalty, None, taken_off) };
        print(&told, &changed, output, || changed.said.said(changed.layered(), now))
    }
}

impl Lifted {
    /// The message on it.
    fn said(&self, layered: Layered<'_>, now: u64) -> String {
        let Self { taken_off, by_limits, known } = self;
        let sources = match by_limits {
            0 => None,
            1 => Some("1 source that a limit blocked is free again".to_owned()),
            more => {
                let more = grouped(*more as u64);
                Some(format!("{more} sources that limits blocked are free again"))
            }
        };
        match &taken_off[..] {
            // Nothing was on the list: what limits blocked is all that there is to tell.
            [TakenOff { prefix, removed: None }] if *known || *by_limits > 0 => {
                let still = layered.covering(List::Penalty, *prefix, now);
                let still =
                    still.map_or_else(String::new, |by| format!("; {by} still includes it"));
                let said = sources.unwrap_or_else(|| {
                    "its refusals so far are forgotten; no limit blocked it".to_owned()
                });
                format!("penalty: {prefix}: {said}{still}")
            }
            _ => {
                let said = del::said(List::Penalty, taken_off, layered, now);
                sources.map_or_else(|| said.clone(), |sources| format!("{said}; {sources}"))
            }
        }
    }
}
