//! `limiter penalty`.

use clap::{Args, Subcommand};

use super::Asked;
use crate::{
    cli::{change::change, keep_ssh::KeepSsh, maps, unix},
    datapath::{bpffs::Pins, maps::Maps},
    error::Result,
    inquiry::{self, Inquiry},
    output::{
        lists::{self, PenaltyEntry},
        number::grouped,
        stream::Output,
    },
    policy::{
        List, PolicyError,
        units::{parse_duration, parse_prefix},
    },
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PenaltyCommand {
    /// Block the sources in a prefix for a while
    Add(Add),
    /// End blocks: that which was made by hand, and those that limits made in the prefix
    #[command(visible_alias = "delete")]
    Del(Lift),
    /// Show who is blocked, by hand and by limits
    #[command(visible_alias = "ls")]
    List,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Add {
    /// An address or a prefix, e.g. 203.0.113.9 or 2001:db8:0:1::/64
    #[arg(value_name = "ADDRESS")]
    prefix: String,
    /// For how long, e.g. 10m
    #[arg(long = "for", value_name = "TIME")]
    time: String,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Lift {
    /// An address, for the source that it is of, or a prefix, for each in it that a limit blocked
    #[arg(value_name = "ADDRESS")]
    prefix: String,
    #[command(flatten)]
    keep: KeepSsh,
}

impl PenaltyCommand {
    pub(in crate::cli) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(add) => {
                let asked = Asked {
                    list: List::Penalty,
                    prefix: parse_prefix(&add.prefix).map_err(PolicyError::from)?,
                    time: Some(parse_duration(&add.time).map_err(PolicyError::from)?),
                    session: add.keep.session(output)?,
                    never_shorter: false,
                };
                asked.run(pins, output)
            }
            Self::Del(lift) => lift.run(pins, output),
            Self::List => Ok(lists::print_penalties(output, &entries(&maps(pins)?)?)?),
        }
    }
}

/// Who is blocked, by hand and by limits.
pub(super) fn entries(maps: &Maps) -> Result<Vec<PenaltyEntry>> {
    let (policy, now, at) = (maps.policy()?, unix(), inquiry::now());
    let by_hand =
        policy.list(List::Penalty).iter().map(|listed| PenaltyEntry::by_hand(listed, now));
    let blocked = Inquiry::new(maps, at)?.blocked(at)?;
    let by_limit = blocked.iter().map(|blocked| PenaltyEntry::by_limit(blocked, now));
    Ok(by_hand.chain(by_limit).collect())
}

impl Lift {
    /// Ends the block of a prefix that was made by hand, and those of sources in it that limits made.
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let asked = parse_prefix(&self.prefix).map_err(PolicyError::from)?;
        let (session, now) = (self.keep.session(output)?, unix());
        let mut maps = maps(pins)?;
        let changed = change(pins, session, |policy| {
            let prefix = policy.widened(asked);
            let at = inquiry::now();
            let blocked = Inquiry::new(&maps, at)?.blocked(at)?;
            let by_limits = blocked.iter().filter(|it| prefix.contains(&it.source)).count();
            // What another policy would bring back goes too.
            let known = maps.forgive(prefix)?;
            match policy.del_listed(List::Penalty, prefix, now) {
                Ok(()) => Ok((prefix, true, by_limits)),
                Err(_) if known || by_limits > 0 => Ok((prefix, false, by_limits)),
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
        let (prefix, ..) = changed.said;
        match changed.said {
            (_, true, 0) => writeln!(output, "penalty: deleted {prefix}")?,
            (_, true, more) => {
                writeln!(output, "penalty: deleted {prefix}; {} free again", sources(more))?;
            }
            (_, false, 0) => writeln!(
                output,
                "penalty: {prefix}: forgotten how it was over limits; none blocked it now"
            )?,
            (_, false, more) => {
                writeln!(output, "penalty: {prefix}: {} free again", sources(more))?;
            }
        }
        let still = changed.policy.covering(List::Penalty, prefix, now);
        if let Some(by) = still {
            writeln!(output, "{by} still includes it")?;
        }
        changed.tell(output)
    }
}
