//! Blocks that are pushed into the running tables, without another policy.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use limiter_common::{
    algorithm::{binding::Binding, rate::SECOND},
    packet::reason::Reason,
    policy::penalty::Block,
};
use limiter_tests::{
    packet::{ACK, Frame},
    program::{Clock, SMALL, Sizes, TestProgram, pin_to_cpu, two_cpus},
};
use limiter_userspace::{
    datapath::pushes::{Owner, Pushed},
    policy::{
        Policy,
        model::{KeyPart, KeyPrefix},
    },
    query::{Inquiry, frame::Sighting},
};

use super::{
    NOW,
    define::{limit, policy_of},
    lists::entry,
    penalties::{PENALTY, reason_at},
    tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

fn policy(allow: &[&str]) -> Policy {
    let mut policy = policy_of([limit("it", &[KeyPart::Source], tokens(1_000_000))]);
    policy.allow.extend(allow.iter().map(|prefix| entry(prefix, None)));
    policy
}

fn address(octets: [u8; 4]) -> IpAddr {
    octets.into()
}

#[test]
fn a_pushed_block_drops_all_packets_of_its_source_until_it_ends() {
    let mut program = TestProgram::fresh(SMALL, &policy(&["10.0.0.9/32"]), Clock::Test).unwrap();
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut pusher = program.pusher().unwrap();
    // One with an entry, one without.
    for (seconds, source) in [(10, A), (20, OTHER)] {
        let (begin, end) = (NOW + seconds * SECOND, NOW + (seconds + 5) * SECOND);
        program.at(begin).unwrap();
        assert_eq!(pusher.push(address(source), end).unwrap(), Pushed::Blocked);
        let tcp = Frame::tcp(source, B, 1, 2, ACK).build();
        for (at, frame) in [(begin, &udp(source)), (begin + 1, &tcp), (end - 256, &tcp)] {
            assert_eq!(reason_at(&mut program, at, frame), Reason::Penalty);
        }
        assert_eq!(reason_at(&mut program, end, &tcp), Reason::Conform);
        let entry = program.source(&address(source).into()).unwrap().unwrap();
        assert_eq!(Block(entry.blocked).state(Binding(entry.binding)), 0, "it is forgotten");
        assert_eq!(reason_at(&mut program, end, &udp([10, 0, 0, 3])), Reason::Conform);
    }
    // It is made longer, and no shorter.
    let (first, second) = (NOW + 40 * SECOND, NOW + 50 * SECOND);
    assert_eq!(pusher.push(address(A), first).unwrap(), Pushed::Blocked);
    assert_eq!(pusher.push(address(A), second).unwrap(), Pushed::Blocked);
    assert_eq!(pusher.push(address(A), first).unwrap(), Pushed::Longer(second));
    assert_eq!(reason_at(&mut program, second - 256, &udp(A)), Reason::Penalty);
    assert_eq!(reason_at(&mut program, second, &udp(A)), Reason::Conform);

    // `allow` rules.
    assert_eq!(pusher.push(address([10, 0, 0, 9]), second + SECOND).unwrap(), Pushed::Allowed);
    assert_eq!(reason_at(&mut program, second, &udp([10, 0, 0, 9])), Reason::Allow);

    // Of IPv6, the /64 is a source.
    let v6 = |text: &str| udp(text.parse::<IpAddr>().unwrap());
    let source = pusher.source_of("2001:db8:0:1::7".parse().unwrap()).unwrap().addr();
    assert_eq!(pusher.push(source, second + SECOND).unwrap(), Pushed::Blocked);
    assert_eq!(reason_at(&mut program, second, &v6("2001:db8:0:1::8")), Reason::Penalty);
    program.check_accounts().unwrap();
    drop(pusher);
    program.close().unwrap();
}

/// A CPU that refuses a source remembers that, also when the source is blocked meanwhile.
#[test]
fn the_inquiry_finds_a_remembered_refusal_after_a_push() {
    let policy = policy_of([limit("it", &[KeyPart::Source], tokens(2))]);
    let mut program = TestProgram::fresh(SMALL, &policy, Clock::Test).unwrap();
    let mut pusher = program.pusher().unwrap();
    let until = NOW + 10 * SECOND;
    assert_eq!(pusher.push(address(OTHER), until).unwrap(), Pushed::Blocked);
    for reason in [Reason::Conform, Reason::Conform, Reason::Exceed] {
        assert_eq!(reason_at(&mut program, NOW, &udp(A)), reason);
    }
    assert_eq!(pusher.push(address(A), until).unwrap(), Pushed::Blocked);
    let mut inquiry = Inquiry::new(program.maps(), NOW).unwrap();
    let said = inquiry.verdict(&Sighting::whole(&udp(A)), 0, NOW).unwrap().reason;
    drop(inquiry);
    assert_eq!((said, reason_at(&mut program, NOW, &udp(A))), (Reason::Exceed, Reason::Exceed));
    drop(pusher);
    program.close().unwrap();
}

#[test]
fn a_pushed_block_stays_with_another_policy_and_other_tables_and_ends_when_it_is_lifted() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    let end = NOW + 1_000 * SECOND;
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    for source in [A, OTHER] {
        assert_eq!(pusher.push(address(source), end).unwrap(), Pushed::Blocked);
    }
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Penalty);
    program.apply(&Policy::default()).unwrap();
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Penalty, "no limit is left");
    program.apply(&policy(&[])).unwrap();
    for source in [A, OTHER] {
        assert_eq!(reason_at(&mut program, NOW, &udp(source)), Reason::Penalty);
    }
    let blocked = Inquiry::new(program.maps(), NOW).unwrap().blocked(NOW).unwrap();
    assert_eq!(blocked.len(), 2);
    assert!(blocked.iter().all(|it| it.pushed && it.limit.is_none()), "{blocked:?}");
    assert!((999..=1_000).contains(&blocked[0].left.as_secs()), "{blocked:?}");
    assert_eq!(program.maps().pushed(Owner::Shared, NOW).unwrap().len(), 2);

    let larger = Sizes { sources: 2 * SMALL.sources, ..SMALL };
    drop(pusher);
    program.resize(&larger).unwrap();
    let mut pusher = program.pusher().unwrap();
    for source in [A, OTHER] {
        assert_eq!(reason_at(&mut program, NOW, &udp(source)), Reason::Penalty);
    }
    assert!(pusher.lift(address(A)).unwrap());
    assert!(!pusher.lift(address(A)).unwrap());
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    assert_eq!(reason_at(&mut program, NOW, &udp(OTHER)), Reason::Penalty);
    // What `penalty del` does to all blocks.
    program.split().unwrap().1.forgive(&["10.0.0.2/32".parse().unwrap()]).unwrap();
    program.apply(&policy(&[])).unwrap();
    assert_eq!(reason_at(&mut program, NOW, &udp(OTHER)), Reason::Conform);
    drop(pusher);
    program.close().unwrap();
}

/// Who pushes and lifts goes by what sources were a moment before.
#[test]
fn a_push_or_the_end_of_one_is_of_no_larger_source_than_was_asked_for() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    let [small, other, large] =
        ["2001:db8:0:1::", "2001:db8:0:2::", "2001:db8::"].map(|it| it.parse::<IpAddr>().unwrap());
    for owner in [Owner::Shared, Owner::CrowdSec] {
        let mut wide = policy(&[]);
        wide.set_key_prefix(KeyPrefix { ipv4: 32, ipv6: 48 }).unwrap();
        program.apply(&wide).unwrap();
        let end = NOW + 9 * SECOND;
        assert_eq!(pusher.push_for(owner, small, end).unwrap(), Pushed::Blocked);
        assert_eq!(reason_at(&mut program, NOW, &udp(other)), Reason::Conform);
        assert_eq!(Inquiry::new(program.maps(), NOW).unwrap().blocked(NOW).unwrap(), []);
        assert_eq!(pusher.push_for(owner, large, end).unwrap(), Pushed::Blocked);
        assert_eq!(reason_at(&mut program, NOW, &udp(other)), Reason::Penalty);
        assert!(pusher.lift_for(owner, small).unwrap());
        assert_eq!(reason_at(&mut program, NOW, &udp(other)), Reason::Penalty);
        assert_eq!(pusher.maps().pushed(owner, NOW).unwrap(), [(large, end)]);
        assert!(pusher.lift_for(owner, large).unwrap());
        program.apply(&policy(&[])).unwrap();
        assert_eq!(reason_at(&mut program, NOW, &udp(small)), Reason::Conform);
    }
    program.check_accounts().unwrap();
    drop(pusher);
    program.close().unwrap();
}

#[test]
fn a_limit_blocks_its_source_still_when_a_pushed_block_is_lifted() {
    let mut strict = limit("it", &[KeyPart::Source], tokens(1));
    strict.penalty = Some(PENALTY);
    let mut program = TestProgram::fresh(SMALL, &policy_of([strict]), Clock::Test).unwrap();
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut now = NOW + 1;
    while reason_at(&mut program, now, &udp(A)) != Reason::Penalty {
        now += SECOND / 10;
    }
    let mut pusher = program.pusher().unwrap();
    assert_eq!(
        reason_at(&mut program, now, &udp(A)),
        Reason::Penalty,
        "it stays when pushes begin"
    );
    assert_eq!(pusher.push(address(A), now + 1_000 * SECOND).unwrap(), Pushed::Blocked);
    assert_eq!(reason_at(&mut program, now + 500 * SECOND, &udp(A)), Reason::Penalty);
    program.at(now).unwrap();
    assert!(pusher.lift(address(A)).unwrap());
    assert_eq!(reason_at(&mut program, now + SECOND, &udp(A)), Reason::Penalty);
    let blocked = Inquiry::new(program.maps(), now).unwrap().blocked(now).unwrap();
    assert_eq!(blocked[0].limit.as_deref(), Some("it"));
    assert_ne!(reason_at(&mut program, now + 61 * SECOND, &udp(A)), Reason::Penalty);
    drop(pusher);
    program.close().unwrap();
}

#[test]
fn a_source_is_blocked_until_the_pushes_of_all_owners_have_ended() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    let at = |seconds| NOW + seconds * SECOND;
    let (a, own) = (address(A), Owner::CrowdSec);
    // With an entry, and without one.
    for has_entry in [false, true] {
        program.at(NOW).unwrap();
        let mut is_blocked = |seconds| {
            let is_blocked =
                reason_at(&mut program, at(seconds) - SECOND, &udp(A)) == Reason::Penalty;
            program.at(NOW).unwrap();
            is_blocked
        };
        assert!(!has_entry || !is_blocked(1));
        // The shorter one first, and then the longer one.
        assert_eq!(pusher.push(a, at(10)).unwrap(), Pushed::Blocked);
        assert_eq!(pusher.push_for(own, a, at(20)).unwrap(), Pushed::Blocked);
        assert!(is_blocked(20) && !is_blocked(22));
        assert!(pusher.lift_for(own, a).unwrap());
        assert!(!pusher.lift_for(own, a).unwrap());
        assert!(is_blocked(10) && !is_blocked(12), "the other one is left");
        // The other way round; a decision moves to an earlier end too.
        assert_eq!(pusher.push_for(own, a, at(40)).unwrap(), Pushed::Blocked);
        assert_eq!(pusher.push_for(own, a, at(30)).unwrap(), Pushed::Blocked);
        assert!(is_blocked(30) && !is_blocked(32));
        assert_eq!(pusher.push(a, at(5)).unwrap(), Pushed::Longer(at(10)));
        assert!(pusher.lift(a).unwrap() && !pusher.lift(a).unwrap());
        assert!(is_blocked(30) && !is_blocked(32));
        assert!(pusher.lift_for(own, a).unwrap());
        assert!(!is_blocked(1));
    }
    assert_eq!(pusher.push(a, at(10)).unwrap(), Pushed::Blocked);
    assert_eq!(pusher.push_for(own, a, at(20)).unwrap(), Pushed::Blocked);
    let pushed = |owner| pusher.maps().pushed(owner, at(15)).unwrap();
    assert_eq!((pushed(Owner::Shared), pushed(own)), (vec![], vec![(a, at(20))]));
    program.check_accounts().unwrap();
    drop(pusher);
    program.close().unwrap();
}

#[test]
fn a_block_of_before_there_were_owners_is_shared() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    let (end, own) = (NOW + 20 * SECOND, Owner::CrowdSec);
    for source in [A, OTHER] {
        assert_eq!(pusher.push(address(source), end).unwrap(), Pushed::Blocked);
    }
    program.forget_owners().unwrap();
    assert_eq!(pusher.maps().pushed(Owner::Shared, NOW).unwrap().len(), 2);
    assert_eq!(pusher.push(address(A), NOW + SECOND).unwrap(), Pushed::Longer(end));
    program.forget_owners().unwrap();
    assert_eq!(pusher.push_for(own, address(A), NOW + SECOND).unwrap(), Pushed::Blocked);
    assert_eq!(reason_at(&mut program, NOW + 10 * SECOND, &udp(A)), Reason::Penalty);
    program.at(NOW).unwrap();
    assert!(pusher.lift(address(OTHER)).unwrap());
    assert_eq!(reason_at(&mut program, NOW, &udp(OTHER)), Reason::Conform);
    drop(pusher);
    program.close().unwrap();
}

#[test]
fn a_push_to_a_full_set_is_refused() {
    let sizes = Sizes { buckets: 1 << 10, ..SMALL };
    let mut program = TestProgram::fresh(sizes, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    let mut pushed = Vec::new();
    let refused =
        (0..=u8::MAX).flat_map(|c| (0..=u8::MAX).map(move |d| [10, 1, c, d])).find(|source| {
            let result = pusher.push(address(*source), NOW + SECOND).unwrap();
            if result == Pushed::Blocked {
                pushed.push(*source);
            }
            result == Pushed::Full
        });
    let refused = refused.unwrap();
    println!("{} of 1,920 records were in use", pushed.len());
    assert!(pushed.len() > 400, "{}", pushed.len());
    assert_eq!(program.maps().pushed(Owner::Shared, NOW).unwrap().len(), pushed.len());
    // None of the others was given away, and there is room again when they end.
    for source in &pushed {
        assert_eq!(reason_at(&mut program, NOW, &udp(*source)), Reason::Penalty);
    }
    assert_eq!(reason_at(&mut program, NOW, &udp(refused)), Reason::Conform);
    program.at(NOW + SECOND).unwrap();
    assert_eq!(pusher.push(address(refused), NOW + 2 * SECOND).unwrap(), Pushed::Blocked);
    drop(pusher);
    program.close().unwrap();
}

/// One CPU pushes and lifts while another one has packets of the same sources, which get their entries meanwhile.
#[test]
fn a_push_holds_whatever_packets_do_at_the_same_moment() {
    let mut program = TestProgram::fresh(SMALL, &policy(&[]), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let mut pusher = program.pusher().unwrap();
    let [one, other] = two_cpus().unwrap();
    let rounds = super::part(20_000) as u32;
    for round in 0..4 {
        let end = AtomicBool::new(false);
        let source = |number: u32| [10, 2 + round, (number >> 8) as u8, number as u8];
        let (runner, _) = program.split().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                pin_to_cpu(one).unwrap();
                while !end.load(Ordering::Relaxed) {
                    for number in 0..64 {
                        runner.run(&udp(source(number))).unwrap();
                    }
                }
            });
            pin_to_cpu(other).unwrap();
            for number in 0..rounds {
                let source = address(source(number % 64));
                pusher.push(source, NOW + SECOND).unwrap();
                if number + 64 < rounds {
                    assert!(pusher.lift(source).unwrap());
                }
            }
            end.store(true, Ordering::Relaxed);
        });
        for number in 0..64 {
            assert_eq!(reason_at(&mut program, NOW, &udp(source(number))), Reason::Penalty);
        }
    }
    program.check_accounts().unwrap();
    drop(pusher);
    program.close().unwrap();
}
