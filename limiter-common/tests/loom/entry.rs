//! Entries of state, and packets at them, as the kernel half has them.

use limiter_common::{
    algorithm::{
        binding::{Binding, Bucket, Standing, bind},
        gcra::Gcra,
        meter::Meter,
        policer::{Look, Policer as _, Refusal},
        rate::Rate,
    },
    base::word::{TRIES, Word},
    policy::charge::{self, Bill, Charge, Group},
};
use loom::sync::Arc;

use super::{NOW, Plain};

/// Limits of a packet. The bit of each is that of its place, so the first is the narrowest.
pub(crate) const LIMITS: usize = 3;
/// All of them, as bits.
pub(crate) const ALL: u64 = 0b111;

/// The parts that the limits of a packet are in, in the order in which they are looked at. The
/// narrowest is not the first of all.
const PARTS: [&[usize]; 2] = [&[2, 1], &[0]];

/// A word of an entry and what the entry must stay bound to.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    entry: &'a Entry,
    place: usize,
    bound: Binding,
}

impl Word for Cell<'_> {
    fn load(&self) -> u64 {
        self.entry.words[self.place].load()
    }

    fn load_acquire(&self) -> u64 {
        self.entry.words[self.place].load_acquire()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.entry.words[self.place].compare_exchange(current, new)
    }

    fn bound(&self) -> bool {
        self.entry.binding.load() == self.bound.0
    }
}

/// What limits admit, what a packet costs by each, and which are enforced.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) meters: [Meter; LIMITS],
    pub(crate) costs: [u64; LIMITS],
    pub(crate) limit_ids: [u64; LIMITS],
    pub(crate) enforced: u64,
}

impl Policy {
    /// Buckets with room for so many packets, each at another rate and for another cost.
    pub(crate) fn of(packets: [u64; LIMITS]) -> Self {
        let costs = [1, 3, 1_500];
        let mut place = 0;
        let meters = packets.map(|packets| {
            let cost = costs[place];
            place += 1;
            Meter::bucket(bucket(1_000 << (place * 4), packets * cost, cost))
        });
        Self { meters, costs, limit_ids: [1, 2, 3], enforced: ALL }
    }

    /// Units that a packet takes of the limit at a place.
    pub(crate) fn units(&self, place: usize) -> u64 {
        self.meters[place].gcra.units(self.costs[place])
    }

    /// The words of states that nothing was charged to.
    pub(crate) fn fresh(&self) -> [u64; LIMITS] {
        self.meters.map(|meter| meter.fresh(NOW))
    }

    /// The words after so many packets.
    pub(crate) fn after(&self, packets: [u64; LIMITS]) -> [u64; LIMITS] {
        let mut words = self.fresh();
        for (place, word) in words.iter_mut().enumerate() {
            *word += packets[place] * self.units(place);
        }
        words
    }
}

pub(crate) fn bucket(rate: u64, burst: u64, dearest: u64) -> Gcra {
    Rate::per_second(rate).bucket(burst, dearest).unwrap()
}

/// The state of a source.
pub(crate) struct Entry {
    pub(crate) binding: Plain,
    pub(crate) words: [Plain; LIMITS],
    pub(crate) scales: [Plain; LIMITS],
    pub(crate) limit_ids: [Plain; LIMITS],
}

impl Entry {
    /// One that is bound to a policy.
    pub(crate) fn bound(binding: Binding, policy: &Policy, words: [u64; LIMITS]) -> Arc<Self> {
        Arc::new(Self {
            binding: Plain::new(binding.0),
            words: words.map(Plain::new),
            scales: policy.meters.map(|meter| Plain::new(meter.gcra.scale().0)),
            limit_ids: policy.limit_ids.map(Plain::new),
        })
    }

    /// One that never was.
    pub(crate) fn zeroed() -> Arc<Self> {
        let zeros = || [0; LIMITS].map(Plain::new);
        let binding = Plain::new(0);
        Arc::new(Self { binding, words: zeros(), scales: zeros(), limit_ids: zeros() })
    }

    /// A word, as a packet has it that found the entry so.
    pub(crate) fn cell(&self, place: usize, bound: Binding) -> Cell<'_> {
        Cell { entry: self, place, bound }
    }

    pub(crate) fn values(&self) -> [u64; LIMITS] {
        self.words.each_ref().map(Word::load)
    }

    /// Brings it up to date, as a limit that stays or as another one.
    fn refresh(&self, target: Binding, policy: &Policy) -> Option<Binding> {
        bind(&self.binding, target, || {
            for (place, meter) in policy.meters.iter().enumerate() {
                let bucket = Bucket { word: &self.words[place], scale: &self.scales[place] };
                let (before, after) = (self.limit_ids[place].load(), policy.limit_ids[place]);
                if before == after {
                    bucket.carry(&meter.gcra, NOW);
                } else {
                    bucket.renew(&meter.gcra, NOW, 0);
                    assert_eq!(self.limit_ids[place].compare_exchange(before, after), before);
                }
            }
        })
    }

    pub(crate) fn assert_bound(&self, target: Binding, policy: &Policy) {
        assert_eq!(Binding(self.binding.load()), target);
        for place in 0..LIMITS {
            assert_eq!(self.scales[place].load(), policy.meters[place].gcra.scale().0);
            assert_eq!(self.limit_ids[place].load(), policy.limit_ids[place]);
        }
    }
}

/// A packet, and the part of its limits that it is at.
struct Packet<'a> {
    entry: &'a Entry,
    bound: Binding,
    policy: &'a Policy,
    part: &'static [usize],
    bill: Bill,
    looks: [Look; LIMITS],
}

impl<'a> Packet<'a> {
    fn at(&mut self, part: usize) -> &mut Self {
        self.part = PARTS[part];
        self
    }

    /// Charges each limit of the part as it was looked at, or anew, as often as another CPU is first.
    fn charge(&mut self) {
        for place in 0..2 {
            let mut tries = 0..TRIES;
            if tries
                .all(|tries| charge::charge_at(self, place, tries != 0, NOW) == Charge::LostRace)
            {
                let bit = self.bit(place);
                self.bill.refuse(bit, Refusal::Contended);
            }
        }
    }

    /// Takes back what was charged to the limits of the part.
    fn refund(&mut self) {
        for place in 0..2 {
            (0..TRIES).find(|_| charge::refund_at(self, place, NOW) == Charge::Made);
        }
    }
}

impl<'a> Group for Packet<'a> {
    type Word = Cell<'a>;
    type Policer = Meter;

    fn bill(&mut self) -> &mut Bill {
        &mut self.bill
    }

    fn look(&mut self, place: usize) -> &mut Look {
        &mut self.looks[self.part[place]]
    }

    fn bit(&self, place: usize) -> u64 {
        self.part.get(place).map_or(0, |place| 1 << place)
    }

    fn policer(&self, place: usize) -> Option<(&Meter, u64)> {
        let place = self.part[place];
        Some((&self.policy.meters[place], self.policy.costs[place]))
    }

    fn find(&mut self, place: usize) -> Option<Cell<'a>> {
        Some(Cell { entry: self.entry, place: self.part[place], bound: self.bound })
    }
}

/// Decides about a packet that found the entry bound, in the order of the kernel half: the part that
/// is looked at last is charged first.
pub(crate) fn decide(entry: &Entry, bound: Binding, policy: &Policy, applies: u64) -> Bill {
    let bill = Bill { applies, enforced: policy.enforced, ..Bill::default() };
    let mut packet =
        Packet { entry, bound, policy, part: &[], bill, looks: [Look::default(); LIMITS] };
    charge::look(packet.at(0), 0..2, NOW);
    charge::look(packet.at(1), 0..2, NOW);
    if packet.bill.refused == 0 {
        for part in [1, 0] {
            packet.at(part).charge();
        }
        if packet.bill.refused != 0 {
            for part in [0, 1] {
                packet.at(part).refund();
            }
        }
    }
    packet.bill
}

/// A packet under the epoch in force: the entry is found or brought up to date, and charged; `None`
/// when it is dropped before that, undecided.
pub(crate) fn packet(entry: &Entry, epoch: u32, policy: &Policy, applies: u64) -> Option<Bill> {
    let seen = Binding(entry.binding.load_acquire());
    let bound = match seen.standing(epoch) {
        Standing::Current => Some(seen),
        Standing::Behind | Standing::Locked => entry.refresh(Binding::new(epoch, 0), policy),
    };
    // A newer epoch would have another policy; the caller has none that is newer.
    let bound = bound.filter(|bound| bound.epoch() == epoch)?;
    Some(decide(entry, bound, policy, applies))
}

/// Whether a packet passes.
pub(crate) fn passes(bill: &Bill) -> bool {
    bill.refused == 0
}
