//! Penalties: when a source that stays over a limit is blocked, for how long, and from what.

use std::ops::Range;

use ipnet::IpNet;
use limiter_common::{
    algorithm::{
        binding::Binding,
        rate::{Rate, SECOND},
    },
    base::address::Address,
    memory::cache::Cached,
    packet::reason::Reason,
    policy::penalty::Block,
};
use limiter_tests::{
    packet::{ACK, Frame},
    program::{TestProgram, Verdict},
};
use limiter_userspace::{
    policy::{
        Policy,
        model::{
            Allowance, GlobalMode, KeyPart, Limit, Listed, Mode, Override, OverrideWhom, Penalty,
            Unproven, Whom,
        },
    },
    query::{Inquiry, blocked::Blocked},
};

use super::{
    NOW, counted,
    define::{and, in_mode, limit, policy_of, within},
    modes::tally,
    program, syn, tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];
const B: [u8; 4] = [198, 51, 100, 1];
const DAY: u64 = 86_400 * SECOND;

pub(super) const PENALTY: Penalty = Penalty {
    backoff: 2,
    max: 200 * SECOND,
    unproven: Unproven::Block,
    ..Penalty::new(10 * SECOND, 60 * SECOND)
};

/// A limit of one UDP packet a day, with a penalty. It is a leaky bucket, so that part of a token is not
/// enough for a packet.
fn strict(name: &str, parts: &[KeyPart]) -> Limit {
    let allowance = Allowance::LeakyBucket { rate: Rate { packets: 1, period: DAY }, depth: 1 };
    let mut limit = Limit { penalty: Some(PENALTY), ..limit(name, parts, allowance) };
    limit.matching.protocols = vec![17];
    limit
}

/// Runs a frame at time `now` and returns the reason under which it is counted.
pub(super) fn reason_at(program: &mut TestProgram, now: u64, frame: &[u8]) -> Reason {
    program.at(now).unwrap();
    let before = program.counters().unwrap().reasons;
    let verdict = program.run(frame).unwrap();
    let after = program.counters().unwrap().reasons;
    let grew = |reason: &Reason| after[reason.index()].packets > before[reason.index()].packets;
    let reason = Reason::ALL.into_iter().find(grew).unwrap();
    assert_eq!(verdict == Verdict::Drop, reason.drops());
    reason
}

/// Exceeds the limit from `now` on, every two seconds, until the source is blocked. Returns the time of the
/// packet that caused it.
fn stay_over(program: &mut TestProgram, now: u64) -> u64 {
    for second in (0..10).step_by(2) {
        let reason = reason_at(program, now + second * SECOND, &udp(A));
        assert_eq!(reason, Reason::Exceed, "{second} s");
    }
    let last = now + PENALTY.after;
    let before = last - Cached::MOMENT;
    assert_eq!(reason_at(program, before, &udp(A)), Reason::Exceed, "a moment before");
    assert_eq!(reason_at(program, last, &udp(A)), Reason::Exceed, "the last one to be counted");
    assert_eq!(reason_at(program, last, &udp(A)), Reason::Penalty);
    last
}

/// Asserts that the source is blocked for `seconds` from `now` on, to within 256 ns. Returns the end of the
/// block.
fn is_blocked_for(program: &mut TestProgram, now: u64, seconds: u64) -> u64 {
    let end = now + seconds * SECOND;
    for at in [now + 1, now + SECOND, end - SECOND, end - 256] {
        assert_eq!(reason_at(program, at, &udp(A)), Reason::Penalty, "{seconds} s");
    }
    assert_eq!(reason_at(program, end, &udp(A)), Reason::Exceed, "{seconds} s are over");
    end
}

#[test]
fn who_stays_over_a_limit_is_blocked_and_then_is_not() {
    let mut program = program(&Policy::default());
    for parts in [&[KeyPart::Source][..], &[within(24, 48)], &[KeyPart::Connection]] {
        program.forget().unwrap();
        program.apply(&policy_of([strict("it", parts)])).unwrap();
        assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
        let blocked = stay_over(&mut program, NOW + SECOND);
        // The block covers all its packets, not only those that the limit matches. Other sources are not
        // affected.
        let tcp = Frame::tcp(A, B, 1, 2, ACK).build();
        let later = Frame::ip(A, B, 17).payload(40).fragment(1, 5, false).build();
        for frame in [&tcp, &later, &syn(A), &Frame::echo(A, B, 1, 2).build()] {
            assert_eq!(reason_at(&mut program, blocked + 1, frame), Reason::Penalty, "{parts:?}");
        }
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(OTHER)), Reason::Conform);
        let counted_before = tally(&program, "it");
        let end = is_blocked_for(&mut program, blocked, 60);
        // The last packet was refused. The block is forgotten all the same.
        let entry = program.source(&Address::v4(A)).unwrap().unwrap();
        assert_eq!(Block(entry.blocked).until(Binding(entry.binding)), 0, "{parts:?}");
        assert_eq!(reason_at(&mut program, end, &tcp), Reason::Conform);
        // A packet that is dropped because of the block is not charged to the limit.
        assert_eq!((counted_before, tally(&program, "it")), ((1, 7), (1, 8)), "{parts:?}");
    }
    program.check_accounts().unwrap();
}

/// A refusal that a CPU has cached still counts as an offence.
#[test]
fn a_flood_is_blocked_as_soon_as_it_has_stayed_over_the_limit() {
    let mut program = program(&Policy::default());
    for (after, step) in
        [(SECOND / 10, SECOND / 1_000), (SECOND, SECOND / 1_000), (SECOND, SECOND / 100)]
    {
        let penalty = Penalty { after, ..PENALTY };
        let mut limit = limit(
            "it",
            &[KeyPart::Source],
            Allowance::TokenBucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 1 },
        );
        limit.penalty = Some(penalty);
        program.forget().unwrap();
        program.apply(&policy_of([limit])).unwrap();
        assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
        // Part of a token is enough for one packet.
        assert_eq!(reason_at(&mut program, NOW + 1, &udp(A)), Reason::Conform);
        let mut now = NOW + 2;
        let blocked = loop {
            let reason = reason_at(&mut program, now, &udp(A));
            if reason != Reason::Exceed {
                assert_eq!(reason, Reason::Penalty);
                break now - (NOW + 2);
            }
            now += step;
        };
        assert!((after..=after + 2 * step).contains(&blocked), "after {blocked} ns, not {after}");
    }
    program.check_accounts().unwrap();
}

#[test]
fn each_block_is_longer_up_to_the_longest_until_there_is_a_rest() {
    let mut program = program(&policy_of([strict("it", &[KeyPart::Source])]));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut now = NOW + SECOND;
    for seconds in [60, 120, 200, 200, 200] {
        // The source exceeds the limit again at once: the last packet of the previous block did so already.
        let blocked = stay_over(&mut program, now);
        now = is_blocked_for(&mut program, blocked, seconds);
    }
    // The next offence begins just before the rest, whose length is `max`, is over.
    let rest = PENALTY.max - PENALTY.after;
    let blocked = stay_over(&mut program, now + rest);
    now = is_blocked_for(&mut program, blocked, 200);
    // A nanosecond later the source has rested, so the first block is short again.
    let blocked = stay_over(&mut program, now + rest + 1);
    now = is_blocked_for(&mut program, blocked, 60);
    let blocked = stay_over(&mut program, now);
    is_blocked_for(&mut program, blocked, 120);
    program.check_accounts().unwrap();
}

/// The kernel drops frames from a wire that declare no length. So they exceed the limit but are no offence.
#[test]
fn what_declares_no_length_blocks_nobody() {
    let mut program = program(&policy_of([strict("it", &[KeyPart::Source])]));
    let unsized_one = Frame::udp(A, B, 1_024, 5_000).payload(18).declared_length(0).build();
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut now = NOW;
    for _ in 0..20 {
        now += SECOND;
        assert_eq!(reason_at(&mut program, now, &unsized_one), Reason::Exceed);
    }
    // Such packets do not add to an offence, and other packets still are offences.
    let blocked = stay_over(&mut program, now + SECOND);
    now = is_blocked_for(&mut program, blocked, 60);
    for _ in 0..20 {
        now += SECOND;
        assert_eq!(reason_at(&mut program, now, &unsized_one), Reason::Exceed);
    }
    assert_eq!(reason_at(&mut program, now, &udp(A)), Reason::Exceed);
    program.check_accounts().unwrap();
}

/// A source that sends nothing that exceeds the limit for longer than `after` starts again.
#[test]
fn who_rests_is_not_blocked() {
    let mut program = program(&policy_of([strict("it", &[KeyPart::Source])]));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut now = NOW;
    for _ in 0..10 {
        for second in [0, 4, 9] {
            let at = now + second * SECOND;
            assert_eq!(reason_at(&mut program, at, &udp(A)), Reason::Exceed);
        }
        // Packets that the limit does not match are no offence.
        let at = now + 12 * SECOND;
        assert_eq!(reason_at(&mut program, at, &syn(A)), Reason::Conform);
        now += 19 * SECOND + 1;
    }
    assert_eq!(reason_at(&mut program, now, &udp(A)), Reason::Exceed);
    // Two packets are enough, if at most `after` lies between them.
    assert_eq!(reason_at(&mut program, now + PENALTY.after, &udp(A)), Reason::Exceed);
    assert_eq!(reason_at(&mut program, now + PENALTY.after, &syn(A)), Reason::Penalty);
    assert_eq!(counted(&program, Reason::Penalty), 1);
    program.check_accounts().unwrap();
}

/// A monitored limit never blocks a source, neither now nor after it is enforced.
#[test]
fn what_is_only_monitored_blocks_nobody() {
    let strict = || strict("it", &[KeyPart::Source]);
    let watched = [limit("other", &[KeyPart::Source], tokens(1 << 20))];
    let globally = Policy { mode: GlobalMode::Monitor, ..policy_of([strict()]) };
    for (monitors, reason) in [
        (policy_of([in_mode(Mode::Monitor, strict())]), Reason::Conform),
        (policy_of(watched.into_iter().chain([in_mode(Mode::Monitor, strict())])), Reason::Conform),
        (globally, Reason::Monitor),
    ] {
        let mut program = program(&monitors);
        assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
        for second in 1..=300 {
            assert_eq!(reason_at(&mut program, NOW + second * SECOND, &udp(A)), reason);
        }
        assert_eq!(tally(&program, "it"), (1, 300));
        // From now on the limit is enforced.
        program.apply(&policy_of([strict()])).unwrap();
        stay_over(&mut program, NOW + 301 * SECOND);
        assert_eq!(counted(&program, Reason::Exceed), 7);
        // In monitor mode, packets of a blocked source pass.
        let now = NOW + 320 * SECOND;
        program.apply(&Policy { mode: GlobalMode::Monitor, ..policy_of([strict()]) }).unwrap();
        assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Monitor);
        program.apply(&policy_of([strict()])).unwrap();
        assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Penalty);
        program.check_accounts().unwrap();
    }
}

#[test]
fn who_is_allowed_is_never_blocked() {
    let allow = vec![Listed { whom: Whom::Prefix("10.0.0.1/32".parse().unwrap()), until: None }];
    let allowed = Policy { allow, ..policy_of([strict("it", &[KeyPart::Source])]) };
    let limited = Policy { allow: Vec::new(), ..allowed.clone() };
    let mut program = program(&allowed);
    for second in 0..30 {
        assert_eq!(reason_at(&mut program, NOW + second * SECOND, &udp(A)), Reason::Allow);
    }
    assert_eq!(tally(&program, "it"), (0, 0));
    program.apply(&limited).unwrap();
    assert_eq!(reason_at(&mut program, NOW + 30 * SECOND, &udp(A)), Reason::Conform);
    let blocked = stay_over(&mut program, NOW + 31 * SECOND);
    program.apply(&allowed).unwrap();
    assert_eq!(reason_at(&mut program, blocked + 1, &udp(A)), Reason::Allow);
    program.apply(&limited).unwrap();
    is_blocked_for(&mut program, blocked, 60);
    program.check_accounts().unwrap();
}

/// Exceeds a limit on UDP and one on SYNs in the seconds that `over` says. Returns the seconds in which a
/// packet is dropped as blocked.
fn in_turn(
    program: &mut TestProgram,
    after: [u64; 2],
    over: impl Fn(u64) -> [bool; 2],
    seconds: u64,
) -> Vec<u64> {
    let limits =
        [("udp", 17), ("tcp", 6)].into_iter().zip(after).map(|((name, protocol), after)| {
            let mut limit = strict(name, &[KeyPart::Source]);
            limit.matching.protocols = vec![protocol];
            limit.penalty = Some(Penalty { after: after * SECOND, ..PENALTY });
            limit
        });
    program.forget().unwrap();
    program.apply(&policy_of(limits)).unwrap();
    let frames = [udp(A), syn(A)];
    for frame in &frames {
        assert_eq!(reason_at(program, NOW, frame), Reason::Conform);
    }
    let mut blocked = Vec::new();
    for second in 1..=seconds {
        let now = NOW + second * SECOND;
        for (frame, over) in frames.iter().zip(over(second)) {
            if over && reason_at(program, now, frame) == Reason::Penalty {
                blocked.push(second);
            }
        }
    }
    blocked
}

/// Each limit measures the time over itself, independently of other limits.
#[test]
fn what_is_done_to_one_limit_is_nothing_to_another() {
    let mut program = program(&Policy::default());
    // Over both limits from second 1 to 11, when the source is blocked.
    assert_eq!(in_turn(&mut program, [10, 10], |_| [true; 2], 13), [11, 12, 12, 13, 13]);
    let by_turns = |second| [second % 2 == 1, second % 2 == 0];
    assert_eq!(in_turn(&mut program, [10, 10], by_turns, 14), [12, 13, 14]);
    // The limit with the shorter `after` blocks, whichever it is. The packet before that is still counted by
    // both.
    assert_eq!(in_turn(&mut program, [10, 4], |_| [true; 2], 6), [6, 6]);
    assert_eq!(in_turn(&mut program, [4, 10], |_| [true; 2], 6), [5, 6, 6]);
    // Nine seconds over one limit and ten over the other make ten seconds over the other.
    let changes = |second| [second <= 9, second > 9];
    assert_eq!(in_turn(&mut program, [10, 10], changes, 21), [21]);
    // Exceeding a stricter limit now and then does not reset the time over another one.
    let now_and_then = |second| [true, second % 9 == 0];
    assert_eq!(in_turn(&mut program, [10, 1], now_and_then, 12), [12]);
    // A limit with a long `after` does not make one with a short `after` stricter, if that gets its rest.
    let apart = |second| [second % 6 == 0, second % 6 == 5];
    assert_eq!(in_turn(&mut program, [5, 20], apart, 30), [30]);
    program.check_accounts().unwrap();
}

/// The blocks of a limit grow only with offences against that limit.
#[test]
fn blocks_of_another_limit_make_none_longer() {
    let mut short = strict("short", &[KeyPart::Source]);
    short.matching.protocols = vec![6];
    short.penalty =
        Some(Penalty { unproven: Unproven::Block, ..Penalty::new(Cached::MOMENT, SECOND) });
    let mut program = program(&policy_of([strict("long", &[KeyPart::Source]), short]));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    assert_eq!(reason_at(&mut program, NOW, &syn(A)), Reason::Conform);
    let mut now = NOW + SECOND;
    for seconds in [60, 120, 200] {
        // For longer than the rest of the other limit.
        for _ in 0..6 {
            assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Exceed);
            let later = now + Cached::MOMENT;
            assert_eq!(reason_at(&mut program, later, &syn(A)), Reason::Exceed);
            assert_eq!(reason_at(&mut program, later + 1, &syn(A)), Reason::Penalty);
            now += 2 * SECOND;
        }
        let blocked = stay_over(&mut program, now);
        now = is_blocked_for(&mut program, blocked, seconds);
    }
}

/// A block is in force as long as its limit exists and applies to the source.
#[test]
fn a_block_goes_and_comes_with_its_limit() {
    let it = || strict("it", &[KeyPart::Source]);
    let mut program = program(&policy_of([it()]));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let blocked = stay_over(&mut program, NOW + SECOND);
    let mut excepting = it();
    excepting.matching.except_sources = vec![Whom::Prefix("10.0.0.1/32".parse().unwrap())];
    let other = || Limit { penalty: Some(PENALTY), ..limit("other", &[], tokens(1 << 20)) };
    let mut unlimited = it();
    let whom = OverrideWhom::Prefix("10.0.0.0/24".parse().unwrap());
    unlimited.overrides = vec![Override { whom, layers: None }];
    let free = [
        policy_of([excepting, other()]),
        policy_of([unlimited, other()]),
        policy_of([Limit { penalty: None, ..it() }, other()]),
        policy_of([in_mode(Mode::Monitor, it()), other()]),
    ];
    for (number, policy) in free.iter().enumerate() {
        program.apply(policy).unwrap();
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Conform, "{number}");
        program.apply(&policy_of([other(), it()])).unwrap();
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Penalty, "{number}");
    }
    // The layers of a limit are one limit for penalties, in any order, as long as one of them stays.
    let of = |allowances: &[Allowance]| {
        let mut it = limit("it", &[KeyPart::Source], allowances[0]);
        for more in &allowances[1..] {
            it = and(it, *more);
        }
        it.matching.protocols = vec![17];
        policy_of([Limit { penalty: Some(PENALTY), ..it }])
    };
    let allowance = it().layers[0].allowance;
    let wide = Allowance::LeakyBucket { rate: Rate { packets: 1, period: DAY }, depth: 2 };
    for layers in [&[allowance, wide][..], &[wide, allowance], &[wide], &[allowance]] {
        program.apply(&of(layers)).unwrap();
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Penalty, "{layers:?}");
    }
    // A limit that is added again after it was removed is a new one.
    program.apply(&policy_of([other()])).unwrap();
    program.apply(&policy_of([other(), it()])).unwrap();
    assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Conform);
    program.check_accounts().unwrap();
}

/// Under a shorter penalty, a block ends after the new `max`, counted from its start. Neither another policy
/// nor the next refusal extends it.
#[test]
fn a_block_is_cut_to_the_penalty_in_force() {
    let with = |penalty| Limit { penalty, ..strict("it", &[KeyPart::Source]) };
    let mut program = program(&policy_of([with(Some(PENALTY))]));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let blocked = stay_over(&mut program, NOW + SECOND);
    let shorter = with(Some(Penalty { block: SECOND, max: 2 * SECOND, ..PENALTY }));
    program.apply(&policy_of([with(None)])).unwrap();
    program.apply(&policy_of([shorter.clone()])).unwrap();
    let end = blocked + 2 * SECOND;
    assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Penalty);
    assert_eq!(reason_at(&mut program, end - 1, &syn(A)), Reason::Penalty);
    assert_eq!(reason_at(&mut program, end, &syn(A)), Reason::Conform);
    for round in 0..4 {
        let now = end + round * 11 * SECOND;
        let other = format!("192.0.2.{round}/32").parse().unwrap();
        let allow = vec![Listed { whom: Whom::Prefix(other), until: None }];
        program.apply(&Policy { allow, ..policy_of([shorter.clone()]) }).unwrap();
        assert_eq!(listed(&program, now), [], "before its next packet");
        assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Conform, "{round}");
        assert_eq!(reason_at(&mut program, now + 1, &udp(A)), Reason::Exceed, "{round}");
        assert_eq!(reason_at(&mut program, now + 2, &syn(A)), Reason::Conform, "{round}");
    }
    program.apply(&policy_of([with(Some(PENALTY))])).unwrap();
    assert_eq!(reason_at(&mut program, end, &syn(A)), Reason::Penalty, "back with its penalty");
    program.check_accounts().unwrap();
}

/// A block is reported with the limit that caused it, not with a limit whose block is over.
#[test]
fn a_block_is_told_by_its_limit() {
    let mut tcp = strict("tcp", &[KeyPart::Source]);
    tcp.matching.protocols = vec![6];
    let with = |penalty| {
        let it = Limit { penalty: Some(penalty), ..strict("udp", &[KeyPart::Source]) };
        policy_of([it, tcp.clone()])
    };
    let long = Penalty { block: 3_600 * SECOND, max: 3_600 * SECOND, ..PENALTY };
    let mut program = program(&with(long));
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    assert_eq!(reason_at(&mut program, NOW, &syn(A)), Reason::Conform);
    let blocked = stay_over(&mut program, NOW + SECOND);
    let name = |program: &TestProgram, now| {
        listed(program, now)
            .into_iter()
            .map(|it| (it.limit.unwrap(), it.left.as_secs()))
            .collect::<Vec<_>>()
    };
    assert_eq!(name(&program, blocked + SECOND), [("udp".to_owned(), 3_599)]);
    program.apply(&with(Penalty { max: 200 * SECOND, ..PENALTY })).unwrap();
    let mut now = blocked + 200 * SECOND;
    for second in 0..=10 {
        assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Exceed, "{second}");
        now += SECOND;
    }
    assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Penalty);
    assert_eq!(name(&program, now), [("tcp".to_owned(), 59)]);
}

fn listed(program: &TestProgram, now: u64) -> Vec<Blocked> {
    Inquiry::new(program.maps(), now).unwrap().blocked(now).unwrap()
}

/// After `forgive`, the source has no history: its next block is the first one.
#[test]
fn who_is_forgiven_begins_anew() {
    let policy = policy_of([strict("it", &[KeyPart::Source])]);
    let mut program = program(&policy);
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    let mut now = NOW + SECOND;
    for net in ["10.0.0.1/32", "10.0.0.0/24", "0.0.0.0/0"] {
        let blocked = stay_over(&mut program, now);
        // The block holds until a policy is applied.
        for (other, number) in [("10.0.0.2/32", 0), ("::/0", 0), (net, 1), (net, 1)] {
            assert_eq!(forgive(&mut program, other, blocked), number, "{other}");
        }
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Penalty, "{net}");
        program.apply(&policy).unwrap();
        assert_eq!(forgive(&mut program, net, blocked), 0, "{net}");
        assert_eq!(reason_at(&mut program, blocked + 1, &syn(A)), Reason::Conform, "{net}");
        let blocked = stay_over(&mut program, blocked + 2);
        now = is_blocked_for(&mut program, blocked, 60);
        forgive(&mut program, net, now);
        // The refusal in the CPU cache has expired.
        now += Cached::MOMENT;
    }
    program.check_accounts().unwrap();
}

/// Forgives all sources within `net` and returns their number.
fn forgive(program: &mut TestProgram, net: &str, now: u64) -> usize {
    let net: IpNet = net.parse().unwrap();
    program.split().unwrap().1.forgive(&[net]).unwrap();
    assert!(!program.split().unwrap().1.forgive(&[net]).unwrap(), "nothing is known any more");
    listed(program, now).into_iter().filter(|it| net.contains(&it.source)).count()
}

/// The record of an offence may be evicted: the source stays blocked, is listed, and can be forgiven.
#[test]
fn a_block_outlives_what_is_known_of_the_offence() {
    let policy = policy_of([strict("it", &[KeyPart::Source])]);
    let mut program = program(&policy);
    assert_eq!(reason_at(&mut program, NOW, &udp(A)), Reason::Conform);
    assert_eq!(reason_at(&mut program, NOW, &udp(OTHER)), Reason::Conform);
    let blocked = stay_over(&mut program, NOW + SECOND);
    let now = blocked + SECOND;
    let [known] = &listed(&program, now)[..] else { panic!("one source is blocked") };
    let source = "10.0.0.1/32".parse().unwrap();
    assert_eq!((known.source, known.limit.as_deref(), known.blocks), (source, Some("it"), 1));
    program.forget_offences().unwrap();
    assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Penalty);
    let unknown = Blocked { limit: None, blocks: 0, ..known.clone() };
    assert_eq!(listed(&program, now), [unknown]);
    assert_eq!(forgive(&mut program, "10.0.0.2/32", now), 0);
    assert_eq!(forgive(&mut program, "10.0.0.0/24", now), 1);
    program.apply(&policy).unwrap();
    assert_eq!(listed(&program, now), [], "before its next packet");
    assert_eq!(forgive(&mut program, "10.0.0.0/24", now), 0);
    assert_eq!(reason_at(&mut program, now, &syn(A)), Reason::Conform);
    assert_eq!(listed(&program, now), []);
    program.check_accounts().unwrap();
}

/// A source without an entry that stays over a wider limit is blocked too, also while the table is full.
#[test]
fn who_stays_over_a_wider_limit_is_blocked_where_the_table_is_full() {
    for crowded in [false, true] {
        let mut program = program(&policy_of([strict("wide", &[within(24, 64)])]));
        program.at(NOW).unwrap();
        program.run(&udp(OTHER)).unwrap();
        if crowded {
            program.crowd().unwrap();
        }
        let mut blocked = 0;
        for round in 0..60 {
            let reason = reason_at(&mut program, NOW + round * SECOND, &udp(A));
            blocked += u32::from(reason == Reason::Penalty);
        }
        assert_ne!(blocked, 0, "crowded {crowded}");
    }
}

/// Runs the frames that block the sources with these numbers, each of a time of its own, and removes their entries in between:
/// what is known of them then is the record of the offence alone. Returns the time of the last frame.
fn block_all(program: &mut TestProgram, numbers: Range<u32>, from: u64) -> u64 {
    const AT_ONCE: u32 = 4_096;
    let mut now = from;
    for number in numbers {
        if number % AT_ONCE == 0 {
            program.forget_sources().unwrap();
        }
        for _ in 0..3 {
            now += SECOND / 10;
            program.at(now).unwrap();
            program.run(&udp(numbered(number))).unwrap();
        }
    }
    program.forget_sources().unwrap();
    now
}

const fn numbered(number: u32) -> [u8; 4] {
    let [_, second, third, fourth] = number.to_be_bytes();
    [10, second, third, fourth]
}

/// Whoever has many addresses blocked does not have the block of anybody else forgotten. The newcomers that find no room are
/// counted, and are refused by their limit as before.
#[test]
fn no_flood_of_blocked_sources_has_a_running_block_forgotten() {
    const DURATION: u64 = 7 * DAY;
    let penalty =
        Penalty { after: SECOND / 20, block: DURATION, backoff: 1, max: DURATION, ..PENALTY };
    let limit = Limit { penalty: Some(penalty), ..strict("it", &[KeyPart::Source]) };
    let mut program = program(&policy_of([limit]));
    let stats = |program: &TestProgram| program.maps().offence_table_stats().unwrap();
    let before = stats(&program);
    let mut now = block_all(&mut program, 0..100, NOW);
    // Two lines for each bucket, of which 15 of 16 are records.
    let records = 2 * program.maps().sizes().unwrap().buckets / 16 * 15;
    now = block_all(&mut program, 100..records + records / 4, now);
    let after = stats(&program);
    let inserted = after.inserted - before.inserted;
    assert!(after.untracked > before.untracked, "some sets are full: {after:?}");
    assert!((u64::from(records) * 19 / 20..=records.into()).contains(&inserted), "{inserted}");
    assert_eq!(
        (after.evicted_idle, after.evicted_owing),
        (before.evicted_idle, before.evicted_owing)
    );
    assert_eq!(listed(&program, now).len() as u64, inserted);
    for number in 0..100 {
        let reason = reason_at(&mut program, now, &syn(numbered(number)));
        assert_eq!(reason, Reason::Penalty, "{number}");
    }
    // When the blocks are over, other sources take their records.
    program.forget_sources().unwrap();
    let later = now + 2 * DURATION + SECOND;
    let last = block_all(&mut program, 1_000_000..1_000_200, later);
    let reused = stats(&program);
    assert_eq!((reused.inserted - after.inserted, reused.untracked), (200, after.untracked));
    assert!(reused.evicted_idle > after.evicted_idle && listed(&program, last).len() == 200);
    program.check_accounts().unwrap();
}

/// A source that rested makes room before one whose next block would be longer.
#[test]
fn what_is_known_of_a_block_outlives_offences_without_one() {
    let penalty = Penalty { after: SECOND / 20, block: SECOND, ..PENALTY };
    let limit = Limit { penalty: Some(penalty), ..strict("it", &[KeyPart::Source]) };
    let mut program = program(&policy_of([limit]));
    let now = block_all(&mut program, 0..1, NOW) + 2 * SECOND;
    let blocks = |program: &mut TestProgram, now| {
        let now = block_all(program, 0..1, now);
        let [known] = &listed(program, now)[..] else { panic!("one source is blocked") };
        known.blocks
    };
    // Sources that are over the limit once, which is no block, in all sets.
    let lines = 2 * program.maps().sizes().unwrap().buckets;
    for number in 1..lines * 3 / 2 {
        program.at(now).unwrap();
        if number % 4_096 == 0 {
            program.forget_sources().unwrap();
        }
        program.run(&udp(numbered(number))).unwrap();
        program.run(&udp(numbered(number))).unwrap();
    }
    assert_eq!(blocks(&mut program, now + SECOND), 2);
}
