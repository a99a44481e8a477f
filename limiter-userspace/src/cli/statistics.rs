//! `limiter status` and `limiter top`.

use std::num::NonZeroUsize;

use clap::Args;

use super::{limit::rows, maps, unix};
use crate::{
    datapath::{bpffs::Pins, instance::attached, maps::Maps},
    error::Result,
    output::{
        monitoring,
        number::duration,
        status::{Status, Tables},
        stream::Output,
        top,
    },
    watch::view::Scan,
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
    let scan = scan(&maps, 0)?;
    let limits = rows(&maps.in_force()?.policy, unix());
    Status::new(&snapshot, scan.tables).print(output, &limits)?;
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

/// Looks at all sources and all state by other keys.
pub(super) fn scan(maps: &Maps, most: usize) -> Result<Scan> {
    let (talkers, sources) = maps.talkers(most)?;
    let tables = Tables {
        sources,
        buckets: maps.buckets()?,
        shared_packets: maps.shared_packets()?,
        memory_bytes: maps.memory()?,
    };
    Ok(Scan { talkers, tables })
}
