//! `limiter limit`.

use clap::{Args, Subcommand};
use limiter_common::limit::Limit;

use super::{attach::bucket, maps, no_instance};
use crate::{
    datapath::{bpffs::Pins, instance::Instance},
    error::Result,
    output::{
        limits::{self, LimitEntry, LimitRow, OverrideEntry},
        number::grouped,
        stream::Output,
    },
    policy::{
        Bucket, Policy, PolicyError, limit_by_name,
        units::{format_rate, parse_prefix, rate_per_second},
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum LimitCommand {
    /// List the limits and their overrides
    #[command(visible_alias = "ls")]
    List,
    /// Show one limit
    Show(Show),
    /// Set the rate and burst of a limit, for all sources or for those in a prefix
    Set(Set),
    /// Switch a limit off, or delete an override
    #[command(visible_alias = "delete")]
    Del(Del),
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// source, syn or connection
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// source, syn or connection
    name: String,
    /// Rate, e.g. 10kpps, 50/s, 5/min
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: String,
    /// Burst: packets, e.g. 2k, or a time, e.g. 100ms [default: 100 ms of the rate, or up to 64
    /// packets of one second, whichever is more]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Only for sources in this prefix; the longest prefix that has a source wins
    #[arg(long, value_name = "PREFIX")]
    src: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Del {
    /// source, syn or connection
    name: String,
    /// Delete the override of this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with = "all")]
    src: Option<String>,
    /// Delete all overrides too
    #[arg(long)]
    all: bool,
}

impl LimitCommand {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::List => {
                let policy = maps(pins)?.policy()?;
                let entries = Limit::ALL.map(|limit| entry(&policy, limit));
                Ok(limits::print(output, &entries)?)
            }
            Self::Show(Show { name }) => {
                let limit = limit_by_name(name)?;
                let entry = entry(&maps(pins)?.policy()?, limit);
                if output.is_json() {
                    return Ok(output.json(&entry)?);
                }
                Ok(limits::print(output, &[entry])?)
            }
            Self::Set(set) => set.run(pins, output),
            Self::Del(del) => del.run(pins, output),
        }
    }
}

impl Set {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let limit = limit_by_name(&self.name)?;
        let bucket = bucket(&self.rate, self.burst.as_deref())?;
        let src = self.src.as_deref().map(parse_prefix).transpose().map_err(PolicyError::from)?;
        change(pins, limit, output, |policy| {
            match src {
                Some(src) => policy.set_override(limit, src, bucket)?,
                None => policy.set_default(limit, bucket)?,
            }
            let whose = src.map_or_else(String::new, |src| format!(" for {src}"));
            Ok(format!("{} limit{whose}: {}", limit.name(), describe(limit, &bucket)))
        })
    }
}

impl Del {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let limit = limit_by_name(&self.name)?;
        let src = self.src.as_deref().map(parse_prefix).transpose().map_err(PolicyError::from)?;
        change(pins, limit, output, |policy| {
            if let Some(src) = src {
                policy.del_override(limit, src)?;
                return Ok(format!("{} limit: deleted the override for {src}", limit.name()));
            }
            if self.all && !policy.limit(limit).overrides.is_empty() {
                policy.limit_mut(limit).overrides.clear();
                policy.limit_mut(limit).default = None;
            } else {
                policy.del_default(limit)?;
            }
            Ok(match policy.limit(limit).overrides.len() {
                0 => format!("{} limit: off", limit.name()),
                left => format!(
                    "{} limit: off, but for {left} overrides; `limiter limit del {} --all` deletes \
                     them too",
                    limit.name(),
                    limit.name()
                ),
            })
        })
    }
}

/// Edits the policy in force, and says what came of it; with JSON, the limit as it is then.
fn change(
    pins: &Pins,
    limit: Limit,
    output: &mut Output,
    edit: impl FnOnce(&mut Policy) -> Result<String>,
) -> Result<()> {
    let mut instance = Instance::open(pins)?.ok_or_else(|| no_instance(pins))?;
    let mut policy = instance.maps().policy()?;
    let said = edit(&mut policy)?;
    instance.maps_mut().apply(&policy)?;
    if output.is_json() {
        return Ok(output.json(&entry(&policy, limit))?);
    }
    Ok(writeln!(output, "{said}")?)
}

fn describe(limit: Limit, bucket: &Bucket) -> String {
    let burst = grouped(bucket.burst);
    format!("{} after a burst of {burst} {}", format_rate(bucket.rate), limit.unit())
}

/// A limit as it is listed.
fn entry(policy: &Policy, limit: Limit) -> LimitEntry {
    let set = policy.limit(limit);
    LimitEntry {
        name: limit.name(),
        key: match limit {
            Limit::Connection => "connection".to_owned(),
            Limit::Syn | Limit::Source => "source".to_owned(),
        },
        rate_per_second: set.default.map(|bucket| rate_per_second(bucket.rate)),
        burst: set.default.map(|bucket| bucket.burst),
        rate: set.default.map(|bucket| format_rate(bucket.rate)),
        overrides: set
            .overrides
            .iter()
            .map(|(src, bucket)| OverrideEntry {
                src: src.to_string(),
                rate_per_second: Some(rate_per_second(bucket.rate)),
                burst: Some(bucket.burst),
                rate: Some(format_rate(bucket.rate)),
            })
            .collect(),
    }
}

/// The limits as they stand beside statistics.
pub(super) fn rows(policy: &Policy) -> Vec<LimitRow> {
    Limit::ALL
        .into_iter()
        .map(|limit| {
            let set = policy.limit(limit);
            LimitRow {
                limit,
                rate: set.default.map(|bucket| format_rate(bucket.rate)),
                burst: set.default.map(|bucket| grouped(bucket.burst)),
                overrides: set.overrides.len(),
            }
        })
        .collect()
}
