//! Measures queries to an instance, as `limiter top`, `limiter status` and a scrape make them. Each query
//! opens the maps anew.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use limiter_userspace::{
    datapath::{bpffs::Pins, instance::attached, maps::Maps},
    metrics,
};

use super::sample::median;

/// How often each query is measured.
const TIMES: usize = 5;
/// Sources that `top` lists.
const LISTED: usize = 10;

/// The median time of each query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inquiry {
    /// Sources in the table.
    pub(crate) sources: u64,
    /// Capacity of the table, in sources.
    pub(crate) room: u64,
    /// Time to find the sources that were refused or sent most.
    pub(crate) top: Duration,
    /// Time to read the counters and the occupancy of the tables.
    pub(crate) status: Duration,
    /// Time to render the metrics.
    pub(crate) metrics: Duration,
}

/// Measures the queries to an instance, in the network namespace of the thread.
pub(crate) fn measure(pins: &Pins) -> Result<Inquiry> {
    let maps = Maps::open(pins)?;
    let (talkers, occupancy) = maps.talkers(LISTED)?;
    ensure!(talkers.len() == LISTED, "the table has only {} sources", talkers.len());
    Ok(Inquiry {
        sources: occupancy.tracked,
        room: occupancy.capacity,
        top: time(|| Maps::open(pins)?.talkers(LISTED))?,
        status: time(|| {
            let maps = Maps::open(pins)?;
            let snapshot = maps.snapshot(&attached(pins, &maps)?)?;
            let (_, sources) = maps.talkers(0)?;
            Ok((snapshot, sources, maps.buckets()?, maps.memory()?, maps.unconfirmed()?))
        })?,
        metrics: time(|| Ok(metrics::read(pins, 0)?.to_string()))?,
    })
}

/// The median time of `ask`.
fn time<T>(ask: impl Fn() -> limiter_userspace::error::Result<T>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        ask()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(&times)))
}
