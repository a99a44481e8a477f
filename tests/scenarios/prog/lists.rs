//! The lists `allow`, `deny` and `penalty`: they apply before all limits, in this order, until their entries
//! end.

mod ends;

use std::net::IpAddr;

use limiter_common::packet::reason::Reason;
use limiter_tests::program::Verdict;
use limiter_userspace::policy::{
    List, Policy,
    model::{GlobalMode, KeyPart, Listed, Whom},
};

use super::{
    counted,
    define::{limit, policy_of},
    modes::tally,
    program, tokens, udp,
};

const LISTS: [(List, Reason); 3] =
    [(List::Allow, Reason::Allow), (List::Deny, Reason::Deny), (List::Penalty, Reason::Penalty)];

pub(super) fn entry(prefix: &str, until: Option<u64>) -> Listed {
    Listed { whom: Whom::Prefix(prefix.parse().unwrap()), until }
}

fn entries(policy: &mut Policy, list: List) -> &mut Vec<Listed> {
    match list {
        List::Allow => &mut policy.allow,
        List::Deny => &mut policy.deny,
        List::Penalty => &mut policy.penalties,
    }
}

/// Puts 10.0.0.N on the lists whose bits are set in N.
fn every_combination() -> Policy {
    let mut policy = policy_of([
        limit("source", &[KeyPart::Source], tokens(2)),
        limit("all", &[], tokens(1_000)),
    ]);
    for number in 0..8 {
        for (bit, (list, _)) in LISTS.into_iter().enumerate() {
            if number >> bit & 1 != 0 {
                entries(&mut policy, list).push(entry(&format!("10.0.0.{number}/32"), None));
            }
        }
    }
    policy
}

#[test]
fn allow_comes_before_deny_before_penalties_before_limits() {
    let policy = every_combination();
    for mode in [GlobalMode::Enforce, GlobalMode::Monitor] {
        let mut program = program(&Policy { mode, ..policy.clone() });
        let mut monitored = 0;
        for number in 0..8 {
            let first = LISTS.iter().enumerate().find(|(bit, _)| number >> bit & 1 != 0);
            let (reason, packets) =
                first.map_or((Reason::Exceed, 3), |(_, (_, reason))| (*reason, 5));
            let before = counted(&program, reason);
            let passed = program.run_many(&udp([10, 0, 0, number]), 5).unwrap();
            let drops = if reason.drops() { packets } else { 0 };
            if mode == GlobalMode::Enforce {
                assert_eq!(passed, 5 - drops, "{number}");
                assert_eq!(counted(&program, reason) - before, packets, "{number}");
            } else {
                assert_eq!(passed, 5, "{number}");
                monitored += drops;
            }
        }
        // Of the 8 addresses, two are denied (one of them blocked too), and one is only blocked.
        let expected = match mode {
            GlobalMode::Enforce => [20, 10, 5, 3, 0, 2],
            GlobalMode::Monitor => [20, 0, 0, 0, 18, 2],
        };
        assert_eq!(monitored, expected[4]);
        let reasons = [
            Reason::Allow,
            Reason::Deny,
            Reason::Penalty,
            Reason::Exceed,
            Reason::Monitor,
            Reason::Conform,
        ];
        assert_eq!(reasons.map(|reason| counted(&program, reason)), expected);
        // Packets of listed sources are not charged to any limit.
        assert_eq!(["source", "all"].map(|name| tally(&program, name)), [(2, 3), (2, 0)]);
        program.check_accounts().unwrap();
    }
}

/// An entry for a prefix holds for all addresses in it, whatever the list says about longer prefixes.
#[test]
fn what_holds_for_a_prefix_holds_for_all_in_it() {
    let mut policy = Policy {
        allow: vec![entry("10.1.2.0/24", None), entry("2001:db8:1::/48", None)],
        deny: vec![
            entry("10.1.0.0/16", None),
            entry("10.1.2.3/32", None),
            entry("2001:db8::/32", None),
        ],
        penalties: vec![entry("10.0.0.0/8", None), entry("10.1.9.0/24", None)],
        ..Policy::default()
    };
    policy.sets.insert(
        "both".to_owned(),
        ["192.0.2.0/25", "2001:db8:2::/64"].map(|it| it.parse().unwrap()).to_vec(),
    );
    policy.allow.push(Listed { whom: Whom::Set("both".to_owned()), until: None });
    let mut program = program(&policy);
    for (address, reason) in [
        ("10.1.2.3", Reason::Allow),
        ("10.1.2.255", Reason::Allow),
        ("10.1.3.0", Reason::Deny),
        ("10.1.1.255", Reason::Deny),
        ("10.1.9.9", Reason::Deny),
        ("10.0.255.255", Reason::Penalty),
        ("10.2.0.0", Reason::Penalty),
        ("11.0.0.0", Reason::Conform),
        ("9.255.255.255", Reason::Conform),
        ("192.0.2.127", Reason::Allow),
        ("192.0.2.128", Reason::Conform),
        ("2001:db8:1:ffff::1", Reason::Allow),
        ("2001:db8:2::ffff", Reason::Allow),
        ("2001:db8:2:1::", Reason::Deny),
        ("2001:db9::", Reason::Conform),
    ] {
        let before = counted(&program, reason);
        let verdict = program.run(&udp(address.parse::<IpAddr>().unwrap())).unwrap();
        assert_eq!(verdict == Verdict::Drop, reason.drops(), "{address}");
        assert_eq!(counted(&program, reason) - before, 1, "{address} {reason:?}");
    }
    program.check_accounts().unwrap();
}
