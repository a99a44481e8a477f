//! What the kernel asks of who loads programs.

use std::io;

use aya::util::nr_cpus;
use caps::{CapSet, Capability, CapsHashSet};
use rustix::{
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::set_no_new_privs,
};

use super::bpffs::Pins;
use crate::error::{Error, Result};

/// What XDP takes, and what programs and maps take.
const NEEDED: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_BPF];
/// Without it the verifier lets no program subtract one pointer from another, as the main program does. With `CAP_BPF`
/// it lets a process read kernel memory.
const LOADING: Capability = Capability::CAP_PERFMON;
/// It stands for the others, but for `CAP_NET_ADMIN`.
const ADMIN: Capability = Capability::CAP_SYS_ADMIN;
/// What empties the bounding set.
const BOUNDING: Capability = Capability::CAP_SETPCAP;
/// What root needs to open the directories and files of another user.
const OPENING: Capability = Capability::CAP_DAC_OVERRIDE;

/// Checks that this process may load and attach programs, so that nobody is told of other obstacles
/// before the one that they cannot remove.
///
/// # Errors
/// [`Error::Permission`].
pub(crate) fn check() -> Result<()> {
    match caps::read(None, CapSet::Effective) {
        Ok(set) => {
            let has = |it| set.contains(&it);
            let [net, bpf] = NEEDED;
            if has(net) && (has(ADMIN) || has(bpf) && has(LOADING)) {
                return Ok(());
            }
            Err(Error::system("load a program", io::Error::from_raw_os_error(libc::EPERM)))
        }
        // The kernel will tell.
        Err(_) => Ok(()),
    }
}

/// Checks that the number of CPUs can be read, by which counters are read and cleared.
///
/// # Errors
/// [`Error::NoSysfs`].
pub(crate) fn check_sysfs() -> Result<()> {
    match nr_cpus() {
        Ok(_) => Ok(()),
        Err((file, source)) => Err(Error::NoSysfs { file, source }),
    }
}

/// Gives up for good what this process does without while it sees to an instance, and calls `start`, which starts its
/// loader. Until `start` returns, this process has what the loader is to have, and hands it on to what it executes. After that
/// it has no right to load what reads kernel memory, in no set. The caller has no other thread, which would keep what it has.
///
/// Root keeps its rights over the files of others only where the instance is one of another user. A process that was given
/// `CAP_SYS_ADMIN` in the place of `CAP_BPF` keeps that.
///
/// # Errors
/// What the system says, or the error of `start`.
pub(crate) fn separate<T>(pins: &Pins, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let is_others = !pins.are_own()?;
    let mut kept = NEEDED.to_vec();
    if NEEDED.iter().any(|it| !permitted.contains(it)) {
        kept.push(ADMIN);
    }
    if is_others {
        kept.extend([Capability::CAP_CHOWN, OPENING]);
    }
    let kept: CapsHashSet = kept.into_iter().filter(|it| permitted.contains(it)).collect();
    let handed = of_loader(&permitted, is_others);
    caps::set(None, CapSet::Inheritable, &handed).map_err(failed)?;
    caps::set(None, CapSet::Ambient, &handed).map_err(failed)?;
    restrict(&handed.union(&kept).copied().collect())?;
    let started = start()?;
    hand_nothing_on()?;
    restrict(&kept)?;
    Ok(started)
}

/// Gives up for good what a loader does without, and closes its memory to processes of the same user.
///
/// # Errors
/// What the system says.
pub(crate) fn keep_loading(pins: &Pins) -> Result<()> {
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let mut kept = of_loader(&permitted, !pins.are_own()?);
    hand_nothing_on()?;
    kept.remove(&BOUNDING);
    restrict(&kept)?;
    // The kernel also keeps off who has fewer capabilities.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Error::system("close the memory of the loader", error.into()))
}

/// Gives up all capabilities for good. The caller has no other thread, which would keep what it has.
///
/// # Errors
/// What the system says.
pub(crate) fn give_up() -> Result<()> {
    hand_nothing_on()?;
    restrict(&CapsHashSet::new())
}

/// What of the permitted capabilities a loader is to have; that to empty its bounding set until it has done so.
fn of_loader(permitted: &CapsHashSet, is_others: bool) -> CapsHashSet {
    let mut wanted = NEEDED.to_vec();
    wanted.push(LOADING);
    if wanted.iter().any(|it| !permitted.contains(it)) {
        wanted.push(ADMIN);
    }
    if is_others {
        wanted.push(OPENING);
    }
    wanted.push(BOUNDING);
    wanted.into_iter().filter(|it| permitted.contains(it)).collect()
}

/// Has what this process executes get no capability. The bounding set stays until then: a file with capabilities that it does
/// not hold could not be executed. Whoever may not empty it gets nothing by it, as no exec gives a right.
fn hand_nothing_on() -> Result<()> {
    if caps::has_cap(None, CapSet::Effective, BOUNDING).map_err(failed)? {
        caps::clear(None, CapSet::Bounding).map_err(failed)?;
    }
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)
}

/// Gives up all capabilities but these, and what an exec may give.
fn restrict(kept: &CapsHashSet) -> Result<()> {
    // In this order: what is effective has to be permitted.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, kept).map_err(failed)?;
    }
    set_no_new_privs(true).map_err(|error| failed(io::Error::from(error)))
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::system("give up capabilities", io::Error::other(error))
}
