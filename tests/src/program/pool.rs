//! Keeps loaded programs for later tests, because the kernel takes about a second to verify one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use super::{Clock, Loaded, Sizes};

/// The properties in which two programs must agree for one to replace the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) sizes: Sizes,
    pub(super) clock: Clock,
    pub(super) frags: bool,
}

/// How many programs are kept: some for each test thread. The oldest is dropped first.
const MOST: usize = 12;

static POOL: Mutex<Vec<(Kind, Loaded)>> = Mutex::new(Vec::new());

/// Takes a program of this kind from the pool; `None` if there is none. Its maps are blank.
pub(super) fn take(kind: Kind) -> Option<Loaded> {
    let mut pool = pool();
    let place = pool.iter().rposition(|(of, _)| *of == kind)?;
    Some(pool.remove(place).1)
}

/// Clears the maps of a program and puts it into the pool.
pub(super) fn give(kind: Kind, mut loaded: Loaded) -> Result<()> {
    loaded.blank()?;
    let mut pool = pool();
    pool.push((kind, loaded));
    let oldest = (pool.len() > MOST).then(|| pool.remove(0));
    // The oldest is dropped without the lock, because unloading a program takes long.
    drop(pool);
    drop(oldest);
    Ok(())
}

fn pool() -> MutexGuard<'static, Vec<(Kind, Loaded)>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}
