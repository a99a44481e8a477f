//! What the map has, and what is to be changed of it.

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;

use super::{super::answer::Standing, Policy};

/// The most entries. HAProxy 2.6 compares the key with each of them to remove one, which takes some 0.1 ms of a thread at so many.
pub(super) const MOST: usize = 16_384;
/// The most entries that are removed at once.
pub(super) const REMOVED: usize = 64;
/// The least time for which a source is held by the map, in ns: in less, few requests come.
pub(super) const SHORTEST: u64 = 1_000_000_000;
/// A source that is asked about so long after it was written is missing in the map, in ns.
pub(super) const IN_FLIGHT: u64 = 1_000_000_000;

/// A source that a limit holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) key: IpNet,
    /// Until when, in ns of `CLOCK_MONOTONIC`.
    pub(super) until: u64,
    /// What the limit has left.
    pub(super) standing: Standing,
    pub(super) policy: Arc<Policy>,
}

impl Held {
    /// When that was decided, in ns.
    pub(super) fn decided(&self) -> u64 {
        self.until.saturating_sub(self.standing.wait)
    }
}

/// An entry, as it is written.
pub(super) struct Text {
    pub(super) key: IpNet,
    pub(super) value: String,
}

/// What is to be changed: first the removals.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) removed: Vec<IpNet>,
    pub(super) added: Vec<Held>,
    /// Sources that there was no room for.
    pub(super) full: u64,
}

/// What the map has, by the key: no key twice, as HAProxy goes by the first.
#[derive(Debug, Default)]
pub(super) struct Entries {
    held: HashMap<IpNet, Entry>,
}

/// Until when a source is held, and when that was written, in ns.
#[derive(Debug)]
struct Entry {
    until: u64,
    written: u64,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// What has to be changed at `now`, in ns, where these sources are held, and those have something back. `None` if that is so
    /// many removals that the map is to be cleared.
    pub(super) fn change(
        &mut self,
        held: Vec<Held>,
        released: &[IpNet],
        now: u64,
    ) -> Option<Changes> {
        let mut removed: Vec<IpNet> =
            released.iter().copied().filter(|key| self.held.remove(key).is_some()).collect();
        if removed.len() > REMOVED {
            return None;
        }
        let (mut added, mut full) = (Vec::new(), 0);
        for it in held {
            if it.until < now.saturating_add(SHORTEST) {
                continue;
            }
            let room = self.held.len() < MOST;
            match self.held.get(&it.key) {
                Some(known) if now < known.until.min(known.written.saturating_add(IN_FLIGHT)) => {
                    continue;
                }
                // Half of the removals are for entries that ended.
                Some(_) if removed.len() < REMOVED / 2 => removed.push(it.key),
                Some(_) => continue,
                None if room => {}
                None => {
                    full += 1;
                    continue;
                }
            }
            self.held.insert(it.key, Entry { until: it.until, written: now });
            added.push(it);
        }
        let room = REMOVED - removed.len();
        let ended = self.held.iter().filter(|(_, entry)| entry.until <= now);
        let ended: Vec<IpNet> = ended.map(|(key, _)| *key).take(room).collect();
        for key in &ended {
            self.held.remove(key);
        }
        removed.extend(ended);
        Some(Changes { removed, added, full })
    }
}
