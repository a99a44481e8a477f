//! One source and one of its connections, with limits in two places as in the kernel.

use std::cell::Cell;

use limiter_common::{
    algorithm::{
        meter::Meter,
        policer::{Look, Policer as _, Refusal},
    },
    base::word::{TRIES, Word},
    policy::charge::{self, Bill, Charge, Group},
};

/// The number of limits. The bit of each is its place; the first is the narrowest.
pub(super) const PLACES: usize = 4;
/// All limits, as bits.
pub(super) const ALL: u64 = 0b1111;

/// The places of the limits. The state of a connection is created on demand.
pub(super) const CONNECTION: usize = 0;
pub(super) const SYN: usize = 1;
pub(super) const SOURCE: usize = 2;
pub(super) const TOTAL: usize = 3;

/// The two parts: inline limits are checked first and charged last.
const INLINE: &[usize] = &[SOURCE, SYN];
const KEYED: &[usize] = &[CONNECTION, TOTAL];
/// The order in which limits are checked.
pub(super) const ORDER: [usize; PLACES] = [SOURCE, SYN, CONNECTION, TOTAL];

/// An event at the moment when a packet is charged to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Race {
    /// Nothing.
    None,
    /// Another CPU takes all that is left; the new word.
    Drain(u64),
    /// Other CPUs change the word again and again.
    Busy,
    /// The entry is bound to another policy.
    Rebind,
}

/// A word that the test can change while a packet is decided.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    word: &'a Cell<u64>,
    race: &'a Cell<Race>,
    bound: &'a Cell<bool>,
}

impl Word for Shared<'_> {
    fn load(&self) -> u64 {
        self.word.get()
    }

    fn load_acquire(&self) -> u64 {
        self.word.get()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        match self.race.get() {
            Race::None => {}
            Race::Drain(empty) => {
                self.word.set(empty);
                self.race.set(Race::None);
            }
            Race::Busy => self.word.set(self.word.get().wrapping_sub(1)),
            Race::Rebind => {
                self.word.set(self.word.get().wrapping_add(1 << 40));
                self.bound.set(false);
            }
        }
        let found = self.word.get();
        if found == current {
            self.word.set(new);
        }
        found
    }

    fn bound(&self) -> bool {
        self.bound.get()
    }
}

/// The words of one source and one of its connections.
pub(super) struct Words {
    pub(super) words: [Cell<u64>; PLACES],
    pub(super) races: [Cell<Race>; PLACES],
    bound: Cell<bool>,
    /// Whether the connection has an entry. Creating one may fail.
    pub(super) exists: Cell<bool>,
    pub(super) room: bool,
}

impl Words {
    pub(super) fn new(policy: &Policy, now: u64) -> Self {
        let fresh = |meter: Option<Meter>| meter.map_or(0, |meter| meter.fresh(now));
        Self {
            words: policy.meters.map(|meter| Cell::new(fresh(meter))),
            races: [const { Cell::new(Race::None) }; PLACES],
            bound: Cell::new(true),
            exists: Cell::new(true),
            room: true,
        }
    }

    pub(super) fn values(&self) -> [u64; PLACES] {
        self.words.each_ref().map(Cell::get)
    }
}

/// The meters of the limits, the cost of a packet for each, and which are enforced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) meters: [Option<Meter>; PLACES],
    pub(super) costs: [u64; PLACES],
    pub(super) enforced: u64,
}

impl Policy {
    pub(super) fn new(meters: [Option<Meter>; PLACES], costs: [u64; PLACES]) -> Self {
        Self { meters, costs, enforced: ALL }
    }

    /// Decides about a packet as in the kernel: check inline limits, check keyed limits, charge the keyed
    /// limits, charge the inline ones.
    pub(super) fn decide(&self, words: &Words, applies: u64, now: u64) -> Bill {
        let bill = Bill { applies, enforced: self.enforced, ..Bill::default() };
        let looks = [Look::default(); PLACES];
        let mut packet = Packet { policy: self, words, now, part: &[], bill, looks };
        for part in [INLINE, KEYED] {
            packet.part = part;
            charge::look(&mut packet, 0..2, now);
        }
        if packet.bill.refused != 0 {
            return packet.bill;
        }
        for part in [KEYED, INLINE] {
            packet.part = part;
            packet.charge();
        }
        if packet.bill.refused != 0 {
            for part in [INLINE, KEYED] {
                packet.part = part;
                packet.refund();
            }
        }
        packet.bill
    }
}

/// A packet, and the part of its limits that is being handled.
struct Packet<'a> {
    policy: &'a Policy,
    words: &'a Words,
    now: u64,
    part: &'static [usize],
    bill: Bill,
    looks: [Look; PLACES],
}

impl Packet<'_> {
    /// Charges each limit of the part as it was looked at, or anew, as often as another CPU is first.
    fn charge(&mut self) {
        for place in 0..2 {
            let mut tries = 0..TRIES;
            if tries.all(|tries| {
                charge::charge_at(self, place, tries != 0, self.now) == Charge::LostRace
            }) {
                let bit = self.bit(place);
                self.bill.refuse(bit, Refusal::Contended);
            }
        }
    }

    /// Takes back what was charged to the limits of the part.
    fn refund(&mut self) {
        for place in 0..2 {
            (0..TRIES).find(|_| charge::refund_at(self, place, self.now) == Charge::Made);
        }
    }
}

impl<'a> Group for Packet<'a> {
    type Word = Shared<'a>;
    type Policer = Meter;

    fn bill(&mut self) -> &mut Bill {
        &mut self.bill
    }

    fn look(&mut self, place: usize) -> &mut Look {
        &mut self.looks[self.part[place]]
    }

    fn bit(&self, place: usize) -> u64 {
        let place = self.part[place];
        self.policy.meters[place].map_or(0, |_| 1 << place)
    }

    fn policer(&self, place: usize) -> Option<(&Meter, u64)> {
        let place = self.part[place];
        Some((self.policy.meters[place].as_ref()?, self.policy.costs[place]))
    }

    fn find(&mut self, place: usize) -> Option<Shared<'a>> {
        let (place, words) = (self.part[place], self.words);
        (place != CONNECTION || words.exists.get()).then(|| Shared {
            word: &words.words[place],
            race: &words.races[place],
            bound: &words.bound,
        })
    }

    fn create(&mut self, place: usize) -> Option<Shared<'a>> {
        assert_eq!(self.part[place], CONNECTION, "only a connection is created on demand");
        assert!(!self.words.exists.get(), "created twice");
        self.words.exists.set(self.words.room);
        let meter = self.policy.meters[CONNECTION]?;
        self.words.words[CONNECTION].set(meter.fresh(self.now));
        self.find(place)
    }
}
