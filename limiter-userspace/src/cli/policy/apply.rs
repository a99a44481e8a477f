//! `limiter policy apply`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use serde_json::json;

use super::read::{Document, summary};
use crate::{
    cli::{
        change::UNKEPT,
        end_of, instance,
        keep_ssh::{KeepSsh, Kept, keep},
        maps,
        progress::{Progress, took},
        stderr::{
            warn, warn_of_absent, warn_of_document, warn_of_error, warn_of_switch,
            warn_of_unfinished,
        },
        unix,
    },
    datapath::{bpffs::Pins, instance::Instance, maps::Maps, pushes::Owner, sizes::NoRoom},
    error::{Error, Result},
    output::{
        changes, exchanged, faults,
        number::{duration, grouped},
        stream::Output,
    },
    policy::{
        Policy, PolicyError, Session,
        document::{Change, diff, format_instant},
        reading::name,
        units::parse_time,
    },
    query,
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Apply {
    /// The document, in YAML; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Check the document for this instance and show what would change; apply nothing
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Restore the previous policy after this time, e.g. 60s, unless `limiter policy confirm` is given
    #[arg(long, value_name = "TIME")]
    confirm: Option<String>,
    /// Accept a change of set files that would cut this host off, or remove most of a list
    #[arg(long)]
    accept_change: bool,
    #[command(flatten)]
    keep: KeepSsh,
}

/// The result of applying a document, or of a dry run.
#[derive(Default)]
struct Applied {
    changes: Vec<Change>,
    changed: bool,
    /// Whether the policy is the same, but was compiled anew for the interfaces that are attached
    /// now.
    anew: bool,
    /// The interfaces that limits name and that are not attached.
    absent: Vec<String>,
    /// The number of entries in the lists of an older version that stay at run time.
    sorted: usize,
    kept: Option<Kept>,
    /// Why the run-time lists could not be written to their file.
    unkept: Option<Error>,
    /// Why an exchange that another process began could not be finished.
    unfinished: Option<Error>,
    /// Whether nothing is dropped all the same, as the monitor switch is on.
    switched: bool,
    /// Whether tables would be exchanged for larger ones first, in a dry run.
    makes_room: bool,
    /// The number of pushed blocks that are of larger sources than before.
    widened: usize,
    time: Duration,
}

impl Apply {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let confirm = self.confirm.as_deref().map(parse_time).transpose();
        let confirm = confirm.map_err(PolicyError::from)?;
        let session = self.keep.session(output)?;
        let progress = Progress::new();
        progress.step(&format!("reading {}", name(&self.file)));
        let document = Document::read(&self.file)?;
        let guard = |running: &Policy| match self.accept_change {
            true => Ok(()),
            false => document.guard(running),
        };
        let Document { policy, warnings, .. } = &document;
        let mut exchanged = None;
        let applied = if self.dry_run {
            dry_run(pins, policy, session, &guard, progress)?
        } else {
            let mut progress = Some(progress);
            let applied;
            (applied, exchanged) = Instance::with_room(pins, || {
                let progress = progress.take().unwrap_or_else(Progress::new);
                apply(pins, policy, session, &guard, confirm, progress)
            })?;
            applied
        };
        let Applied {
            changes,
            changed,
            anew,
            absent,
            sorted,
            kept,
            unkept,
            unfinished,
            switched,
            makes_room,
            widened,
            time,
        } = applied;
        if widened > 0 {
            let blocks = grouped(widened as u64);
            warn(
                &format!(
                    "`key_prefix` is shorter, and pushed blocks are of larger sources by it: {blocks}; see `limiter penalty list`"
                ),
                output,
            );
        }
        if let Some(error) = &unfinished {
            warn_of_unfinished(error, output);
        }
        if let Some(error) = &unkept {
            warn_of_error(error, UNKEPT, output);
        }
        if switched {
            warn_of_switch(output);
        }
        let until = confirm.filter(|_| changed).map(end_of);
        if output.is_json() {
            output.shape(
                "limiter.apply/1",
                &json!({
                    "changes": changes::entries(&changes),
                    "applied": changed || anew,
                    "makes_room": makes_room || exchanged.is_some(),
                    "carried_over": exchanged.as_ref().map(exchanged::entry),
                    "sorted": sorted,
                    "kept": kept.map(Kept::name),
                    "kept_until": kept.map(|kept| format_instant(kept.until)),
                    "confirm_until": until.map(format_instant),
                    "seconds": time.as_secs_f64(),
                    "warnings": faults::entries(warnings.list()),
                }),
            )?;
            warn_of_absent(&absent, output);
            return Ok(());
        }
        warn_of_document(warnings, output);
        warn_of_absent(&absent, output);
        if let Some(exchanged) = &exchanged {
            let carried = exchanged::text(exchanged);
            writeln!(
                output,
                "Made room for this policy while the old one was in force; {carried}."
            )?;
        }
        if makes_room {
            writeln!(
                output,
                "Applying it would make the tables larger first, and keep all state."
            )?;
        }
        changes::print(output, &changes)?;
        if sorted > 0 {
            let stay = "entries that an older version listed, and that the document lacks, are kept as run-time entries";
            writeln!(output, "{sorted} {stay}: `limiter deny list`, `allow list`, `penalty list`")?;
        }
        match kept {
            Some(kept) if self.dry_run => kept.would_tell(output)?,
            Some(kept) => kept.tell(output)?,
            None => {}
        }
        if changed {
            let (file, took) = (name(&self.file), took(time));
            writeln!(output, "{file}: applied{took}: {}", summary(policy))?;
            if !policy.on_requests.is_empty() {
                let own = "Limits on requests are the bridge's, which goes by the document that it was started with";
                writeln!(output, "{own}: /etc/limiter/policy.yaml for the service.")?;
            }
        } else if anew {
            writeln!(output, "It was applied again, for the interfaces that are attached now.")?;
        } else if self.dry_run && !changes.is_empty() {
            writeln!(output, "Nothing was applied.")?;
        }
        match (until, confirm) {
            (Some(until), Some(time)) => writeln!(output, "{}", taken_back(until, time))?,
            (None, Some(_)) => writeln!(output, "Nothing waits to be confirmed.")?,
            _ => {}
        }
        Ok(())
    }
}

/// The message on a policy that has to be confirmed.
pub(in crate::cli) fn taken_back(until: u64, time: Duration) -> String {
    let (until, time) = (format_instant(until), duration(time));
    format!("It is taken back at {until} (in {time}) unless you keep it: limiter policy confirm")
}

/// Compares the files of sets with the policy in force. Refuses a change that would cut this host
/// off, or lift most of a list.
type Guard<'a> = dyn Fn(&Policy) -> Result<()> + 'a;

fn dry_run(
    pins: &Pins,
    policy: &Policy,
    session: Option<Session>,
    guard: &Guard<'_>,
    progress: Progress,
) -> Result<Applied> {
    progress.step("comparing");
    let maps = maps(pins)?;
    let running = maps.layers()?;
    guard(&running.policy)?;
    let mut layers = running.under(policy.clone());
    let sorted = layers.run_time.entries().len() - running.run_time.entries().len();
    let kept = keep(session, &mut layers, Some(&maps), unix())?;
    let changes = diff(&running.policy, policy);
    let makes_room = match maps.check(&layers) {
        Err(refused) if refused.failure::<NoRoom>().is_some() => true,
        checked => checked.map(|()| false)?,
    };
    let absent = maps.absent_interfaces(policy)?;
    Ok(Applied {
        changes,
        absent,
        sorted,
        kept,
        makes_room,
        widened: widened(&maps, &running.policy, policy)?,
        time: progress.end(),
        ..Applied::default()
    })
}

fn apply(
    pins: &Pins,
    policy: &Policy,
    session: Option<Session>,
    guard: &Guard<'_>,
    confirm: Option<Duration>,
    progress: Progress,
) -> Result<Applied> {
    // Before the lock is taken: writing to a stopped terminal blocks, and would hold the lock.
    progress.step(&format!("applying {}", summary(policy)));
    let mut instance = instance(pins)?;
    let unfinished = instance.take_unfinished();
    // Also if the document changes nothing: a policy that is applied is meant to stay, and the one
    // in force would not.
    if let Some(left) = instance.maps().unconfirmed()? {
        return Err(Error::Unconfirmed { left });
    }
    progress.step("comparing");
    let running = instance.maps().layers()?;
    guard(&running.policy)?;
    let mut layers = running.under(policy.clone());
    let sorted = layers.run_time.entries().len() - running.run_time.entries().len();
    let kept = keep(session, &mut layers, Some(instance.maps()), unix())?;
    let changes = diff(&running.policy, policy);
    let widened = widened(instance.maps(), &running.policy, policy)?;
    // The order of a list is no difference.
    let changed = !changes.is_empty();
    let anew = !changed && !instance.maps().fits_interfaces()?;
    let has_ends = policy.has_ends() || layers.run_time.has_ends();
    let files = |policy: &Policy| (policy.set_files.clone(), policy.tenant_files.clone());
    let is_put = changed
        || anew
        || has_ends
        || running.unsorted
        || files(&running.policy) != files(policy)
        || instance.maps().is_taken_back()?;
    if changed {
        progress.step(&format!("applying {}", summary(policy)));
        instance.maps_mut().put_in_force(layers, confirm, None)?;
    } else if is_put {
        // The ends of entries are times of the wall clock, which may have been set since they were
        // compiled. After a policy was taken back, a confirmation of this one must not fail as too
        // late.
        instance.maps_mut().put_in_force(layers, None, None)?;
    }
    let absent = instance.maps().absent_interfaces(policy)?;
    let switched = instance.maps().monitoring()?.switch;
    let unkept = is_put.then(|| instance.keep_run_time().err()).flatten();
    Ok(Applied {
        changes,
        changed,
        anew,
        absent,
        sorted,
        kept,
        unkept,
        unfinished,
        switched,
        widened,
        time: progress.end(),
        ..Applied::default()
    })
}

/// The number of pushed blocks that are of larger sources under a policy than under the one before it.
fn widened(maps: &Maps, before: &Policy, policy: &Policy) -> Result<usize> {
    if before.key_prefix == policy.key_prefix {
        return Ok(0);
    }
    let pushed = maps.pushed(Owner::Shared, query::now())?;
    let is_wider = |source: &IpAddr| {
        let (was, is) = (before.source_of(*source), policy.source_of(*source));
        was.addr() == *source && is.addr() == *source && is.prefix_len() < was.prefix_len()
    };
    Ok(pushed.iter().filter(|(source, _)| is_wider(source)).count())
}
