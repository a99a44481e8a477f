//! Which sources keep their entries in a full table, and what happens to sources without one.

use std::net::IpAddr;

use limiter_common::{
    abi::{
        layout::shared,
        table::{PROBATION_SLOTS, Set, WAYS},
    },
    algorithm::rate::SECOND,
    base::{address::Address, tally::Tally},
    memory::cache::Cached,
    packet::reason::Reason,
};
use limiter_tests::{
    packet::{Frame, SYN, set_source},
    program::{Clock, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Bucket, Builtin, KeyPrefix, Policy,
    model::{KeyPart, Limit, Match, Override, OverrideWhom, Whom},
};

use super::{
    NOW, counted, define, lists, part, per_second, policy, set_override, table::smallest, tokens,
    udp,
};

const KEPT: [u8; 4] = [192, 0, 2, 1];
const BURST: u64 = 5;
/// Nanoseconds in which a bucket of [`tokens`] refills one token.
const MINUTE: u64 = 60 * SECOND;

/// The number of sources in a flood, in units of the capacity of the table. It is lower where runs are slow.
fn tables() -> u32 {
    part(64) as u32
}

fn full_table(policy: &Policy) -> (TestProgram, Sizes) {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    (program, sizes)
}

/// Datagrams from the numbered sources of a flood.
pub(super) struct Flood(Vec<u8>);

impl Flood {
    pub(super) fn new() -> Self {
        Self(udp([10, 0, 0, 0]))
    }

    pub(super) fn address(number: u32) -> IpAddr {
        let [_, b, c, d] = number.to_be_bytes();
        IpAddr::from([10 + (number >> 24) as u8, b, c, d])
    }

    pub(super) fn frame(&mut self, number: u32) -> &[u8] {
        assert!(set_source(&mut self.0, Self::address(number)));
        &self.0
    }
}

/// The number of `times` frames that pass.
fn passed(program: &mut TestProgram, frame: &[u8], times: u32) -> u64 {
    program.run_many(frame, times).unwrap()
}

pub(super) fn has_entry(program: &TestProgram, address: impl Into<IpAddr>) -> bool {
    program.maps().source(&Address::from(address.into())).unwrap().is_some()
}

#[test]
fn a_source_that_owes_is_not_thrown_out_by_any_flood() {
    // Nanoseconds between two new sources: none, up to so many that the flood takes seconds.
    for step in [0, 1_000, 100_000] {
        let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, tokens(BURST))]));
        let (kept, mut flood) = (udp(KEPT), Flood::new());
        // No packet is refused yet, so no CPU caches a refusal: a later refusal comes from the entry.
        assert_eq!(passed(&mut program, &kept, BURST as u32), BURST);
        let before = program.source(&Address::v4(KEPT)).unwrap().unwrap();
        for number in 0..tables() * sizes.sources {
            program.at(NOW + u64::from(number) * step).unwrap();
            // Each source of the flood has a burst of its own.
            assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass, "{number}");
        }
        let after = program.source(&Address::v4(KEPT)).unwrap();
        assert_eq!(after, Some(before), "step {step}");
        let now = NOW + u64::from(tables() * sizes.sources) * step;
        program.at(now).unwrap();
        // If time has passed, part of a token is there.
        assert_eq!(passed(&mut program, &kept, 9), u64::from(step > 0), "step {step}");
        program.at(now + Cached::LONGEST).unwrap();
        assert_eq!(passed(&mut program, &kept, 9), u64::from(step == 0), "step {step}");
        assert_eq!(counted(&program, Reason::Contended), 0);
        program.check_accounts().unwrap();
    }
}

#[test]
fn it_stays_refused_while_the_flood_goes_on() {
    // With a second limit, CPUs cache the refusal only for a moment.
    let limits = [(Builtin::Syn, per_second(1_000, 1_000)), (Builtin::Source, tokens(BURST))];
    let (mut program, sizes) = full_table(&policy(&limits));
    let (kept, mut flood) = (udp(KEPT), Flood::new());
    program.at(NOW + 1).unwrap();
    assert_eq!(passed(&mut program, &kept, BURST as u32), BURST);
    // The packet for part of a token leaves a debt of nearly a minute.
    let step = 2 * Cached::MOMENT / 7;
    for number in 0..tables() * sizes.sources {
        program.at(NOW + 2 + u64::from(number) * step).unwrap();
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass, "source {number}");
        if number % 64 == 0 {
            let expected = if number == 0 { Verdict::Pass } else { Verdict::Drop };
            assert_eq!(program.run(&kept).unwrap(), expected, "after source {number}");
        }
    }
    let totals = program.source(&Address::v4(KEPT)).unwrap().unwrap();
    let offered = u64::from(tables() * sizes.sources).div_ceil(64);
    assert_eq!((totals.passed.packets, totals.dropped.packets), (BURST + 1, offered - 1));
    program.check_accounts().unwrap();
}

#[test]
fn one_that_owes_nothing_comes_back_with_its_burst() {
    // With a flood when the debt is paid, and without one.
    for size in [tables(), 0] {
        let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, tokens(BURST))]));
        let (kept, mut flood) = (udp(KEPT), Flood::new());
        for round in 0..4 {
            let now = NOW + round * (BURST + 1) * MINUTE;
            program.at(now).unwrap();
            let had = passed(&mut program, &kept, 2 * BURST as u32);
            assert_eq!(had, BURST, "round {round}, {size} tables");
            let now = now + (BURST + 1) * MINUTE - Cached::MOMENT;
            program.at(now).unwrap();
            for number in 0..size * sizes.sources {
                let number = round as u32 * size * sizes.sources + number;
                program.run(flood.frame(number)).unwrap();
            }
            // The entry is evicted only if the flood needs room.
            assert_eq!(has_entry(&program, KEPT), size == 0, "round {round}");
        }
        program.check_accounts().unwrap();
    }
}

/// Fills the table with sources that send two packets each. Returns those that have an entry, and how many
/// were offered.
fn fill(program: &mut TestProgram, flood: &mut Flood, sizes: Sizes) -> (Vec<u32>, u32) {
    // Enough to fill every set.
    let offered = 8 * sizes.sources;
    for number in 0..offered {
        program.run_many(flood.frame(number), 2).unwrap();
    }
    let mut kept = Vec::new();
    for number in 0..offered {
        if has_entry(program, Flood::address(number)) {
            kept.push(number);
        }
    }
    assert_eq!(kept.len(), sizes.sources as usize, "there is room in some set");
    (kept, offered)
}

/// Asserts that each of these sources has `left` packets left.
fn check_left(program: &mut TestProgram, flood: &mut Flood, kept: &[u32], left: u64) {
    for number in kept {
        let had = passed(program, flood.frame(*number), left as u32 + 3);
        assert_eq!(had, left, "source {number}");
    }
}

/// Sends packets from new sources, none of which can get an entry. Returns how many packets pass.
fn newcomers(program: &mut TestProgram, flood: &mut Flood, first: u32, count: u32) -> u64 {
    let mut passed = 0;
    for number in first..first + count {
        passed += u64::from(program.run(flood.frame(number)).unwrap() == Verdict::Pass);
        if number % 64 == 0 {
            assert!(!has_entry(program, Flood::address(number)), "source {number}");
        }
    }
    passed
}

#[test]
fn where_all_owe_for_more_than_a_packet_newcomers_share_an_entry() {
    let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, tokens(BURST))]));
    let mut flood = Flood::new();
    let (kept, offered) = fill(&mut program, &mut flood, sizes);
    let packets = 2 * u64::from(offered);
    let own = 2 * kept.len() as u64;
    // First packets pass for the probation slots of a full set. All other sources of a set share one overflow
    // bucket, with a burst for each entry of the set.
    let first = (sizes.sources as usize / WAYS * PROBATION_SLOTS) as u64;
    let together = u64::from(sizes.sources) * BURST;
    assert_eq!(program.passed().unwrap(), own + first + together);
    let new = 2 * sizes.sources;
    assert_eq!(newcomers(&mut program, &mut flood, offered, new), 0);
    let bytes = udp(KEPT).len() as u64;
    let tally = |packets| Tally { packets, bytes: packets * bytes };
    let shared = program.shared_packets().unwrap();
    let dropped = packets - own - first - together + u64::from(new);
    assert_eq!(shared, [tally(together), tally(dropped)]);
    assert_eq!(counted(&program, Reason::Exceed), dropped);
    assert_eq!(counted(&program, Reason::Contended), 0);

    // No source lost its debt, and none had to pay for the others.
    check_left(&mut program, &mut flood, &kept, BURST - 2);
    assert_eq!(program.maps().talkers(1).unwrap().1.tracked, u64::from(sizes.sources));
    // When the debts are paid, there is room again.
    program.at(NOW + 10 * MINUTE).unwrap();
    let later = offered + new;
    for number in later..later + new {
        program.at(NOW + (10 + 2 * u64::from(number)) * MINUTE).unwrap();
        assert_eq!(passed(&mut program, flood.frame(number), 2), 2, "source {number}");
        assert!(has_entry(&program, Flood::address(number)), "source {number}");
    }
    assert_eq!(program.shared_packets().unwrap()[0], tally(together));
    program.check_accounts().unwrap();
}

#[test]
fn a_change_of_policy_keeps_the_debts_of_a_full_table() {
    let before = policy(&[(Builtin::Source, tokens(BURST))]);
    let (mut program, sizes) = full_table(&before);
    let mut flood = Flood::new();
    let (kept, mut next) = fill(&mut program, &mut flood, sizes);
    let mut elsewhere = before.clone();
    set_override(&mut elsewhere, Builtin::Source, "203.0.113.0/24", tokens(1));
    let another = policy(&[(Builtin::Source, tokens(BURST)), (Builtin::Syn, tokens(1))]);
    // With twice the burst, the share that is left stays the same.
    let twice = policy(&[(Builtin::Source, tokens(2 * BURST))]);
    let changes = [(&elsewhere, 1), (&another, 1), (&twice, 2), (&before, 1), (&twice, 2)];
    for ((policy, times), number) in changes.into_iter().zip(&kept) {
        program.apply(policy).unwrap();
        // New sources come first, while every entry is still behind the policy.
        newcomers(&mut program, &mut flood, next, sizes.sources);
        next += sizes.sources;
        // An entry is migrated when its source sends a packet.
        check_left(&mut program, &mut flood, &[*number], times * (BURST - 2));
    }
    check_left(&mut program, &mut flood, &kept[5..], 2 * (BURST - 2));
    check_left(&mut program, &mut flood, &kept[..5], 0);
    program.check_accounts().unwrap();
}

/// Debt notes are valid for some seconds. After that, entries are asked what they owe under the new policy.
#[test]
fn who_owes_to_a_limit_that_stays_is_kept_after_any_change_of_policy() {
    let before = policy(&[(Builtin::Source, tokens(BURST))]);
    let (mut program, sizes) = full_table(&before);
    let mut flood = Flood::new();
    let (kept, mut next) = fill(&mut program, &mut flood, sizes);
    let mut listed = before.clone();
    listed.deny.push(lists::entry("203.0.113.0/24", None));
    let mut overridden = listed.clone();
    set_override(&mut overridden, Builtin::Source, "198.51.100.0/24", tokens(1));
    let more =
        policy(&[(Builtin::Source, tokens(BURST)), (Builtin::Syn, per_second(1_000, 1_000))]);
    // The entries are one policy behind, or several.
    for (policy, seconds) in [(&listed, 10), (&more, 20), (&overridden, 30), (&before, 40)] {
        program.apply(policy).unwrap();
        program.at(NOW + seconds * SECOND).unwrap();
        newcomers(&mut program, &mut flood, next, sizes.sources);
        next += sizes.sources;
    }
    // Part of the next token is there.
    check_left(&mut program, &mut flood, &kept, BURST - 2 + 1);
    program.check_accounts().unwrap();
}

/// A debt to a limit that was removed keeps no entry, even if the source has sent packets since.
#[test]
fn who_owes_to_a_limit_that_is_gone_makes_room() {
    let quick = (Builtin::Syn, per_second(1_000_000, 20));
    let (mut program, sizes) = full_table(&policy(&[quick, (Builtin::Source, tokens(BURST))]));
    let mut flood = Flood::new();
    let (kept, offered) = fill(&mut program, &mut flood, sizes);
    let shared = program.shared_packets().unwrap();
    program.apply(&policy(&[quick])).unwrap();
    for number in &kept {
        assert_eq!(passed(&mut program, flood.frame(*number), 1), 1);
    }
    program.at(NOW + 10 * SECOND).unwrap();
    for number in 2 * offered..2 * offered + sizes.sources {
        program.at(NOW + 10 * SECOND + u64::from(number) * 2_000).unwrap();
        assert_eq!(passed(&mut program, flood.frame(number), 2), 2, "source {number}");
    }
    assert_eq!(program.shared_packets().unwrap(), shared);
    program.check_accounts().unwrap();
}

/// Nor does a debt of a source that is now keyed by its network.
#[test]
fn who_owes_by_a_key_that_is_gone_makes_room() {
    let before = policy(&[(Builtin::Source, tokens(BURST))]);
    let (mut program, sizes) = full_table(&before);
    fill(&mut program, &mut Flood::new(), sizes);
    let shared = program.shared_packets().unwrap();
    let key_prefix = KeyPrefix { ipv4: 24, ..before.key_prefix };
    program.apply(&Policy { key_prefix, ..before }).unwrap();
    program.at(NOW + 10 * SECOND).unwrap();
    // So few that they fill no set.
    for number in 0..sizes.sources / 4 {
        let [_, _, c, d] = number.to_be_bytes();
        let network = [172, c, d, 1];
        assert_eq!(passed(&mut program, &udp(network), 2), 2, "{network:?}");
    }
    assert_eq!(program.shared_packets().unwrap(), shared);
    program.check_accounts().unwrap();
}

/// Lists apply to sources in the overflow entry, too.
#[test]
fn who_is_listed_is_allowed_or_denied_without_an_entry() {
    let mut limits = policy(&[(Builtin::Source, tokens(BURST))]);
    limits.allow.push(lists::entry("192.0.2.2/32", None));
    limits.deny.push(lists::entry("192.0.2.3/32", None));
    let (mut program, sizes) = full_table(&limits);
    let mut flood = Flood::new();
    fill(&mut program, &mut flood, sizes);
    let shared = program.shared_packets().unwrap();
    for (last, passes, reason) in [(2, 30, Reason::Allow), (3, 0, Reason::Deny)] {
        let address = [192, 0, 2, last];
        assert_eq!(passed(&mut program, &udp(address), 30), passes);
        assert!(!has_entry(&program, address));
        assert_eq!(counted(&program, reason), 30);
    }
    assert_eq!(program.shared_packets().unwrap(), shared, "nor with that of all");
    program.check_accounts().unwrap();
}

/// The operator's way out: debts under an old policy do not keep an entry once it is asked again.
#[test]
fn after_a_change_of_policy_newcomers_have_room_again() {
    let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, tokens(BURST))]));
    let mut flood = Flood::new();
    let (_, offered) = fill(&mut program, &mut flood, sizes);
    assert_eq!(newcomers(&mut program, &mut flood, offered, 64), 0);
    program.apply(&policy(&[(Builtin::Source, per_second(1_000_000, 20))])).unwrap();
    program.at(NOW + 10 * SECOND).unwrap();
    for number in 2 * offered..2 * offered + sizes.sources {
        // Each source has paid its debt when the next one comes.
        program.at(NOW + 10 * SECOND + u64::from(number) * 2_000).unwrap();
        let had = passed(&mut program, flood.frame(number), 2);
        assert_eq!(had, 2, "source {number}");
        assert!(has_entry(&program, Flood::address(number)), "source {number}");
    }
    program.check_accounts().unwrap();
}

/// The 31-bit ages of debt notes wrap after 104 days.
#[test]
fn there_is_room_for_new_sources_around_the_wrap_of_ages() {
    const WRAP: u64 = 1 << 53;
    let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, per_second(1_000, 20))]));
    let mut flood = Flood::new();
    // Nanoseconds between two sources: all except those of the last moment owe nothing.
    let step = 20 * 1_000_000;
    let offered = 16 * sizes.sources;
    let begin = WRAP - u64::from(offered / 2) * step;
    for number in 0..offered {
        program.at(begin + u64::from(number) * step).unwrap();
        assert_eq!(passed(&mut program, flood.frame(number), 2), 2, "source {number}");
        assert!(has_entry(&program, Flood::address(number)), "source {number}");
    }
    assert_eq!(program.shared_packets().unwrap()[0], Tally::default());
    program.check_accounts().unwrap();
}

/// Sends one packet of a source for every `every` packets of a flood, and checks its totals.
fn totals_beside_a_flood(limit: Bucket, step: u64, every: u32) {
    let (mut program, sizes) = full_table(&policy(&[(Builtin::Source, limit)]));
    let (busy, mut flood) = (udp(KEPT), Flood::new());
    let mut sent = 0;
    let [mut admitted, mut refused] = [0; 2];
    for number in 0..tables() * sizes.sources {
        program.at(NOW + u64::from(number) * step).unwrap();
        program.run(flood.frame(number)).unwrap();
        if number % every == 0 {
            sent += 1;
            match program.run(&busy).unwrap() {
                Verdict::Pass => admitted += 1,
                Verdict::Drop => refused += 1,
            }
        }
    }
    let totals = program.source(&Address::v4(KEPT)).unwrap().unwrap();
    let counts = (totals.passed.packets, totals.dropped.packets);
    assert_eq!(counts, (admitted, refused), "of {sent}, step {step}");
    program.check_accounts().unwrap();
}

#[test]
fn the_totals_of_a_source_that_stays_at_its_limit_survive_a_flood() {
    for step in [0, 500, 100_000] {
        totals_beside_a_flood(per_second(100, 20), step, 1);
    }
    totals_beside_a_flood(tokens(BURST), 1_000, 64);
}

/// Neither this source nor the others owe anything when an entry is needed. An entry used since it was last
/// asked is skipped once (CLOCK).
#[test]
fn the_totals_of_a_source_that_stays_busy_survive_a_flood() {
    totals_beside_a_flood(per_second(1_000_000, 20), 10_000, 1);
}

/// A policy with a slow limit on SYNs to ssh and a fast one on packets to a web server.
fn ssh_and_web(shared: Option<u32>) -> Policy {
    let to_port = |name: &str, port: u16, allowance: Bucket| Limit {
        matching: Match { protocols: vec![6], ports: vec![port..=port], ..Match::default() },
        shared,
        ..define::limit(name, &[KeyPart::Source], allowance)
    };
    define::policy_of([
        to_port("ssh", 22, tokens(BURST)),
        to_port("web", 443, per_second(1_000, 2_000)),
    ])
}

fn segment(address: IpAddr, port: u16) -> Vec<u8> {
    let mut frame = Frame::tcp([10, 0, 0, 0], [192, 0, 2, 9], 40_000, port, SYN).build();
    assert!(set_source(&mut frame, address));
    frame
}

/// Fills the table with sources that owe to the limit of ssh.
fn fill_by_ssh(program: &mut TestProgram, sizes: Sizes) {
    for number in 0..8 * sizes.sources {
        program.run_many(&segment(Flood::address(number), 22), 2).unwrap();
    }
}

/// All visitors of a web server pass, because another limit than theirs fills the table: before and during a
/// flood against it.
#[test]
fn visitors_lose_nothing_beside_a_table_that_another_limit_fills() {
    const VISITORS: u32 = 200;
    const FLOOD: u64 = 100_000;
    let (mut program, sizes) = full_table(&ssh_and_web(None));
    fill_by_ssh(&mut program, sizes);
    assert!(program.shared_packets().unwrap()[1].packets > 0, "the table has room");
    let (mut sent, mut attacker) = (0, 8 * sizes.sources);
    // 20 packets a second from each visitor, for two seconds.
    for round in 0..40_u64 {
        for visitor in 0..VISITORS {
            let now =
                NOW + round * SECOND / 20 + u64::from(visitor) * SECOND / 20 / u64::from(VISITORS);
            program.at(now).unwrap();
            let [_, _, c, d] = visitor.to_be_bytes();
            let frame = segment([172, 16, c, d].into(), 443);
            assert_eq!(program.run(&frame).unwrap(), Verdict::Pass, "visitor {visitor}, {round}");
            // The flood sends as many as come in the 250 us between two visitors.
            for _ in 0..part(FLOOD / 4_000) {
                program.run_many(&segment(Flood::address(attacker), 22), 2).unwrap();
                attacker += 1;
            }
            sent += 1;
        }
    }
    assert_eq!(sent, 8_000);
    program.check_accounts().unwrap();
}

/// The shared bucket is a multiple of the limit; the policy may set the factor.
#[test]
fn what_newcomers_share_is_as_large_as_the_policy_says() {
    for (shared, times) in [(None, WAYS as u64), (Some(1), 1), (Some(100), 100)] {
        let (mut program, sizes) = full_table(&ssh_and_web(shared));
        fill_by_ssh(&mut program, sizes);
        // No two sets share an overflow entry: the table has at most as many sets as there are such entries.
        assert!(Set::count(sizes.sources) <= shared::OVERFLOWS);
        let frame = segment([172, 16, 0, 1].into(), 443);
        assert_eq!(passed(&mut program, &frame, 50_000), (2_000 * times).min(50_000), "{shared:?}");
        program.check_accounts().unwrap();
    }
}

/// Limits apply to a source without an entry by its own address and tenant.
#[test]
fn sources_without_an_entry_have_the_limits_of_their_own() {
    let named = |name: &str, source: &str, allowance: Bucket| Limit {
        matching: Match {
            sources: vec![Whom::Prefix(source.parse().unwrap())],
            ..Match::default()
        },
        shared: Some(1),
        ..define::limit(name, &[KeyPart::Source], allowance)
    };
    let mut policy = ssh_and_web(None);
    policy.limits.push(named("some", "172.16.0.0/16", tokens(3)));
    policy.limits[1].overrides.push(Override {
        whom: OverrideWhom::Prefix("172.17.0.0/16".parse().unwrap()),
        layers: None,
    });
    let (mut program, sizes) = full_table(&policy);
    fill_by_ssh(&mut program, sizes);
    let mut web = |source: [u8; 4]| passed(&mut program, &segment(source.into(), 443), 40_000);
    assert_eq!(web([172, 16, 0, 1]), 3, "that which names it");
    assert_eq!(web([172, 17, 0, 1]), 40_000, "none, as it is unlimited");
    assert_eq!(web([172, 18, 0, 1]), 32_000, "that of all");
    program.check_accounts().unwrap();
}
