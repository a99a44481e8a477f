//! The tries of a half are amended by what differs, and have what tries that are made whole would have.

use std::{collections::BTreeMap, thread, time::Duration};

use aya::maps::{ArrayOfMaps, Map, MapData, lpm_trie::LpmTrie};
use ipnet::IpNet;
use limiter_common::{
    abi::layout::{CHUNK, map},
    base::address::Address,
};
use limiter_tests::program::{TestProgram, typed};
use limiter_userspace::policy::{Context, Layers, List, Policy, recompile, run_time::Entry};

use super::{Run, mutation::Random, part, program, seed};

const ROUNDS: u64 = 400;
/// Profiles by length and prefix.
type Content = BTreeMap<(u32, Address), u32>;

/// Long after any test, in seconds of Unix time.
const LATER: u64 = 4_000_000_000;

/// The trie of sources in a half: the number of the map, and what is in it.
fn trie(program: &TestProgram, half: u32) -> Option<(u32, Content)> {
    program
        .on_pins(|pins| {
            let tries: ArrayOfMaps<MapData, MapData> = typed(pins, map::PREFIXES).unwrap();
            let trie = tries.get(&half, 0).ok()?;
            let number = trie.info().unwrap().id();
            let trie: LpmTrie<MapData, Address, u32> = Map::LpmTrie(trie).try_into().unwrap();
            let all = trie.iter().map(|entry| {
                let (key, number) = entry.unwrap();
                ((key.prefix_len(), key.data()), number)
            });
            Some((number, all.collect()))
        })
        .unwrap()
}

/// What a command leaves that was killed while it changed the tries of a half.
fn kill_while_amending(program: &TestProgram, half: u32) {
    program
        .on_pins(|pins| {
            let mut document: aya::maps::HashMap<MapData, [u32; 2], [u8; CHUNK]> =
                typed(pins, map::DOCUMENT).unwrap();
            document.remove(&[half, 0]).unwrap();
            let tries: ArrayOfMaps<MapData, MapData> = typed(pins, map::PREFIXES).unwrap();
            let Ok(trie) = tries.get(&half, 0) else { return };
            let mut trie: LpmTrie<MapData, Address, u32> = Map::LpmTrie(trie).try_into().unwrap();
            let key = aya::maps::lpm_trie::Key::new(
                Address::FAMILY_BITS,
                Address { family: Address::IPV4, words: [0; 4] },
            );
            trie.insert(&key, 1, 0).unwrap();
        })
        .unwrap();
}

fn any_prefix(random: &mut Random) -> IpNet {
    let [a, b] = [4, 24].map(|bound| random.below(bound) as u8);
    if random.below(3) == 0 {
        let address = [0x2001, 0xdb8, a.into(), b.into(), 0, 0, 0, 0];
        IpNet::new(address.into(), *random.pick(&[32, 48, 64, 64])).unwrap().trunc()
    } else {
        IpNet::new([10, 0, a, b].into(), *random.pick(&[8, 24, 32, 32])).unwrap().trunc()
    }
}

/// Adds some entries, or removes some.
fn change(layers: &mut Layers, random: &mut Random, number: usize) {
    for _ in 0..number {
        let (prefix, list) = (any_prefix(random), *random.pick(&List::ALL));
        let entry = Entry {
            until: (list == List::Penalty || random.below(2) == 0)
                .then(|| LATER + random.below(3) as u64),
            ..Entry::new(list, prefix)
        };
        // What is not listed cannot be taken off, and an entry may be shadowed.
        let _ = match random.below(3) {
            0 => layers.take_off(entry, 0).map(drop),
            _ => layers.run_time.put(&layers.policy, entry, 0).map(drop),
        };
    }
}

#[test]
fn a_trie_that_was_amended_is_like_one_that_was_made() {
    let (seed, mut program) = (seed(), program(&Policy::default()));
    let mut random = Random::new(seed, 0);
    let mut layers = program.maps().layers().unwrap();
    change(&mut layers, &mut random, 60);
    let (mut amended, mut made) = (0, 0);
    for run in 0..part(ROUNDS) {
        let _run = Run { seed, run, of: &"changes of lists" };
        let number = if random.below(20) == 0 { 200 } else { random.below(4) };
        change(&mut layers, &mut random, number);
        // Epochs and their halves alternate, and the first one is 1.
        let half = run as u32 & 1;
        let before = trie(&program, half);
        let is_killed = run > 2 && random.below(8) == 0;
        if is_killed {
            kill_while_amending(&program, half);
        }
        program.split().unwrap().1.put_in_force(layers.clone(), None, None).unwrap();

        let in_force = program.maps().in_force().unwrap();
        assert_eq!(in_force.run_time, layers.run_time);
        let tables = recompile(in_force.layered(), &in_force.held, &Context::default()).unwrap();
        let expected: Content =
            tables.prefixes.iter().map(|(bits, address, of)| ((*bits, *address), *of)).collect();
        let (map, found) = trie(&program, half).unwrap();
        assert_eq!(found, expected);
        let is_amended = before.is_some_and(|(before, _)| before == map);
        assert!(!(is_amended && is_killed), "nobody knows what was in it");
        *(if is_amended { &mut amended } else { &mut made }) += 1;
    }
    println!("{amended} amended, {made} made");
    assert!(amended > made && made > 2);
}

#[test]
fn the_change_after_a_long_list_amends() {
    let mut program = program(&Policy::default());
    let put = |program: &mut TestProgram, entries: std::ops::Range<u32>| {
        let mut layers = program.maps().layers().unwrap();
        for number in entries {
            let prefix = IpNet::new((0x0a00_0000 + number).to_be_bytes().into(), 32).unwrap();
            layers.run_time.put(&layers.policy, Entry::new(List::Deny, prefix), 0).unwrap();
        }
        program.split().unwrap().1.put_in_force(layers, None, None).unwrap();
    };
    let prepare = |program: &mut TestProgram| program.split().unwrap().1.prepare().unwrap();
    // The program has epoch 1, the list 2, and the entry more 3.
    put(&mut program, 0..8_192);
    // Until the caller has kept the lists, nothing more is done.
    assert!(trie(&program, 1).is_none());
    prepare(&mut program);
    let [list, prepared] = [0, 1].map(|half| trie(&program, half).unwrap());
    assert_eq!(list.1, prepared.1);
    put(&mut program, 8_192..8_193);
    let amended = trie(&program, 1).unwrap();
    assert_eq!((amended.0, amended.1.len()), (prepared.0, list.1.len() + 1));
    assert_eq!(trie(&program, 0).unwrap().0, list.0);
    // The list is gone for one change, and comes back to the half that has it still.
    let all = program.maps().layers().unwrap();
    let put_all = |program: &mut TestProgram, layers: &Layers| {
        program.split().unwrap().1.put_in_force(layers.clone(), None, None).unwrap();
        prepare(program);
    };
    put_all(&mut program, &Layers { run_time: Default::default(), ..all.clone() });
    put_all(&mut program, &all);
    let prepared = trie(&program, 0).unwrap();
    assert_eq!(prepared.1, trie(&program, 1).unwrap().1);
    put(&mut program, 8_193..8_194);
    assert_eq!(trie(&program, 0).unwrap().0, prepared.0);
}

/// A trial was taken back, and a command died that wrote the next policy in its place. So nobody knows the numbers of the
/// tenants of the trial, under which packets were counted.
#[test]
fn a_tenant_has_no_number_of_a_trial_that_nobody_can_read() {
    let mut program = program(&Policy::default());
    let put = |program: &mut TestProgram, tenant: &str, prefix: &str, trial| {
        let mut layers = program.maps().layers().unwrap();
        layers.policy.tenants.insert(tenant.to_owned(), vec![prefix.parse().unwrap()]);
        program.split().unwrap().1.put_in_force(layers, trial, None).unwrap();
        program.maps().in_force().unwrap().held.clone()
    };
    put(&mut program, "zero", "10.0.0.0/8", None);
    let trial = Some(Duration::from_millis(20));
    assert_eq!(put(&mut program, "acme", "11.0.0.0/8", trial).tenant("acme"), 2);
    thread::sleep(Duration::from_millis(40));
    // The program has epoch 1, so the trial has 3.
    kill_while_amending(&program, 1);
    let held = put(&mut program, "other", "12.0.0.0/8", None);
    // All are numbered anew, by which what limits count of tenants begins anew.
    assert_eq!(["other", "zero", "acme"].map(|name| held.tenant(name)), [1, 2, 0]);
}
