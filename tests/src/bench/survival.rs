//! Measures what a flood from made-up sources does to established ones.
//!
//! The test uses only verdicts and counters, not the table itself. Established sources send packets, then
//! made-up sources send theirs, then each established source sends one more packet. The verdict on that
//! packet tells whether the state of the source is still there.

mod eviction;
mod field;
mod figures;

use std::{ops::Range, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::{sandbox::Sandbox, topology::Host};
use limiter_userspace::policy::Bucket;

pub(crate) use self::figures::lost_at;
use self::{eviction::Eviction, field::Field};
use super::place::Place;

/// Capacity of the source table, in sources.
const ROOM: u32 = 1 << 16;
/// Established sources of each kind.
const ESTABLISHED: u32 = 1_000;
/// A limit so slow that no token is refilled within a round.
const SLOW: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 20 };
/// A limit that the established sources are far from.
const FAST: Bucket = Bucket { rate: Rate::per_second(1_000), burst: 200 };
/// Longer than two ticks of any kernel.
const TICKS: Duration = Duration::from_millis(25);
/// Packets that a source far from its limit sent before the flood.
const FEW: u64 = 2;

/// The size of each flood, in units of the capacity of the table.
pub(crate) const FLOODS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0];
/// The sizes in a quick run.
pub(crate) const FEW_FLOODS: [f64; 3] = [0.5, 2.0, 16.0];

/// The results.
#[derive(Clone, Debug)]
pub(crate) struct Survival {
    /// One for each size of the flood.
    pub(crate) rounds: Vec<Round>,
    /// Attempts of a source to have its own state evicted.
    pub(crate) evictions: Vec<Eviction>,
}

/// The result of a flood of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Made-up packets, in units of the capacity of the table.
    pub(crate) flood: f64,
    /// Established sources with a spent burst that were admitted again: their state was lost.
    pub(crate) lost: u32,
    /// Established sources far from the slow limit that were refused.
    pub(crate) refused: u32,
    /// The same for the fast limit.
    pub(crate) refused_fast: u32,
    /// The share of made-up packets that passed.
    pub(crate) flood_passed: f64,
}

/// Measures all floods. The calling thread has to be pinned to one CPU.
pub(crate) fn measure(sandbox: &Sandbox, floods: &[f64]) -> Result<Survival> {
    let host = Host::new(sandbox, "survival")?;
    host.ip("link add flood type veth peer name other\n")?;
    let measure = || {
        let mut place = Place::new("flood")?;
        let rounds = floods.iter().map(|flood| round(&mut place, *flood)).collect::<Result<_>>()?;
        let evictions = eviction::attempts(&mut place)?;
        Ok(Survival { rounds, evictions })
    };
    sandbox.inside(&host.namespace, measure)?
}

fn round(place: &mut Place, flood: f64) -> Result<Round> {
    let (spent, calm) = (0..ESTABLISHED, ESTABLISHED..2 * ESTABLISHED);
    let mut field = Field::new(SLOW)?;
    spend(&mut field, spent.clone(), SLOW.burst)?;
    establish(&mut field, calm.clone(), FEW)?;
    let mut passed = 0;
    field.flooded(place, |flooded| {
        flooded.flood(packets(flood))?;
        passed = flooded.flood_passed()?;
        Ok(())
    })?;
    let refused = ESTABLISHED - admitted(&mut field, calm.clone())?;
    let lost = admitted(&mut field, spent)?;
    let seconds = field.age().as_secs();
    ensure!(
        seconds < SLOW.rate.period / SECOND,
        "a flood of {flood} times the table took {seconds} s, in which the limit admits more: \
         measure it with nothing else at work here"
    );
    field.close()?;

    let mut field = Field::new(FAST)?;
    establish(&mut field, calm.clone(), FEW)?;
    field.flooded(place, |flooded| flooded.flood(packets(flood)))?;
    let refused_fast = ESTABLISHED - admitted(&mut field, calm)?;
    field.close()?;
    let flood_passed = passed as f64 / f64::from(packets(flood));
    Ok(Round { flood, lost, refused, refused_fast, flood_passed })
}

/// The number of packets in a flood.
fn packets(flood: f64) -> u32 {
    (flood * f64::from(ROOM)) as u32
}

/// Lets each source send so many packets, all of which have to be admitted.
fn establish(field: &mut Field, sources: Range<u32>, packets: u64) -> Result<()> {
    for source in sources {
        let admitted = field.send(source, packets)?;
        ensure!(
            admitted == packets,
            "before any flood, {admitted} of {packets} packets of a source within its limit passed"
        );
    }
    Ok(())
}

/// Lets each source send its whole burst and at least one packet more.
fn spend(field: &mut Field, sources: Range<u32>, burst: u64) -> Result<()> {
    establish(field, sources.clone(), burst)?;
    // After a tick, part of a token is refilled, which is enough for one more packet.
    thread::sleep(TICKS);
    for source in sources {
        let admitted = field.send(source, 2)?;
        ensure!(
            admitted <= 1,
            "before any flood, {admitted} packets of a source passed that had spent its burst of {burst}"
        );
    }
    Ok(())
}

/// Sends one packet from each source and returns how many were admitted.
fn admitted(field: &mut Field, sources: Range<u32>) -> Result<u32> {
    let mut admitted = 0;
    for source in sources {
        admitted += u32::try_from(field.send(source, 1)?).context("too many packets passed")?;
    }
    Ok(admitted)
}
