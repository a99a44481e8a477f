//! What the kernel asks of who loads programs.

use std::{fs, io};

use crate::error::{Error, Result};

/// `CAP_NET_ADMIN`, which XDP takes, and `CAP_BPF`, which programs and maps take.
const NEEDED: u64 = 1 << 12 | 1 << 39;
/// `CAP_SYS_ADMIN`, which stands for `CAP_BPF`.
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
