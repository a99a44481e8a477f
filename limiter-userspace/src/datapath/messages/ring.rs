//! The ring of debug messages, and which instances have one.

use std::{cell::Cell, env};

use crate::datapath::{bpffs::Pins, link::exists};

/// The ring that messages come out of, as aya names it.
pub(in super::super) const RING: &str = "AYA_LOGS";

/// The environment variable that has new instances made with messages.
const VARIABLE: &str = "LIMITER_DATAPATH_LOG";

thread_local! {
    /// Whether [`wanted`] runs on this thread.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; instances that it makes on this thread are made with messages.
pub fn wanted<T>(work: impl FnOnce() -> T) -> T {
    WANTED.set(true);
    let made = work();
    WANTED.set(false);
    made
}

/// Whether the instance that is pinned there, or is about to be made there, has messages.
pub(in super::super) fn are_told(pins: &Pins) -> bool {
    let ring = pins.map(RING).exists();
    let new = !exists(pins).unwrap_or(true);
    ring || new && (WANTED.get() || env::var_os(VARIABLE).is_some_and(|it| !it.is_empty()))
}
