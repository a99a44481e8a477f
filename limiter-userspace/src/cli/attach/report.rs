//! What `limiter attach` says of what it did.

use serde_json::json;

use super::{asked::Asked, done::Done};
use crate::{
    cli::{
        change::UNKEPT,
        end_of,
        keep_ssh::Kept,
        policy::taken_back,
        stderr::{warn_of_absent, warn_of_error, warn_of_switch},
        unix,
    },
    datapath::{exchange::Exchanged, interface::Interface, sizes::Sizes},
    error::{Error, Result},
    output::{changes, exchanged, number::grouped, stream::Output},
    policy::{
        Layers, List,
        document::Change,
        model::{GlobalMode, Limit},
    },
};

/// What was done.
pub(super) struct All {
    /// With each interface.
    pub(super) done: Vec<Done>,
    /// What was carried over to another table, if the table was exchanged, and what it has room for now.
    pub(super) exchanged: Option<(Exchanged, Sizes)>,
    pub(super) applied: Applied,
    /// The policy and the run-time lists in force now.
    pub(super) layers: Layers,
    /// Whether nothing is dropped, by the switch.
    pub(super) switched: bool,
}

/// What was done with the policy.
#[derive(Default)]
pub(super) struct Applied {
    /// What changed for the interfaces that were attached before.
    pub(super) changes: Vec<Change>,
    pub(super) kept: Option<Kept>,
    /// The interfaces that it asks for and that are not attached.
    pub(super) absent: Vec<String>,
    /// Why the run-time lists are not in their file.
    pub(super) unkept: Option<Error>,
}

impl All {
    /// Prints what was done with these interfaces, and what is to be known of the policy then.
    pub(super) fn print(
        &self,
        interfaces: &[Interface],
        asked: &Asked<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let Self { done, exchanged, applied, layers, switched } = self;
        let Applied { changes, kept, absent, unkept } = applied;
        let policy = &layers.policy;
        if let Some(error) = unkept {
            warn_of_error(error, UNKEPT, output);
        }
        if *switched {
            warn_of_switch(output);
        }
        warn_of_absent(absent, output);
        if output.is_json() {
            let changes = changes::entries(changes);
            let entry = |it: (&Interface, &Done)| {
                let mut entry = Done::json(it);
                entry["policy_changes"] = json!(changes);
                entry["carried_over"] =
                    json!(exchanged.as_ref().map(|(it, _)| exchanged::entry(it)));
                entry
            };
            let entries: Vec<_> = interfaces.iter().zip(done).map(entry).collect();
            output.entries("limiter.attach/1", "interfaces", &entries)?;
            return kept.map_or(Ok(()), |kept| kept.tell(output));
        }
        if let Some((exchanged, sizes)) = exchanged {
            print_exchanged(exchanged, sizes, output)?;
        }
        for (interface, done) in interfaces.iter().zip(done) {
            writeln!(output, "{}", done.text(&interface.name))?;
        }
        if done.iter().all(|done| !matches!(done, Done::Attached(_))) {
            if asked.options.ask() {
                let command = asked.options.command_instead();
                writeln!(output, "The policy is as it was; change it with `{command}`.")?;
            }
            return Ok(());
        }
        if !changes.is_empty() {
            writeln!(output, "The policy was changed, also for the interfaces attached before:")?;
            changes::print(output, changes)?;
        }
        if let Some(kept) = kept {
            kept.tell(output)?;
        }
        let listed = |list| layers.view().listed(list, unix());
        let lists = listed(List::Deny) + listed(List::Penalty);
        if policy.limits.iter().all(Limit::is_off) && lists == 0 {
            writeln!(
                output,
                "Nothing is limited yet, only counted. Set a limit: `limiter limit set source \
                 --rate 10kpps`"
            )?;
        } else if policy.mode == GlobalMode::Monitor {
            writeln!(
                output,
                "Nothing is dropped, only counted; `limiter monitor off` begins to enforce."
            )?;
        }
        if let Some(time) = asked.time {
            writeln!(output, "{}", taken_back(end_of(time), time))?;
        }
        Ok(())
    }
}

/// Says what was carried over.
fn print_exchanged(exchanged: &Exchanged, sizes: &Sizes, output: &mut Output) -> Result<()> {
    let carried = exchanged::text(exchanged);
    if let Some(layout) = exchanged.from {
        writeln!(output, "Brought from layout {layout} to this version; {carried}.")?;
        return Ok(());
    }
    let [sources, buckets] = [sizes.sources, sizes.buckets].map(|size| grouped(size.into()));
    writeln!(output, "There is room for {sources} sources and {buckets} buckets now; {carried}.")?;
    Ok(())
}
