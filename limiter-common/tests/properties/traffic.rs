//! Packets of one source, to be held against what a limit promises.

use limiter_common::algorithm::{
    gcra::Gcra,
    rate::{Rate, SECOND},
};

use super::random::Random;

const MILLISECOND: u64 = 1_000_000;
/// Lengths of ticks, in milliseconds.
const TICKS: [u64; 3] = [1, 4, 10];
const CPUS: [usize; 4] = [1, 2, 8, 64];
/// How long packets come, in nanoseconds.
const LENGTH: u64 = 400 * MILLISECOND;

/// When packets come: at so many thousandths of the rate, for so many milliseconds of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Steady(u64),
    Pulses {
        on: u64,
        of: u64,
        load: u64,
    },
    /// Now and then more or less than the rate, and pauses.
    Mixed,
    /// Steadily, and now and then a burst and a half.
    Floods,
}

pub(crate) const LOADS: [Load; 8] = [
    Load::Steady(900),
    Load::Steady(1_100),
    Load::Steady(5_000),
    Load::Pulses { on: 1, of: 10, load: 12_000 },
    Load::Pulses { on: 6, of: 12, load: 3_000 },
    Load::Pulses { on: 50, of: 100, load: 3_000 },
    Load::Mixed,
    Load::Floods,
];

/// Which CPU packets come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    One,
    Any,
    /// The same one, until it is another one, which it is once in so many packets.
    Moving(u64),
}

const HOMES: [Home; 4] = [Home::One, Home::Any, Home::Moving(100), Home::Moving(24)];

/// What is tried in each run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Milliseconds from tick to tick.
    tick: u64,
    cpus: usize,
    pub(crate) load: Load,
    home: Home,
}

impl Kind {
    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let systems = TICKS.into_iter().flat_map(|tick| CPUS.map(|cpus| (tick, cpus)));
        systems.flat_map(|(tick, cpus)| {
            let loads = LOADS.into_iter().flat_map(|load| HOMES.map(|home| (load, home)));
            loads.map(move |(load, home)| Self { tick, cpus, load, home })
        })
    }
}

/// When CPUs agree on the time of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// When it begins: another source has a packet then.
    Early,
    /// When the first packet of the source comes.
    First,
    /// Some time later, of every other tick: until then a CPU is about to write it.
    Late,
}

/// A packet: when it comes, by a clock that is right, and to which CPU.
pub(crate) type Packet = (u64, usize);

/// Numbers of packets on one CPU, the last of which is charged for a quarter of them.
const LEASING: [u64; 4] = [27, 41, 51, 63];

/// A limit, and CPUs that keep it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) gcra: Gcra,
    /// The time between two packets at the rate, in nanoseconds.
    pub(crate) apart: u64,
    /// Nanoseconds from tick to tick.
    pub(crate) tick: u64,
    pub(crate) cpus: usize,
    pub(crate) agreed: Agreed,
    /// Whether another source now and then has the slot of the cache.
    pub(crate) is_crowded: bool,
    /// How long the tick stands still, once, in nanoseconds.
    pub(crate) lag: u64,
    /// How far the clocks of CPUs are apart, in nanoseconds.
    pub(crate) step: u64,
}

impl Case {
    /// A token bucket, or a queue, that holds what its rate brings in one tick to some hundreds.
    pub(crate) fn any(random: &mut Random, kind: Kind) -> Self {
        let tick = kind.tick * MILLISECOND;
        let rate = random.between(1_000, 50_000);
        let by_tick = (rate * tick).div_ceil(SECOND);
        let ticks = [1, 4, 8, 9, 12, 20, 50, 300][random.below(8) as usize];
        let burst = (by_tick * ticks).max(10) + random.below(10);
        let stated = Rate::per_second(rate);
        let made = if random.once_in(4) { stated.queue(burst, 1) } else { stated.bucket(burst, 1) };
        let agreed = [Agreed::Early, Agreed::First, Agreed::Late][random.below(3) as usize];
        Self {
            gcra: made.unwrap(),
            apart: SECOND / rate,
            tick,
            cpus: kind.cpus,
            agreed,
            is_crowded: random.once_in(4),
            lag: 0,
            step: 0,
        }
    }

    /// Packets from a time on.
    pub(crate) fn packets(&self, random: &mut Random, kind: Kind, begin: u64) -> Vec<Packet> {
        let (mut now, mut cpu, mut steady, mut rush) = (begin, 0, begin, 0);
        let gap = |random: &mut Random, load: u64| random.below(2_000 * self.apart / load + 1);
        let cpus = self.cpus as u64;
        let next = |_| {
            now = match kind.load {
                // As even as it gets, but for less than a packet.
                Load::Steady(load @ 0..1_000) => {
                    steady += 1_000 * self.apart / load;
                    steady + random.below(self.apart)
                }
                Load::Steady(load) => now + gap(random, load),
                Load::Pulses { on, of, load } => {
                    let [on, of] = [on, of].map(|time| time * MILLISECOND);
                    let next = now + gap(random, load);
                    let since = (next - begin) % of;
                    if since > on { next - since + of } else { next }
                }
                Load::Mixed => {
                    let load = [500, 1_000, 3_000, 20_000][random.below(4) as usize];
                    let pause = [1, 4, 9, 30, 100][random.below(5) as usize] * MILLISECOND;
                    now + gap(random, load) + if random.once_in(500) { pause } else { 0 }
                }
                Load::Floods => {
                    if random.once_in(800) {
                        rush = self.gcra.left(0).min(1_000) * 3 / 2;
                    }
                    rush = rush.saturating_sub(1);
                    now + if rush == 0 { gap(random, 950) } else { 0 }
                }
            };
            cpu = match kind.home {
                Home::One => 0,
                Home::Moving(times) if !random.once_in(times) => cpu,
                Home::Moving(_) | Home::Any => random.below(cpus),
            };
            (now, cpu as usize)
        };
        (0..).map(next).take_while(|(now, _)| *now < begin + LENGTH).collect()
    }

    /// A source that has CPUs hold leased packets, which cost what is refilled until these can be used no more, and sends all
    /// that it can just then.
    pub(crate) fn hoard(random: &mut Random) -> (Self, Vec<Packet>) {
        let cpus = CPUS[random.below(4) as usize];
        let tick = TICKS[random.below(3) as usize] * MILLISECOND;
        let (users, each) =
            ((cpus as u64).div_ceil(1 + random.below(2)), LEASING[random.below(4) as usize]);
        // So many ticks refill what is charged.
        let refilled = 2 + random.below(6);
        let by_tick = (users * each * 5 / 4 / refilled).max(20);
        let burst = by_tick * (8 + random.below(9));
        let stated = Rate { packets: by_tick, period: tick };
        let gcra = stated.bucket(burst, 1).unwrap();
        let agreed = Agreed::Early;
        let apart = tick / by_tick;
        let case = Self { gcra, apart, tick, cpus, agreed, is_crowded: false, lag: 0, step: 0 };
        let mut begin = (1 + random.below(1 << 20)) * 100 * tick;
        // One of sixteen in a row takes a slot of its CPU.
        let first = (0..16 * users).map(|packet| (begin + packet, (packet / 16) as usize));
        let mut packets = Vec::from_iter(first);
        begin += 20 * tick;
        for more in 0..4 {
            let later = random.below(2);
            for packet in 1..=each {
                let when = begin + if packet == each { later * tick } else { 0 } + packet;
                packets.extend((0..users).map(|cpu| (when, cpu as usize)));
            }
            let end = begin + (2 + later) * tick + more * tick;
            // The end of a tick, and the begin of the next one.
            for (from, flood) in [(end - 9, 2 * burst), (end, 4 * by_tick)] {
                packets.extend(
                    (0..flood).map(|_| (from + random.below(9), random.below(users) as usize)),
                );
            }
            begin = end + 20 * tick;
        }
        packets.sort_unstable();
        (case, packets)
    }
}
