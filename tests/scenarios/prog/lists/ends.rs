//! List entries that have an end.

use std::{
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::program::{TestProgram, Verdict, monotonic};
use limiter_userspace::{
    policy::{
        List, Policy,
        model::{KeyPart, Listed, Whom},
    },
    query::{Inquiry, lists::Until},
};

use super::{
    super::{
        Run, counted,
        define::{limit, policy_of},
        modes::tally,
        mutation::Random,
        naive::truncated,
        part, program, seed, tokens, udp,
    },
    LISTS, entries, entry,
};

fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The end of the list entry for an address, on the clock of the program.
fn end(program: &TestProgram, address: IpAddr, list: List) -> u64 {
    let now = monotonic();
    let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
    let lists = inquiry.source(address.into(), now).unwrap().lists;
    let until = match list {
        List::Allow => lists.allowed,
        List::Deny => lists.denied,
        List::Penalty => lists.blocked,
    };
    let left = until.and_then(|until| match until {
        Until::For(left) => Some(left),
        Until::Forever => None,
    });
    now + left.unwrap().as_nanos() as u64
}

/// An entry ends by itself: no process acts, only time passes.
#[test]
fn an_entry_ends_by_the_clock_alone() {
    const LASTS: u64 = 100;
    for (list, reason) in LISTS {
        let mut policy = policy_of([limit("none", &[KeyPart::Source], tokens(1))]);
        let (before, now) = (monotonic(), unix());
        // An entry that had already ended has no effect.
        *entries(&mut policy, list) = vec![
            entry("10.0.0.0/24", Some(now + LASTS)),
            entry("10.0.0.0/8", Some(now)),
            entry("10.0.0.1/32", Some(now.saturating_sub(9))),
        ];
        let mut program = program(&policy);
        let end = end(&program, [10, 0, 0, 1].into(), list);
        // Exact to the second; a part of the current second had passed.
        let [least, most] = [LASTS - 2, LASTS + 1].map(|seconds| seconds * SECOND);
        assert!((before + least..monotonic() + most).contains(&end), "{list:?}");
        let frame = udp([10, 0, 0, 1]);
        for now in [before, end - SECOND, end - 1] {
            program.at(now).unwrap();
            let passed = if reason.drops() { 0 } else { 3 };
            assert_eq!(program.run_many(&frame, 3).unwrap(), passed, "{list:?} at {now}");
        }
        assert_eq!((counted(&program, reason), tally(&program, "none")), (9, (0, 0)));
        program.at(end).unwrap();
        assert_eq!(program.run_many(&frame, 3).unwrap(), 1, "{list:?}");
        assert_eq!((counted(&program, reason), tally(&program, "none")), (9, (1, 2)));
        // An address that no current entry covers is limited all the time.
        program.at(before).unwrap();
        assert_eq!(program.run_many(&udp([10, 0, 1, 1]), 3).unwrap(), 1);
        program.check_accounts().unwrap();
    }
}

/// When the entry that decided ends, the next one decides.
#[test]
fn what_an_entry_hid_is_there_when_it_ends() {
    let now = unix();
    let policy = Policy {
        allow: vec![entry("10.0.0.0/24", Some(now + 100))],
        deny: vec![entry("10.0.0.0/8", Some(now + 200)), entry("10.0.0.7/32", Some(now + 50))],
        penalties: vec![
            entry("10.0.0.7/32", Some(now + 300)),
            entry("10.0.0.0/16", Some(now + 250)),
        ],
        ..Policy::default()
    };
    let mut program = program(&policy);
    let allowed = end(&program, [10, 0, 0, 7].into(), List::Allow);
    for (after, reason) in [
        (0, Reason::Deny),
        (100 * SECOND - 1, Reason::Deny),
        (100 * SECOND, Reason::Penalty),
        (200 * SECOND - 1, Reason::Penalty),
        (200 * SECOND, Reason::Conform),
    ] {
        program.at(allowed - 1).unwrap();
        let before = [Reason::Allow, reason].map(|reason| counted(&program, reason));
        program.run(&udp([10, 0, 0, 7])).unwrap();
        program.at(allowed + after).unwrap();
        program.run(&udp([10, 0, 0, 7])).unwrap();
        let counted = [Reason::Allow, reason].map(|reason| counted(&program, reason));
        assert_eq!(counted, before.map(|before| before + 1), "{after}");
    }
    program.check_accounts().unwrap();
}

/// Random lists with nested prefixes and random ends, compared with a model that goes through all entries.
#[test]
fn lists_are_those_of_a_naive_matcher() {
    const SPAN: usize = 40;
    let address = |random: &mut Random| -> IpAddr {
        let few = |random: &mut Random| *random.pick(&[0_u8, 1, 0x80, 0xff]);
        let bits: [u8; 3] = std::array::from_fn(|_| few(random));
        if random.below(2) == 0 {
            [10, bits[0], bits[1], bits[2]].into()
        } else {
            let [a, b, c] = bits.map(u16::from);
            [0x2001, 0xdb8, a, b, 0, 0, 0, c].into()
        }
    };
    let seed = seed();
    let mut program = program(&Policy::default());
    let mut reasons = [0_u64; Reason::ALL.len()];
    for run in 0..part(60).max(20) {
        let mut random = Random::new(seed, run);
        let begin = unix();
        let marked: IpAddr = [192, 0, 2, 1].into();
        let mut policy = Policy::default();
        // Few entries in the first list, because it hides those of the others.
        for ((list, _), most) in LISTS.into_iter().zip([4, 7, 9]) {
            for _ in 0..random.below(most) {
                let address = address(&mut random);
                let (least, most) = if address.is_ipv4() { (16, 32) } else { (40, 64) };
                let length = (least + random.below(most - least + 1)) as u8;
                let prefix = IpNet::new(truncated(address, length), length).unwrap();
                // Some entries have ended before the policy is applied.
                let until = random.below(SPAN) as u64 + begin - 10;
                let until = (random.below(3) > 0).then_some(until);
                entries(&mut policy, list).push(Listed { whom: Whom::Prefix(prefix), until });
            }
        }
        let _run = Run { seed, run, of: &policy.clone() };
        policy.allow.push(entry("192.0.2.1/32", Some(begin + 100)));
        program.apply(&policy).unwrap();
        // This entry shows at which time of the program's clock a second of the other ends begins.
        let second = end(&program, marked, List::Allow) - 100 * SECOND;
        // Entries that had ended when the policy was applied never had an effect.
        let least = unix() - begin + 1;
        for _ in 0..60 {
            let after = (least + random.below(SPAN) as u64) * SECOND;
            let now = second + after - random.below(2) as u64;
            program.at(now).unwrap();
            let address = address(&mut random);
            let holds = |listed: &Listed| {
                let ends = |until| now + begin * SECOND < second + until * SECOND;
                let Whom::Prefix(prefix) = &listed.whom else { return false };
                prefix.contains(&address) && listed.until.is_none_or(ends)
            };
            let first = LISTS.iter().find(|(list, _)| policy.list(*list).iter().any(holds));
            let reason = first.map_or(Reason::Conform, |(_, reason)| *reason);
            let verdict = program.run(&udp(address)).unwrap();
            assert_eq!(verdict == Verdict::Drop, reason.drops(), "{address} at {}", now - second);
            reasons[reason.index()] += 1;
            assert_eq!(counted(&program, reason), reasons[reason.index()], "{address} {reason:?}");
        }
    }
    for reason in [Reason::Allow, Reason::Deny, Reason::Penalty, Reason::Conform] {
        assert!(reasons[reason.index()] > 10, "{reasons:?}");
    }
    program.check_accounts().unwrap();
}
