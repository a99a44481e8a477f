//! Several limits on one packet: the order in which they are checked, and which of them are charged.

use limiter_common::{
    abi::state::Bucket as State,
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
    policy::limit::{BucketKey, INLINE, LIMITS},
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{TestProgram, Verdict, Wide},
};
use limiter_userspace::policy::model::{Allowance, KeyPart};

use super::{
    NOW, bucket,
    define::{and, limit, policy_of, within},
    modes::{KEYS, MINUTE, every_limit, tally},
    per_second, program,
    sent::Sent,
    tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

/// The words of the source, and the states by other keys.
type Words = ([u64; INLINE], Vec<(BucketKey, State)>, Vec<(BucketKey, Wide)>);

fn words(program: &TestProgram) -> Words {
    let source = program.whole_source(&Address::v4(A)).unwrap().unwrap();
    let mut buckets = program.buckets().unwrap();
    let mut wide_states = program.wide_states().unwrap();
    buckets.sort_by_key(|(key, _)| *key);
    wide_states.sort_by_key(|(key, _)| *key);
    (source.words(), buckets, wide_states)
}

/// Whichever of many limits refuses a packet, the others keep their state.
#[test]
fn a_packet_that_is_refused_is_charged_nowhere() {
    let refusing = every_limit(1).filter(|limit| limit.key.parts != [KeyPart::Source]);
    let own = [limit("own", &[KeyPart::Source], tokens(1))];
    for refusing in refusing.chain(own) {
        let others = [
            limit("a", &[KeyPart::Source], tokens(100)),
            limit("b", &[KeyPart::Source], per_second(1, 100)),
            limit("c", &[KeyPart::Connection], Allowance::FixedWindow { limit: 9, window: MINUTE }),
            limit("d", &[within(24, 64)], Allowance::SlidingLog { limit: 9, window: MINUTE }),
            limit("e", &[KeyPart::Interface], Allowance::Concurrent { limit: 9, idle: MINUTE }),
            limit("f", &[], Allowance::SlidingWindow { limit: 9, window: MINUTE }),
        ];
        // A packet may have at most two limits with wide state.
        let is_wide = matches!(
            refusing.layers[0].allowance,
            Allowance::SlidingLog { .. } | Allowance::Concurrent { .. }
        );
        let others: Vec<_> =
            others.into_iter().filter(|limit| !is_wide || limit.name != "d").collect();
        let names: Vec<_> = others.iter().map(|limit| limit.name.clone()).collect();
        let mut program = program(&policy_of(others.into_iter().chain([refusing.clone()])));
        let opens = |port| Frame::tcp(A, B, port, 443, SYN).build();
        assert_eq!(program.run(&opens(1)).unwrap(), Verdict::Pass);
        let before = words(&program);
        assert!(before.1.len() >= 2 && before.2.len() >= 2, "{refusing:?}");
        // Packets of the same connection, and of connections without state.
        for port in [1, 2, 3] {
            assert_eq!(program.run(&opens(port)).unwrap(), Verdict::Drop, "{refusing:?}");
            assert!(words(&program) == before, "{refusing:?}");
        }
        assert_eq!(tally(&program, &refusing.name), (1, 3));
        for name in names {
            assert_eq!(tally(&program, &name), (1, 0), "{name} beside {refusing:?}");
        }
        program.check_accounts().unwrap();
    }
}

/// If several limits would refuse a packet, it is counted at the narrowest.
#[test]
fn narrow_limits_are_asked_before_wide_ones() {
    let keys: [&[KeyPart]; 8] = [
        &[KeyPart::Connection],
        &[KeyPart::Source, KeyPart::DestinationPort],
        &[within(24, 48)],
        &[KeyPart::Tenant],
        &[KeyPart::Destination],
        &[KeyPart::DestinationPort],
        &[KeyPart::Interface],
        &[],
    ];
    let names: Vec<String> = (0..keys.len()).map(|at| format!("limit-{at}")).collect();
    for first in 0..keys.len() {
        let limits = keys.iter().zip(&names).enumerate().map(|(at, (parts, name))| {
            limit(name, parts, tokens(if at < first { 100 } else { 2 }))
        });
        // The order in the document does not matter.
        let mut policy = policy_of(limits.rev());
        policy.tenants.insert("ours".to_owned(), vec!["10.0.0.0/8".parse().unwrap()]);
        let mut program = program(&policy);
        assert_eq!(program.run_many(&udp(A), 12).unwrap(), 2);
        for (at, name) in names.iter().enumerate() {
            let refused = if at == first { 10 } else { 0 };
            assert_eq!(tally(&program, name), (2, refused), "{name}, first {first}");
        }
        program.check_accounts().unwrap();
    }
}

/// As many limits as a policy can have. Each packet matches one of them, by its port.
#[test]
fn a_policy_can_have_64_limits() {
    let limits = (0..LIMITS as u16).map(|number| {
        let mut limit = limit(&format!("port-{number}"), &[KeyPart::Destination], tokens(3));
        limit.matching.protocols = vec![17];
        limit.matching.ports = vec![1_000 + number..=1_000 + number];
        limit
    });
    let mut program = program(&policy_of(limits));
    for port in (1_000..1_000 + LIMITS as u16).rev() {
        let frame = Sent::udp(A, B, [5, port]).frame();
        assert_eq!(program.run_many(&frame, 10).unwrap(), 3, "port {port}");
    }
    let tallies = (0..LIMITS).all(|number| tally(&program, &format!("port-{number}")) == (3, 7));
    assert!(tallies);
    program.check_accounts().unwrap();
}

/// `100/min` and `5/s` together.
#[test]
fn all_layers_of_a_limit_have_to_admit() {
    for parts in KEYS {
        let minute = Allowance::FixedWindow { limit: 100, window: MINUTE };
        let second = Allowance::FixedWindow { limit: 5, window: SECOND };
        let both = and(limit("both", parts, minute), second);
        let begin = NOW / MINUTE * MINUTE;
        let mut program = program(&policy_of([both]));
        let mut sums = [0; 2];
        for number in 0..120 {
            program.at(begin + number * SECOND + 7).unwrap();
            let passed = program.run_many(&udp(A), 9).unwrap();
            let sum = &mut sums[(number / 60) as usize];
            assert_eq!(passed, 5.min(100 - *sum), "second {number}");
            *sum += passed;
        }
        assert_eq!(sums, [100, 100]);
        let (first, second) = (tally(&program, "both"), tally(&program, "both (layer 2)"));
        assert_eq!((first.0, second.0), (200, 200));
        // In each minute, the layer of a second refuses in 19 seconds. In the next second both layers have
        // nothing left; the layer of a minute is checked first.
        assert_eq!((first.1, second.1), (2 * (4 + 40 * 9), 2 * 19 * 4));
        program.check_accounts().unwrap();
    }
    // The same with buckets, in the entry of the source.
    let minute = bucket(Rate { packets: 100, period: MINUTE }, 100);
    let mut program =
        program(&policy_of([and(limit("both", &[KeyPart::Source], minute), per_second(5, 5))]));
    let passed: Vec<u64> = (0..40)
        .map(|second| {
            program.at(NOW + second * SECOND).unwrap();
            program.run_many(&udp(A), 9).unwrap()
        })
        .collect();
    assert!(passed[..28].iter().all(|passed| *passed == 5), "{passed:?}");
    assert!(passed[32..].iter().all(|passed| *passed <= 2), "{passed:?}");
}
