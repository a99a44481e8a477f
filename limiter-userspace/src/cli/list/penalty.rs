//! `limiter penalty`.

use clap::{Args, Subcommand};

use super::{Asked, Flush, More, by_user, of, removed};
use crate::{
    cli::{change::change, keep_ssh::KeepSsh, maps, unix, unix_time},
    datapath::{bpffs::Pins, maps::Maps},
    error::Result,
    output::{
        lists::{self, PenaltyEntry},
        number::grouped,
        stream::Output,
    },
    policy::{
        List, PolicyError,
        units::{parse_duration, parse_prefix},
    },
    query::{self, Inquiry},
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PenaltyCommand {
    /// Block the sources in a prefix for a while
    Add(Add),
    /// End the block that a command made of a prefix, and all blocks that limits made in it
    #[command(visible_alias = "delete")]
    Del(Lift),
    /// List blocked sources, whether commands or limits blocked them
    #[command(visible_alias = "ls")]
    List,
    /// End all blocks that commands made; those that limits made stay
    Flush(Flush),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Add {
    /// An address or a prefix, e.g. 203.0.113.9 or 2001:db8:0:1::/64
    #[arg(value_name = "ADDRESS")]
    prefix: String,
    /// For how long, e.g. 10m
    #[arg(long = "for", value_name = "TIME", required_unless_present = "until")]
    time: Option<String>,
    #[command(flatten)]
    more: More,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Lift {
    /// An address, for its source, or a prefix, for each source in it that a limit blocked
    #[arg(value_name = "ADDRESS")]
    prefix: String,
    #[command(flatten)]
    keep: KeepSsh,
}

impl PenaltyCommand {
    pub(in crate::cli) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(add) => {
                let prefix = parse_prefix(&add.prefix).map_err(PolicyError::from)?;
                let time = add.time.as_deref().map(parse_duration).transpose();
                let asked = Asked {
                    time: time.map_err(PolicyError::from)?,
                    until: add.more.until,
                    reason: add.more.reason.clone(),
                    widened: add.more.source,
                    session: add.keep.session(output)?,
                    ..Asked::new(List::Penalty, prefix)
                };
                asked.run(pins, output)
            }
            Self::Del(lift) => lift.run(pins, output),
            Self::List => Ok(lists::print_penalties(output, &entries(&maps(pins)?)?)?),
            Self::Flush(flush) => {
                let (changed, said) = flush.put(List::Penalty, pins, output)?;
                if output.is_json() {
                    lists::print_penalties(output, &entries(&maps(pins)?)?)?;
                } else {
                    writeln!(output, "{said}")?;
                }
                changed.tell(output)
            }
        }
    }
}

/// All blocks: those by hand, then those by limits.
pub(super) fn entries(maps: &Maps) -> Result<Vec<PenaltyEntry>> {
    let (in_force, now, at) = (maps.in_force()?, unix_time(), query::now());
    let by_hand = of(in_force.layered(), List::Penalty, now).into_iter().map(PenaltyEntry::by_hand);
    let blocked = Inquiry::new(maps, at)?.blocked(at)?;
    let by_limit = blocked.iter().map(|blocked| PenaltyEntry::by_limit(blocked, now));
    Ok(by_hand.chain(by_limit).collect())
}

impl Lift {
    /// Ends the block of a prefix by hand, and the blocks by limits of the sources in it.
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let asked = parse_prefix(&self.prefix).map_err(PolicyError::from)?;
        let (session, now) = (self.keep.session(output)?, unix());
        let mut maps = maps(pins)?;
        let changed = change(pins, session, |layers| {
            let prefix = layers.policy.widened(asked);
            let at = query::now();
            let blocked = Inquiry::new(&maps, at)?.blocked(at)?;
            let by_limits = blocked.iter().filter(|it| prefix.contains(&it.source)).count();
            // This also forgets blocks that only another policy would enforce.
            let known = maps.forgive(prefix)?;
            match layers.take_off(by_user(List::Penalty, prefix, now), now) {
                Ok(removed) => Ok((prefix, Some(removed), by_limits)),
                Err(_) if known || by_limits > 0 => Ok((prefix, None, by_limits)),
                Err(error) => Err(error.into()),
            }
        })?;
        if output.is_json() {
            lists::print_penalties(output, &entries(&maps)?)?;
            return changed.tell(output);
        }
        let sources = |number| match number {
            1 => "1 source that a limit blocked is".to_owned(),
            more => format!("{} sources that limits blocked are", grouped(more as u64)),
        };
        let (prefix, taken_off, by_limits) = changed.said;
        let layered = changed.layers.view();
        let said = match taken_off {
            Some(taken_off) => removed(List::Penalty, prefix, taken_off, layered, now),
            None => {
                let still = layered.covering(List::Penalty, prefix, now);
                let still =
                    still.map_or_else(String::new, |by| format!("; {by} still includes it"));
                let said = match by_limits {
                    0 => "its refusals so far are forgotten; no limit blocked it".to_owned(),
                    more => format!("{} free again", sources(more)),
                };
                writeln!(output, "penalty: {prefix}: {said}{still}")?;
                return changed.tell(output);
            }
        };
        match by_limits {
            0 => writeln!(output, "{said}")?,
            more => writeln!(output, "{said}; {} free again", sources(more))?,
        }
        changed.tell(output)
    }
}
