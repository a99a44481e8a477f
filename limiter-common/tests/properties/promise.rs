//! What a limit promises, held against CPUs that lease packets and go by ticks.
//!
//! Time is counted in ticks, of 1, 4 or 10 ms. All CPUs agree on one time of each tick: what the clock said when its first
//! packet came. A bucket that holds less than its rate brings in 8 ticks goes by the exact clock, and leases nothing: for
//! it a tick is no time at all in what follows.
//!
//! * **At most:** in any time `t` a limit admits `burst + rate * (t + 2 ticks)`, and one packet more, for which part of a
//!   token is there.
//! * **At least:** in any time `t` that begins with a full bucket, it admits what is offered up to
//!   `burst + rate * (t - 1 tick)`, less one packet, and less what was leased in that time and could not be used, or is
//!   leased at its end. So a packet is refused only where as much passed in some time that ends with it.
//! * **Leases:** a CPU charges one packet for a quarter of those that it got of the source in this tick and the one
//!   before, for the smaller of 16 and a 64th of the burst at most, while three quarters of the burst are left. It uses them
//!   in that tick and the next one; what is left then is lost. So pauses, however many, cost a quarter of the burst at most.
//!
//! A tick that stands still makes these times longer by as much, and so do clocks that are apart.
//!
//! Both bounds are found to hold in every window at once: what passed fills a bucket without a bottom that leaks at the
//! rate, by a clock that is right. That is as full as the window says which says most.

use limiter_common::algorithm::{
    gcra::Gcra,
    policer::{Decision, Policer as _},
    rate::SECOND,
};

use super::{
    cpus::{Cpus, Moment, Verdict},
    random::Random,
    traffic::{Agreed, Case, Kind, LOADS, Load, Packet},
};

const SEED: u64 = 61;
const MILLISECOND: u64 = 1_000_000;

/// What came of packets.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    sent: u64,
    passed: u64,
    /// What one bucket would have admitted, by a clock that is right.
    exact: u64,
    leased: u64,
    recalled: u64,
    lost: u64,
    /// How much more passed than the burst and a packet, in ticks of the rate, in the window in which that is most. This
    /// and the next one are of limits that go by ticks.
    over: f64,
    /// How much less than the burst but for a packet passed where one was refused, in ticks of the rate, at most.
    under: f64,
}

impl Outcome {
    const NONE: Self = Self {
        sent: 0,
        passed: 0,
        exact: 0,
        leased: 0,
        recalled: 0,
        lost: 0,
        over: f64::MIN,
        under: f64::MIN,
    };

    /// The part of what one bucket would have admitted.
    fn share(&self) -> f64 {
        self.passed as f64 / self.exact as f64
    }

    /// That of both.
    fn with(&self, other: &Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            passed: self.passed + other.passed,
            exact: self.exact + other.exact,
            leased: self.leased + other.leased,
            recalled: self.recalled + other.recalled,
            lost: self.lost + other.lost,
            over: self.over.max(other.over),
            under: self.under.max(other.under),
        }
    }
}

/// A bucket without a bottom that leaks at the rate: how full it is, by what the window says which says most.
#[derive(Clone, Copy)]
struct Level(u64);

impl Level {
    fn add(&mut self, gcra: &Gcra, now: u64, packets: u64) {
        self.0 = gcra.fresh(now).wrapping_add(self.at(gcra, now) + packets * gcra.interval);
    }

    fn at(self, gcra: &Gcra, now: u64) -> u64 {
        gcra.spent(self.0, now)
    }
}

/// Sends packets, which are in order, and holds what passes against the promise.
fn check(case: &Case, random: &mut Random, packets: &[Packet]) -> Outcome {
    let &Case { gcra, tick, cpus, lag, step, .. } = case;
    let begin = packets[0].0;
    let goes_by_tick = !gcra.takes_clock(tick);
    // Units for a number of ticks, where it goes by these, and for what clocks do.
    let ticks = |number: u64| {
        let by_tick = if goes_by_tick { number * tick + lag } else { 0 };
        (by_tick + step) << gcra.shift
    };
    let whole = gcra.interval;
    let most = gcra.depth + if gcra.strict == 0 { whole } else { 0 } + ticks(2);
    let least = (gcra.depth - whole).saturating_sub(ticks(1));

    let mut system = Cpus::new(gcra, tick, cpus, begin - tick - step);
    let (mut passed, mut given, mut exact) =
        (Level(gcra.fresh(begin)), Level(gcra.fresh(begin)), gcra.fresh(begin));
    let mut out = Outcome::NONE;
    let in_ticks = |units: u64, of: u64| (units as f64 - of as f64) / (tick << gcra.shift) as f64;
    // The number of a tick wraps in a slot.
    let first = begin / tick - random.below(2_000).min(begin / tick);
    let number = |now: u64| (1 << 32) - 1_000 + now / tick - first;
    let stands = begin + random.below(packets[packets.len() - 1].0 - begin + 1);
    let mut behind: Vec<u64> = (0..cpus).map(|_| random.below(step.max(1))).collect();
    let mut busy = (0, 0);
    for &(now, cpu) in packets {
        let stood = if (stands..stands + lag).contains(&now) { stands } else { now };
        let tick_now = number(stood);
        if busy.0 != tick_now {
            let is_late = case.agreed == Agreed::Late && random.once_in(2);
            busy = (tick_now, now + if is_late { random.below(tick) } else { 0 });
            if case.agreed == Agreed::Early {
                let clock = (stood / tick * tick).max(begin - tick);
                system.agree(&Moment { clock, tick: tick_now, is_busy: false });
            }
        }
        if step != 0 && random.once_in(50) {
            behind[cpu] = random.below(step);
        }
        let clock = now - behind[cpu];
        let at = Moment { clock, tick: tick_now, is_busy: now < busy.1 };
        let before = system.lost;
        if case.is_crowded && random.once_in(8) {
            system.disturb(cpu, &at);
        }
        let verdict = system.send(cpu, &at);
        given.add(&gcra, now, system.lost - before);
        out.sent += 1;
        if let Decision::Conform(next) = gcra.decide(exact, now, 1) {
            exact = next;
            out.exact += 1;
        }
        if verdict == Verdict::Pass {
            out.passed += 1;
            passed.add(&gcra, now, 1);
            given.add(&gcra, now, 1);
            let level = passed.at(&gcra, now);
            if goes_by_tick {
                out.over = out.over.max(in_ticks(level, most - ticks(2)));
            }
            assert!(level <= most, "{level} units passed, {most} may: {case:?}");
        } else {
            let level = given.at(&gcra, now) + system.held * whole;
            if goes_by_tick {
                out.under = out.under.max(-in_ticks(level, gcra.depth - whole));
            }
            assert!(level >= least, "refused after {level} units of {least}: {case:?}");
            let level = passed.at(&gcra, now) + gcra.depth / 4;
            assert!(level >= least, "pauses cost more than a quarter of the burst: {case:?}");
        }
    }
    assert!(4 * system.lost <= out.sent, "{} of {} are lost", system.lost, out.sent);
    Outcome { leased: system.leased, recalled: system.recalled, lost: system.lost, ..out }
}

/// Sends packets of all kinds, some runs of each, where `change` makes something of each case, and gives what came of them
/// for each load, and the least share of what one bucket admits, by a clock that is right, that a run had.
fn check_all(seed: u64, runs: u64, change: impl Fn(&mut Case)) -> (Vec<(Load, Outcome)>, f64) {
    let (mut by_load, mut least) = (LOADS.map(|load| (load, Outcome::NONE)).to_vec(), 1.0_f64);
    for (number, kind) in (0..runs).flat_map(|_| Kind::all()).enumerate() {
        let mut random = Random::new(seed, number as u64);
        let mut case = Case::any(&mut random, kind);
        change(&mut case);
        let begin = random.between(SECOND, 1 << 50);
        let packets = case.packets(&mut random, kind, begin);
        let out = check(&case, &mut random, &packets);
        if case.lag + case.step == 0 {
            let is_modest = kind.load == Load::Steady(900);
            assert!(!is_modest || out.passed == out.sent, "it is refused below its rate: {case:?}");
            let is_exact = case.gcra.takes_clock(case.tick);
            assert!(!is_exact || out.passed == out.exact, "it goes by the clock: {case:?}");
        }
        least = least.min(out.share());
        for (_, sum) in by_load.iter_mut().filter(|(load, _)| *load == kind.load) {
            *sum = sum.with(&out);
        }
    }
    for (load, sum) in &by_load {
        println!("{:.3} of one bucket: {load:?}, {sum:?}", sum.share());
    }
    println!("at least {least:.3} of one bucket in a run");
    (by_load, least)
}

/// What came of all loads.
fn sum(by_load: &[(Load, Outcome)]) -> Outcome {
    by_load.iter().fold(Outcome::NONE, |all, (_, sum)| all.with(sum))
}

/// A source that stays below its rate is never refused, and one that goes by the clock has what one bucket admits.
#[test]
fn every_window_admits_what_is_promised() {
    let (by_load, least) = check_all(SEED, 2, |_| {});
    let all = sum(&by_load);
    assert!(all.leased > 1_000_000 && all.recalled > 1_000_000 && all.lost > 10_000, "{all:?}");
    assert!(all.over > 0.7 && all.under > 0.9, "no window comes near: {all:?}");
    assert!(all.over <= 2.0 && all.under <= 1.0, "{all:?}");
    for (load, sum) in by_load {
        assert!(sum.share() >= 0.98, "{load:?} has {} of one bucket", sum.share());
    }
    // Least where a burst of 8 ticks is used in one tick, of which the end is lost, and refilled in a pause.
    assert!(least >= 0.85, "a run has {least} of one bucket");
}

#[test]
fn a_tick_that_stands_still_admits_what_comes_in_meanwhile() {
    const LAG: u64 = 50 * MILLISECOND;
    let all = sum(&check_all(SEED + 1, 1, |case| case.lag = LAG).0);
    assert!(all.over <= 52.0 && all.under <= 51.0, "{all:?}");
    assert!(all.under > 40.0, "no window comes near: {all:?}");
}

/// A clock that is behind that of another CPU, by less than a tick, which is how far it goes back there.
#[test]
fn clocks_that_are_apart_admit_what_comes_in_between() {
    let all = sum(&check_all(SEED + 2, 1, |case| case.step = case.tick).0);
    assert!(all.over <= 3.0 && all.under <= 2.0, "{all:?}");
    assert!(all.under > 1.5, "no window comes near: {all:?}");
}

/// By the time of a tick, a tick's worth passes too much. Leased packets add less than half of that: they are a fifth of
/// what is charged, which has to be refilled from the tick before that of the lease to the one after it.
#[test]
fn who_hoards_leased_packets_gains_half_a_tick() {
    let mut all = Outcome::NONE;
    for run in 0..200 {
        let mut random = Random::new(SEED + 3, run);
        let (case, packets) = Case::hoard(&mut random);
        let out = check(&case, &mut random, &packets);
        assert!(out.over < 1.5, "{} ticks' worth is gained: {case:?}", out.over);
        all = all.with(&out);
    }
    println!("{all:?}");
    assert!(all.over > 1.3, "at most {} ticks' worth is gained: nothing is tried", all.over);
}
