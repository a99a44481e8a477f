//! What the programs cost, as the kernel counts it.
//!
//! It counts while `sysctl kernel.bpf_stats_enabled` is 1, or while somebody holds that open by
//! `BPF_ENABLE_STATS`, which makes every BPF program of the machine some nanoseconds dearer.

use std::{io, os::fd::AsFd as _, time::Duration};

use super::{
    bpffs::{Pins, c_path},
    link::pinned_links,
    sys,
};
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

/// What the programs of an instance did since each was loaded.
///
/// # Errors
/// What the system says.
pub fn costs(pins: &Pins) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        let path = pins.program(slot);
        let failed = |error| Error::system(format!("look at {}", path.display()), error);
        let program = match sys::open(&c_path(path.as_os_str())?) {
            // It is being attached or detached.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            program => program.map_err(failed)?,
        };
        let (number, runs, time) = sys::program_runs(program.as_fd()).map_err(failed)?;
        // It is being replaced otherwise.
        if number == link.program()? {
            costs.push(Cost { slot, runs, time: Duration::from_nanos(time) });
        }
    }
    Ok(costs)
}
