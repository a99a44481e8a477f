//! Every interleaving of a few packets of connections at one table, by the model checker.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod model;

use limiter_common::{
    algorithm::{
        concurrent::{Concurrent, Look, Signal, Socket},
        policer::Refusal,
    },
    base::slots::Slots,
};
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use self::model::check;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 77 * SECOND;
const IDLE: u64 = 60 * SECOND;
/// When a connection that was silent from [`NOW`] on is gone.
const LATER: u64 = NOW + 70 * SECOND;

/// The places that the model follows; those beyond are never taken here.
const SHARED: usize = 3;

/// The table of a key.
struct Table([AtomicU64; SHARED]);

impl limiter_common::algorithm::concurrent::Table for Table {}

impl Slots for Table {
    fn load(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |slot| slot.load(Relaxed))
    }

    fn store(&self, place: usize, word: u64) {
        self.0[place].store(word, Relaxed);
    }

    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        model::compare_exchange(&self.0[place], current, new)
    }
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]))
    }

    fn packet(
        &self,
        leases: Concurrent,
        connection: u32,
        signal: Signal,
        now: u64,
    ) -> Result<Look, Refusal> {
        let look = leases.look(self, connection, signal, now)?;
        leases.charge(self, look, connection, signal, now)
    }

    /// A connection ends, and its socket is looked up.
    fn end(&self, leases: Concurrent, connection: u32) {
        let place = self.close(leases, connection);
        self.free(leases, place);
    }

    /// A connection says that it ends; its place.
    fn close(&self, leases: Concurrent, connection: u32) -> usize {
        let is_its = |place: &usize| Concurrent::tag_of(self.load(*place)) == connection;
        let place = (0..SHARED).find(is_its).unwrap();
        let charged = self.packet(leases, connection, Signal::Reset, NOW).unwrap();
        Concurrent::keep_socket(self, charged);
        place
    }

    /// The socket of the connection at a place, which ended, is looked up.
    fn free(&self, leases: Concurrent, place: usize) {
        let slot = self.load(place);
        assert!(leases.is_due(slot, NOW));
        leases.answer(self, place, slot, Socket::Left, NOW);
    }

    /// The connections that have a slot, once for each.
    fn open(&self, now: u64) -> Vec<u32> {
        let live = |slot: &u64| *slot != 0 && (now >> 24) - (*slot & 0xffff_ffff) < IDLE >> 24;
        let slots = (0..SHARED).map(|place| self.load(place));
        let mut open: Vec<u32> = slots.filter(live).map(Concurrent::tag_of).collect();
        open.sort_unstable();
        open
    }
}

fn leases(limit: u64) -> Concurrent {
    Concurrent::new(limit, IDLE).unwrap()
}

/// A packet of each of these connections at once; `before` are open already.
fn race(limit: u64, before: &'static [u32], connections: &'static [u32], now: u64) {
    let leases = leases(limit);
    let table = Table::new();
    for connection in before {
        assert!(table.packet(leases, *connection, Signal::Open, NOW).is_ok());
    }
    let threads: Vec<_> = connections
        .iter()
        .map(|connection| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.packet(leases, *connection, Signal::Data, now))
        })
        .collect();
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut admitted: Vec<u32> =
        connections.iter().zip(&outcomes).filter(|it| it.1.is_ok()).map(|it| *it.0).collect();
    if now == NOW {
        admitted.extend(before);
    }
    admitted.sort_unstable();
    admitted.dedup();
    assert_eq!(table.open(now), admitted, "a slot for each that got in, and for no other");
    assert!(admitted.len() as u64 <= limit);
    // Two CPUs never lose to each other twice; a third may, and its packet has to come again.
    let contended = outcomes.contains(&Err(Refusal::Contended));
    assert!(!contended || connections.len() > limiter_common::base::word::TRIES as usize);
    let mut different = connections.to_vec();
    different.dedup();
    if !contended && before.is_empty() && different.len() == connections.len() {
        assert_eq!(admitted.len(), connections.len().min(limit as usize), "no place is left empty");
    }
}

#[test]
fn exactly_as_many_as_the_limit_get_in() {
    check(3, || race(1, &[], &[2, 3], NOW));
    check(3, || race(2, &[], &[2, 3], NOW));
    check(3, || race(2, &[], &[2, 4], NOW));
    check(2, || race(2, &[], &[2, 3, 4], NOW));
    check(3, || race(2, &[5], &[2, 3], NOW));
    check(3, || race(2, &[5, 6], &[2, 5], NOW));
}

#[test]
fn the_place_of_a_silent_connection_is_taken_once() {
    check(3, || race(1, &[5], &[2, 3], LATER));
    check(3, || race(1, &[5], &[2, 5], LATER));
    check(2, || race(2, &[5, 6], &[2, 5, 6], LATER));
}

#[test]
fn one_connection_on_two_cpus_takes_one_slot() {
    check(3, || race(1, &[], &[2, 2], NOW));
    check(3, || race(2, &[], &[2, 2], NOW));
    check(2, || race(2, &[], &[2, 2, 3], NOW));
    check(2, || race(3, &[], &[2, 2, 2], NOW));
}

/// A place that becomes free between their looks puts them in different ones. With three preemptions, the connection there
/// has said before that it ends: all orders of that as well take minutes.
#[test]
fn one_connection_that_took_two_slots_gives_one_up() {
    takes_two_slots(2, false);
}

#[test]
fn one_connection_that_took_two_slots_beside_a_look_up_gives_one_up() {
    takes_two_slots(3, true);
}

fn takes_two_slots(preemptions: usize, has_said: bool) {
    check(preemptions, move || {
        let leases = leases(2);
        let table = Table::new();
        // The place that connection 2 tries first is taken until it ends.
        assert!(table.packet(leases, 4, Signal::Open, NOW).is_ok());
        let closed = has_said.then(|| table.close(leases, 4));
        let send = |connection, signal| {
            let table = Arc::clone(&table);
            move || table.packet(leases, connection, signal, NOW).is_ok()
        };
        let others = [thread::spawn(send(2, Signal::Open)), thread::spawn(send(2, Signal::Data))];
        match closed {
            Some(place) => table.free(leases, place),
            None => table.end(leases, 4),
        }
        assert!(others.map(|other| other.join().unwrap()).iter().all(|admitted| *admitted));
        assert_eq!(table.open(NOW), [2]);
    });
}

/// What is taken back leaves no slot, unless another packet of the connection got in on it: that
/// one's successor takes a slot again.
#[test]
fn a_refused_connection_keeps_nobody_out() {
    check(3, || {
        let leases = leases(1);
        let table = Table::new();
        let other = thread::spawn({
            let table = Arc::clone(&table);
            move || table.packet(leases, 3, Signal::Open, NOW).is_ok()
        });
        let refused = table.packet(leases, 2, Signal::Open, NOW);
        if let Ok(charged) = refused {
            Concurrent::refund(&*table, charged);
        }
        let admitted = other.join().unwrap();
        assert_eq!(table.open(NOW), if admitted { vec![3] } else { vec![] });
        assert!(admitted || refused.is_ok());
        assert!(table.packet(leases, 3, Signal::Open, NOW).is_ok());
    });
}

/// Two packets under a limit that was lowered below what is open, while one of those ends.
#[test]
fn a_lowered_limit_holds_under_races() {
    check(2, || {
        let table = Table::new();
        for connection in [3, 4, 5] {
            assert!(table.packet(leases(3), connection, Signal::Open, NOW).is_ok());
        }
        let send = |connection, signal| {
            let table = Arc::clone(&table);
            move || table.packet(leases(2), connection, signal, NOW).is_ok()
        };
        table.end(leases(2), 3);
        let others = [thread::spawn(send(6, Signal::Open)), thread::spawn(send(7, Signal::Open))];
        table.end(leases(2), 4);
        let admitted = others.map(|other| other.join().unwrap());
        let open = table.open(NOW);
        assert!(open.len() <= 2 && open.contains(&5), "{open:?}");
        assert_eq!(open.len(), 1 + admitted.iter().filter(|it| **it).count());
    });
}
