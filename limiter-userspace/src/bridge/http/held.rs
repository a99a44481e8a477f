//! Answers that are held back until the turn of their requests.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use limiter_common::base::address::Address;

/// The most answers that are held back at once: each takes one of the connections that there may be.
const MOST: usize = 2_048;
/// The most of those that one source has, and the most of one key. So four sources at least wait at once.
const MOST_OF_ONE: usize = 512;

/// Whose requests answers are held back of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Source(Address),
    /// The key by which a limit counts a request, as a digest.
    Key(u64),
}

/// The room for answers that are held back.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Room(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of: HashMap<Holder, usize>,
}

impl Room {
    /// The number of answers that are held back.
    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a place; `None` if there is none, or one of these has as many as it may.
    fn take(self: &Arc<Self>, holders: [Holder; 2]) -> Option<Held> {
        let mut taken = self.lock();
        let has_room =
            |holder: &Holder| taken.of.get(holder).is_none_or(|count| *count < MOST_OF_ONE);
        if taken.all >= MOST || !holders.iter().all(has_room) {
            return None;
        }
        taken.all += 1;
        for holder in holders {
            *taken.of.entry(holder).or_default() += 1;
        }
        Some(Held { room: Arc::clone(self), holders })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for an answer. It is given back when this is dropped, also where the connection breaks.
#[derive(Debug)]
pub(super) struct Held {
    room: Arc<Room>,
    holders: [Holder; 2],
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        taken.all -= 1;
        for holder in self.holders {
            if let Entry::Occupied(mut count) = taken.of.entry(holder) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

/// A request whose answer may be held back. The decision about it takes a place once it finds that it has to wait.
#[derive(Debug)]
pub(super) struct Turn<'r> {
    room: &'r Arc<Room>,
    source: Address,
    held: OnceLock<Held>,
}

impl<'r> Turn<'r> {
    /// A request of this source.
    pub(super) fn new(room: &'r Arc<Room>, source: Address) -> Self {
        Self { room, source, held: OnceLock::new() }
    }

    /// Takes a place for it, as one of this key. Returns whether it has one.
    pub(super) fn take(&self, key: u64) -> bool {
        let held = self.room.take([Holder::Source(self.source), Holder::Key(key)]);
        held.is_some_and(|held| self.held.set(held).is_ok())
    }

    /// The place that it took.
    pub(super) fn held(self) -> Option<Held> {
        self.held.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(room: &Arc<Room>, source: usize) -> Turn<'_> {
        let address = std::net::Ipv4Addr::from(source as u32);
        Turn::new(room, std::net::IpAddr::from(address).into())
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let room = Arc::<Room>::default();
        let all: Vec<_> = (0..MOST).map(|at| turn(&room, at)).collect();
        assert!(all.iter().zip(0..).all(|(turn, key)| turn.take(key)));
        assert!(!turn(&room, MOST).take(MOST as u64));
        assert_eq!(room.taken(), MOST);
        drop(all);
        assert_eq!(room.taken(), 0);
        assert!(room.lock().of.is_empty(), "nobody is remembered");
    }

    /// Made-up users of one source, and one user from many, leave others their room.
    #[test]
    fn a_source_and_a_key_have_a_part_of_the_places() {
        let room = Arc::<Room>::default();
        let of_source: Vec<_> = (0..=MOST_OF_ONE).map(|_| turn(&room, 7)).collect();
        let taken = of_source.iter().zip(0..).filter(|(turn, key)| turn.take(*key)).count();
        assert_eq!(taken, MOST_OF_ONE);
        let of_key: Vec<_> = (0..=MOST_OF_ONE).map(|at| turn(&room, 100 + at)).collect();
        assert_eq!(of_key.iter().filter(|turn| turn.take(9_999)).count(), MOST_OF_ONE);
        assert!(turn(&room, 8).take(9_998));
        drop(of_source);
        assert!(turn(&room, 7).take(9_998));
    }

    #[test]
    fn a_request_that_does_not_wait_has_no_place() {
        let room = Arc::<Room>::default();
        let turn = turn(&room, 1);
        assert_eq!(room.taken(), 0);
        assert!(turn.take(1));
        let held = turn.held().unwrap();
        assert_eq!(room.taken(), 1);
        drop(held);
        assert_eq!(room.taken(), 0);
    }
}
