//! Packets at limits that do not change.

use limiter_common::{
    algorithm::{
        binding::Binding,
        meter::Meter,
        policer::{Policer as _, Refusal},
        rate::Rate,
    },
    base::word::Word as _,
};
use loom::{sync::Arc, thread};

use super::{
    NOW, Plain, charge, check,
    entry::{ALL, Entry, LIMITS, Policy, bucket, decide, passes},
};

/// A thread with two packets and two with one each, at a bucket of `tokens` and a unit or none.
fn one_bucket(tokens: u64, unit: u64) {
    let gcra = bucket(1_000, 5, 1);
    let begin = gcra.fresh(NOW) + (5 - tokens) * gcra.interval - unit;
    // Part of a token is enough for one packet, and for one only.
    assert_shared(Meter::bucket(gcra), 1, begin, (tokens + unit).min(4));
}

/// The same at a queue with room for so many packets of 1,500 bytes, less a unit or not.
fn one_queue(packets: u64, unit: u64) {
    let queue = Rate::per_second(1_000_000).queue(9_000, 1_500).unwrap();
    let begin = queue.fresh(NOW) + (6 - packets) * queue.units(1_500) + unit;
    // There has to be room for all of a packet.
    assert_shared(Meter::bucket(queue), 1_500, begin, (packets - unit).min(4));
}

/// Asserts how many packets of three threads are admitted.
fn assert_shared(meter: Meter, cost: u64, begin: u64, expected: u64) {
    let word = Arc::new(Plain::new(begin));
    let send = |packets: usize| {
        let word = Arc::clone(&word);
        move || {
            let conform = |_: &usize| {
                let look = meter.look(&*word, NOW, cost);
                look.and_then(|look| charge(&meter, &*word, look, cost))
                    .inspect_err(|refusal| assert_eq!(*refusal, Refusal::Exceed))
                    .is_ok()
            };
            (0..packets).filter(conform).count() as u64
        }
    };
    let others = [thread::spawn(send(1)), thread::spawn(send(1))];
    let mut admitted = send(2)();
    for other in others {
        admitted += other.join().unwrap();
    }
    assert_eq!(admitted, expected);
    assert_eq!(word.load(), begin + admitted * meter.gcra.units(cost));
}

#[test]
fn what_is_left_is_given_out_exactly_once() {
    for (tokens, unit) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)] {
        check(3, move || one_bucket(tokens, unit));
    }
    for (packets, unit) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 1)] {
        check(3, move || one_queue(packets, unit));
    }
}

/// Three packets at a source, the last of which the second limit is not about.
fn several_limits(packets: [u64; LIMITS], enforced: u64) {
    const APPLIES: [u64; 3] = [ALL, ALL, 0b101];
    let policy = Policy { enforced, ..Policy::of(packets) };
    let bound = Binding::new(1, 0);
    let entry = Entry::bound(bound, &policy, policy.fresh());
    let send = |applies| {
        let entry = Arc::clone(&entry);
        move || decide(&entry, bound, &policy, applies)
    };
    let others = [thread::spawn(send(APPLIES[1])), thread::spawn(send(APPLIES[2]))];
    let first = send(APPLIES[0])();
    let [second, third] = others.map(|other| other.join().unwrap());

    let bills = [first, second, third];
    let mut charged = [0; LIMITS];
    for (bill, applies) in bills.iter().zip(APPLIES) {
        // The policy does not change, and three packets are fewer than the tries of a charge.
        assert_eq!((bill.contended, bill.applies), (0, applies), "{bill:?}");
        assert_eq!(bill.refused & !enforced, 0, "a limit that is not enforced refused");
        assert_eq!(bill.exceeded & enforced, 0, "{bill:?}");
        if passes(bill) {
            // To all limits, or it is counted as over those that only count.
            assert_eq!(bill.charged | bill.exceeded, applies, "{bill:?}");
            assert_eq!(bill.charged & bill.exceeded, 0, "{bill:?}");
            for (place, charged) in charged.iter_mut().enumerate() {
                *charged += bill.charged >> place & 1;
            }
        }
    }
    // None is admitted twice, and refused packets are as if they never came.
    assert_eq!(entry.values(), policy.after(charged));
    assert!(charged.iter().zip(packets).all(|(charged, packets)| *charged <= packets));
    // Nobody is refused where each limit that is enforced has room for all of them.
    let room = |place: usize| packets[place] >= 3 || enforced >> place & 1 == 0;
    assert!(!(0..LIMITS).all(room) || bills.iter().all(passes), "{bills:?}");
}

#[test]
fn a_packet_is_charged_to_all_limits_or_to_none() {
    for packets in [[3, 2, 1], [1, 2, 3], [3, 1, 2], [2, 2, 2], [3, 3, 3]] {
        check(2, move || several_limits(packets, ALL));
    }
}

#[test]
fn limits_that_are_not_enforced_count_and_refuse_nobody() {
    for enforced in [0b000, 0b001, 0b010, 0b100, 0b110, 0b101, 0b011] {
        for packets in [[1, 2, 3], [2, 1, 1], [3, 2, 1]] {
            check(2, move || several_limits(packets, enforced));
        }
    }
}

/// The narrowest of the limits that have nothing left is the one that refuses, wherever it is.
#[test]
fn the_narrowest_limit_refuses() {
    check(2, || {
        let policy = Policy::of([1, 1, 1]);
        let bound = Binding::new(1, 0);
        let entry = Entry::bound(bound, &policy, policy.after([1, 1, 1]));
        let send = |applies: u64| {
            let entry = Arc::clone(&entry);
            move || decide(&entry, bound, &policy, applies)
        };
        let other = thread::spawn(send(0b110));
        assert_eq!(send(ALL)().refused, 0b001);
        assert_eq!(other.join().unwrap().refused, 0b010);
        assert_eq!(send(0b100)().refused, 0b100);
        assert_eq!(entry.values(), policy.after([1, 1, 1]));
    });
}
