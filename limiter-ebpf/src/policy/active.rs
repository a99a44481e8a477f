//! The policy in force, as one packet sees it.
//!
//! **What happens before what.** The controller writes a half of the policy maps, and then stores the epoch by a release
//! store (`datapath/sys.rs`). Each stage that a packet comes to loads the epoch before all else, and decides anew if it is another one than before. It finds the half by an address that depends on
//! the epoch, so it sees what was written before. The controller writes a half again after all programs that may have
//! read an older epoch have ended (`membarrier`).
//!
//! The time of the revert names the epoch that it is of, and the monitor switch is of no epoch: they need no order.

use crate::kernel::{atomics::load_acquire, barrier::black_box, clock, maps::HEAD};
use limiter_common::abi::policy::{Settings, flag};

/// What holds under an epoch, or the one after the next.
#[inline(always)]
pub(crate) fn settings(epoch: u32) -> Option<&'static Settings> {
    let head = HEAD.get_ptr(0)?;
    // SAFETY: the controller writes the half that no packet goes by, and after that the epoch. Who asks what held under
    // the epoch before may find what is about to hold, each word of one or the other.
    Some(unsafe { &(&(*head).settings)[epoch as usize & 1] })
}

/// The policy in force, as one packet sees it.
#[derive(Clone, Copy)]
pub(crate) struct ActivePolicy {
    pub(crate) epoch: u32,
    pub(crate) settings: &'static Settings,
    /// See [`Head::monitor`](limiter_common::abi::policy::Head::monitor).
    switch: u64,
}

impl ActivePolicy {
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        let head = HEAD.get_ptr(0)?;
        // SAFETY: aligned words of a map value, which the controller writes by one store each, after
        // the half of the settings that the epoch says. They are read once, so that the packet sees one
        // policy.
        let (mut epoch, revert, switch) = unsafe {
            (
                load_acquire(&raw const (*head).epoch) as u32,
                (&raw const (*head).revert).read_volatile(),
                (&raw const (*head).monitor).read_volatile(),
            )
        };
        if let Some(at) = revert.at(epoch)
            && clock::now() >= at
        {
            epoch = epoch.wrapping_add(1);
        }
        // SAFETY: the controller writes the half that no packet goes by.
        let settings = unsafe { &(&(*head).settings)[epoch as usize & 1] };
        Some(Self { epoch, settings, switch })
    }

    /// Not 0 when nothing is dropped, by the operator's word or by the policy's.
    #[inline(always)]
    pub(crate) fn monitors(&self) -> u64 {
        self.switch | u64::from(self.settings.flags & flag::MONITOR)
    }
}

/// The same settings, of which nothing was read yet as the compiler must take it.
#[inline(always)]
pub(crate) fn hide_provenance(settings: &Settings) -> &Settings {
    // SAFETY: the pointer is that of the settings.
    unsafe { &*(black_box(&raw const *settings as usize) as *const Settings) }
}
