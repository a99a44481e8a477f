//! Decisions by jiffy time: how much too much or too little they admit. Buckets that refill in less than
//! eight ticks, and limits that are precise, give the same verdicts as by the exact clock.

use limiter_common::{
    algorithm::{
        gcra::Gcra,
        rate::{Rate, SECOND},
    },
    base::tally::Tally,
    memory::cache::Cached,
};
use limiter_tests::{
    model,
    packet::{kinds, set_source},
    program::{Clock, SMALL, TestProgram, Verdict, pin_to_cpu, two_cpus},
};
use limiter_userspace::policy::{Bucket, Builtin, Policy};

use super::{
    Case, NOW, Run, bucket, is_run, limit_tallies, mutation::Random, part, per_second, policy,
    seed, syn, udp,
};

/// Nanoseconds between ticks.
const TICK: u64 = 4_000_000;
/// Buckets that refill in less time than this are exact.
const DEEP: u64 = Gcra::FEWEST_TICKS * TICK;
const RUNS: u64 = 120;
const STEPS: u64 = 2_500;
const A: [u8; 4] = [10, 0, 0, 1];

fn ticking(policy: &Policy) -> TestProgram {
    TestProgram::new(SMALL, policy, Clock::Ticking(TICK)).unwrap()
}

/// The same program twice: one with ticks, one that reads the clock for every packet.
struct Both([TestProgram; 2]);

impl Both {
    fn new(policy: &Policy) -> Self {
        Self([ticking(policy), TestProgram::new(SMALL, policy, Clock::Test).unwrap()])
    }

    fn apply(&mut self, policy: &Policy) {
        for program in &mut self.0 {
            program.forget().unwrap();
            program.apply(policy).unwrap();
        }
    }

    /// The verdicts of both programs on a frame at `now`.
    fn run(&mut self, frame: &[u8], now: u64) -> [Verdict; 2] {
        self.0.each_mut().map(|program| {
            program.at(now).unwrap();
            program.run(frame).unwrap()
        })
    }

    /// How many packets the limits of each program refused, since they were applied.
    fn refused(&self) -> [u64; 2] {
        let of = |program: &TestProgram| limit_tallies(program).map(|limit| limit.exceed.packets);
        self.0.each_ref().map(|program| of(program).iter().sum())
    }

    /// Asserts that both programs have the same counts, where the limits had refused so many packets before. A packet that several
    /// limits refuse may be counted under another one of them where a CPU remembers a refusal for longer. The tally of a limit ends
    /// with it, so what was refused under earlier policies need not be the same.
    fn check_counts(&self, before: [u64; 2]) {
        let refused = self.refused();
        assert_eq!(refused[0] - before[0], refused[1] - before[1]);
        let counts = self.0.each_ref().map(|program| {
            let mut limits = limit_tallies(program);
            limits.iter_mut().for_each(|limit| limit.exceed = Tally::default());
            (program.counters().unwrap(), limits)
        });
        assert_eq!(counts[0], counts[1]);
        for program in &self.0 {
            program.check_accounts().unwrap();
        }
    }
}

/// A random bucket that refills in less than eight ticks.
fn short(random: &mut Random) -> Bucket {
    let bits = 1 + random.below(24);
    let packets = 1 + random.below(1 << bits) as u64;
    let bits = random.below(10);
    let most = (packets * (DEEP - 1) / SECOND).min(1 << bits);
    if most == 0 {
        return short(random);
    }
    bucket(Rate::per_second(packets), 1 + random.below(most as usize) as u64)
}

/// A random bucket that refills in eight ticks or more.
fn long(random: &mut Random) -> Bucket {
    let packets = 1 + random.below(1_000) as u64;
    let least = (packets * DEEP).div_ceil(SECOND);
    bucket(Rate::per_second(packets), least + random.below(64) as u64)
}

/// Nanoseconds until the next packet: none, about a token, within a tick, at its end, or a rest.
fn pause(random: &mut Random, pace: Bucket, now: u64) -> u64 {
    let interval = (pace.rate.period / pace.rate.packets) as usize;
    let mut below = |most: usize| random.below(most) as u64;
    match below(200) {
        0..120 => 0,
        120..180 => below(interval / 2 + 1),
        180..188 => below(TICK as usize),
        188..192 => TICK - now % TICK - below(2),
        192..199 => below(interval * pace.burst as usize + 2),
        _ => below(2 * DEEP as usize),
    }
}

#[test]
fn short_and_precise_buckets_say_what_they_say_by_the_exact_time() {
    let (seed, kinds) = (seed(), kinds());
    let mut both = Both::new(&Policy::default());
    let [mut passed, mut dropped] = [0_u64; 2];
    for run in 0..part(RUNS) {
        let mut random = Random::new(seed, run);
        let precise = run % 2 == 1;
        let mut limits = Vec::new();
        for limit in Builtin::ALL {
            if limits.is_empty() || random.below(3) > 0 {
                let bucket = if precise { long } else { short };
                limits.push((limit, bucket(&mut random)));
            }
        }
        let mut now = 10 * SECOND + random.below(1 << 50) as u64;
        let _run = Run { seed, run, of: &(precise, &limits, now) };
        let mut policy = policy(&limits);
        policy.limits.iter_mut().for_each(|limit| limit.precise = precise);
        both.apply(&policy);
        let refused = both.refused();
        let frames: Vec<_> = (0..8)
            .map(|source: u8| {
                let (_, kind) = random.pick(&kinds);
                let mut frame = kind.clone();
                // A frame of the other family is left as it is.
                let _: bool = set_source(&mut frame, [10, 0, 0, source % 3].into());
                frame
            })
            .chain([udp(A), syn(A)])
            .collect();
        for step in 0..STEPS {
            let [ticking, exact] = both.run(random.pick::<Vec<u8>>(&frames), now);
            assert_eq!(ticking, exact, "step {step} at {now}");
            passed += u64::from(exact == Verdict::Pass);
            dropped += u64::from(exact == Verdict::Drop);
            let (_, pace) = *random.pick(&limits);
            now += pause(&mut random, pace, now);
        }
        both.check_counts(refused);
    }
    println!("{passed} passed, {dropped} dropped");
    assert!(passed.min(dropped) > part(RUNS * STEPS / 20), "{passed} and {dropped}");
}

/// Limits that refill in eight ticks or more: rate per second, and burst.
const LONG: [(u64, u64); 10] = [
    (1, 10),
    (50, 450),
    (1_000, 32),
    (1_000, 9_000),
    (10_000, 1_000),
    (20_000, 6_000),
    (20_000, 180_000),
    (100_000, 800_001),
    (400_000, 90_000),
    (1_000_000, 300_000),
];

/// The packets that a rate brings in a tick, plus one for a partial token.
fn of_a_tick(rate: u64) -> u64 {
    rate * TICK / SECOND + 1
}

/// Sends three bursts of packets at `load` times the rate from `begin` on. At each moment, the passed packets
/// are the burst and the rate, or all that were offered, and at most `more` packets more.
fn over_offer(
    program: &mut TestProgram,
    frame: &[u8],
    limit: Bucket,
    load: u64,
    begin: u64,
    more: u64,
) {
    let (rate, burst) = (limit.rate.packets, limit.burst);
    let clump = burst / 1_000 + 1;
    // Who sends in clumps with a tick between them pauses each time.
    let pauses = clump * SECOND / (load * rate) > TICK;
    let lost = if pauses { burst / 4 } else { Cached::MOST_LEASED };
    let mut passed = 0;
    for number in 0..3 * burst / clump {
        let elapsed = number * clump * SECOND / (load * rate);
        program.at(begin + elapsed).unwrap();
        passed += program.run_many(frame, clump as u32).unwrap();
        let promised = (burst + rate * elapsed / SECOND).min((number + 1) * clump);
        assert!(passed < promised + 1 + more, "{passed}, not {promised}, {elapsed} ns");
        let least = promised.saturating_sub(of_a_tick(rate) + lost);
        assert!(passed >= least, "{passed}, not {promised}, {elapsed} ns");
    }
}

/// Exceeds each of these limits from a full bucket, several times. Each time at most `more` packets too many
/// pass, which do not add up.
fn over_offer_each(limits: &[(u64, u64)], more: impl Fn(u64, u64) -> u64) {
    // If packets went on on another CPU, what this one has leased would be lost, too.
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    let mut program = ticking(&Policy::default());
    let mut source = 0;
    for &(rate, burst) in limits {
        let limit = per_second(rate, burst);
        program.apply(&policy(&[(Builtin::Source, limit)])).unwrap();
        for load in [2, 30] {
            source += 1;
            if !is_run(u64::from(source - 1)) {
                continue;
            }
            let _case = Case(&(rate, burst, load));
            let frame = udp([10, 0, 0, source]);
            let mut begin = NOW;
            for _ in 0..part(3) {
                over_offer(&mut program, &frame, limit, load, begin, more(rate, burst));
                // Not at a tick, and after the bucket is full again.
                begin += (burst / rate + 1) * 4 * SECOND + TICK / 3;
            }
        }
    }
    program.check_accounts().unwrap();
}

#[test]
fn a_long_bucket_admits_its_burst_and_its_rate() {
    over_offer_each(&LONG, |rate, _| of_a_tick(rate));
}

/// A source sends on two CPUs: in each tick all that its limit admits, and at the end of the tick what passes
/// because of jiffy time. In the end it sends as much as it can.
#[test]
fn it_gains_nothing_by_what_passes_by_the_tick() {
    let cpus = two_cpus().unwrap();
    let admitted = |rate: u64, burst: u64| {
        let mut program = ticking(&policy(&[(Builtin::Source, per_second(rate, burst))]));
        let (frame, mut passed, mut last) = (udp(A), 0, NOW);
        let mut send = |program: &mut TestProgram, now: u64, packets: u64| {
            for (half, cpu) in cpus.into_iter().enumerate() {
                pin_to_cpu(cpu).unwrap();
                program.at(now).unwrap();
                let packets = (packets + half as u64) / 2;
                passed += program.run_many(&frame, packets as u32).unwrap();
            }
            last = now;
        };
        let ticks = part(500);
        for tick in 0..ticks {
            let end = NOW + (tick + 1) * TICK - 1_000;
            // One packet from each CPU, so that both see the tick.
            send(&mut program, NOW + tick * TICK, 2);
            send(&mut program, NOW + tick * TICK + TICK / 2, rate * TICK / SECOND - 2);
            send(&mut program, end, rate * TICK / SECOND);
        }
        send(&mut program, NOW + ticks * TICK - 500, 2 * burst);
        let promised = burst + rate * (last - NOW) / SECOND;
        program.check_accounts().unwrap();
        (passed, promised)
    };
    for (rate, burst) in LONG.into_iter().filter(|(rate, _)| *rate >= 1_000) {
        let _case = Case(&(rate, burst));
        let (passed, promised) = admitted(rate, burst);
        assert!(passed <= promised + 2 * of_a_tick(rate), "{passed}, not {promised}");
        // At first the bucket is full at some ticks, and loses tokens.
        let lost = 2 * (Cached::MOST_LEASED + of_a_tick(rate));
        assert!(passed + lost >= promised, "{passed}, not {promised}");
    }
}

/// Single packets for an hour, never at a tick: what a tick gives is not given twice.
#[test]
fn it_gains_nothing_while_it_is_over_its_limit() {
    const RATE: u64 = 5;
    let limit = per_second(RATE, 30);
    let mut program = ticking(&policy(&[(Builtin::Source, limit)]));
    let (frame, mut passed, mut now) = (udp(A), 0, NOW);
    while now < NOW + 3_600 * SECOND {
        program.at(now).unwrap();
        passed += u64::from(program.run(&frame).unwrap() == Verdict::Pass);
        let promised = limit.burst + RATE * (now - NOW) / SECOND;
        assert!(passed <= promised + 1 + of_a_tick(RATE), "{passed}, not {promised}, at {now}");
        now += 31 * TICK + 77_777;
    }
    let promised = limit.burst + RATE * (now - NOW) / SECOND;
    assert!(passed + 1 + of_a_tick(RATE) >= promised, "{passed}, not {promised}");
}

#[test]
fn several_limits_are_held_together() {
    let [long, short] = [per_second(1_000, 9_000), per_second(100, 40)];
    let mut program = ticking(&policy(&[(Builtin::Source, long), (Builtin::Syn, short)]));
    // The number of datagrams for each SYN: with 2, only the limit on SYNs is exceeded; with 9, both are.
    for (source, datagrams) in [(1, 2), (2, 9)] {
        let address = [10, 0, 0, source];
        let frames = [syn(address), udp(address)];
        let before = limit_tallies(&program).map(|tally| tally.conform.packets);
        let mut model = model::Bucket::new(100, SECOND.into(), short.burst, NOW);
        let (mut both, mut exact) = (0, 0);
        let packets = 40_000;
        for packet in 0..packets {
            // 2,000 packets in a second.
            let now = NOW + packet * SECOND / 2_000 / if datagrams == 2 { 1 } else { 4 };
            program.at(now).unwrap();
            let is_syn = packet % (datagrams + 1) == 0;
            let passed = program.run(&frames[usize::from(!is_syn)]).unwrap() == Verdict::Pass;
            both += u64::from(passed);
            exact += u64::from(is_syn && model.admit(now));
        }
        let after = limit_tallies(&program).map(|tally| tally.conform.packets);
        let [syns, all, _] = std::array::from_fn(|limit| after[limit] - before[limit]);
        assert_eq!(all, both);
        let elapsed = packets * SECOND / 2_000 / if datagrams == 2 { 1 } else { 4 };
        let most = long.burst + 1_000 * elapsed / SECOND;
        assert!(all <= most + of_a_tick(1_000), "{all} of {most}");
        let of_short = of_a_tick(100);
        assert!(syns <= exact + 1 + of_short, "{syns} SYNs where {exact} are exact");
        if datagrams == 2 {
            assert!(syns + 1 + of_short >= exact, "{syns} SYNs where {exact} are exact");
        } else {
            let lost = of_a_tick(1_000) + Cached::MOST_LEASED;
            assert!(all + lost >= most, "{all} of {most}");
        }
    }
    program.check_accounts().unwrap();
}

const BACK: [u64; 12] = [
    1,
    TICK / 2,
    TICK - 1,
    TICK,
    TICK + 1,
    3 * TICK / 2,
    SECOND / 2,
    model::LOST - 1,
    model::LOST,
    model::LOST + 1,
    60 * SECOND,
    3_600 * SECOND,
];

#[test]
fn a_clock_that_goes_back_gives_a_tick_at_most_and_sticks_nobody() {
    // The state of the last tick is kept per CPU.
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    let mut source = 0;
    for (rate, burst) in [(1_000, 10), (1, 3), (50, 200), (50, 250), (1_000_000, 500), (200, 900)] {
        let mut program = ticking(&policy(&[(Builtin::Source, per_second(rate, burst))]));
        for (back, into) in
            BACK.iter().flat_map(|back| [0, TICK / 3, TICK - 1].map(|into| (*back, into)))
        {
            for spent in [1, burst / 2 + 1, burst] {
                source += 1;
                if !is_run(u64::from(source - 1)) {
                    continue;
                }
                let _case = Case(&(rate, burst, back, into, spent));
                let [a, b, c, d] = u32::to_be_bytes(source);
                let frame = udp([10 | a, b, c, d]);
                let mut offer = |packets: u64, now: u64| {
                    program.at(now).unwrap();
                    program.run_many(&frame, packets as u32).unwrap()
                };
                let now = NOW + into;
                assert_eq!(offer(spent, now), spent);
                let passed = offer(2 * burst, now - back);
                assert!(passed <= burst - spent + of_a_tick(rate), "{passed} after going back");
                let later = now - back + model::LOST + burst * SECOND / rate + SECOND / rate + TICK;
                let passed = offer(2 * burst, later);
                assert!((1..=burst + of_a_tick(rate)).contains(&passed), "{passed} later");
                let passed = offer(2 * burst, now.max(later));
                assert!(passed <= burst + of_a_tick(rate), "{passed} where the clock was");
            }
        }
        program.check_accounts().unwrap();
    }
}

/// Packets of new sources tell of it.
#[test]
fn the_longest_time_by_which_a_tick_is_late_is_kept() {
    let mut program = ticking(&policy(&[(Builtin::Source, per_second(1_000, 1_000))]));
    let mut longest = 0;
    for (number, ago) in [1, TICK, TICK + 1, 50_000_000, 9_000_000].into_iter().enumerate() {
        // Another tick, which this CPU knows nothing of.
        program.at(NOW + (number as u64 + 1) * SECOND).unwrap();
        program.stand_still(TICK, ago).unwrap();
        let mut frame = udp(A);
        assert!(set_source(&mut frame, [10, 0, 1, number as u8].into()));
        program.run(&frame).unwrap();
        longest = longest.max(ago.saturating_sub(TICK));
        assert_eq!(program.maps().tick_lag().unwrap().as_nanos(), u128::from(longest), "{ago}");
    }
    assert_eq!(longest, 46_000_000);
}
