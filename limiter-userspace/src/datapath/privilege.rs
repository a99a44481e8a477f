//! What the kernel asks of who loads programs.

use std::{fs, io};

use caps::{CapSet, Capability, CapsHashSet};

use super::bpffs::Pins;
use crate::error::{Error, Result};

/// `CAP_NET_ADMIN`, which XDP takes, `CAP_BPF`, which programs and maps take, and `CAP_PERFMON`, without
/// which the verifier lets no program subtract one pointer from another.
const NEEDED: u64 = 1 << 12 | 1 << 38 | 1 << 39;
/// `CAP_SYS_ADMIN`, which stands for `CAP_BPF` and `CAP_PERFMON`.
const ADMIN: u64 = 1 << 21 | 1 << 12;

/// Checks that this process may load and attach programs, so that nobody is told of other obstacles
/// before the one that they cannot remove.
///
/// # Errors
/// [`Error::Permission`].
pub(crate) fn check() -> Result<()> {
    let effective = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    match effective {
        Some(set) if set & NEEDED != NEEDED && set & ADMIN != ADMIN => {
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
    let mut kept = vec![Capability::CAP_NET_ADMIN, Capability::CAP_BPF, Capability::CAP_PERFMON];
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
