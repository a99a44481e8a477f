//! CPUs that decide about the packets of one source, step by step as the kernel half does, by the real bucket, cache and
//! ticks.

use limiter_common::{
    algorithm::{
        gcra::Gcra,
        policer::{Decision, Policer as _},
        time::Time,
    },
    base::address::Address,
    memory::{cache::Cached, jiffy::JiffyClock},
    policy::rest::Rest,
};

use super::row::Plain;

const SOURCE: Address = Address::v4([203, 0, 113, 9]);
/// Another one, which has the same slot of the cache.
const NEIGHBOUR: Address = Address::v4([203, 0, 113, 8]);
const EPOCH: u32 = 7;
/// The limit, as a bit.
const LIMIT: u64 = 4;
/// The longest lease, whatever the burst.
const MOST_LEASED: u64 = 16;

/// When a packet comes: by the clock of its CPU, and by the tick of the kernel, which may stand still for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// By the clock of the CPU, in nanoseconds.
    pub(crate) clock: u64,
    /// The number of the tick.
    pub(crate) tick: u64,
    /// Whether another CPU is about to write the time of the tick, so that the clock is taken.
    pub(crate) is_busy: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Refuse,
}

/// The time of a tick of so many nanoseconds, or of the clock where CPUs do not agree.
fn time(ticked: &JiffyClock<Plain>, length: u64, at: &Moment) -> Time {
    let agreed = if at.is_busy { Err(at.clock) } else { ticked.sync(at.tick, || at.clock) };
    agreed.map_or_else(Time::exact, |now| Time { now, tick: length })
}

/// CPUs, and what they share.
pub(crate) struct Cpus {
    gcra: Gcra,
    /// Nanoseconds from tick to tick.
    length: u64,
    /// For how many packets one is charged at most; 0 where nothing is leased.
    lease: u64,
    word: u64,
    /// Packets that the entry was told of.
    counted: u64,
    ticked: JiffyClock<Plain>,
    slots: Vec<Cached>,
    /// Whether what is left on a CPU is among what is lost.
    is_lost: Vec<bool>,
    /// The tick in which leased packets that cannot be used any more were looked for.
    seen: u64,
    /// Packets that are leased and may be used yet.
    pub(crate) held: u64,
    /// Packets that were leased and not used in time.
    pub(crate) lost: u64,
    /// Packets that were leased.
    pub(crate) leased: u64,
    /// Packets that were refused by what a CPU remembers, or by the time of a tick.
    pub(crate) recalled: u64,
}

impl Cpus {
    /// So many, with ticks of so many nanoseconds.
    pub(crate) fn new(gcra: Gcra, length: u64, cpus: usize, now: u64) -> Self {
        let lease = if gcra.takes_clock(length) { 0 } else { gcra.lease(cpus as u64) };
        let burst = gcra.left(0);
        assert!(lease <= MOST_LEASED.min(burst / 64), "{lease} packets of {burst}");
        assert!(lease * cpus as u64 <= burst / 4, "{lease} packets of {burst} on {cpus} CPUs");
        let ticked = JiffyClock { number: Plain::default(), time: Plain::default() };
        let slots = vec![Cached::default(); cpus];
        let is_lost = vec![false; cpus];
        Self {
            gcra,
            length,
            lease,
            word: gcra.fresh(now),
            counted: 0,
            ticked,
            slots,
            is_lost,
            seen: 0,
            held: 0,
            lost: 0,
            leased: 0,
            recalled: 0,
        }
    }

    /// The time of the tick, or of the clock where CPUs do not agree.
    fn time(&self, at: &Moment) -> Time {
        time(&self.ticked, self.length, at)
    }

    /// Takes what can be used no more for lost.
    fn expire(&mut self, tick: u64) {
        if self.seen == tick {
            return;
        }
        self.seen = tick;
        for (slot, is_lost) in self.slots.iter().zip(&mut self.is_lost) {
            let is_late = (tick as u32).wrapping_sub(slot.leased) > 1;
            if slot.left != 0 && is_late && !*is_lost {
                *is_lost = true;
                self.lost += u64::from(slot.left);
                self.held = self.held.saturating_sub(slot.left.into());
            }
        }
    }

    /// A packet of another source, of which nothing matters but that it agrees on the time of a tick.
    pub(crate) fn agree(&self, at: &Moment) {
        let _: Time = self.time(at);
    }

    /// A packet of another source that would have the slot of this one on a CPU, and gets it if that is free.
    pub(crate) fn disturb(&mut self, cpu: usize, at: &Moment) {
        self.expire(at.tick);
        let (slot, tick) = (&mut self.slots[cpu], at.tick as u32);
        if slot.is_of(&NEIGHBOUR) || !slot.stays(EPOCH, tick) {
            if !slot.is_of(&NEIGHBOUR) {
                slot.begin(NEIGHBOUR, Rest::NONE, EPOCH, LIMIT, LIMIT);
            }
            slot.meet(tick);
        }
    }

    /// A packet of the source on a CPU.
    pub(crate) fn send(&mut self, cpu: usize, at: &Moment) -> Verdict {
        self.expire(at.tick);
        if let Some(verdict) = self.by_cache(cpu, at) {
            return verdict;
        }
        let mut time = self.time(at);
        if !self.gcra.will_do(time) {
            time = Time::exact(at.clock);
        }
        let (gcra, word, tick) = (self.gcra, self.word, at.tick as u32);
        let slot = &mut self.slots[cpu];
        let (is_own, stays) = (slot.is_of(&SOURCE), slot.stays(EPOCH, tick));
        let Some((next, _)) = gcra.pass(word, time, 1) else {
            if gcra.exceeds(word, time) && !is_own && stays {
                self.recalled += 1;
                return Verdict::Refuse;
            }
            return self.closely(cpu, at, time);
        };
        let (packets, unleased) = (slot.demand(self.lease), slot.unleased);
        if is_own && packets > 1 && unleased != tick {
            if self.lease(cpu, at, packets) {
                return Verdict::Pass;
            }
            self.slots[cpu].unleased = tick;
        } else if self.lease != 0 && self.counted % 16 == 15 {
            self.take_slot(cpu, tick);
        }
        self.counted += 1;
        self.word = next;
        Verdict::Pass
    }

    /// Decides by what the CPU holds.
    fn by_cache(&mut self, cpu: usize, at: &Moment) -> Option<Verdict> {
        let tick = at.tick as u32;
        let slot = &mut self.slots[cpu];
        if !slot.is_of(&SOURCE) {
            return None;
        }
        slot.meet(tick);
        if slot.until != 0 {
            let now =
                if slot.precise == 0 { time(&self.ticked, self.length, at).now } else { at.clock };
            if !slot.holds(now) {
                slot.until = 0;
            } else {
                self.recalled += 1;
                return Some(Verdict::Refuse);
            }
        }
        if !slot.spend(tick) {
            return None;
        }
        self.held = self.held.saturating_sub(1);
        Some(Verdict::Pass)
    }

    /// Charges a packet for so many, if that leaves three quarters of the burst.
    fn lease(&mut self, cpu: usize, at: &Moment, packets: u64) -> bool {
        assert!((2..=self.lease).contains(&packets), "{packets} are leased");
        let Some(next) = self.gcra.leased(self.word, self.time(at), packets) else {
            return false;
        };
        self.word = next;
        self.counted += packets;
        self.slots[cpu].lease(packets - 1, at.tick as u32);
        self.is_lost[cpu] = false;
        self.leased += packets - 1;
        self.held += packets - 1;
        assert!(4 * self.held <= self.gcra.left(0), "{} packets are held", self.held);
        true
    }

    /// Gives the slot of a CPU to the source if it is free; whether it is its own.
    fn take_slot(&mut self, cpu: usize, tick: u32) -> bool {
        let slot = &mut self.slots[cpu];
        if slot.is_of(&SOURCE) {
            return true;
        }
        if slot.stays(EPOCH, tick) {
            return false;
        }
        slot.begin(SOURCE, Rest::NONE, EPOCH, LIMIT, LIMIT);
        slot.meet(tick);
        true
    }

    /// Decides as is done near the limit and over it.
    fn closely(&mut self, cpu: usize, at: &Moment, Time { now, .. }: Time) -> Verdict {
        let gcra = self.gcra;
        match gcra.decide(self.word, now, 1) {
            Decision::Conform(next) => {
                self.counted += 1;
                self.word = next;
                Verdict::Pass
            }
            Decision::Exceed => {
                let wait = gcra.wait(self.word, now, 1);
                if wait != 0 && self.take_slot(cpu, at.tick as u32) {
                    let is_precise = gcra.takes_clock(self.length);
                    self.slots[cpu].refuse(0, is_precise, now, now.saturating_add(wait));
                }
                Verdict::Refuse
            }
            Decision::Lost(_) => panic!("nobody went back by so much: {at:?}"),
        }
    }
}
