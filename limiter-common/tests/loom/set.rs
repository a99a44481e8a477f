//! CPUs at one set of the table of sources, with its lock and without it.

use limiter_common::{
    base::word::{StoreWord as _, Word as _},
    table::{lock::SetLock, probation::SetState},
};
use loom::{sync::Arc, thread};

use super::{Plain, check};

/// Whose the entry is at first, and who is given it.
const OTHER: u64 = 1;
const NEWCOMER: u64 = 2;
/// The debt notes of their entries, which tell them apart where their tags are the same.
const NOTES: [u64; 3] = [0, 7, 8];
const TAG: u64 = 99;

/// A set with one way.
struct Set {
    lock: SetLock<Plain>,
    tag: Plain,
    note: Plain,
    owner: Plain,
}

impl Set {
    /// One whose way has this tag.
    fn of(tag: u64) -> Arc<Self> {
        let [state, tag, note, owner] = [0, tag, NOTES[OTHER as usize], OTHER].map(Plain::new);
        Arc::new(Self { lock: SetLock(state), tag, note, owner })
    }

    /// Takes the lock, as the kernel half does; whether it has it.
    fn take(&self) -> bool {
        self.lock.try_take() || {
            self.lock.0.back_off(1);
            self.lock.try_take()
        }
    }

    /// Gives the entry to a source; whether it could.
    fn give_to(&self, source: u64) -> bool {
        self.take() && {
            self.owner.store(source);
            self.note.store(NOTES[source as usize]);
            self.tag.store(TAG);
            self.lock.give_back_as(self.lock.state().renumbered());
            true
        }
    }

    /// What is found out about a source: `Some` of whether it has the entry, and `None` if the packet is decided anew.
    fn look_up(&self, source: u64) -> Option<bool> {
        let state = self.lock.state_before();
        let tag = self.tag.load();
        let is_there = tag == TAG && self.note.load() == NOTES[source as usize];
        if is_there && self.owner.load() == source {
            return Some(true);
        }
        if !self.take() {
            return None;
        }
        let same = self.lock.state().has_number_of(state) && self.tag.load() == tag;
        // Here its first packet would be admitted as that of a source without an entry.
        assert!(!same || self.owner.load() != source, "its entry was overlooked");
        self.lock.give_back_as(self.lock.state());
        same.then_some(false)
    }
}

/// A source is given an entry by one CPU while another looks it up; the source before it had the same tag, or none.
#[test]
fn a_source_that_has_an_entry_is_never_taken_for_one_without() {
    for tag in [TAG, 0] {
        check(3, move || {
            let set = Set::of(tag);
            let found = thread::spawn({
                let set = Arc::clone(&set);
                move || set.look_up(NEWCOMER)
            });
            let given = set.give_to(NEWCOMER);
            let found = found.join().unwrap();
            assert!(given || found.is_some(), "one of both has the lock");
            assert_eq!(set.look_up(NEWCOMER), Some(given));
        });
    }
}

/// Each holder counts by plain loads and stores.
#[test]
fn what_a_holder_wrote_is_seen_by_the_next() {
    check(3, || {
        let set = Set::of(0);
        let count = |set: &Set| {
            let taken = set.take();
            if taken {
                set.note.store(set.note.load() + 1);
                set.lock.give_back_as(set.lock.state());
            }
            u64::from(taken)
        };
        let others = [0, 1].map(|_| {
            let set = Arc::clone(&set);
            thread::spawn(move || count(&set))
        });
        let mut taken = count(&set);
        for other in others {
            taken += other.join().unwrap();
        }
        assert!(taken >= 1, "nobody had it");
        assert_eq!(set.note.load(), NOTES[OTHER as usize] + taken);
        assert_eq!(set.lock.state().0 & SetState::LOCK, 0);
    });
}
