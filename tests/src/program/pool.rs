//! Programs that a test is done with, for tests that need the same: the kernel takes a second to verify one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use super::{Clock, Loaded, Sizes};

/// What two programs have to have in common for one to do for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) sizes: Sizes,
    pub(super) clock: Clock,
    pub(super) frags: bool,
}

/// How many are kept: some for each thread of tests. Those that wait longest go first.
const MOST: usize = 12;

static POOL: Mutex<Vec<(Kind, Loaded)>> = Mutex::new(Vec::new());

/// Takes one of a kind, if there is one. Its maps are as they were made.
pub(super) fn take(kind: Kind) -> Option<Loaded> {
    let mut pool = pool();
    let place = pool.iter().rposition(|(of, _)| *of == kind)?;
    Some(pool.remove(place).1)
}

/// Gives one back.
pub(super) fn give(kind: Kind, mut loaded: Loaded) -> Result<()> {
    loaded.blank()?;
    let mut pool = pool();
    pool.push((kind, loaded));
    let oldest = (pool.len() > MOST).then(|| pool.remove(0));
    // Not while others wait: it takes a moment.
    drop(pool);
    drop(oldest);
    Ok(())
}

fn pool() -> MutexGuard<'static, Vec<(Kind, Loaded)>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}
