//! Attempts of a limited source to have its own state evicted, to start again with a full burst.

use std::time::Instant;

use anyhow::Result;
use limiter_common::algorithm::rate::Rate;
use limiter_userspace::policy::Bucket;

use super::{
    ROOM,
    field::{Field, Flooded},
};
use crate::place::Place;

/// The limit of the source.
const LIMIT: Bucket = Bucket { rate: Rate::per_second(10), burst: 20 };
/// Made-up packets of an attempt, in units of the capacity of the table.
const FLOOD: u32 = 16;
/// The number of the source.
const SOURCE: u32 = 0;

/// One pattern of packets, and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eviction {
    /// Made-up packets between two bursts of the source.
    pub(crate) every: u32,
    /// Packets of the source in such a burst.
    pub(crate) packets: u64,
    /// Packets that the source sent.
    pub(crate) offered: u64,
    /// Packets of the source that passed.
    pub(crate) admitted: u64,
    /// The most packets that the limit admits in that time.
    pub(crate) bound: f64,
}

impl Eviction {
    /// The name of the pattern in the report.
    pub(crate) fn name(&self) -> String {
        let Self { every, packets, .. } = self;
        format!("{packets} of its own after every {every} made-up")
    }

    /// Packets that passed beyond the limit, in bursts.
    pub(crate) fn bursts_gained(&self) -> f64 {
        (self.admitted as f64 - self.bound).max(0.0) / LIMIT.burst as f64
    }
}

/// Runs two patterns: the source stays active beside many others, or it pauses until it may have been
/// evicted.
pub(super) fn attempts(place: &mut Place) -> Result<Vec<Eviction>> {
    [(1_000, 1), (ROOM, LIMIT.burst)]
        .into_iter()
        .map(|(every, packets)| attempt(place, every, packets))
        .collect()
}

fn attempt(place: &mut Place, every: u32, packets: u64) -> Result<Eviction> {
    let mut field = Field::new(LIMIT)?;
    let mut eviction = Eviction { every, packets, offered: 0, admitted: 0, bound: 0.0 };
    field.flooded(place, |flooded| {
        let start = Instant::now();
        let mut send = |packets, flooded: &mut Flooded<'_>| -> Result<()> {
            eviction.offered += packets;
            eviction.admitted += flooded.send(SOURCE, packets)?;
            Ok(())
        };
        // The attempt begins with a spent burst.
        send(LIMIT.burst, flooded)?;
        for _ in 0..FLOOD * ROOM / every {
            flooded.flood(every)?;
            send(packets, flooded)?;
        }
        // Part of a token is enough for one more packet.
        let refilled = LIMIT.rate.packets as f64 * start.elapsed().as_secs_f64();
        eviction.bound = (LIMIT.burst + 1) as f64 + refilled;
        Ok(())
    })?;
    field.close()?;
    Ok(eviction)
}
