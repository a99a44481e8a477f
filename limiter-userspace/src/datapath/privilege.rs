//! What the kernel asks of who loads programs.

use std::io;

use caps::{CapSet, Capability, CapsHashSet};

use super::bpffs::Pins;
use crate::error::{Error, Result};

/// What XDP takes, what programs and maps take, and without which the verifier lets no program subtract one
/// pointer from another.
const NEEDED: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON];
/// The first of these, and that which stands for the others.
const ADMIN: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN];

/// Checks that this process may load and attach programs, so that nobody is told of other obstacles
/// before the one that they cannot remove.
///
/// # Errors
/// [`Error::Permission`].
pub(crate) fn check() -> Result<()> {
    let has = |set: &CapsHashSet, all: &[Capability]| all.iter().all(|it| set.contains(it));
    match caps::read(None, CapSet::Effective) {
        Ok(set) if !has(&set, &NEEDED) && !has(&set, &ADMIN) => {
            Err(Error::system("load a program", io::Error::from_raw_os_error(libc::EPERM)))
        }
        // The kernel will tell.
        _ => Ok(()),
    }
}

/// Gives up for good what this thread, and those that it will start, do without while they see to an
/// instance: what is left loads and attaches programs, and no more. Root keeps its rights over the files of
/// others only where the instance is one of another user.
///
/// # Errors
/// What the system says.
pub(crate) fn give_up_rest(pins: &Pins) -> Result<()> {
    let failed = |error: caps::errors::CapsError| {
        Error::system("give up capabilities", io::Error::other(error))
    };
    let permitted = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let mut kept = NEEDED.to_vec();
    if kept.iter().any(|it| !permitted.contains(it)) {
        kept.push(Capability::CAP_SYS_ADMIN);
    }
    if !pins.are_own()? {
        kept.extend([Capability::CAP_CHOWN, Capability::CAP_DAC_OVERRIDE]);
    }
    let kept: CapsHashSet = kept.into_iter().filter(|it| permitted.contains(it)).collect();
    // In this order: what is effective has to be permitted.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(failed)?;
    }
    // SAFETY: the call has no pointers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::system("give up capabilities", io::Error::last_os_error()));
    }
    Ok(())
}
