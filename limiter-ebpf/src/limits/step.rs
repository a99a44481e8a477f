//! What a step of a limit that is kept by keys of its own came to.

/// What a step came to.
pub(crate) const DONE: u32 = 0;

/// The state at this place is to be brought up to date first.
pub(super) const STALE: u32 = 1;

/// Another CPU was first: to be tried again.
pub(crate) const AGAIN: u32 = 2;

/// There is no place: some connections may be over.
pub(crate) const FULL: u32 = 3;

/// Charged to a wide state: to be settled.
pub(crate) const CHARGED: u32 = 4;

/// What a step is told: the limit is to be looked at again.
pub(super) const ANEW: u32 = 1;

/// The same: sockets were looked up, so a list without a free place refuses.
pub(super) const ASKED: u32 = 2;
