//! `limiter policy`.

mod apply;
mod import;
pub(super) mod read;
mod save;
mod unit;

use clap::Subcommand;
use serde_json::json;

use self::{
    apply::Apply,
    import::Import,
    read::{Check, Diff},
    save::Save,
};
pub(super) use self::{apply::taken_back, read::Document};
use super::{
    change::UNKEPT,
    explain::Explain,
    instance, maps,
    preset::Example,
    stderr::{warn_of_error, warn_of_unfinished},
};
use crate::{
    datapath::{bpffs::Pins, maps::Maps},
    error::Result,
    output::{changes, number::duration, stream::Output},
    policy::{
        Given,
        document::{diff, schema, to_yaml},
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Check a policy document, without applying it
    Check(Check),
    /// Show what a policy document would change
    Diff(Diff),
    /// Put a policy document in force, as a whole between two packets
    Apply(Apply),
    /// Keep the policy that was applied with --confirm, or attached with --for
    Confirm,
    /// Restore the policy before the one that was applied with --confirm, or attached with --for
    Revert,
    /// Print the policy in force as a document
    Show,
    /// Show which entries of the policy decide about packets of a source, or about a request, in order, and their state
    Explain(Explain),
    /// Print an example policy, one of the presets of `limiter attach --preset`, or list them
    Example(Example),
    /// Print the JSON Schema of policy documents, for editors
    Schema,
    /// Make a policy document of the configuration of another rate limiter, and print it
    Import(Import),
    /// Save the policy in force as a document, which a service applies at boot
    Save(Save),
}

impl PolicyCommand {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self {
            Self::Check(check) => check.run(output),
            Self::Diff(diff) => diff.run(pins, output),
            Self::Apply(apply) => apply.run(pins, output),
            Self::Confirm => confirm(pins, output),
            Self::Revert => revert(pins, output),
            Self::Show => show(&maps(pins)?, output),
            Self::Explain(explain) => explain.run(pins, output),
            Self::Example(example) => example.run(output),
            Self::Schema => print_schema(output),
            Self::Import(import) => import.run(output),
            Self::Save(save) => save.run(pins, output),
        }
    }
}

fn confirm(pins: &Pins, output: &mut Output) -> Result<()> {
    let mut instance = instance(pins)?;
    let (unfinished, waited) = (instance.take_unfinished(), instance.maps_mut().confirm()?);
    // Before the output, whose reader may be slow.
    drop(instance);
    if let Some(error) = &unfinished {
        warn_of_unfinished(error, output);
    }
    if output.is_json() {
        return Ok(output.shape("limiter.confirm/1", &json!({ "confirmed": waited }))?);
    }
    if !waited {
        // For example after a document without a difference. The policy to keep is in force
        // already.
        return Ok(writeln!(output, "No policy waits to be confirmed; the one in force stays.")?);
    }
    Ok(writeln!(
        output,
        "The policy in force stays; `limiter policy save` keeps it for the next start."
    )?)
}

fn revert(pins: &Pins, output: &mut Output) -> Result<()> {
    let mut instance = instance(pins)?;
    let unfinished = instance.take_unfinished();
    let before = instance.maps().policy()?;
    instance.maps_mut().revert()?;
    let changes = diff(&before, &instance.maps().policy()?);
    // The policy before may lack run-time entries of the trial. This also gives the lock back
    // before the output, whose reader may be slow.
    let unkept = instance.keep_run_time().err();
    if let Some(error) = &unkept {
        warn_of_error(error, UNKEPT, output);
    }
    if let Some(error) = &unfinished {
        warn_of_unfinished(error, output);
    }
    if output.is_json() {
        let changes = changes::entries(&changes);
        return Ok(
            output.shape("limiter.revert/1", &json!({ "reverted": true, "changes": changes }))?
        );
    }
    changes::print(output, &changes)?;
    Ok(writeln!(output, "The previous policy is in force again.")?)
}

fn show(maps: &Maps, output: &mut Output) -> Result<()> {
    // In this order, a policy that is taken back in between is not shown as unconfirmed.
    let mut policy = maps.policy()?;
    let unconfirmed = maps.unconfirmed()?;
    if output.is_json() {
        // The notation of bursts matters only to commands that change rates. It is no part of the
        // policy.
        policy.limits.iter_mut().for_each(|limit| limit.given = Given::default());
        return Ok(output.shape("limiter.policy/1", &policy)?);
    }
    if let Some(left) = unconfirmed {
        let left = duration(left);
        writeln!(output, "# Taken back in {left} unless you keep it: limiter policy confirm")?;
    }
    Ok(write!(output, "{}", to_yaml(&policy))?)
}

fn print_schema(output: &mut Output) -> Result<()> {
    if output.is_json() {
        return Ok(output.json(&schema())?);
    }
    let text = serde_json::to_string_pretty(&schema())
        .map_err(crate::output::stream::OutputError::from)?;
    Ok(writeln!(output, "{text}")?)
}
