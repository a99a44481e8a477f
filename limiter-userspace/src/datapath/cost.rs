//! What the programs cost, as the kernel counts it.
//!
//! It counts while `sysctl kernel.bpf_stats_enabled` is 1, or while somebody holds that open by
//! `BPF_ENABLE_STATS`, which makes every BPF program of the machine some nanoseconds dearer.

use std::{io, time::Duration};

use super::{bpffs::Pins, instance::pinned_links, sys};
use crate::error::{Error, Result};

/// What the program of an interface did while the kernel counted; all 0 if it never did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The slot of the interface.
    pub slot: u32,
    /// How often it ran: once for each packet.
    pub runs: u64,
    /// How long these runs took.
    pub time: Duration,
}

/// What the programs of an instance did since each was loaded. The kernel tells this to the
/// administrator alone; without that right there is nothing in it.
///
/// # Errors
/// What the system says.
pub fn costs(pins: &Pins) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        match sys::program_runs(link.program()?) {
            Ok((runs, time)) => {
                costs.push(Cost { slot, runs, time: Duration::from_nanos(time) });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            // It was replaced since the link was looked at.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::system("look at a program", error)),
        }
    }
    Ok(costs)
}
