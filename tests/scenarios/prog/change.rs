//! A change of policy keeps the state of the limits it does not touch, and gives no source a fresh burst.

use limiter_common::algorithm::rate::Rate;
use limiter_tests::{
    packet::{ACK, Frame, SYN},
    program::{Clock, SMALL, TestProgram},
};
use limiter_userspace::policy::{Builtin, Policy};

use super::{
    NEVER, NOW, Run, bucket, cpus::check_contended, mutation::Random, part, per_second, policy,
    program, seed, set_override, source_word, swap::swap_under_load, syn, tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

fn tcp(flags: u8) -> Vec<u8> {
    Frame::tcp(A, B, 1, 2, flags).build()
}

/// The word of the limit `source`.
fn word(program: &TestProgram) -> u64 {
    source_word(program, Builtin::Source, A.into())
}

#[test]
fn limits_that_a_change_does_not_touch_keep_their_state() {
    let with_syn = |burst| {
        let others = [(Builtin::Connection, tokens(6)), (Builtin::Source, tokens(10))];
        policy(&[others[0], (Builtin::Syn, tokens(burst)), others[1]])
    };
    let mut elsewhere = with_syn(9);
    set_override(&mut elsewhere, Builtin::Source, "192.0.2.0/24", tokens(50));
    set_override(&mut elsewhere, Builtin::Connection, "2001:db8::/32", tokens(50));
    let mut as_before = elsewhere.clone();
    set_override(&mut as_before, Builtin::Source, "10.0.0.0/8", tokens(10));
    let mut program = program(&Policy::default());
    for changed in [with_syn(9), elsewhere, as_before] {
        program.forget().unwrap();
        program.apply(&with_syn(3)).unwrap();
        assert_eq!(program.run_many(&tcp(SYN), 5).unwrap(), 3);
        let before = word(&program);
        program.apply(&changed).unwrap();
        // No token for SYNs is left, whatever the number of the limit is now.
        assert_eq!(program.run_many(&tcp(SYN), 5).unwrap(), 0);
        assert_eq!(word(&program), before);
        assert_eq!(program.run_many(&tcp(ACK), 9).unwrap(), 3);
        assert_eq!(program.run_many(&udp(A), 9).unwrap(), 4);
        assert_eq!(program.run_many(&syn(A), 9).unwrap(), 0);
        program.check_accounts().unwrap();
    }
}

#[test]
fn a_changed_bucket_keeps_the_share_that_is_left() {
    let seed = seed();
    let mut program = program(&Policy::default());
    for run in 0..part(40) {
        let mut random = Random::new(seed, run);
        let mut any = || {
            let slow = Rate { packets: 1, period: NEVER.period << random.below(4) };
            let burst = 1 + (random.below(1 << 20) >> random.below(20)) as u64;
            bucket(slow, burst)
        };
        let [old, new] = [any(), any()];
        let _run = Run { seed, run, of: &(old, new) };
        let limit = Builtin::ALL[random.below(3)];
        program.apply(&policy(&[(limit, old)])).unwrap();
        // Each source spends another share. All have an entry, because the table is not full.
        let sources: Vec<_> = (0..12)
            .map(|number| {
                let spent = match number {
                    0 => 1,
                    1 => old.burst,
                    _ => 1 + random.below(old.burst as usize) as u64,
                };
                let frame = syn([10, 1 + run as u8, 0, number]);
                assert_eq!(program.run_many(&frame, spent as u32).unwrap(), spent);
                (spent, frame)
            })
            .collect();
        program.apply(&policy(&[(limit, new)])).unwrap();
        for (spent, frame) in &sources {
            // Part of a token is enough for one packet.
            let share = u128::from(old.burst - spent) * u128::from(new.burst);
            let most = share.div_ceil(old.burst.into()) as u64;
            let left = program.run_many(frame, new.burst as u32 + 9).unwrap();
            // The migration rounds down, by less than a packet.
            let least = most.saturating_sub(1);
            assert!((least..=most).contains(&left), "{left} of {most} after {spent}");
        }
    }
    program.check_accounts().unwrap();
}

#[test]
fn a_full_bucket_stays_full_and_an_empty_one_empty() {
    let bursts = [1, 7, 1_000, 100_000, 3];
    let limits = |burst| Builtin::ALL.map(|limit| (limit, per_second(10, burst)));
    let mut program = program(&policy(&limits(5)));
    let [spender, idle] = [syn(A), syn([10, 0, 0, 2])];
    assert_eq!(program.run_many(&idle, 1).unwrap(), 1);
    let now = NOW + 1_000_000_000;
    program.at(now).unwrap();
    assert_eq!(program.run_many(&spender, 9).unwrap(), 5);
    for burst in bursts {
        program.apply(&policy(&limits(burst))).unwrap();
        assert_eq!(program.run_many(&spender, 9).unwrap(), 0, "burst {burst}");
    }
    // The spender is empty but not stuck. The idle source has sent nothing since the first of these policies.
    program.at(now + 100_000_000).unwrap();
    assert_eq!(program.run_many(&spender, 9).unwrap(), 1);
    assert_eq!(program.run_many(&idle, 9).unwrap(), 3);
}

#[test]
fn going_to_and_fro_fills_nothing() {
    let old = policy(&[(Builtin::Source, tokens(1_000))]);
    let mut new = policy(&[(Builtin::Source, bucket(Rate::per_second(1), 77_777))]);
    set_override(&mut new, Builtin::Source, "10.0.0.0/24", bucket(NEVER, 3));
    let mut program = program(&old);
    assert_eq!(program.run_many(&udp(A), 500).unwrap(), 500);
    let other = udp([10, 1, 0, 1]);
    assert_eq!(program.run_many(&other, 900).unwrap(), 900);
    let mut before = u64::MAX;
    for _ in 0..30 {
        for policy in [&new, &old] {
            program.apply(policy).unwrap();
            assert_eq!(program.run_many(&udp([10, 2, 0, 1]), 1).unwrap(), 1);
        }
        let left = 1_000 - program.run_many(&udp(A), 1).unwrap();
        assert!(left <= before);
        before = left;
    }
    assert!(program.run_many(&udp(A), 1_000).unwrap() <= 500 - 30);
    assert_eq!(program.run_many(&other, 1_000).unwrap(), 100);
}

#[test]
fn a_limit_that_is_set_starts_full_and_one_that_is_deleted_is_gone() {
    let mut program = program(&Policy::default());
    for limit in Builtin::ALL {
        assert_eq!(program.run_many(&syn(A), 50).unwrap(), 50);
        program.apply(&policy(&[(limit, tokens(7))])).unwrap();
        assert_eq!(program.run_many(&syn(A), 50).unwrap(), 7, "{limit:?}");
        program.apply(&Policy::default()).unwrap();
    }
    assert_eq!(program.run_many(&syn(A), 50).unwrap(), 50);
    program.check_accounts().unwrap();
}

/// Two CPUs send packets of one source while the policy changes again and again.
#[test]
fn changes_under_load_give_nothing_away() {
    const CHANGES: usize = 60;
    let limits = |burst| policy(&Builtin::ALL.map(|limit| (limit, tokens(burst))));
    let mut overridden = limits(40);
    set_override(&mut overridden, Builtin::Source, "10.0.0.0/8", tokens(3_000));
    set_override(&mut overridden, Builtin::Syn, "10.0.0.0/16", tokens(500));
    let policies = [limits(1_000), limits(10), overridden];
    let mut program = TestProgram::new(SMALL, &policies[0], Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let frame = syn(A);
    assert_eq!(program.run_many(&frame, 2_000).unwrap(), 1_000);

    swap_under_load(&mut program, &[frame], 500, &policies, CHANGES);
    program.check_accounts().unwrap();
    assert_eq!(program.passed().unwrap(), 1_000);
    check_contended(&program, 1_000);
}
