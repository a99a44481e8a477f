//! The simulated CPUs and their shared memory.

use std::{cmp::Reverse, collections::BinaryHeap};

use limiter_common::{
    abi::table::WAYS,
    algorithm::{gcra::Gcra, rate::Rate, time::Time},
    base::{
        address::Address,
        seed::Seed,
        word::{RACES, wait},
    },
    memory::cache::Cached,
    policy::rest::Rest,
    table::set::Place,
};

use super::Load;

/// Mean nanoseconds in which a line moves to another CPU, and the largest deviation. Without it, CPUs that
/// wait for one line would keep their order for ever.
const MOVE: u64 = 100;
const MOVE_SPREAD: u64 = 20;
/// Nanoseconds for a leased packet.
const LEASED: u64 = 20;
/// Nanoseconds for a packet that is charged to the entry of its source.
const KNOWN: u64 = 60;
/// Nanoseconds for a packet that is charged to a bucket with another key, and is not leased.
const KEYED: u64 = 300;
/// Nanoseconds of work before a failed exchange is tried again.
const RETRY: u64 = 50;
/// Nanoseconds for the first packet of a source: before it takes the lock of its set, and under the lock.
const NEW: [u64; 2] = [100, 50];

/// Nanoseconds between ticks.
const TICK: u64 = 4_000_000;
/// The times, in nanoseconds, between which packets are counted. The simulation ends at the second.
pub(super) const TIMES: [u64; 2] = [2 * TICK, 6 * TICK];

/// The number of known sources, and the capacity of the table.
const SOURCES: u32 = 1 << 16;
/// A rate and burst that all CPUs together cannot exceed. The burst holds the packets of 100 ms.
const AMPLE: (Rate, u64) = (Rate::per_second(10_000_000_000), 1_000_000_000);
/// The rate of made-up sources, with its default burst.
const SLOW: (Rate, u64) = (Rate::per_second(10_000), 1_000);

/// How often the datapath tries to charge a packet alone that has lost all races for a lease: by the limit of a source, and by one
/// with another key.
const ALONE: u32 = 4;
const ALONE_BY_KEY: u32 = 2;

/// The state of a cache line.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// The CPUs that hold the line, as a bit set.
    holders: u64,
    /// When the line has moved to all CPUs that asked to write it.
    idle: u64,
}

impl Line {
    /// Returns when a CPU that asks now can read the line, which takes `time` to move. Reads do not wait for
    /// one another.
    fn read(&mut self, cpu: usize, now: u64, time: u64) -> u64 {
        let own = 1 << cpu;
        let is_held = self.holders & own != 0 || self.holders == 0;
        self.holders |= own;
        if is_held { now } else { self.idle.max(now) + time }
    }

    /// Returns when a CPU that asks now can write the line. No other CPU holds it then.
    fn write(&mut self, cpu: usize, now: u64, time: u64) -> u64 {
        let own = 1 << cpu;
        let is_held = self.holders & !own == 0;
        self.holders = own;
        if is_held {
            return now;
        }
        self.idle = self.idle.max(now) + time;
        self.idle
    }
}

/// The next step of a CPU.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Take a packet.
    Packet,
    /// Pass the current packet.
    Pass,
    /// Request the word that the current packet is charged to.
    Ask(Charge),
    /// Read that word.
    Look(Charge),
    /// Exchange that word, if it still has the first value, for the second.
    Exchange(Charge, u64, u64),
    /// Write the totals of a source.
    Count,
    /// Request the tags of a set.
    Tags(usize),
    /// Read the tags and request the lock of the set.
    Lock(usize),
    /// Insert the source under the lock.
    Admit(usize),
    /// Release the lock.
    Unlock(usize),
}

/// A charge of one packet, or of several of which all but the first are leased.
#[derive(Clone, Copy, Debug)]
struct Charge {
    /// The number of the entry or bucket.
    number: usize,
    packets: u64,
    tries: u32,
    /// The slot of the source in the CPU cache.
    slot: usize,
}

/// A CPU.
struct Cpu {
    step: Step,
    random: u64,
    cache: Vec<Cached>,
    passed: u64,
}

impl Cpu {
    /// Returns a random number (xorshift, Marsaglia 2003).
    fn random(&mut self) -> u32 {
        let mut number = self.random;
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        self.random = number;
        (number >> 32) as u32
    }

    /// Returns a random time in which a line moves to this CPU, in nanoseconds.
    fn moving(&mut self) -> u64 {
        MOVE - MOVE_SPREAD + u64::from(self.random()) % (2 * MOVE_SPREAD + 1)
    }

    /// Returns a random time for work of this mean, in nanoseconds.
    fn work(&mut self, mean: u64) -> u64 {
        mean / 2 + u64::from(self.random()) % (mean + 1)
    }
}

/// The CPUs and their shared memory.
pub(super) struct Machine {
    load: Load,
    times: [u64; 2],
    bucket: Gcra,
    cpus: Vec<Cpu>,
    /// The words of the buckets. Each is in a line of its own, with its key.
    words: Vec<u64>,
    lines: Vec<Line>,
    /// The line of the totals of each source.
    totals: Vec<Line>,
    /// The line of each set, with its tags, lock and probation slots.
    sets: Vec<Line>,
    /// The most packets that a CPU leases at once.
    most: u64,
}

impl Machine {
    /// A machine whose CPUs get this load; packets are counted between `times`.
    pub(super) fn new(load: Load, cpus: u8, times: [u64; 2]) -> Self {
        let (rate, burst) = if load == Load::MadeUp { SLOW } else { AMPLE };
        let bucket = rate.bucket(burst, 1).unwrap_or(Gcra::NONE);
        let words = if load == Load::Known { SOURCES as usize } else { 1 };
        let sets = if load == Load::MadeUp { SOURCES as usize / WAYS } else { 0 };
        let cpu = |number: u8| Cpu {
            step: Step::Packet,
            random: 0x9e37_79b9_7f4a_7c15 ^ u64::from(number) << 17,
            cache: vec![Cached::default(); Cached::SLOTS as usize],
            passed: 0,
        };
        Self {
            load,
            times,
            bucket,
            cpus: (0..cpus).map(cpu).collect(),
            words: vec![0; words],
            lines: vec![Line::default(); words],
            totals: vec![Line::default(); words],
            sets: vec![Line::default(); sets],
            most: bucket.lease(cpus.into()),
        }
    }

    /// Runs the simulation and returns the packets per second of each CPU.
    pub(super) fn run(mut self) -> f64 {
        let [start, end] = self.times;
        let mut next: BinaryHeap<_> =
            (0..self.cpus.len()).map(|cpu| Reverse((cpu as u64, cpu))).collect();
        while let Some(Reverse((now, cpu))) = next.pop()
            && now < end
        {
            let then = self.advance(cpu, now);
            next.push(Reverse((then, cpu)));
        }
        let passed: u64 = self.cpus.iter().map(|cpu| cpu.passed).sum();
        passed as f64 * 1e9 / (end - start) as f64 / self.cpus.len() as f64
    }

    /// Does the next step of a CPU and returns when the step after it is due.
    fn advance(&mut self, cpu: usize, now: u64) -> u64 {
        let time = self.cpus[cpu].moving();
        match self.cpus[cpu].step {
            Step::Packet => self.take(cpu, now),
            Step::Ask(charge) => {
                self.cpus[cpu].step = Step::Look(charge);
                self.lines[charge.number].read(cpu, now, time)
            }
            Step::Look(charge) => self.look(cpu, now, charge),
            Step::Exchange(charge, seen, next) => self.exchange(cpu, now, charge, seen, next),
            Step::Tags(set) => {
                self.cpus[cpu].step = Step::Lock(set);
                self.sets[set].read(cpu, now, time)
            }
            Step::Lock(set) => {
                self.cpus[cpu].step = Step::Admit(set);
                self.sets[set].write(cpu, now, time)
            }
            Step::Admit(set) => self.work(cpu, now, NEW[1], Step::Unlock(set)),
            Step::Unlock(set) => {
                self.cpus[cpu].step = Step::Pass;
                // Other CPUs may have read the tags meanwhile.
                self.sets[set].write(cpu, now, time)
            }
            Step::Pass | Step::Count => self.pass(cpu, now),
        }
    }

    /// Lets a CPU work for about `mean` nanoseconds before its next step; returns when that is.
    fn work(&mut self, cpu: usize, now: u64, mean: u64, next: Step) -> u64 {
        let cpu = &mut self.cpus[cpu];
        cpu.step = next;
        now + cpu.work(mean)
    }

    /// Takes a packet. It passes at once if the CPU has leased it.
    fn take(&mut self, cpu: usize, now: u64) -> u64 {
        let tick = tick(now);
        let source = match self.load {
            Load::Hot => 0,
            Load::Known => self.cpus[cpu].random() % SOURCES,
            Load::MadeUp => {
                let source = Address::v4(self.cpus[cpu].random().to_be_bytes());
                let set = place(&source, self.sets.len()).set as usize;
                return self.work(cpu, now, NEW[0], Step::Tags(set));
            }
            // From one source.
            Load::All => 0,
        };
        let address = Address::v4(source.to_be_bytes());
        // The table has no more sets than that.
        let of_source = place(&address, SOURCES as usize / WAYS).slot;
        let slot = usize::from(Cached::slot(of_source, u64::MAX, 0));
        // One packet of sixteen takes a slot.
        let takes = self.cpus[cpu].random().is_multiple_of(16);
        let cached = &mut self.cpus[cpu].cache[slot];
        let mut packets = 1;
        if cached.is_of(&address) && cached.epoch == EPOCH {
            cached.meet(tick);
            if cached.spend(tick) {
                return self.work(cpu, now, LEASED, Step::Pass);
            }
            packets = cached.demand(self.most).max(1);
        } else if takes && !cached.stays(EPOCH, tick) {
            cached.begin(address, Rest::NONE, EPOCH, u64::MAX, 1);
            cached.meet(tick);
        }
        let charge = Charge { number: source as usize, packets, tries: 0, slot };
        let work = if self.load == Load::All { KEYED } else { KNOWN };
        self.work(cpu, now, work, Step::Ask(charge))
    }

    fn look(&mut self, cpu: usize, now: u64, mut charge: Charge) -> u64 {
        let seen = self.words[charge.number];
        let ticked = Time { now: now / TICK * TICK, tick: TICK };
        let leased = (charge.packets > 1)
            .then(|| self.bucket.leased(seen, ticked, charge.packets))
            .flatten();
        let next = leased.or_else(|| {
            charge.packets = 1;
            self.bucket.conform(seen, ticked, 1)
        });
        let Some(next) = next else {
            // The packet exceeds the limit and is dropped.
            self.cpus[cpu].step = Step::Packet;
            return now;
        };
        self.cpus[cpu].step = Step::Exchange(charge, seen, next);
        let time = self.cpus[cpu].moving();
        self.lines[charge.number].write(cpu, now, time)
    }

    fn exchange(&mut self, cpu: usize, now: u64, charge: Charge, seen: u64, next: u64) -> u64 {
        let Charge { number, packets, tries, slot } = charge;
        if self.words[number] != seen {
            let tries = tries + 1;
            let alone = if self.load == Load::All { ALONE_BY_KEY } else { ALONE };
            if tries > RACES + alone {
                self.cpus[cpu].step = Step::Packet;
                return now;
            }
            // A lease that lost so many races is not tried again: the packet is charged alone, and does not wait.
            let (packets, wait) = if tries <= RACES { (packets, wait(tries)) } else { (1, 0) };
            let charge = Charge { packets, tries, ..charge };
            return self.work(cpu, now, RETRY + wait, Step::Ask(charge));
        }
        self.words[number] = next;
        if packets > 1 {
            self.cpus[cpu].cache[slot].lease(packets - 1, tick(now));
        }
        if self.load == Load::All {
            return self.pass(cpu, now);
        }
        self.cpus[cpu].step = Step::Count;
        let time = self.cpus[cpu].moving();
        self.totals[number].write(cpu, now, time)
    }

    /// Passes the current packet.
    fn pass(&mut self, cpu: usize, now: u64) -> u64 {
        let [start, end] = self.times;
        let cpu = &mut self.cpus[cpu];
        cpu.passed += u64::from((start..end).contains(&now));
        cpu.step = Step::Packet;
        now
    }
}

/// The epoch of the policy. Unused slots have epoch 0.
const EPOCH: u32 = 1;

/// The number of the tick at this time.
const fn tick(now: u64) -> u32 {
    (now / TICK) as u32
}

fn place(source: &Address, sets: usize) -> Place {
    const SEED: Seed = Seed([
        0x243f_6a88_85a3_08d3,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    ]);
    Place::of(source, SEED, sets as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short enough for a build without optimisation.
    const SHORT: [u64; 2] = [TICK / 4, TICK / 2];

    fn rate(load: Load, cpus: u8) -> f64 {
        Machine::new(load, cpus, SHORT).run()
    }

    #[test]
    fn a_line_moves_to_one_cpu_after_the_other() {
        let mut line = Line::default();
        assert_eq!(line.write(0, 5, 100), 5, "nobody has it");
        assert_eq!(line.write(0, 6, 100), 6);
        assert_eq!([line.read(1, 10, 100), line.read(2, 20, 90)], [110, 110]);
        assert_eq!([0, 1].map(|cpu| line.read(cpu, 300, 100)), [300, 300], "all have it");
        assert_eq!(line.write(1, 400, 100), 500, "the others have it still");
        assert_eq!([line.write(2, 410, 100), line.read(0, 420, 90)], [600, 690], "in turn");
    }

    #[test]
    fn one_cpu_waits_for_nobody() {
        for (load, nanoseconds) in [(Load::MadeUp, NEW[0] + NEW[1]), (Load::Known, KNOWN)] {
            let most = 1e9 / nanoseconds as f64;
            let rate = rate(load, 1);
            assert!((0.95 * most..1.6 * most).contains(&rate), "{load:?}: {rate} of {most}");
        }
        for (load, alone) in [(Load::Hot, KNOWN), (Load::All, KEYED)] {
            let leased = 1e9 / (LEASED as f64 + (alone - LEASED) as f64 / 16.0);
            assert!((rate(load, 1) / leased - 1.0).abs() < 0.05, "{load:?}");
        }
    }

    #[test]
    fn cpus_that_lose_races_leave_the_word_to_others() {
        for load in [Load::Hot, Load::All] {
            let [one, many] = [1, 32].map(|cpus| rate(load, cpus));
            assert!(many < one / 2.0, "{load:?}: {one} and {many}");
            // Without a wait, they give a tenth together of what one gives alone.
            assert!(32.0 * many > one / 2.0, "{load:?}: {one} and {many}");
        }
        let again = [rate(Load::Hot, 8), rate(Load::Hot, 8)];
        assert_eq!(again[0], again[1]);
    }
}
