//! Repeats of requests, which are charged once.
//!
//! A client that got no answer sends its request again, with the same `Idempotency-Key`. Each limit that has a window for it
//! charges the first of them, and lets [`MOST`] more pass uncharged. The table has room for [`ROOM`] requests and never grows:
//! what finds no room is charged each time.

use limiter_common::abi::table::WAYS;

use super::super::table::Key;

/// The repeats of a request that are not charged.
pub(super) const MOST: u64 = 3;
/// Requests that are known at once; they take 2 MiB.
const ROOM: usize = 1 << 16;
/// Parts in which they are copied for the next process, each in some 10 µs.
pub(in crate::bridge) const PARTS: usize = 16;

/// A request that was charged.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// See [`Rules::repeat_key`](super::super::rules::Rules::repeat_key); zeros for none.
    key: [u64; 2],
    /// Until when it is known, in ns of `CLOCK_MONOTONIC`.
    until: u64,
    /// Repeats of it that were not charged.
    repeats: u64,
}

/// What a limit makes of a request that may be a repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It is charged, as its limit or the request asks for nothing else.
    #[default]
    Charged,
    /// It is charged, and known by this key then.
    First(Key),
    /// It was charged before; the place in the table.
    Again(usize),
}

/// Requests that were charged, in sets, by a keyed hash.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Empty until there is a first one.
    known: Vec<Known>,
    /// How often something was noted.
    changes: u64,
}

impl Repeats {
    /// What a request of this key is, at `now` in nanoseconds.
    pub(super) fn find(&self, key: Key, now: u64) -> Repeat {
        let words = key.words();
        let begin = begin(words);
        let found =
            self.set(begin).iter().position(|known| known.key == words && known.until > now);
        match found.and_then(|at| Some((begin + at, self.known.get(begin + at)?))) {
            Some((at, known)) if known.repeats < MOST => Repeat::Again(at),
            // It stays known until its window ends: so it does not begin anew.
            Some(_) => Repeat::Charged,
            None => Repeat::First(key),
        }
    }

    /// Notes that a repeat passed at `now`, or that a first request did and is known for `window` nanoseconds.
    pub(super) fn note(&mut self, repeat: Repeat, now: u64, window: u64) {
        self.changes += u64::from(repeat != Repeat::Charged);
        match repeat {
            Repeat::Charged => {}
            Repeat::Again(at) => {
                if let Some(known) = self.known.get_mut(at) {
                    known.repeats += 1;
                }
            }
            Repeat::First(key) => {
                if self.known.is_empty() {
                    self.known = vec![Known::default(); ROOM];
                }
                let begin = begin(key.words());
                let set = self.known.get_mut(begin..begin + WAYS).unwrap_or_default();
                if let Some(free) = set.iter_mut().find(|known| known.until <= now) {
                    let until = now.saturating_add(window);
                    *free = Known { key: key.words(), until, repeats: 0 };
                }
            }
        }
    }

    /// How often something was noted.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The requests of one of [`PARTS`] that are known at `now`, as they are left to the next process: the key, until when, and the
    /// repeats.
    pub(super) fn stored(&self, part: usize, now: u64) -> Vec<[u64; 4]> {
        let known = self.known.chunks(ROOM / PARTS).nth(part).unwrap_or_default();
        let known = known.iter().filter(|known| known.until > now);
        known.map(|Known { key: [a, b], until, repeats }| [*a, *b, *until, *repeats]).collect()
    }

    /// Takes over what the process before had [stored](Self::stored).
    pub(super) fn restore(&mut self, stored: &[[u64; 4]]) {
        if stored.is_empty() {
            return;
        }
        self.known = vec![Known::default(); ROOM];
        for &[a, b, until, repeats] in stored {
            let begin = begin([a, b]);
            let set = self.known.get_mut(begin..begin + WAYS).unwrap_or_default();
            if let Some(free) = set.iter_mut().find(|known| known.until == 0) {
                *free = Known { key: [a, b], until, repeats };
            }
        }
    }

    fn set(&self, begin: usize) -> &[Known] {
        self.known.get(begin..begin + WAYS).unwrap_or_default()
    }
}

/// Where the set of a key begins.
const fn begin([first, _]: [u64; 2]) -> usize {
    first as usize % (ROOM / WAYS) * WAYS
}
