//! Blocks of single sources that are written into the running tables, without another policy.
//!
//! A packet finds them as it finds the blocks that limits made. They are in no policy. They stay when one is applied, when the
//! programs are replaced and when the process ends, and go when the instance is removed.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::{
    abi::{
        layout::map,
        policy::half,
        push::{self, Ends, Push},
        state::OffenceKey,
    },
    memory::offence::LINES,
    policy::{
        limit::Limit,
        penalty::{Offence, Penalty},
    },
};

use super::{
    bpffs::Pins,
    instance::Instance,
    maps::Maps,
    policy::in_force,
    program::{Clock, Program},
    sys,
};
use crate::error::{Error, Result};

/// How often a push is tried while packets keep it from what it changes. A try takes some microseconds.
const TRIES: u32 = 1_000;

/// Whose a pushed block is. A source is blocked until the blocks of all owners have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Owner {
    /// Commands and programs that push, all together: of their blocks of a source there is one, the one that ends last.
    Shared = push::SHARED,
    /// The decisions of CrowdSec that the agent follows.
    CrowdSec = push::CROWDSEC,
}

impl Owner {
    /// When the block of this owner ends in a record of a pushed block.
    const fn end(self, offence: &Offence) -> u64 {
        let Ends { shared, crowdsec } = Ends::of(offence);
        match self {
            Self::Shared => shared,
            Self::CrowdSec => crowdsec,
        }
    }
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The source is blocked until then.
    Blocked,
    /// It is blocked already, by a push of the same owner that ends later: in nanoseconds of the monotonic clock.
    Longer(u64),
    /// The list `allow` has it.
    Allowed,
    /// No record is free where it is looked for: the blocks of all others there run.
    Full,
}

/// The maps of an instance, and the program that pushes blocks into them.
pub struct Pusher {
    maps: Maps,
    program: Program,
}

impl Pusher {
    /// Opens an instance to push blocks. The first time, its policy is put in force again, with a row for them. `None` if there
    /// is no instance.
    ///
    /// # Errors
    /// What the kernel lacks or says, [`Error::Unconfirmed`], or that the policy has no row left.
    pub fn open(pins: &Pins, clock: Clock) -> Result<Option<Self>> {
        let maps = Maps::open(pins)?;
        if maps.take_pushes()? {
            return Self::of(maps, clock).map(Some);
        }
        let Some(mut instance) = Instance::open(pins)? else { return Ok(None) };
        instance.maps_mut().begin_pushes()?;
        Self::load(pins, clock).map(Some)
    }

    /// Opens the maps that are pinned, which take pushes already.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load(pins: &Pins, clock: Clock) -> Result<Self> {
        Self::of(Maps::open(pins)?, clock)
    }

    /// Loads the program for maps.
    fn of(maps: Maps, clock: Clock) -> Result<Self> {
        let program = Program::load_pusher(&maps.pins, clock)?;
        Ok(Self { maps, program })
    }

    /// The maps.
    pub const fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The source that an address belongs to under the policy in force.
    ///
    /// # Errors
    /// What the system says.
    pub fn source_of(&self, address: IpAddr) -> Result<IpNet> {
        let mask = self.maps.settings_in_force()?.mask;
        let length = match address {
            IpAddr::V4(_) => u32::from_be(mask.ipv4).leading_ones(),
            IpAddr::V6(_) => mask.ipv6.iter().map(|word| word.count_ones()).sum(),
        };
        Ok(IpNet::new(address, length as u8).map_or(address.into(), |source| source.trunc()))
    }

    /// Blocks a source, by the first address of [it](Self::source_of), until then: in nanoseconds of the monotonic clock, at most
    /// [`Penalty::LONGEST`] from now. The block is [shared](Owner::Shared). If another policy makes sources larger meanwhile, no packet
    /// finds the block, unless the larger source has the same first address.
    ///
    /// # Errors
    /// What the system says.
    pub fn push(&mut self, source: IpAddr, until: u64) -> Result<Pushed> {
        self.push_for(Owner::Shared, source, until)
    }

    /// The same for an owner. One of [CrowdSec](Owner::CrowdSec) ends then also if it was to end later.
    ///
    /// # Errors
    /// What the system says.
    pub fn push_for(&mut self, owner: Owner, source: IpAddr, until: u64) -> Result<Pushed> {
        let push = Push { source: source.into(), lifts: 0, until, owner: owner as u64 };
        Ok(match self.run(push)? {
            push::DONE => Pushed::Blocked,
            push::LONGER => Pushed::Longer(self.pushed_until(source)?.unwrap_or(until)),
            push::ALLOWED => Pushed::Allowed,
            push::FULL => Pushed::Full,
            other => return Err(failed(other)),
        })
    }

    /// Ends the [shared](Owner::Shared) block of a source, by the first address of it. Returns whether there was one. The source may be
    /// one of an earlier policy.
    ///
    /// # Errors
    /// What the system says.
    pub fn lift(&mut self, source: IpAddr) -> Result<bool> {
        self.lift_for(Owner::Shared, source)
    }

    /// The same for an owner.
    ///
    /// # Errors
    /// What the system says.
    pub fn lift_for(&mut self, owner: Owner, source: IpAddr) -> Result<bool> {
        match self.run(Push {
            source: source.into(),
            lifts: push::LIFT,
            until: 0,
            owner: owner as u64,
        })? {
            push::DONE => Ok(true),
            push::NOT_BLOCKED => Ok(false),
            other => Err(failed(other)),
        }
    }

    /// Until when a [shared](Owner::Shared) block of a source lasts, or did, by its first address, in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pushed_until(&self, source: IpAddr) -> Result<Option<u64>> {
        let offence =
            self.maps.offence(&OffenceKey { source: source.into(), limit: Penalty::PUSHED })?;
        Ok(offence.map(|offence| Owner::Shared.end(&offence)))
    }

    /// Runs the program until packets do not keep it from what it changes.
    fn run(&mut self, mut push: Push) -> Result<u32> {
        let mut done = push::BUSY;
        for _ in 0..TRIES {
            done = self.program.push(&push)?;
            if done != push::BUSY {
                break;
            }
            if push.lifts != 0 {
                push.lifts = push::LIFT_AGAIN;
            }
        }
        // Its record was gone at the second try.
        Ok(if done == push::NOT_BLOCKED && push.lifts == push::LIFT_AGAIN {
            push::DONE
        } else {
            done
        })
    }
}

fn failed(done: u32) -> Error {
    Error::Object {
        action: "push a block".to_owned(),
        reason: match done {
            push::BUSY => "packets kept it from the source for too long; try again".to_owned(),
            _ => "the instance has no table of offences".to_owned(),
        },
    }
}

impl Maps {
    /// Has blocks pushed from now on: the policy is put in force again, with the row for them, unless it has that. The caller
    /// holds the lock.
    ///
    /// # Errors
    /// As [`put_in_force`](Self::put_in_force).
    pub fn begin_pushes(&mut self) -> Result<()> {
        if self.take_pushes()? { Ok(()) } else { self.put_with_pushes() }
    }

    /// Whether the policy in force has the row of pushed blocks, which is the last one with a penalty.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn take_pushes(&self) -> Result<bool> {
        let head = self.read_head()?;
        let epoch = in_force(&head, sys::monotonic());
        let penalties = head.settings[epoch as usize & 1].penalties;
        let Some(last) = penalties.checked_ilog2() else { return Ok(false) };
        let row: Option<Limit> = self.entry(map::LIMITS, &half(epoch, last))?;
        Ok(row.is_some_and(|row| row.penalty.limit == Penalty::PUSHED))
    }

    /// The number of records of offences that there is room for.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn offence_records(&self) -> Result<u64> {
        Ok(u64::from(self.offence_sets()?) * u64::from(LINES - 1))
    }

    /// The sources of the pushed blocks of an owner that run at `now`, and when these end, both times in nanoseconds of the
    /// monotonic clock.
    ///
    /// # Errors
    /// What the system says.
    pub fn pushed(&self, owner: Owner, now: u64) -> Result<Vec<(IpAddr, u64)>> {
        let mut pushed = Vec::new();
        self.each_offence(|_, record| {
            let end = owner.end(&record.offence);
            if record.key.limit == Penalty::PUSHED
                && end > now
                && let Ok(source) = IpAddr::try_from(record.key.source)
            {
                pushed.push((source, end));
            }
        })?;
        Ok(pushed)
    }
}
