//! `limiter policy apply`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde_json::json;

use super::{
    progress::{Progress, took},
    read::{name, read, summary},
};
use crate::{
    cli::{
        end_of,
        keep_ssh::{KeepSsh, keep, kept},
        maps, no_instance, unix,
    },
    datapath::{bpffs::Pins, instance::Instance},
    error::{Error, Result},
    output::{changes, number::duration, stream::Output, top},
    policy::{
        Policy, PolicyError,
        spec::{Change, diff, format_instant},
        units::parse_duration,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    /// The document, in YAML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check it for this instance and show what would change, and apply nothing
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Take it back after this time, e.g. 60s, unless `limiter policy confirm` keeps it
    #[arg(long, value_name = "TIME")]
    confirm: Option<String>,
    #[command(flatten)]
    keep: KeepSsh,
}

/// What came of it.
struct Applied {
    changes: Vec<Change>,
    changed: bool,
    time: Duration,
}

impl Apply {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let confirm = self.confirm.as_deref().map(parse_duration).transpose();
        let confirm = confirm.map_err(PolicyError::from)?;
        let session = self.keep.session()?;
        let progress = Progress::new();
        progress.step(&format!("reading {}", name(&self.file)));
        let mut policy = read(&self.file)?;
        let source = session.and_then(|session| keep(&session, &mut policy, unix()));
        let applied = if self.dry_run {
            dry_run(pins, &policy, progress)?
        } else {
            apply(pins, &policy, confirm, progress)?
        };
        let Applied { changes, changed, time } = applied;
        let until = confirm.filter(|_| changed).map(end_of);
        if output.is_json() {
            return Ok(output.json(&json!({
                "changes": changes::entries(&changes),
                "applied": changed,
                "kept": source.map(|source| top::name(source.addr(), source.prefix_len())),
                "confirm_until": until.map(format_instant),
                "seconds": time.as_secs_f64(),
            }))?);
        }
        changes::print(output, &changes)?;
        if let Some(source) = source {
            writeln!(output, "{}", kept(source))?;
        }
        if changed {
            let (file, took) = (name(&self.file), took(time));
            writeln!(output, "{file}: applied{took}: {}", summary(&policy))?;
        } else if self.dry_run && !changes.is_empty() {
            writeln!(output, "Nothing was applied.")?;
        }
        if let (Some(until), Some(time)) = (until, confirm) {
            writeln!(output, "{}", taken_back(until, time))?;
        }
        Ok(())
    }
}

/// What is said of a policy that has to be confirmed.
pub(in crate::cli) fn taken_back(until: u64, time: Duration) -> String {
    let (until, time) = (format_instant(until), duration(time));
    format!("It is taken back at {until} (in {time}) unless you keep it: limiter policy confirm")
}

fn dry_run(pins: &Pins, policy: &Policy, progress: Progress) -> Result<Applied> {
    progress.step("comparing");
    let maps = maps(pins)?;
    let changes = diff(&maps.policy()?, policy);
    maps.check(policy)?;
    Ok(Applied { changes, changed: false, time: progress.end() })
}

fn apply(
    pins: &Pins,
    policy: &Policy,
    confirm: Option<Duration>,
    progress: Progress,
) -> Result<Applied> {
    let mut instance = Instance::open(pins)?.ok_or_else(|| no_instance(pins))?;
    // Also one that would change nothing: whoever applies it means that it stays.
    if let Some(left) = instance.maps().unconfirmed()? {
        return Err(Error::Unconfirmed { left });
    }
    progress.step("comparing");
    let changes = diff(&instance.maps().policy()?, policy);
    // In another order, lists are the same.
    let changed = !changes.is_empty();
    if changed {
        progress.step(&format!("applying {}", summary(policy)));
        instance.maps_mut().apply_for(policy, confirm)?;
    }
    Ok(Applied { changes, changed, time: progress.end() })
}
