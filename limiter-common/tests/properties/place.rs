//! Where sources are looked for in the table of sources.

use limiter_common::{
    abi::table::WAYS,
    base::{address::Address, seed::Seed},
    memory::cache::Cached,
    table::set::Place,
};

use super::random::Random;

const SEED: u64 = 0x706c_6163_6573_6f66;

fn any_seed(random: &mut Random) -> Seed {
    Seed([0; 4].map(|_| random.any()))
}

/// Neighbours: the addresses of a /24 and of a /16, and the first networks of a /48.
fn neighbours() -> [(&'static str, Vec<Address>); 3] {
    let small = (0..=u8::MAX).map(|last| Address::v4([198, 51, 100, last]));
    let large = (0..=u16::MAX).map(|low| {
        let [c, d] = low.to_be_bytes();
        Address::v4([10, 20, c, d])
    });
    let networks = (0..=u16::MAX).map(|network| {
        let second = 0x0db8_0000_u32 + u32::from(network);
        Address::v6([0x2001_0db8_u32.to_be(), second.to_be(), 0, 0])
    });
    [("a /24", small.collect()), ("a /16", large.collect()), ("/64s", networks.collect())]
}

/// How far the counts are from even, in standard deviations of what chance would make it (the sum of
/// squares of Pearson's test, which is about normal for so many cells).
fn unevenness(counts: &[u32]) -> f64 {
    let cells = counts.len() as f64;
    let mean = f64::from(counts.iter().sum::<u32>()) / cells;
    let squares: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
    (squares - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

#[test]
fn neighbours_are_spread_evenly_over_sets_and_ways() {
    for run in 0..40 {
        let mut random = Random::new(SEED, run);
        let seed = any_seed(&mut random);
        for (what, addresses) in neighbours() {
            // Some tens of addresses for each cell.
            let sets = addresses.len() / 1_024;
            for sets in [sets.max(1), 10 * sets / 7 + 1] {
                let mut cells = vec![0; sets * WAYS];
                for address in &addresses {
                    let place = Place::of(address, seed, sets as u32);
                    assert!(place.tag != 0 && (place.set as usize) < sets, "{place:?}");
                    assert!(place.tag_ext < 16, "{place:?}");
                    cells[place.set as usize * WAYS + usize::from(place.home)] += 1;
                }
                let by_set: Vec<u32> = cells.chunks(WAYS).map(|ways| ways.iter().sum()).collect();
                let by_home: Vec<u32> =
                    (0..WAYS).map(|home| cells.iter().skip(home).step_by(WAYS).sum()).collect();
                for (of, counts) in [("sets", by_set), ("homes", by_home), ("both", cells)] {
                    if counts.len() > 1 {
                        let off = unevenness(&counts);
                        assert!(off < 7.0, "{what}, {sets} sets: {of} are uneven by {off}");
                    }
                }
            }
        }
    }
}

/// Sources that share a slot of the cache of a CPU take turns in it.
#[test]
fn neighbours_are_spread_evenly_over_the_slots_of_a_cache() {
    for run in 4_000..4_040 {
        let mut random = Random::new(SEED, run);
        let seed = any_seed(&mut random);
        for (what, addresses) in neighbours() {
            let mut slots = vec![0; Cached::SLOTS as usize];
            let places = addresses.iter().map(|address| Place::of(address, seed, 1 << 10));
            places.for_each(|place| slots[usize::from(place.slot)] += 1);
            let off = unevenness(&slots);
            assert!(off < 7.0, "{what}: slots are uneven by {off}");
        }
    }
}

#[test]
fn another_seed_gives_other_places() {
    const SETS: u32 = 1 << 10;
    for run in 1_000..1_100 {
        let mut random = Random::new(SEED, run);
        let seeds: [Seed; 2] = std::array::from_fn(|_| any_seed(&mut random));
        for (what, addresses) in neighbours() {
            let places = |address| seeds.map(|seed| Place::of(address, seed, SETS));
            let same = |of: fn(&Place) -> u64| {
                let is_same = |[one, other]: [Place; 2]| of(&one) == of(&other);
                addresses.iter().filter(|address| is_same(places(address))).count()
            };
            let chance = addresses.len() / SETS as usize;
            let sets = same(|place| place.set.into());
            assert!(sets <= 2 * chance + 8, "{what}: {sets} are in the same set");
            let slots = same(|place| place.slot.into());
            let chance = addresses.len() / Cached::SLOTS as usize;
            assert!(slots <= 2 * chance + 8, "{what}: {slots} have the same slot");
            let tags = same(|place| place.tag.into());
            let chance = addresses.len() / 255;
            assert!(tags <= 2 * chance + 8, "{what}: {tags} have the same tag");
            let both = same(|place| u64::from(place.tag_ext) << 8 | u64::from(place.tag));
            let chance = addresses.len() / 4_080;
            assert!(both <= 2 * chance + 8, "{what}: {both} have the same tag and mark");
        }
    }
}

/// Two that share a set under one seed do not under most others.
#[test]
fn who_shares_a_set_is_another_matter_under_another_seed() {
    const SETS: u32 = 64;
    let mut random = Random::new(SEED, 2_000);
    for (what, addresses) in neighbours() {
        let seeds: [Seed; 2] = std::array::from_fn(|_| any_seed(&mut random));
        let places = |seed: Seed| addresses.iter().map(move |it| Place::of(it, seed, SETS).set);
        let first = places(seeds[0]).next().unwrap();
        let companions: Vec<_> =
            places(seeds[0]).zip(places(seeds[1])).filter(|it| it.0 == first).collect();
        let home = companions[0].1;
        let together = companions.iter().filter(|it| it.1 == home).count();
        assert!(together <= companions.len() / 16 + 4, "{what}: {together} of {companions:?}");
    }
}

/// Addresses whose difference cancels in the hash, whatever the seed, would let anybody fill a set:
/// bits of the first half of an address with those of the second.
#[test]
fn no_difference_of_addresses_is_the_same_place_whatever_the_seed() {
    const SETS: u32 = 1 << 16;
    const SEEDS: u64 = 64;
    let mut random = Random::new(SEED, 3_000);
    let seeds: Vec<_> = (0..SEEDS).map(|_| any_seed(&mut random)).collect();
    let address = |halves: [u64; 2]| {
        let [ab, cd] = halves;
        Address::v6([ab as u32, (ab >> 32) as u32, cd as u32, (cd >> 32) as u32])
    };
    for one in 0..64 {
        let base = [random.any(), random.any()];
        for other in 0..64 {
            for sign in [1, u64::MAX] {
                let low = (1_u64 << other).wrapping_mul(sign);
                let top = if other == 31 { 1 << 63 } else { 0 };
                let changed =
                    address([base[0] ^ 1 << one, base[1].wrapping_add(low).wrapping_add(top)]);
                let together = |seed: &&Seed| {
                    let [a, b] = [address(base), changed].map(|it| Place::of(&it, **seed, SETS));
                    a.set == b.set
                };
                let same = seeds.iter().filter(together).count();
                assert!(same <= 2, "bits {one} and {other}: under {same} of {SEEDS} seeds");
            }
        }
    }
}
