//! `limiter limit`.

mod add;
mod rows;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use self::add::Add;
pub(super) use self::rows::{entry, rows};
use super::{change::change, keep_ssh::KeepSsh, maps, progress::Progress, stderr::warn};
use crate::{
    datapath::bpffs::Pins,
    error::Result,
    output::{limits, monitoring, stream::Output},
    policy::{
        Bucket, Builtin, Policy, PolicyError,
        document::{could_be_name, match_name},
        model::{Limit, Mode},
        units::parse_prefix,
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum LimitCommand {
    /// List the limits and their overrides
    #[command(visible_alias = "ls")]
    List,
    /// Show one limit
    Show(Show),
    /// Set the rate, burst or action of a limit, for all sources or for those in a prefix
    Set(Set),
    /// Add a limit, without a policy document
    #[command(visible_alias = "new", after_help = add::WORDS)]
    Add(Box<Add>),
    /// Switch a limit off, or delete an override
    #[command(visible_alias = "delete")]
    Del(Del),
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// source, syn, connection, or another limit of the policy
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// source, syn, connection, or another limit of the policy
    name: String,
    /// Rate, e.g. 10kpps, 50/s, 5/min; of a limit that counts bytes, e.g. 2Mbit/s, 64kB/s; 0 drops all, as --action drop does
    #[arg(
        long,
        value_name = "RATE",
        allow_hyphen_values = true,
        required_unless_present_any = ["action", "burst"]
    )]
    rate: Option<String>,
    /// Burst: packets, e.g. 2k, or bytes, e.g. 64kB, or a time, e.g. 100ms [default: the burst that was given before;
    /// else 100 ms of the rate, or one second of it up to 64 packets if that is more]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Only for sources in this prefix; of several prefixes with a source, the longest decides
    #[arg(long, value_name = "PREFIX", conflicts_with = "action")]
    src: Option<String>,
    /// What happens over the limit: enforce drops, monitor only counts; off does neither, drop drops all that the limit is
    /// about, whatever its rate [default: as it is]
    #[arg(long, value_enum)]
    action: Option<Action>,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Debug, Args)]
pub(super) struct Del {
    /// source, syn, connection, or another limit of the policy
    name: String,
    /// Delete the override of this prefix
    #[arg(long, value_name = "PREFIX", conflicts_with = "all")]
    src: Option<String>,
    /// Delete its overrides too, and the limit from the policy: without it, the limit is only off
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    keep: KeepSsh,
}

/// The mode of a limit, as the option `--action` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Action {
    Enforce,
    Monitor,
    Drop,
    Off,
}

impl From<Action> for Mode {
    fn from(action: Action) -> Self {
        match action {
            Action::Enforce => Self::Enforce,
            Action::Monitor => Self::Monitor,
            Action::Drop => Self::Drop,
            Action::Off => Self::Off,
        }
    }
}

impl LimitCommand {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::List => {
                let maps = maps(pins)?;
                let policy = maps.policy()?;
                let limits = policy.listed_limits();
                let entries: Vec<_> = limits.iter().map(|limit| entry(&policy, limit)).collect();
                limits::print(output, &entries)?;
                Ok(monitoring::print(output, maps.monitoring()?)?)
            }
            Self::Show(Show { name }) => {
                let maps = maps(pins)?;
                let policy = maps.policy()?;
                let entry = entry(&policy, &policy.limit_or_builtin(name)?);
                if output.is_json() {
                    return Ok(output.shape(limits::OF_ONE, &entry)?);
                }
                limits::print(output, &[entry])?;
                Ok(monitoring::print(output, maps.monitoring()?)?)
            }
            Self::Set(set) => set.run(pins, output),
            Self::Add(add) => add.run(pins, output),
            Self::Del(del) => del.run(pins, output),
        }
    }
}

impl Set {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let src = self.src.as_deref().map(parse_prefix).transpose().map_err(PolicyError::from)?;
        edit(pins, &self.name, &self.keep, output, |policy| {
            let limit = policy.limit_or_builtin(&self.name)?;
            let mut said = Vec::new();
            let [rate, burst] = [self.rate.as_deref(), self.burst.as_deref()];
            if src.is_none() && rate.is_some_and(|rate| is_zero(&limit, rate)) {
                if burst.is_some() || self.action.is_some_and(|action| action != Action::Drop) {
                    return Err(PolicyError::NothingBesideZero { limit: self.name.clone() }.into());
                }
                policy.set_mode(&self.name, Mode::Drop)?;
                return Ok(format!("{}: drops all that it is about", named(&limit)));
            }
            let is_of_open = limit.layers.iter().any(|layer| layer.allowance.rate().is_none());
            if rate.is_some() && is_of_open {
                return Err(PolicyError::NoRate { limit: limit.name }.into());
            }
            if rate.is_some() || burst.is_some() {
                let bucket = policy.set_bucket(&self.name, src, rate, burst)?;
                said.push(describe(&limit, &bucket));
            }
            // Who gives a rate means it to hold.
            let enforced = limit.mode == Mode::Drop && src.is_none() && rate.is_some();
            let mode = self.action.map(Mode::from).or(enforced.then_some(Mode::Enforce));
            if limit.mode == Mode::Drop && src.is_none() && mode.is_none() {
                said.push("which is not used, as it drops all that it is about".to_owned());
            }
            if let Some(mode) = mode {
                policy.set_mode(&self.name, mode)?;
                said.push(mode.name().to_owned());
            }
            let whose = src.map_or_else(String::new, |src| format!(" for {src}"));
            Ok(format!("{}{whose}: {}", named(&limit), said.join(", ")))
        })
    }
}

impl Del {
    fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let src = self.src.as_deref().map(parse_prefix).transpose().map_err(PolicyError::from)?;
        let name = &self.name;
        let mut is_left = false;
        edit(pins, name, &self.keep, output, |policy| {
            let deleted = match src {
                Some(src) => policy.del_override(name, src),
                None if self.all => policy.del_limit(name),
                None => policy.del_default(name),
            };
            if let Err(error) = deleted {
                return Ok(not_there(name, error)?);
            }
            if let Some(src) = src {
                return Ok(format!("{name} limit: deleted the override for {src}"));
            }
            is_left = policy.limit(name).is_some_and(Limit::is_off);
            if policy.limit(name).is_none() && Builtin::by_name(name).is_none() {
                return Ok(format!("{name} limit: deleted"));
            }
            Ok(match policy.limit_or_builtin(name).map_or(0, |limit| limit.overrides.len()) {
                0 => format!("{name} limit: off"),
                left => format!(
                    "{name} limit: off, but for {left} overrides; `limiter limit del {name} --all` \
                     deletes them too"
                ),
            })
        })?;
        if is_left {
            let left = format!("limit {name} is still in the policy, and can be set again");
            warn(&format!("{left}; `limiter limit del {name} --all` deletes it"), output);
        }
        Ok(())
    }
}

/// The message on what was not there to be deleted: what is so already is success. A name that is almost that of a limit, or
/// none that a limit could have, was mistyped, and stays an error.
fn not_there(name: &str, error: PolicyError) -> Result<String, PolicyError> {
    match error {
        PolicyError::UnknownLimit { nearest: None, .. } if could_be_name(name) => {
            Ok(format!("{name} limit: not there"))
        }
        PolicyError::NotSet { overrides: 0, .. } => Ok(format!("{name} limit: off already")),
        PolicyError::NotSet { overrides, .. } => Ok(format!(
            "{name} limit: off already, but for {overrides} overrides; `limiter limit del {name} --all` deletes them too"
        )),
        PolicyError::NoOverride { prefix, .. } => {
            let others = error.remedy().unwrap_or_default();
            Ok(format!("{name} limit: no override for {prefix}; {others}"))
        }
        error => Err(error),
    }
}

/// Edits a limit of the policy in force, and prints the message of the edit; in JSON, the limit
/// after it.
fn edit(
    pins: &Pins,
    name: &str,
    keep: &KeepSsh,
    output: &mut Output,
    mut edit: impl FnMut(&mut Policy) -> Result<String>,
) -> Result<()> {
    let session = keep.session(output)?;
    // Beside long lists, each change takes a while.
    let progress = Progress::of(&format!("{name} limit: changing the policy in force"));
    let changed = change(pins, session, |layers| {
        let drops_all = |policy: &Policy| policy.limit(name).is_some_and(Limit::drops_everything);
        let before = drops_all(&layers.policy);
        let said = edit(&mut layers.policy)?;
        // That a word was left out must not cut the host off. A document may say so.
        if drops_all(&layers.policy) && !before {
            return Err(PolicyError::DropsEverything { limit: name.to_owned() }.into());
        }
        Ok(said)
    })?;
    drop(progress);
    if output.is_json() {
        let policy = changed.layered().policy;
        match policy.limit_or_builtin(name) {
            Ok(limit) => output.shape(limits::OF_ONE, &entry(policy, &limit))?,
            // The edit has removed the limit.
            Err(_) => {
                let gone = json!({ "name": name, "mode": "off", "layers": [], "overrides": [] });
                output.shape(limits::OF_ONE, &gone)?;
            }
        }
    } else {
        writeln!(output, "{}", changed.said)?;
    }
    changed.tell(output)
}

/// Whether a rate is zero, and so drops all that the limit is about.
fn is_zero(limit: &Limit, rate: &str) -> bool {
    limit.count.parse_rate(rate).is_err_and(|error| error.is_zero_rate())
}

/// The name of a limit in a message, with what it is about.
fn named(limit: &Limit) -> String {
    match match_name(&limit.matching).as_str() {
        "" => format!("{} limit", limit.name),
        matching => format!("{} limit ({matching})", limit.name),
    }
}

fn describe(limit: &Limit, bucket: &Bucket) -> String {
    let Limit { count, .. } = limit;
    format!("{} after a burst of {}", count.rate(bucket.rate), count.described(bucket.burst))
}
