//! What `limiter attach` says of what it did.

use std::io::{self, IsTerminal as _};

use serde_json::json;

use super::{asked::Asked, done::Done};
use crate::{
    cli::{
        change::UNKEPT,
        end_of,
        keep_ssh::Kept,
        policy::taken_back,
        stderr::{warn, warn_of_absent, warn_of_error, warn_of_switch},
        unix,
    },
    datapath::{
        exchange::Exchanged,
        features::XdpFeatures,
        instance::Outcome,
        interface::{Interface, list},
        memory::is_of_group,
        mode::Mode,
        sizes::Sizes,
        stacked::{stacked, twice},
    },
    doctor::cost,
    error::{Error, Result},
    output::{
        changes, exchanged,
        number::{grouped, memory},
        stream::Output,
    },
    policy::{
        Layers, List,
        document::Change,
        model::{GlobalMode, Limit},
        units::printable,
    },
};

/// What was done.
pub(super) struct All {
    /// With each interface.
    pub(super) done: Vec<Done>,
    /// The indices of all interfaces that are attached and here now.
    pub(super) attached: Vec<u32>,
    /// The indices of those in native mode that take packets in one piece, which bounds their MTU.
    pub(super) bound: Vec<u32>,
    /// The table, if it was exchanged.
    pub(super) exchanged: Option<Table>,
    pub(super) applied: Applied,
    /// The policy and the run-time lists in force now.
    pub(super) layers: Layers,
    /// Whether nothing is dropped, by the switch.
    pub(super) switched: bool,
    /// The number of sources that a new instance has room for, and the bytes that it takes, if they were chosen by the memory
    /// of the host, or of its control group.
    pub(super) chosen: Option<(u32, u64)>,
    /// How many run-time entries a new instance has from the one before.
    pub(super) restored: usize,
}

/// A table that took the place of another one.
pub(super) struct Table {
    /// What was carried over.
    pub(super) carried: Exchanged,
    /// What it has room for.
    pub(super) sizes: Sizes,
    /// Whether another seed places sources and keys in it.
    pub(super) new_seed: bool,
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
        let Self { done, exchanged, applied, layers, switched, chosen, restored, .. } = self;
        let Applied { changes, kept, absent, unkept } = applied;
        let policy = &layers.policy;
        if let Some(error) = unkept {
            warn_of_error(error, UNKEPT, output);
        }
        if *switched {
            warn_of_switch(output);
        }
        warn_of_absent(absent, output);
        self.warn_of_stacked(interfaces, output);
        self.warn_of_veth(interfaces, output);
        self.warn_of_mtu(interfaces, output);
        if output.is_json() {
            let changes = changes::entries(changes);
            let entry = |it: (&Interface, &Done)| {
                let mut entry = Done::json(it);
                entry["policy_changes"] = json!(changes);
                entry["carried_over"] =
                    json!(exchanged.as_ref().map(|it| exchanged::entry(&it.carried)));
                entry
            };
            let entries: Vec<_> = interfaces.iter().zip(done).map(entry).collect();
            output.entries("limiter.attach/1", "interfaces", &entries)?;
            return kept.map_or(Ok(()), |kept| kept.tell(output));
        }
        if let Some(table) = exchanged {
            print_exchanged(table, output)?;
        }
        for (interface, done) in interfaces.iter().zip(done) {
            writeln!(output, "{}", done.text(&interface.name, !changes.is_empty()))?;
        }
        if let Some((sources, bytes)) = chosen {
            let (sources, memory) = (grouped((*sources).into()), memory(*bytes));
            let whose = if is_of_group() { "the control group" } else { "this host" };
            writeln!(
                output,
                "There is room for {sources} sources in {memory}, by the memory of {whose}; `--sources N` sets another number."
            )?;
        }
        match restored {
            0 => {}
            1 => writeln!(output, "One run-time entry of the lists was restored.")?,
            more => {
                writeln!(
                    output,
                    "{} run-time entries of the lists were restored.",
                    grouped(*more as u64)
                )?;
            }
        }
        let new = done.iter().any(|done| matches!(done, Done::Attached(_)));
        if !new && !asked.options.set() {
            if asked.options.ask() {
                let command = asked.options.preset().map_or_else(
                    || "limiter policy apply".to_owned(),
                    |preset| {
                        format!("limiter policy example {} | limiter policy apply -", preset.name())
                    },
                );
                writeln!(output, "The policy is as it was; change it with `{command}`.")?;
            }
            return Ok(());
        }
        match (changes.is_empty(), new) {
            (false, true) => writeln!(
                output,
                "The policy was changed, also for the interfaces attached before:"
            )?,
            (false, false) => writeln!(output, "The policy was changed:")?,
            (true, false) => writeln!(output, "The policy was so already.")?,
            (true, true) => {}
        }
        if !changes.is_empty() {
            changes::print(output, changes)?;
        }
        if let Some(kept) = kept {
            kept.tell(output)?;
        }
        if let Some(preset) = asked.options.preset() {
            preset.print(policy, output)?;
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

impl All {
    /// Warns of what counts packets twice: two interfaces that are attached, of which one passes
    /// its packets on to the other, and of which one is new.
    fn warn_of_stacked(&self, interfaces: &[Interface], output: &Output) {
        let is_new = |it: &Interface| {
            let done = interfaces.iter().zip(&self.done).find(|(new, _)| new.index == it.index);
            matches!(done, Some((_, Done::Attached(_))))
        };
        let Ok(all) = list() else { return };
        let attached: Vec<_> = all.iter().filter(|it| self.attached.contains(&it.index)).collect();
        for [below, above] in stacked(&attached) {
            if is_new(below) || is_new(above) {
                let (found, remedy) = twice(below, above);
                warn(&format!("{found}; {remedy}"), output);
            }
        }
    }

    /// Warns whoever sits at a terminal of veth devices that were attached in native mode. `limiter
    /// doctor` tells it too.
    fn warn_of_veth(&self, interfaces: &[Interface], output: &Output) {
        let is_native =
            |done: &Done| matches!(done, Done::Attached(Outcome { mode: Mode::Native, .. }));
        let new = interfaces.iter().zip(&self.done).filter(|(_, done)| is_native(done));
        let names: Vec<_> = new
            .filter(|(it, _)| it.device == VETH)
            .map(|(it, _)| printable(&it.name, 16))
            .collect();
        if let ([first, ..], Some([found, remedy])) = (&names[..], cost(VETH))
            && io::stderr().is_terminal()
        {
            let remedy = remedy.replace("IFACE", first);
            warn(&format!("{}: {found}; {remedy}", names.join(", ")), output);
        }
    }
}

impl All {
    /// Tells whoever sits at a terminal that the MTU of a new interface cannot be raised much while it is attached. `limiter
    /// doctor` tells it too.
    fn warn_of_mtu(&self, interfaces: &[Interface], output: &Output) {
        let new = interfaces.iter().zip(&self.done);
        let new = new.filter(|(_, done)| matches!(done, Done::Attached(_)));
        let is_bound = |it: &&Interface| {
            let lifts = XdpFeatures::of(it).is_none_or(|features| features.pieces);
            self.bound.contains(&it.index) && lifts
        };
        let names = new.map(|(it, _)| it).filter(is_bound).map(|it| printable(&it.name, 16));
        let names: Vec<String> = names.collect();
        if let [first, ..] = &names[..]
            && io::stderr().is_terminal()
        {
            let found = "the MTU can be raised to about 3,500 while attached";
            let remedy = format!(
                "`limiter attach {first} --replace --mode native-frags` takes jumbo frames"
            );
            warn(&format!("{}: {found}; {remedy}", names.join(", ")), output);
        }
    }
}

/// The driver and the kind of the devices of containers.
const VETH: &str = "veth";

/// Says what the new table is, and what was carried over.
fn print_exchanged(table: &Table, output: &mut Output) -> Result<()> {
    let Table { carried, sizes, new_seed } = table;
    let said = exchanged::text(carried);
    if let Some(layout) = carried.from {
        writeln!(output, "Brought from layout {layout} to this version; {said}.")?;
        return Ok(());
    }
    let Sizes { sources, buckets, wide_states, overrides, .. } = sizes;
    let [sources, buckets, wide_states, overrides] =
        [sources, buckets, wide_states, overrides].map(|size| grouped((*size).into()));
    let seed = if *new_seed { ", hashed by another seed" } else { "" };
    writeln!(
        output,
        "There is room for {sources} sources, {buckets} buckets, {wide_states} wide states and {overrides} overrides \
         now{seed}; {said}."
    )?;
    Ok(())
}
