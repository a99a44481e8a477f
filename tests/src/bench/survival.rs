//! What a flood of made-up sources does to established ones.
//!
//! Asked from outside alone, by verdicts and counters, whatever the table of sources is made of: real
//! packets of established sources, then so many of made-up ones, then one more of each established
//! source, whose verdict tells whether its state is still there and whether it is served.

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

/// Sources that the instances have room for.
const ROOM: u32 = 1 << 16;
/// Established sources of each kind.
const ESTABLISHED: u32 = 1_000;
/// A limit that admits nothing more within a round.
const SLOW: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 20 };
/// A limit that hardly any source is near.
const FAST: Bucket = Bucket { rate: Rate::per_second(1_000), burst: 200 };
/// Longer than two ticks of any kernel.
const TICKS: Duration = Duration::from_millis(25);
/// Packets that a source sent before the flood that is far from its limit.
const FEW: u64 = 2;

/// The made-up packets of each round, in times the room for sources.
pub(crate) const FLOODS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0];
/// Those of a short run.
pub(crate) const FEW_FLOODS: [f64; 3] = [0.5, 2.0, 16.0];

/// What became of the established sources.
#[derive(Clone, Debug)]
pub(crate) struct Survival {
    /// One for each size of the flood.
    pub(crate) rounds: Vec<Round>,
    /// What sources gained that tried to flood their own state away.
    pub(crate) evictions: Vec<Eviction>,
}

/// What a flood of one size did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Its packets, in times the room for sources.
    pub(crate) flood: f64,
    /// Of the established sources that had spent all, those that were admitted again.
    pub(crate) lost: u32,
    /// Of those that were far from their limit, those that were refused.
    pub(crate) refused: u32,
    /// The same with the fast limit.
    pub(crate) refused_fast: u32,
    /// The part of the made-up packets that passed.
    pub(crate) flood_passed: f64,
}

/// Measures it with these floods. The thread stays on one CPU.
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

/// The packets of a flood.
fn packets(flood: f64) -> u32 {
    (flood * f64::from(ROOM)) as u32
}

/// Has each of these sources send so many packets, which its limit admits.
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

/// Has each of these sources send all that its limit admits, and one packet more.
fn spend(field: &mut Field, sources: Range<u32>, burst: u64) -> Result<()> {
    establish(field, sources.clone(), burst)?;
    // A part of a token is enough for one more, when a tick has passed.
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

/// How many of these sources may send a packet.
fn admitted(field: &mut Field, sources: Range<u32>) -> Result<u32> {
    let mut admitted = 0;
    for source in sources {
        admitted += u32::try_from(field.send(source, 1)?).context("too many packets passed")?;
    }
    Ok(admitted)
}
