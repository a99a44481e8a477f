//! `limiter penalty`.

use clap::{Args, Subcommand};

use super::{Asked, Del};
use crate::{
    cli::{keep_ssh::KeepSsh, maps, unix},
    datapath::{blocked::Blocked, bpffs::Pins},
    error::{Error, Result},
    output::{
        lists::{self, PenaltyEntry},
        stream::Output,
    },
    policy::{List, PolicyError, units::parse_prefix},
};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PenaltyCommand {
    /// Block the sources in a prefix for a while
    Add(Add),
    /// Take back a block that was made by hand
    #[command(visible_alias = "delete")]
    Del(Del),
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

impl PenaltyCommand {
    pub(in crate::cli) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Add(add) => {
                let asked = Asked {
                    list: List::Penalty,
                    prefix: parse_prefix(&add.prefix).map_err(PolicyError::from)?,
                    time: Some(&add.time),
                    session: add.keep.session()?,
                };
                asked.run(pins, output)
            }
            Self::Del(del) => del.run(List::Penalty, pins, output).map_err(|error| match error {
                Error::Policy(PolicyError::NotListed { .. }) => {
                    blocked_by_limit(del, pins).unwrap_or(error)
                }
                error => error,
            }),
            Self::List => {
                let (maps, now) = (maps(pins)?, unix());
                let policy = maps.policy()?;
                let by_hand = policy
                    .list(List::Penalty)
                    .iter()
                    .map(|listed| PenaltyEntry::by_hand(listed, now));
                let blocked = maps.blocked()?;
                let by_limit = blocked.iter().map(|blocked| PenaltyEntry::by_limit(blocked, now));
                let entries: Vec<_> = by_hand.chain(by_limit).collect();
                Ok(lists::print_penalties(output, &entries)?)
            }
        }
    }
}

/// What is said instead when it is a limit that blocks what was to be taken back.
fn blocked_by_limit(del: &Del, pins: &Pins) -> Option<Error> {
    let prefix = parse_prefix(&del.prefix).ok()?;
    let blocked = maps(pins).ok()?.blocked().ok()?;
    let same = |blocked: &Blocked| {
        blocked.address == prefix.addr() && blocked.prefix == prefix.prefix_len()
    };
    let left = blocked.into_iter().find(same)?.left;
    Some(Error::BlockedByLimit { prefix, left })
}
