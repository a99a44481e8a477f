//! What older layouts had elsewhere: logs and lists of connections in a hash map by key, before layout 26; the entries that
//! sources share in a map of their own, before 29; the time in which a source is over its limits in two words, before 30.

use std::{fs, ops::Range, thread, time::Duration};

use aya::{
    Pod,
    maps::{Array, HashMap, Map, MapData},
};
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_LRU_HASH;
use limiter_common::{
    abi::{
        description::{Description, SHARED},
        layout::{TALLIES, map, shared},
        policy::Head,
        state::{Bucket, SLOTS},
        table::{Debts, PROBATION_SLOTS, Set, WAYS},
    },
    algorithm::{kind::Kind, meter::Measure, rate::SECOND},
    memory::event::{AGAIN, kind},
    policy::limit::{BucketKey, Limit as Row},
};
use limiter_tests::{
    older::{self, Source29},
    packet::{ACK, Frame, SYN},
    program::{Clock, SMALL, Sizes, TestProgram, Verdict, typed},
};
use limiter_userspace::{
    datapath::{bpffs::Pins, exchange::Exchanged},
    policy::{
        Builtin, Policy,
        model::{Allowance, Count, KeyPart, Limit, Override, OverrideWhom},
    },
};

use super::{
    NOW,
    define::{limit, policy_of},
    modes::MINUTE,
    policy,
    table::smallest,
    tokens, udp,
};

const A: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [198, 51, 100, 1];

/// A value of the hash map.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kept {
    control: u64,
    slots: [u64; SLOTS],
}

// SAFETY: words alone.
#[expect(unsafe_code, reason = "a value of a map")]
unsafe impl Pod for Kept {}

fn fresh(policy: &Policy) -> TestProgram {
    TestProgram::fresh(SMALL, policy, Clock::Monotonic).unwrap()
}

/// A limit of five events of a source.
fn log(name: &str, window: u64) -> Limit {
    limit(name, &[KeyPart::Source], Allowance::SlidingLog { limit: 5, window })
}

/// Makes an array anew, without some of its entries.
fn cut<T: Pod>(pins: &Pins, name: &str, without: Range<u32>) {
    let now: Array<MapData, T> = typed(pins, name).unwrap();
    let mut older = Array::<MapData, T>::create(now.len() - without.len() as u32, 0).unwrap();
    let left = (0..now.len()).filter(|number| !without.contains(number));
    for (to, from) in left.enumerate() {
        older.set(to as u32, now.get(&from, 0).unwrap(), 0).unwrap();
    }
    fs::remove_file(pins.map(name)).unwrap();
    older.pin(pins.map(name)).unwrap();
}

/// Has an instance look as layout 25 left it. A log whose control word is `late` was read before the last event was counted.
fn make_older(program: &TestProgram, late: impl Fn(&BucketKey) -> bool + Sync) {
    let states = program.wide_states().unwrap();
    let make = |pins: &Pins| {
        let layout: Array<_, Description> = typed(pins, map::LAYOUT).unwrap();
        let own = layout.get(&0, 0).unwrap();
        let rows: Array<_, Row> = typed(pins, map::LIMITS).unwrap();
        let is_log = |key: &BucketKey| {
            rows.iter().flatten().any(|row| {
                row.limit_id == key.limit_id && u64::from(row.kind) == Kind::SlidingLog.number()
            })
        };
        let (key, value) = (size_of::<BucketKey>() as u32, size_of::<Kept>() as u32);
        let kind = BPF_MAP_TYPE_LRU_HASH as u32;
        let made = aya_obj::Map::new_from_params(kind, key, value, SMALL.wide_states, 0);
        let made = MapData::create(made, map::WIDE_STATE, None).unwrap();
        let mut hash: HashMap<_, BucketKey, Kept> =
            Map::from_map_data(made).unwrap().try_into().unwrap();
        for (key, state) in states {
            let number = if late(&key) { 1 << 56 } else { 0 };
            let control = if is_log(&key) { state.word - number } else { 0 };
            hash.insert(key, Kept { control, slots: state.slots }, 0).unwrap();
        }
        fs::remove_file(pins.map(map::WIDE_STATE)).unwrap();
        hash.pin(pins.map(map::WIDE_STATE)).unwrap();

        let sets = typed::<Array<_, Set>>(pins, map::SETS).unwrap().len();
        cut::<Set>(pins, map::SETS, sets - own.wide_sets..sets);
        cut::<Debts>(pins, map::DEBTS, sets - own.wide_sets..sets);
        let shared = typed::<Array<_, Bucket>>(pins, map::BUCKETS).unwrap().len() - TALLIES;
        let wide = shared - own.wide_sets * WAYS as u32..shared;
        cut::<Bucket>(pins, map::BUCKETS, wide.clone());
        cut::<Measure>(pins, map::MEASURES, wide);

        let mut older = Description { layout: 25, wide_sets: 0, ..own };
        let at = SHARED.iter().position(|(name, _)| *name == map::WIDE_STATE).unwrap();
        older.shared[at] = 1;
        describe(pins, older);
    };
    program.on_pins(make).unwrap();
}

/// Has maps be those of another layout.
fn describe(pins: &Pins, older: Description) {
    typed::<Array<_, Description>>(pins, map::LAYOUT).unwrap().set(0, older, 0).unwrap();
    let mut heads: Array<_, Head> = typed(pins, map::HEAD).unwrap();
    let head = heads.get(&0, 0).unwrap();
    let epoch = u64::from(older.layout) << 32 | head.epoch & 0xffff_ffff;
    heads.set(0, Head { epoch, ..head }, 0).unwrap();
}

/// Has an instance look as layout 28 left it.
fn move_shared_entries(program: &TestProgram) {
    let make = |pins: &Pins| {
        older::replace_sources(pins, |source| Source29::of(source, 0, 0)).unwrap();
        // Entries of either map, as words.
        let sources: Array<_, [u64; 32]> = typed(pins, map::SOURCES).unwrap();
        let untracked: Array<_, [u64; 32]> = typed(pins, map::SHARED_SOURCES).unwrap();
        let mut shared = Array::<MapData, [u64; 32]>::create(shared::LEN, 0).unwrap();
        for number in 0..shared::LEN {
            let from = if number == shared::UNTRACKED { &untracked } else { &sources };
            shared.set(number, from.get(&number, 0).unwrap(), 0).unwrap();
        }
        fs::remove_file(pins.map(map::SHARED_SOURCES)).unwrap();
        shared.pin(pins.map(map::SHARED_SOURCES)).unwrap();
        cut::<Source29>(pins, map::SOURCES, 0..shared::LEN);
        let layout: Array<_, Description> = typed(pins, map::LAYOUT).unwrap();
        let own = layout.get(&0, 0).unwrap();
        let own = Source29::describe(own, 0);
        describe(pins, Description { layout: 28, source_first: 0, ..own });
    };
    program.on_pins(make).unwrap();
}

/// Has an instance look as layout 29 left it: its sources were refused last, and that was told last, then.
fn split_episodes(program: &TestProgram, last: u64, told: u64) {
    let make = |pins: &Pins| {
        older::replace_sources(pins, |source| {
            let times = if source.entry.episode == 0 { (0, 0) } else { (last, told) };
            Source29::of(source, times.0, times.1)
        })
        .unwrap();
        let layout: Array<_, Description> = typed(pins, map::LAYOUT).unwrap();
        describe(pins, Source29::describe(layout.get(&0, 0).unwrap(), 0));
    };
    program.on_pins(make).unwrap();
}

/// A source that is over its limits is still, and that is told again when it would have been.
#[test]
fn the_time_in_which_a_source_is_over_its_limits_goes_on() {
    let limited = policy(&[(Builtin::Source, tokens(1))]);
    let mut program = TestProgram::fresh(SMALL, &limited, Clock::Test).unwrap();
    let refused_at = |program: &mut TestProgram, now: u64| -> Vec<(u16, u16)> {
        program.at(now).unwrap();
        assert!(program.run_many(&udp(A), 9).unwrap() < 9);
        program.notices().unwrap().iter().map(|it| (it.kind, it.again)).collect()
    };
    assert_eq!(refused_at(&mut program, NOW), [(kind::LIMITED, 0)]);
    split_episodes(&program, NOW | 1, (NOW - AGAIN / 2) | 1);
    let Exchanged { from, lost, .. } = program.resize(&SMALL).unwrap();
    assert_eq!((from, lost), (Some(29), 0));
    for second in (2..AGAIN / 2 / SECOND).step_by(4) {
        assert_eq!(refused_at(&mut program, NOW + second * SECOND), [], "{second}");
    }
    assert_eq!(refused_at(&mut program, NOW + AGAIN / 2), [(kind::LIMITED, 1)]);
    program.check_accounts().unwrap();
}

/// Frames without a source, and sources without room, owe what they owed.
#[test]
fn entries_that_sources_share_are_carried_over() {
    const FLOOD: u32 = 8;
    for is_older in [false, true] {
        let sizes = Sizes { overrides: 8, ..smallest() };
        let limited = policy(&[(Builtin::Source, tokens(5))]);
        let mut program = TestProgram::fresh(sizes, &limited, Clock::Test).unwrap();
        program.at(NOW).unwrap();
        let mut unreadable = udp(A);
        // An IP version that does not exist.
        unreadable[14] = 0x55;
        assert_eq!(program.run_many(&unreadable, 9).unwrap(), 5);
        let flood = |program: &mut TestProgram, sources: Range<u32>| -> u64 {
            let source = |number: u32| udp((0x0a00_0000 + number).to_be_bytes());
            sources.map(|number| program.run_many(&source(number), 5).unwrap()).sum()
        };
        flood(&mut program, 0..FLOOD * sizes.sources);
        // What is learned of the shared entries is in no cache of a CPU.
        let state = |program: &TestProgram| {
            (program.shared_packets().unwrap(), program.unreadable().unwrap().settled().dropped)
        };
        let before = state(&program);
        assert!(before.0[1].packets > 0, "the table has room");
        if is_older {
            move_shared_entries(&program);
        }
        let Exchanged { from, sources, lost, anew, .. } = program.resize(&sizes).unwrap();
        assert_eq!((from, lost, anew), (is_older.then_some(28), 0, Vec::new()));
        assert_eq!(sources, sizes.sources);
        assert_eq!(state(&program), before);
        assert_eq!(program.run_many(&unreadable, 9).unwrap(), 0);
        // The probation slots of the sets are free again, and admit a first packet each.
        let more = FLOOD * sizes.sources..(FLOOD + 2) * sizes.sources;
        let first = u64::from(Set::count(sizes.sources)) * PROBATION_SLOTS as u64;
        assert_eq!(flood(&mut program, more), first, "{is_older}");
        program.check_accounts().unwrap();
        program.close().unwrap();
    }
}

/// Upgrades it, and gives how many keys were carried over, and how many not.
fn upgrade(program: &mut TestProgram) -> (u32, u32) {
    let Exchanged { from, buckets, lost, anew, .. } = program.resize(&SMALL).unwrap();
    assert_eq!((from, anew), (Some(25), Vec::new()));
    (buckets, lost)
}

/// An override may have a longer window than the limit, by which its sources owe.
#[test]
fn a_key_owes_by_the_override_of_its_source() {
    let whom = OverrideWhom::Prefix("192.0.2.1/32".parse().unwrap());
    let mut kept = log("kept", SECOND);
    kept.overrides = vec![Override {
        whom,
        layers: Some(vec![Allowance::SlidingLog { limit: 5, window: 60 * MINUTE }]),
    }];
    let mut program = fresh(&policy_of([kept]));
    assert_eq!([A, OTHER].map(|source| program.run_many(&udp(source), 9).unwrap()), [5, 5]);
    thread::sleep(Duration::from_millis(1_100));
    // The log of the other source was charged while it was read.
    make_older(&program, |key| key.source[0] == u32::from_ne_bytes(OTHER));
    assert_eq!(upgrade(&mut program).1, 0);
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 0);
    for turn in 0..3 {
        assert_eq!(program.run_many(&udp(OTHER), 9).unwrap(), 5, "{turn}");
        thread::sleep(Duration::from_millis(1_100));
    }
    program.check_accounts().unwrap();
}

#[test]
fn open_connections_keep_their_places() {
    let few = Allowance::Concurrent { limit: 5, idle: 60 * MINUTE };
    let few = Limit { count: Count::Connections, ..limit("few", &[KeyPart::Source], few) };
    let mut program = fresh(&policy_of([few]));
    let passes = |program: &mut TestProgram, port, flags| {
        let frame = Frame::tcp(A, SERVER, port, 443, flags).build();
        program.run(&frame).unwrap() == Verdict::Pass
    };
    assert_eq!((1..9).filter(|port| passes(&mut program, *port, SYN)).count(), 5);
    make_older(&program, |_| false);
    assert_eq!(upgrade(&mut program), (1, 0));
    assert!(!passes(&mut program, 9, SYN) && passes(&mut program, 1, ACK));
}

/// The policy that is in force again unless its successor is confirmed may have logs that this has not.
#[test]
fn a_key_of_the_policy_before_is_carried_over() {
    let mut program = fresh(&policy_of([log("before", 60 * MINUTE)]));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    let tried = policy_of([log("tried", 60 * MINUTE)]);
    program.split().unwrap().1.apply_for(&tried, Some(Duration::from_secs(3_600))).unwrap();
    assert_eq!(program.run_many(&udp(OTHER), 3).unwrap(), 3);
    make_older(&program, |_| false);
    assert_eq!(upgrade(&mut program), (2, 0));
    program.split().unwrap().1.revert().unwrap();
    assert_eq!([A, OTHER].map(|source| program.run_many(&udp(source), 9).unwrap()), [0, 5]);
}

/// Its window is not known any more.
#[test]
fn a_key_of_a_limit_that_is_gone_is_counted() {
    let mut program = fresh(&policy_of([log("gone", 60 * MINUTE)]));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    for name in ["between", "there"] {
        program.apply(&policy_of([log(name, 60 * MINUTE)])).unwrap();
    }
    make_older(&program, |_| false);
    assert_eq!(upgrade(&mut program), (0, 1));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
}
