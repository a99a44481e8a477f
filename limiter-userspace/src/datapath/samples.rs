//! Samples of dropped packets: asking the datapath for them, and taking them.
//!
//! The datapath shows them until a time that the reader moves on. So a reader that was killed leaves nothing behind but
//! that time, which passes.

use std::{
    os::fd::AsFd as _,
    path::Path,
    process,
    time::{Duration, Instant},
};

use aya::maps::MapData;
use ipnet::IpNet;
use limiter_common::{
    abi::layout::map,
    base::address::{Address, Mask},
    memory::sample::{Budget, Odds, Sample, Sampling},
};
use thiserror::Error as Derive;

use super::{holder::Holder, lookup::now, maps::Maps, object::object, ring::Ring, sys};
use crate::error::{Error, Failure, Result};

/// How long samples are shown after the reader last asked for them.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the reader asks again.
pub const RENEWAL: Duration = Duration::from_secs(1);

/// Another process takes the samples.
#[derive(Debug, Derive)]
#[error("{holder} reads the dropped packets of this instance, and one process can at a time")]
pub struct Taken {
    holder: Holder,
}

impl Failure for Taken {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Option<String> {
        // Of another PID namespace, the number may be that of any process here.
        Some(match self.holder.command.contains("limiter") {
            true => format!("wait until it ends, or end it: `kill {}`", self.holder.process),
            false => "wait until it ends; it may be in another PID namespace".to_owned(),
        })
    }
}

/// Which dropped packets a reader wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Bit set of the reasons, at [`Reason::index`](limiter_common::packet::reason::Reason::index).
    pub reasons: u64,
    /// Bit set of the slots of interfaces.
    pub slots: u64,
    /// Bit set of the tallies of limits; [`Sampling::ANY_LIMIT`] if the limit does not matter.
    pub tallies: [u64; 2],
    /// The prefix of the source, if it matters.
    pub source: Option<IpNet>,
    /// The most samples a second, over all CPUs.
    pub rate: u32,
}

impl Wishes {
    fn sampling(&self) -> Sampling {
        let (source, mask) = match self.source {
            Some(prefix) => {
                let mask = Mask::new(prefix.prefix_len(), prefix.prefix_len());
                (Address::from(prefix.addr()).masked(&mask), mask)
            }
            None => (Address::NONE, Mask::default()),
        };
        Sampling {
            until: 0,
            next: 0,
            budget: Budget::per_second(self.rate),
            odds: Odds::ALL,
            reasons: self.reasons,
            slots: self.slots,
            tallies: self.tallies,
            source,
            mask,
            process: process::id().into(),
        }
    }

    /// Whether a packet was asked for, by all but its source.
    pub fn have(&self, sample: &Sample) -> bool {
        let of_any_source = Self { source: None, ..*self }.sampling();
        of_any_source.wants(sample.reason, sample.slot, sample.tally, &Address::NONE)
    }
}

/// Takes samples of dropped packets. The datapath stops showing them when this is dropped.
pub struct Sampler {
    wishes: Wishes,
    sampling: MapData,
    samples: Ring<Sample>,
    odds: Odds,
    /// Since when samples are counted for the next odds, and how many there were.
    counted: (Instant, u64),
}

/// Samples of the budget after which the odds are set anew.
const WINDOW: u64 = 16;

impl Sampler {
    /// Asks the datapath for samples.
    ///
    /// # Errors
    /// [`Taken`] if another process takes them, or what the system says.
    pub fn begin(maps: &Maps, wishes: Wishes) -> Result<Self> {
        let sampling = MapData::from_pin(maps.pins.map(map::SAMPLING))
            .map_err(|error| object(format!("open the map {}", map::SAMPLING), &error))?;
        let before: Option<Sampling> =
            sys::lookup(sampling.fd().as_fd(), &0_u32).map_err(failed)?;
        if let Some(holder) = before.and_then(|before| reader(&before)) {
            return Err(Taken { holder }.into());
        }
        let (samples, counted) = (Ring::samples(&maps.pins)?, (Instant::now(), 0));
        let mut sampler = Self { wishes, sampling, samples, odds: Odds::ALL, counted };
        // A reader that was killed may have left its wishes in force, and samples that it did not take.
        sampler.store_until(0)?;
        while sampler.samples.next().is_some() {}
        sampler.ask(wishes)?;
        Ok(sampler)
    }

    /// Asks again, at least once in each [`RENEWAL`].
    ///
    /// # Errors
    /// [`Taken`] if another process took over while this one stood still, or what the system says.
    pub fn renew(&mut self, wishes: Wishes) -> Result<()> {
        let now = self.asked()?;
        if let Some(holder) = now.and_then(|now| reader(&now)) {
            return Err(Taken { holder }.into());
        }
        if wishes != self.wishes || !now.is_some_and(|now| is_own(&now)) {
            return self.ask(wishes);
        }
        // Another reader may have left its own.
        self.store(std::mem::offset_of!(Sampling, odds), self.odds.0)?;
        self.store_until(end())
    }

    /// What is asked for now, by this process or by another one.
    fn asked(&self) -> Result<Option<Sampling>> {
        sys::lookup(self.sampling.fd().as_fd(), &0_u32).map_err(failed)
    }

    /// Asks for other packets than before.
    fn ask(&mut self, wishes: Wishes) -> Result<()> {
        (self.wishes, self.odds, self.counted) = (wishes, Odds::ALL, (Instant::now(), 0));
        // No packet goes by some of the old wishes and some of the new ones.
        self.store_until(0)?;
        sys::update(self.sampling.fd().as_fd(), &[0_u32], &[wishes.sampling()]).map_err(failed)?;
        self.store_until(end())
    }

    fn store_until(&self, until: u64) -> Result<()> {
        self.store(std::mem::offset_of!(Sampling, until), until)
    }

    fn store(&self, offset: usize, word: u64) -> Result<()> {
        sys::store_word(self.sampling.fd().as_fd(), offset, word).map_err(failed)
    }

    /// Has the odds follow how many samples there were.
    fn follow(&mut self) {
        let (since, shown) = self.counted;
        let most = (since.elapsed().as_secs_f64() * f64::from(self.wishes.rate)) as u64;
        if most < WINDOW {
            return;
        }
        let odds = self.odds.after(shown, most);
        // If it fails, the odds stay, and the budget chooses.
        if odds != self.odds && self.store(std::mem::offset_of!(Sampling, odds), odds.0).is_ok() {
            self.odds = odds;
        }
        self.counted = (Instant::now(), 0);
    }
}

impl Iterator for Sampler {
    type Item = Sample;

    /// The next sample, if there is one yet.
    fn next(&mut self) -> Option<Sample> {
        let next = self.samples.next();
        match next {
            Some(_) => self.counted.1 += 1,
            None => self.follow(),
        }
        next
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // If it fails, the time passes. What another process asks for since is left alone.
        if self.asked().is_ok_and(|asked| asked.is_some_and(|asked| is_own(&asked))) {
            let _: Result<()> = self.store_until(0);
        }
    }
}

/// Until when samples are shown if they are asked for now, in nanoseconds.
fn end() -> u64 {
    now().saturating_add(PATIENCE.as_nanos() as u64)
}

/// Whether this process asked last.
fn is_own(sampling: &Sampling) -> bool {
    sampling.process == u64::from(process::id())
}

/// The other process that takes samples now, if there is one.
fn reader(sampling: &Sampling) -> Option<Holder> {
    let process = u32::try_from(sampling.process).ok()?;
    if sampling.until <= now() || is_own(sampling) {
        return None;
    }
    Holder::read(Path::new("/proc"), process)
}

fn failed(error: std::io::Error) -> Error {
    Error::system(format!("use the map {}", map::SAMPLING), error)
}
