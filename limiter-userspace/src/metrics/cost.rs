//! The metrics of the CPU time that packets take.

use std::{collections::BTreeMap, time::Duration};

use super::family::{
    Family, Kind,
    Value::{Real, Whole},
};
use crate::datapath::{cost::Cost, instance::Attached};

/// The number and the time of the measured runs of the programs, by interface.
pub(super) fn families(costs: &[Cost], attached: &[Attached]) -> [Family; 2] {
    let [mut runs, mut time] = [
        (
            "limiter_program_runs_total",
            "Packets whose cost was measured, which is while kernel.bpf_stats_enabled is 1.",
        ),
        (
            "limiter_program_run_seconds_total",
            "Time that it took to decide about the packets in limiter_program_runs_total.",
        ),
    ]
    .map(|(name, help)| Family::new(name, Kind::Counter, help));
    // An interface that is gone may have been replaced by one of the same name: their values are
    // added.
    let mut by_name: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
    for cost in costs {
        let Some(interface) = attached.iter().find(|it| it.slot == cost.slot) else { continue };
        let (runs, time) = by_name.entry(&interface.name).or_default();
        *runs = runs.wrapping_add(cost.runs);
        *time = time.saturating_add(cost.time);
    }
    for (name, (number, seconds)) in by_name {
        runs.push([("interface", name)], Whole(number));
        time.push([("interface", name)], Real(seconds.as_secs_f64()));
    }
    [runs, time]
}
