//! Both floors decide alike: the program about packets, and the bridge about requests of the same sources at the same times,
//! by limits with the same numbers.

use std::net::IpAddr;

use limiter_common::algorithm::{concurrent::Concurrent, rate::SECOND};
use limiter_tests::{
    packet::{Frame, RST, SYN},
    program::Verdict,
};
use limiter_userspace::{
    bridge::{
        answer::{self, Answer},
        decide::Decider,
        lease::Leases,
        request::Request,
        table::Table,
    },
    policy::{
        Policy,
        model::{
            Allowance, Count, KeyPart, Layer, Limit, Mode, RequestKeyPart, RequestLayer,
            RequestLimit,
        },
    },
};

use super::{
    NOW, Run,
    algorithms::any::{
        Any, FIXED_WINDOW, GCRA, LEAKY_BUCKET, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, step,
    },
    is_emulated, most,
    mutation::Random,
    part, program, seed, udp,
};

/// Runs, and steps in each run, for each algorithm.
const RUNS: u64 = 30;
const STEPS: u32 = 1_000;

/// A limit on packets by their source with these layers, and the same limit on requests. The program goes by the exact time.
fn both(name: &str, mode: Mode, allowances: &[Allowance]) -> (Limit, RequestLimit) {
    let layers = allowances.iter().map(|allowance| Layer { allowance: *allowance, key: None });
    let packets = Limit {
        layers: layers.collect(),
        mode,
        precise: true,
        ..Limit::new(name, &[KeyPart::Source])
    };
    let layers =
        allowances.iter().map(|allowance| RequestLayer { allowance: *allowance, key: None });
    let requests = RequestLimit {
        layers: layers.collect(),
        mode,
        ..RequestLimit::new(name, &[RequestKeyPart::Source])
    };
    (packets, requests)
}

fn policy((packets, requests): (Limit, RequestLimit)) -> Policy {
    let mut policy = Policy::default();
    policy.limits.push(packets);
    policy.on_requests.push(requests);
    policy
}

/// A request of a source.
fn request(source: IpAddr) -> Request<'static> {
    Request {
        method: Some("GET"),
        host: None,
        path: Some("/"),
        domain: "",
        source: Some(source),
        told: &(),
    }
}

/// The verdict about a packet that is the same as an answer.
fn told(answer: &Answer) -> Verdict {
    match answer.verdict {
        answer::Verdict::Pass => Verdict::Pass,
        answer::Verdict::Limited => Verdict::Drop,
        answer::Verdict::Denied => unreachable!("nothing is denied"),
    }
}

/// How long a token bucket owes at most for requests of cost 1, in nanoseconds.
fn interval(allowance: Allowance) -> u64 {
    match allowance {
        Allowance::TokenBucket { rate, .. }
        | Allowance::LeakyBucket { rate, .. }
        | Allowance::Gcra { rate, .. } => rate.period / rate.packets + 1,
        _ => 0,
    }
}

/// Compares the verdicts about the same events, in runs with one layer and with two, with changes of the policy.
fn check(any: Any, may_go_far_back: bool) {
    let seed = seed();
    let mut program = program(&Policy::default());
    let mut verdicts = [0_u64; 2];
    for run in 0..most(RUNS) {
        let mut random = Random::new(seed, run);
        let allowance = |random: &mut Random| {
            let bits = random.below(7);
            let size = 1 + random.below(1 << bits) as u64;
            any(random, size)
        };
        let name = format!("limit-{run}");
        let mode = if run % 5 == 4 { Mode::Monitor } else { Mode::Enforce };
        let mut layers = vec![allowance(&mut random)];
        if run % 3 == 2 {
            layers.push(allowance(&mut random));
        }
        let _run = Run { seed, run, of: &layers.clone() };
        let mut in_force = policy(both(&name, mode, &layers));
        program.apply(&in_force).unwrap();
        let mut decider = Decider::new(&in_force, Table::in_memory(1_024)).unwrap();
        let sources: [IpAddr; 4] = [
            [192, 0, 2, run as u8].into(),
            [198, 51, 100, run as u8].into(),
            [0x2001, 0xdb8, run as u16, 0, 0, 0, 0, 1].into(),
            [0x2001, 0xdb8, run as u16, 1, 0, 0, 0, 1].into(),
        ];
        let (mut now, mut latest) = (NOW + random.below(1 << 40) as u64, 0);
        for number in 0..STEPS {
            if number % 300 == 299 {
                // Until nobody owes: the program cuts a debt to that of one packet of the new numbers, and the bridge does not.
                let owed = layers.iter().map(|layer| interval(*layer)).max().unwrap_or(0);
                // The clock may go back by a second then.
                now = latest + owed + SECOND;
                layers[0] = allowance(&mut random);
                in_force = policy(both(&name, mode, &layers));
                program.apply(&in_force).unwrap();
                decider.apply(&in_force).unwrap();
            }
            let source = *random.pick(&sources);
            program.at(now).unwrap();
            let verdict = program.run(&udp(source)).unwrap();
            let mut answer = Answer::default();
            decider.decide(&request(source), 1, now, &mut answer);
            assert_eq!(verdict, told(&answer), "step {number} at {now}: {source}");
            verdicts[usize::from(verdict == Verdict::Drop)] += 1;
            latest = latest.max(now);
            now = step(&mut random, layers[0], 1, now);
            if !may_go_far_back {
                now = now.max(latest.saturating_sub(SECOND));
            }
        }
        // What was counted is the same, too.
        let tally = program.tally(&name).unwrap();
        let counts = decider.counts();
        let row = counts.rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(
            [row.conform, row.exceed, row.exceed_monitor, row.near],
            [tally.conform, tally.exceed, tally.monitored, tally.near].map(|it| it.packets)
        );
    }
    program.check_accounts().unwrap();
    // Unless both verdicts occur often, the comparison would prove nothing.
    let least = verdicts.into_iter().min().unwrap();
    println!("{verdicts:?}");
    assert!(is_emulated() || least * 10 > part(RUNS) * u64::from(STEPS), "{verdicts:?}");
}

/// Buckets of the bridge may owe for a day, what was charged after the fact. So they count as lost after a clock went back for
/// longer than that, and buckets of the program sooner.
#[test]
fn a_token_bucket_decides_alike() {
    check(TOKEN_BUCKET, false);
}

#[test]
fn a_leaky_bucket_decides_alike() {
    check(LEAKY_BUCKET, false);
}

#[test]
fn gcra_decides_alike() {
    check(GCRA, false);
}

#[test]
fn a_fixed_window_decides_alike() {
    check(FIXED_WINDOW, true);
}

#[test]
fn a_sliding_window_decides_alike() {
    check(SLIDING_WINDOW, true);
}

#[test]
fn a_sliding_log_decides_alike() {
    check(SLIDING_LOG, true);
}

/// Longer than a connection without a socket on this host, whose end was seen, keeps its place, in nanoseconds: `CLOSING`, and an
/// eighth.
const CLOSED: u64 = Concurrent::CLOSING + 2 * SECOND;

/// A SYN is a request, of a connection that sends nothing more. A reset is the end of one, once the program has it closed.
#[test]
fn concurrent_decides_alike() {
    let seed = seed();
    let mut program = program(&Policy::default());
    let mut verdicts = [0_u64; 2];
    for run in 0..most(RUNS) {
        let mut random = Random::new(seed, run);
        let bits = random.below(8);
        let limit = 1 + random.below(1 << bits) as u64;
        let idle = SECOND * (60 + random.below(600) as u64);
        let mode = if run % 5 == 4 { Mode::Monitor } else { Mode::Enforce };
        let name = format!("open-{run}");
        let (packets, requests) = both(&name, mode, &[Allowance::Concurrent { limit, idle }]);
        let packets = Limit { count: Count::Connections, ..packets };
        let _run = Run { seed, run, of: &packets.clone() };
        let in_force = policy((packets, requests));
        program.apply(&in_force).unwrap();
        let mut decider = Decider::new(&in_force, Table::in_memory(1_024)).unwrap();
        let sources = [1, 2].map(|last| IpAddr::from([192, 0, run as u8, last]));
        let mut open: Vec<(IpAddr, u16, Leases)> = Vec::new();
        let mut now = NOW + random.below(1 << 40) as u64;
        for number in 0..STEPS {
            program.at(now).unwrap();
            if random.below(20) == 0 {
                let number = random.below(open.len() + 1).min(1 + random.below(20));
                let ended = open.drain(..number).collect::<Vec<_>>();
                for (source, port, _) in &ended {
                    let reset = Frame::tcp(*source, [198, 51, 100, 1], *port, 443, RST);
                    assert_eq!(program.run(&reset.build()).unwrap(), Verdict::Pass);
                }
                now += CLOSED;
                ended.iter().for_each(|(.., leases)| {
                    decider.release(leases, now);
                });
                continue;
            }
            let (source, port) = (*random.pick(&sources), 1_024 + number as u16);
            let syn = Frame::tcp(source, [198, 51, 100, 1], port, 443, SYN);
            let verdict = program.run(&syn.build()).unwrap();
            let mut answer = Answer::default();
            decider.decide(&request(source), 1, now, &mut answer);
            assert_eq!(verdict, told(&answer), "step {number} at {now}: {source}");
            verdicts[usize::from(verdict == Verdict::Drop)] += 1;
            if verdict == Verdict::Pass {
                open.push((source, port, answer.leases));
            }
            now += match random.below(30) {
                0..=9 => random.below((idle / limit / 4) as usize + 1) as u64,
                10 => random.below(idle as usize) as u64,
                11 => random.below(2 * idle as usize) as u64,
                12 => 1 << 24,
                _ => 0,
            };
        }
        let tally = program.tally(&name).unwrap();
        let counts = decider.counts();
        let row = counts.rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(
            [row.exceed, row.exceed_monitor],
            [tally.exceed, tally.monitored].map(|it| it.packets)
        );
    }
    program.check_accounts().unwrap();
    let least = verdicts.into_iter().min().unwrap();
    println!("{verdicts:?}");
    assert!(is_emulated() || least * 10 > part(RUNS) * u64::from(STEPS), "{verdicts:?}");
}
