//! The modes of limits: enforced, monitored, off, and candidates.

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    packet::reason::Reason,
};
use limiter_tests::program::{TestProgram, Verdict};
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, GlobalMode, KeyPart, Limit, Mode},
};

use super::{
    counted,
    define::{in_mode, limit, policy_of},
    program,
    sent::Sent,
    tokens, udp,
};

const B: [u8; 4] = [198, 51, 100, 1];
pub(super) const MINUTE: u64 = 60 * SECOND;

/// The packets that conformed to a limit, and those that exceeded it.
pub(super) fn tally(program: &TestProgram, name: &str) -> (u64, u64) {
    let tally = program.tally(name).unwrap();
    (tally.conform.packets, tally.over().packets)
}

/// An allowance of each algorithm. None admits more than `limit` packets while time stands still.
fn every_algorithm(limit: u64) -> [Allowance; 6] {
    let rate = Rate { packets: 1, period: MINUTE };
    [
        tokens(limit).into(),
        Allowance::LeakyBucket { rate, depth: limit },
        Allowance::Gcra { rate, tolerance: MINUTE * (limit - 1) },
        Allowance::FixedWindow { limit, window: MINUTE },
        Allowance::SlidingWindow { limit, window: MINUTE },
        Allowance::SlidingLog { limit, window: MINUTE },
    ]
}

pub(super) const KEYS: [&[KeyPart]; 3] = [&[KeyPart::Source], &[KeyPart::Destination], &[]];

/// Limits of every algorithm with several keys.
pub(super) fn every_limit(most: u64) -> impl Iterator<Item = Limit> {
    KEYS.into_iter().enumerate().flat_map(move |(at, parts)| {
        let named = move |allowance: Allowance| {
            limit(&format!("{}-{at}", allowance.algorithm()), parts, allowance)
        };
        every_algorithm(most).map(named)
    })
}

#[test]
fn a_limit_that_monitors_counts_as_one_that_is_enforced_and_drops_nothing() {
    let mut program = program(&Policy::default());
    for (number, enforced) in every_limit(5).enumerate() {
        let mut tallies = Vec::new();
        for (mode, passes) in [(Mode::Enforce, 5), (Mode::Monitor, 20), (Mode::Off, 20)] {
            let name = format!("limit-{number}-{mode:?}").to_lowercase();
            let limit = Limit { name: name.clone(), ..in_mode(mode, enforced.clone()) };
            program.apply(&policy_of([limit])).unwrap();
            let source = [10, 1, number as u8, mode as u8];
            assert_eq!(
                program.run_many(&udp(source), 20).unwrap(),
                passes,
                "{enforced:?} {mode:?}"
            );
            tallies.push(tally(&program, &name));
        }
        assert_eq!(tallies, [(5, 15), (5, 15), (0, 0)], "{enforced:?}");
    }
    assert_eq!(counted(&program, Reason::Monitor), 0, "the packets conform to what is enforced");
    program.check_accounts().unwrap();
}

/// Monitor mode for the whole policy: every limit counts as if it were enforced.
#[test]
fn the_global_monitor_passes_what_would_be_dropped() {
    let limits = || {
        [
            limit("connection", &[KeyPart::Connection], tokens(3)),
            limit("source", &[KeyPart::Source], tokens(5)),
            limit("log", &[], Allowance::SlidingLog { limit: 7, window: MINUTE }),
        ]
    };
    let mut results = Vec::new();
    for mode in [GlobalMode::Enforce, GlobalMode::Monitor] {
        let mut program = program(&Policy { mode, ..policy_of(limits()) });
        for source in 1..4 {
            for port in 1..4 {
                let frame = Sent::udp([10, 0, 0, source], B, [port, 53]).frame();
                program.run_many(&frame, 4).unwrap();
            }
        }
        let tallies = ["connection", "source", "log"].map(|name| tally(&program, name));
        let would = counted(&program, Reason::Exceed) + counted(&program, Reason::Monitor);
        results.push((tallies, would));
        let dropped = counted(&program, Reason::Exceed);
        assert_eq!(dropped == 0, mode == GlobalMode::Monitor);
        // The mode takes effect at once, in both directions.
        let frame = udp([10, 0, 0, 1]);
        for (mode, verdict) in
            [(GlobalMode::Monitor, Verdict::Pass), (GlobalMode::Enforce, Verdict::Drop)]
        {
            program.apply(&Policy { mode, ..policy_of(limits()) }).unwrap();
            assert_eq!(program.run(&frame).unwrap(), verdict, "{mode:?}");
        }
        program.check_accounts().unwrap();
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0].0.map(|(charged, _)| charged), [7; 3]);
}

#[test]
fn a_candidate_is_counted_beside_the_live_limit() {
    for (number, live) in every_limit(50).enumerate() {
        let candidate = every_algorithm(8)
            .into_iter()
            .find(|it| it.algorithm() == live.layers[0].allowance.algorithm());
        let with = Limit { candidate, ..live.clone() };
        let mut program = program(&policy_of([with]));
        assert_eq!(program.run_many(&udp([10, 2, number as u8, 1]), 30).unwrap(), 30);
        assert_eq!(tally(&program, &live.name), (30, 0), "{live:?}");
        assert_eq!(tally(&program, &live.name_of_candidate()), (8, 22), "{live:?}");
        program.check_accounts().unwrap();
    }
}
