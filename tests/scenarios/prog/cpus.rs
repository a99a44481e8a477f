//! Two CPUs charge one bucket: each token is given out once.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use limiter_common::{
    abi::state::Bucket,
    algorithm::{policer::Policer as _, rate::SECOND},
    base::address::Address,
    memory::cache::Cached,
    packet::reason::Reason,
    policy::limit::BucketKey,
};
use limiter_tests::program::{
    Clock, Runner, SMALL, Sizes, TestProgram, Verdict, monotonic, pin_to_cpu, two_cpus,
};
use limiter_userspace::policy::Builtin;

use super::{
    BUILTINS, NOW, compiled, connection_key, counted, keeps_time, part, per_second, policy,
    program, syn, tallies, tokens,
};

const A: [u8; 4] = [10, 0, 0, 1];

/// Runs `work` on two CPUs at once, numbered 0 and 1.
pub(super) fn on_two_cpus(program: &mut TestProgram, work: impl Fn(&Runner<'_>, u8) + Sync) {
    let runner = program.runner().unwrap();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for (number, cpu) in (0..).zip(two_cpus().unwrap()) {
            let (runner, start, work) = (&runner, &start, &work);
            scope.spawn(move || {
                pin_to_cpu(cpu).unwrap();
                start.wait();
                work(runner, number);
            });
        }
    });
}

/// Lets two CPUs send a frame of the same source at the same moment, source after source.
pub(super) fn meet(program: &mut TestProgram, sources: u32, frame: impl Fn(u32) -> Vec<u8> + Sync) {
    let arrived = AtomicU32::new(0);
    on_two_cpus(program, |runner, _| {
        for number in 0..sources {
            let frame = frame(number);
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 * (number + 1) {
                thread::yield_now();
            }
            runner.run(&frame).unwrap();
        }
    });
}

fn received(program: &TestProgram) -> u64 {
    program.counters().unwrap().reasons.iter().map(|tally| tally.packets).sum()
}

/// Two bursts: one is spent before the CPUs of [`offer`] have to wait for each other, one lasts for most of
/// the offer.
fn bursts() -> [u64; 2] {
    [200_000, 1_400_000].map(part)
}

/// Offers 800,000 packets: some one by one, which never wait for the other CPU; many in a row, which may have
/// to wait; and some one by one again.
fn offer(runner: &Runner<'_>, frame: &[u8]) {
    let singly = || {
        for _ in 0..part(150_000) {
            runner.run(frame).unwrap();
        }
    };
    singly();
    for _ in 0..5 {
        runner.run_many(frame, part(100_000) as u32).unwrap();
    }
    singly();
}

/// Asserts that both CPUs took part.
fn check_shares(program: &TestProgram) {
    let by_cpu = program.passed_by_cpu().unwrap();
    let total: u64 = by_cpu.iter().sum();
    println!("passed by CPU: {by_cpu:?}");
    let at_it = by_cpu.iter().filter(|passed| **passed * 200 > total).count();
    assert!(at_it == 2 || !keeps_time(), "{by_cpu:?}");
}

/// Asserts that at most one packet in `of` was dropped as contended, because other CPUs changed its state or
/// the policy changed.
pub(super) fn check_contended(program: &TestProgram, of: u64) {
    let (contended, received) = (counted(program, Reason::Contended), received(program));
    println!("{contended} of {received} packets dropped undecided");
    assert!(contended * of <= received || !keeps_time(), "{contended} of {received}");
}

#[test]
fn a_burst_is_admitted_exactly_once() {
    for (limit, burst) in
        Builtin::ALL.into_iter().flat_map(|limit| bursts().map(|burst| (limit, burst)))
    {
        let mut program = program(&policy(&[(limit, tokens(burst))]));
        on_two_cpus(&mut program, |runner, _| offer(runner, &syn(A)));
        check_shares(&program);
        check_contended(&program, 1_000);
        // Tokens of packets that were dropped as contended are still there.
        let late = program.run_many(&syn(A), 1_000).unwrap();
        assert_eq!(program.passed().unwrap(), burst, "{limit:?}, {late} of them late");
        assert_eq!(tallies(&program)[limit as usize].0, burst);
        program.check_accounts().unwrap();
        let source = program.source(&Address::v4(A)).unwrap().unwrap();
        // Packets that were dropped as contended while the entry was inserted are counted for no source.
        let untracked = program.untracked().unwrap().dropped.packets;
        assert!(untracked <= counted(&program, Reason::Contended), "{untracked}");
        let dropped = received(&program) - burst - untracked;
        assert_eq!((source.passed.packets, source.dropped.packets), (burst, dropped));
    }
}

/// Asserts that each bucket of these sources and of their one connection was charged `packets` packets, and
/// that there are no other connections.
fn check_charged(
    program: &TestProgram,
    sources: impl ExactSizeIterator<Item = IpAddr>,
    packets: u64,
    bursts: [u64; BUILTINS],
) {
    let buckets: HashMap<BucketKey, Bucket> = program.buckets().unwrap().into_iter().collect();
    assert_eq!(buckets.len(), sources.len());
    let places =
        [Builtin::Syn, Builtin::Source].map(|limit| compiled(program, limit).override_column);
    for source in sources {
        let words = program.whole_source(&source.into()).unwrap().unwrap().words();
        let [syn, own] = places.map(|place| words[place as usize]);
        let connection = buckets[&connection_key(program, source, [40_000, 443])].word;
        for ((limit, word), burst) in
            Builtin::ALL.into_iter().zip([syn, own, connection]).zip(bursts)
        {
            let gcra = tokens(burst).rate.bucket(burst, 1).unwrap();
            assert_eq!(word, gcra.fresh(NOW) + packets * gcra.units(1), "{source} {limit:?}");
        }
    }
}

/// Charges to other limits are refunded when the narrowest limit refuses the packet.
#[test]
fn all_limits_at_once_admit_the_least_of_their_bursts() {
    for (narrowest, least) in
        Builtin::ALL.into_iter().flat_map(|limit| bursts().map(|burst| (limit, burst)))
    {
        let bursts = Builtin::ALL.map(|limit| least + u64::from(limit != narrowest));
        let limits: Vec<_> = Builtin::ALL.into_iter().zip(bursts.map(tokens)).collect();
        let mut program = program(&policy(&limits));
        on_two_cpus(&mut program, |runner, _| offer(runner, &syn(A)));
        check_shares(&program);
        check_contended(&program, 1_000);
        let late = program.run_many(&syn(A), 1_000).unwrap();
        assert_eq!(program.passed().unwrap(), least, "{narrowest:?}, {late} of them late");
        assert_eq!(tallies(&program).map(|(conform, _)| conform), [least; BUILTINS]);
        check_charged(&program, [A.into()].into_iter(), least, bursts);
        program.check_accounts().unwrap();
    }
}

/// Two CPUs meet at each source and insert its entry at the same moment. There is a token for one of the two
/// packets.
#[test]
fn of_two_packets_one_gets_the_only_token() {
    let sources = part(10_000) as u32;
    let source = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
    // A table so large that no set fills up with sources that owe.
    let sizes = Sizes { sources: 1 << 17, ..SMALL };
    let limits = policy(&Builtin::ALL.map(|limit| (limit, tokens(1))));
    let mut program = TestProgram::new(sizes, &limits, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    meet(&mut program, sources, |number| syn(source(number)));
    check_shares(&program);
    // Most contended packets are the one for which there was no token.
    check_contended(&program, 20);
    let late: u64 =
        (0..sources).map(|number| program.run_many(&syn(source(number)), 1).unwrap()).sum();
    assert_eq!(program.passed().unwrap(), u64::from(sources), "{late} of them late");
    check_charged(&program, (0..sources).map(source), 1, [1; BUILTINS]);
    program.check_accounts().unwrap();
}

/// Offers packets until one is refused. Returns two times around the refusal, at most `apart` nanoseconds
/// apart.
fn spend(runner: &Runner<'_>, frame: &[u8], apart: u64) -> (u64, u64) {
    loop {
        let before = monotonic();
        let verdict = runner.run(frame).unwrap();
        let after = monotonic();
        if verdict == Verdict::Drop && after - before <= apart {
            return (before, after);
        }
    }
}

#[test]
fn a_rate_is_kept_on_two_cpus_in_real_time() {
    for limits in [&[Builtin::Source][..], &Builtin::ALL[..]] {
        check_rate(limits, 100_000);
    }
}

#[test]
fn a_low_rate_is_kept_on_two_cpus_in_real_time() {
    check_rate(&[Builtin::Source], 1_000);
}

/// Lets two CPUs offer as many packets as they can, and compares the admitted packets with limits of `rate`
/// per second.
fn check_rate(limits: &[Builtin], rate: u64) {
    const TIME: u64 = 2 * SECOND;
    const APART: u64 = SECOND / 10_000;
    // The burst covers a pause of the machine of ten seconds.
    let burst = 10 * rate;
    let frame = syn(A);
    let limits: Vec<_> = limits.iter().map(|limit| (*limit, per_second(rate, burst))).collect();
    let mut program = TestProgram::new(SMALL, &policy(&limits), Clock::Monotonic).unwrap();
    // A full bucket gains nothing, so the test counts from the moment when it is empty.
    program.run_many(&frame, burst as u32 * 3 / 2).unwrap();
    let (beginning, begin) = spend(&program.runner().unwrap(), &frame, APART);
    let before = program.passed().unwrap();
    on_two_cpus(&mut program, |runner, _| {
        while monotonic() < begin + TIME {
            runner.run_many(&frame, 100_000).unwrap();
        }
    });
    let (ending, end) = spend(&program.runner().unwrap(), &frame, APART);
    let passed = program.passed().unwrap() - before;
    let promised = |time: u64| time * rate / SECOND;
    let (least, most) = (promised(ending - begin), promised(end - beginning));
    println!("{passed} passed, {least} to {most} promised");
    // The tolerance: the packets of a tick, the leases that two CPUs may lose, and one packet for a partial
    // token.
    let of_tick = promised(Clock::Monotonic.tick());
    let lost = 2 * Cached::MOST_LEASED + 1;
    assert!(passed + of_tick + lost >= least, "{passed} of {least}");
    assert!(passed <= most + 2 * of_tick + 1, "{passed} of {most}");
    program.check_accounts().unwrap();
    check_contended(&program, 1_000);
}
