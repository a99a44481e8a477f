//! `limiter status` and `limiter top`.

use std::{num::NonZeroUsize, thread, time::Duration};

use clap::{Args, ValueEnum};

use super::{limit::rows, maps, unix};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::attached,
        maps::Maps,
        sources::SharedPackets,
        survey::{Order, Search, Survey},
    },
    error::Result,
    output::{
        monitoring,
        number::duration,
        status::{Occupancy, Status, Tables},
        stream::Output,
        top,
    },
    policy::{PolicyError, units::parse_time},
    watch::options::Options,
};

const HELP: &str = "\
The counts of a source go from when it was first seen, or seen again after others needed its place. \
`--by rate` reads them twice, and ranks by packets per second, passed and dropped, in between.";

/// What `top` ranks sources by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// Packets dropped
    #[default]
    #[value(alias = "drops")]
    Dropped,
    /// Packets passed
    Passed,
    /// Packets, passed and dropped
    Packets,
    /// Bytes, passed and dropped
    Bytes,
    /// Packets per second, passed and dropped
    Rate,
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Top {
    /// Sources to list
    #[arg(short, value_name = "N", default_value = "20")]
    n: NonZeroUsize,
    /// What to rank by
    #[arg(long, visible_alias = "sort", value_name = "WHAT", value_enum, default_value_t)]
    by: By,
    /// Time between the two readings of `--by rate`, 50ms to 1d
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    interval: String,
}

impl Top {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let interval = parse_time(&self.interval).map_err(PolicyError::from)?;
        Options::once(interval).check()?;
        let maps = maps(pins)?;
        let (order, most) = (self.by.order(), self.n.get());
        if self.by == By::Rate {
            let search = Search { within: None, order, most, apart: Duration::ZERO };
            let mut survey = Survey::default();
            survey.look(&maps, &search)?;
            thread::sleep(interval);
            top::print_rates(output, &survey.look(&maps, &search)?.sources)?;
        } else {
            top::print(output, &maps.ranked(order, most)?.0)?;
        }
        Ok(monitoring::print(output, maps.monitoring()?)?)
    }
}

impl By {
    const fn order(self) -> Order {
        match self {
            Self::Dropped => Order::Dropped,
            Self::Passed => Order::Passed,
            Self::Packets => Order::Packets,
            Self::Bytes => Order::Bytes,
            Self::Rate => Order::Rate,
        }
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
