//! An exchange that another process began and did not finish: it is finished, or undone, or both tables stay.
//!
//! | the interfaces run | it can be finished | it cannot |
//! |---|---|---|
//! | the main programs of the old maps, and no command changed the new ones | it is finished | it is [undone](undo): the new maps are removed |
//! | others | it is finished | both tables stay, until somebody [lets go](let_go) of the old one |
//!
//! This version has no program for maps of another layout than its own. An exchange to such maps can only be undone, or is
//! left to a version that knows them. What an exchange to maps of an older layout has left is removed when
//! [`exchange`](super::exchange()) brings those over.

use limiter_common::abi::description::Standing;

use super::{
    Old, Started, finish, load, remove_old, shared_sources,
    switch::{Switch, head},
};
use crate::{
    datapath::{
        bpffs::{
            Pins,
            sides::{Beside, word},
        },
        link::pinned_links,
        lock::{Lock, Right},
        main_program,
        maps::{Maps, described},
        program::{Clock, Program},
    },
    error::{Error, Result},
};

/// What became of an exchange that another process began.
pub(in crate::datapath) enum Resumed {
    /// It is finished, or there was none, or it is for another version to finish.
    Done,
    /// It cannot be finished, for this reason. The maps before are in use again, with all their state.
    Undone(Error),
    /// It cannot be finished, for this reason. The new maps are in use, and the old ones are still there.
    Unfinished(Error),
}

impl Resumed {
    /// What is to be told of it.
    pub(in crate::datapath) fn error(self) -> Option<Error> {
        match self {
            Self::Done => None,
            Self::Undone(cause) => Some(Error::Undone { source: Box::new(cause) }),
            Self::Unfinished(cause) => Some(Error::Unfinished { source: Box::new(cause) }),
        }
    }
}

/// Finishes an exchange that another process began and did not finish, or undoes it if that cannot be and no packet goes by
/// the new maps. The caller holds the lock to attach.
///
/// # Errors
/// What the system says of the directories.
pub(in crate::datapath) fn resume(pins: &Pins) -> Result<Resumed> {
    let (in_use, other, beside) = pins.sides()?;
    match beside {
        Beside::Nothing => return Ok(Resumed::Done),
        Beside::Remains => {
            pins.check_owners()?;
            other.clear_maps()?;
            return Ok(Resumed::Done);
        }
        Beside::Old => pins.check_owners()?,
    }
    let is_own = described(&in_use)?.is_some_and(|layout| layout.standing() == Standing::Own);
    let finished = if is_own { go_on(&in_use, &other) } else { Maps::open_at(&in_use).map(drop) };
    let Err(cause) = finished else { return Ok(Resumed::Done) };
    match undo(pins, &in_use, &other) {
        Ok(true) => Ok(Resumed::Undone(cause)),
        Ok(false) if is_own => Ok(Resumed::Unfinished(cause)),
        // Whoever opens the maps is told of their layout.
        Ok(false) => Ok(Resumed::Done),
        Err(error) => Ok(Resumed::Unfinished(error)),
    }
}

/// The same for a caller without that lock. If another process holds it, the exchange is left to that.
///
/// # Errors
/// As [`resume`].
pub(in crate::datapath) fn resume_if_left(pins: &Pins) -> Result<Resumed> {
    if pins.sides()?.2 == Beside::Nothing {
        return Ok(Resumed::Done);
    }
    match Lock::try_take(pins, Right::Attach)? {
        Some(_attaching) => resume(pins),
        None => Ok(Resumed::Done),
    }
}

/// Whether there is an exchange that another process began, and that no process is at.
///
/// # Errors
/// What the system says.
pub(crate) fn is_left(pins: &Pins) -> Result<bool> {
    let is_beside = || Ok::<_, Error>(pins.sides()?.2 == Beside::Old);
    if !is_beside()? {
        return Ok(false);
    }
    // It may have been finished meanwhile.
    Ok(Lock::try_take(pins, Right::Attach)?.is_some() && is_beside()?)
}

/// Puts programs for the new maps in use, which may run already, and carries over what is left in the old ones.
fn go_on(in_use: &Pins, old: &Pins) -> Result<()> {
    let from = Old::of(old)?.from;
    let clock = Clock::Monotonic;
    let carrier = Program::load_carrier(in_use, &from, clock)?;
    let mut programs = load(in_use, old, Some(&from), clock)?;
    // Packets charged what the old ones have since it was copied.
    if run_by_all(old)? {
        shared_sources::bring(&Old::of(old)?, &Maps::open_at(in_use)?)?;
    }
    // What was started stays if this fails: these maps are in use.
    programs.start(in_use).map_err(|stopped| stopped.cause)?;
    let started = Started { dispatchers: programs.dispatchers, carrier };
    finish(in_use, &from, started, clock).map(drop)
}

/// Removes the new maps if all interfaces run the main programs of the old ones and no command changed the new ones, but for
/// the monitor switch. The old ones are in use then. Returns whether that is so.
fn undo(pins: &Pins, new: &Pins, old: &Pins) -> Result<bool> {
    let Some(_changing) = Lock::take(pins, Right::Change)? else { return Ok(false) };
    let heads = [head(new)?, head(old)?];
    // The layout is above the number of the epoch.
    let [changed, before] = heads.each_ref().map(|head| word(head, 0) as u32);
    let (Some(of_new), Some(of_old)) = (described(new)?, described(old)?) else { return Ok(false) };
    // A policy that was confirmed or taken back has the epoch that it had.
    let [reverts, would_revert] = [(&heads[0], of_new), (&heads[1], of_old)]
        .map(|(head, layout)| word(head, layout.head_revert as usize));
    if changed != before || reverts != would_revert || !run_by_all(old)? {
        return Ok(false);
    }
    // The switch may have been thrown in the maps that are removed.
    let switch = Switch::of(old, &of_old);
    switch.follow(&Switch::of(new, &of_new), switch.get()?)?;
    new.clear_maps()?;
    Ok(true)
}

/// Whether every interface runs a main program of these maps, and there is one.
fn run_by_all(pins: &Pins) -> Result<bool> {
    let mut are_run = false;
    for (slot, link) in pinned_links(pins)? {
        if link.interface()?.is_some() {
            if !main_program::runs_by(pins, slot, &link)? {
                return Ok(false);
            }
            are_run = true;
        }
    }
    Ok(are_run)
}

/// Removes the old maps of an exchange that cannot be finished, and puts programs for the new ones alone in use. What sources
/// and keys owed in the old table that had no packet since is forgotten. The caller holds the lock to attach.
///
/// # Errors
/// Why no such programs can be loaded or put in use. What runs stays then.
pub(in crate::datapath) fn let_go(pins: &Pins) -> Result<()> {
    let (in_use, old, beside) = pins.sides()?;
    if beside != Beside::Old {
        return Ok(());
    }
    let mut programs = load(&in_use, &old, None, Clock::Monotonic)?;
    programs.start(&in_use).map_err(|stopped| stopped.cause)?;
    remove_old(&in_use, &old, programs.dispatchers)
}
