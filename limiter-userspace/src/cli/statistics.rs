//! `limiter status` and `limiter top`.

use std::num::NonZeroUsize;

use clap::Args;

use super::{limit::rows, maps, unix};
use crate::{
    datapath::{bpffs::Pins, instance::attached, maps::Maps, sources::SharedPackets},
    error::Result,
    output::{
        monitoring,
        number::duration,
        status::{Occupancy, Status, Tables},
        stream::Output,
        top,
    },
};

#[derive(Debug, Args)]
pub(super) struct Top {
    /// Sources to list
    #[arg(short, value_name = "N", default_value = "20")]
    n: NonZeroUsize,
}

impl Top {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let maps = maps(pins)?;
        let (talkers, _) = maps.talkers(self.n.get())?;
        top::print(output, &talkers)?;
        Ok(monitoring::print(output, maps.monitoring()?)?)
    }
}

pub(super) fn status(pins: &Pins, output: &mut Output) -> Result<()> {
    let maps = maps(pins)?;
    let snapshot = maps.snapshot(&attached(pins, &maps)?)?;
    let (_, sources) = maps.talkers(0)?;
    let tables = tables(&maps, sources)?;
    let limits = rows(maps.in_force()?.layered(), unix());
    Status::new(&snapshot, tables).print(output, &limits)?;
    monitoring::print(output, snapshot.monitoring)?;
    if let Some(left) = maps.unconfirmed()?
        && !output.is_json()
    {
        let left = duration(left);
        writeln!(
            output,
            "\nThe policy is taken back in {left} unless you keep it: limiter policy confirm"
        )?;
    }
    Ok(())
}

/// How full the tables are; the source table was read before.
pub(super) fn tables(maps: &Maps, sources: Occupancy) -> Result<Tables> {
    let SharedPackets { passed, dropped } = maps.shared_packets()?;
    Ok(Tables {
        sources,
        buckets: maps.buckets()?,
        shared_packets: passed + dropped,
        shared_dropped: dropped,
        unrecorded_offences: maps.offence_table_stats()?.untracked,
        memory_bytes: maps.memory()?,
    })
}
