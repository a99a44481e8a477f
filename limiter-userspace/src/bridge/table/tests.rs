use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process,
    sync::atomic::AtomicU64,
};

use limiter_common::{
    algorithm::{
        policer::Decision,
        rate::{Rate, SECOND},
        window::Window,
    },
    base::word::Word as _,
};
use proptest::prelude::*;

use super::{layout::HEADER, *};
use crate::error::Failure as _;

const NOW: u64 = 1_000_000 * SECOND;

/// A directory of its own in memory, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new("/dev/shm").join(format!("limiter-table-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }

    fn open(&self) -> Table {
        Table::open(&self.file(), 64).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _: std::io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

fn bucket(burst: u64) -> Meter {
    Meter::bucket(Rate::per_second(1).bucket(burst, 1).unwrap())
}

fn window() -> Meter {
    Meter::fixed(Window::new(5, SECOND).unwrap())
}

fn log() -> Meter {
    Meter::of_sliding_log(SlidingLog::new(5, 60 * SECOND).unwrap())
}

fn key(number: u64) -> Key {
    // As a hash: any of its bits tells keys apart.
    let mix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    Key::new([mix(mix(number)), mix(number)])
}

/// Charges one to a key that has an entry.
fn charge(table: &Table, entry: Entry, meter: &Meter, now: u64) -> bool {
    let word = table.word(entry);
    match meter.decide(word.get(), now, 1) {
        Decision::Conform(next) => word.compare_exchange(word.get(), next) != next,
        _ => false,
    }
}

/// Gives an entry to a key and charges one to it; `None` if there is no room.
fn owing(table: &Table, number: u64) -> Option<Entry> {
    owing_of(table, key(number), WAYS)
}

fn owing_of(table: &Table, key: Key, share: usize) -> Option<Entry> {
    let entry = table.vacancy(Area::Keys, key, NOW, share, |_| false)?;
    table.insert(entry, key, &bucket(5), NOW);
    assert!(charge(table, entry, &bucket(5), NOW));
    Some(entry)
}

#[test]
fn a_key_that_owes_is_never_evicted_and_one_that_does_not_is() {
    let table = Table::in_memory(64);
    let known: Vec<u64> = (0..10_000).filter(|number| owing(&table, *number).is_some()).collect();
    assert_eq!((known.len(), table.keys()), (64, 64), "every entry was given once");
    for number in &known {
        assert!(table.find(Area::Keys, key(*number)).is_some());
    }
    assert!(known.iter().all(|number| table.find(Area::Wide, key(*number)).is_none()));
    // A second later nobody owes any more.
    let new = 1_000_000;
    let entry = table.vacancy(Area::Keys, key(new), NOW + SECOND + 1, WAYS, |_| false).unwrap();
    let next =
        table.vacancy(Area::Keys, key(new), NOW + SECOND + 1, WAYS, |it| it == entry).unwrap();
    assert_ne!(entry, next, "what is taken is not given twice");
    table.insert(entry, key(new), &bucket(5), NOW + SECOND + 1);
    assert_eq!((table.find(Area::Keys, key(new)), table.keys()), (Some(entry), 64));
    let gone = known.iter().filter(|number| table.find(Area::Keys, key(**number)).is_none());
    assert_eq!(gone.count(), 1);
}

#[test]
fn newcomers_have_room_until_nine_tenths_of_all_keys_owe() {
    let fill = |share, class: fn(u64) -> u16| {
        let table = Table::in_memory(1 << 14);
        let keys = (0..).map(|number| key(number).of_class(class(number)));
        let known: Vec<_> =
            keys.take_while(|key| owing_of(&table, *key, share).is_some()).collect();
        assert!(known.iter().all(|key| table.find(Area::Keys, *key).is_some()));
        assert_eq!(known.len(), table.keys());
        known.len() as f64 / f64::from(1 << 14)
    };
    let fill_of_one = fill(WAYS, |_| 1);
    assert!(fill_of_one > 0.9, "{fill_of_one}");
    // Of several limits, one has half of each set.
    let fill_of_half = fill(WAYS / 2, |_| 1);
    assert!((0.4..=0.5).contains(&fill_of_half), "{fill_of_half}");
    let fill_of_three = fill(WAYS / 2, |number| (number % 3) as u16);
    assert!(fill_of_three > 0.9, "{fill_of_three}");
}

#[test]
fn a_set_whose_keys_all_owe_is_not_searched_until_the_first_owes_nothing() {
    let table = Table::in_memory(16);
    for number in 0..16 {
        owing(&table, number).unwrap();
    }
    let vacancy = |now| table.vacancy(Area::Keys, key(16), now, WAYS, |_| false);
    let first = table.layout.entry(0, 0);
    let until = NOW + table.owes(first, NOW);
    assert_eq!(vacancy(NOW), None);
    // Nobody told of it, so only a search would find it.
    table.word(first).compare_exchange(table.word(first).get(), bucket(5).fresh(NOW));
    assert_eq!((vacancy(until - 1), vacancy(until).is_some()), (None, true));
    table.lowered(first);
    assert_eq!(vacancy(NOW), Some(first));
}

#[test]
fn a_set_whose_keys_came_back_or_went_is_the_only_one_that_is_searched() {
    let table = Table::in_memory(64);
    let away = || table.away.iter().map(Cell::get).sum::<u32>();
    assert_eq!((0..1_000).filter(|number| owing(&table, *number).is_some()).count(), 64);
    assert!(away() > 0);
    let later = NOW + SECOND + 1;
    for number in 1_000..10_000 {
        let entry = table.vacancy(Area::Keys, key(number), later, WAYS, |_| false).unwrap();
        table.insert(entry, key(number), &bucket(5), later);
    }
    assert_eq!((away(), table.keys()), (0, 64));
}

#[test]
fn a_key_that_was_being_moved_is_there_once() {
    let directory = Directory::new();
    let stored = {
        let table = directory.open();
        let is_elsewhere = |key| {
            table.layout.first_set(Area::Keys, key) != table.layout.second_set(Area::Keys, key)
        };
        let number = (0..).find(|number| is_elsewhere(key(*number))).unwrap();
        let stored = table.stored(owing(&table, number).unwrap());
        // The process is killed before it frees the old entry.
        let second = table.layout.second_set(Area::Keys, key(number));
        table.put(table.layout.entry(second, 3), &stored);
        stored
    };
    let table = directory.open();
    assert_eq!(table.keys(), 1);
    assert_eq!(table.stored(table.find(Area::Keys, stored.key).unwrap()), stored);
}

#[test]
fn a_key_is_where_it_is_looked_for_first_if_that_is_free() {
    let table = Table::in_memory(64);
    let is_home = |number| {
        let entry = owing(&table, number).unwrap();
        assert_eq!(table.find(Area::Keys, key(number)), Some(entry));
        entry.way() == key(number).home()
    };
    assert!(is_home(0));
    let set = |number| table.layout.first_set(Area::Keys, key(number));
    let with_first = |number: &u64| set(*number) == set(0) && key(*number).home() == key(0).home();
    // The second one finds its place taken.
    assert!(!is_home((1..).find(with_first).unwrap()));
}

#[test]
fn another_process_finds_the_state() {
    let directory = Directory::new();
    let (seed, word, shared) = {
        let table = directory.open();
        assert_eq!(table.began(), Began::New);
        let entry = owing(&table, 7).unwrap();
        assert!(charge(&table, entry, &bucket(5), NOW));
        let [shared] = table.claim_shared(&[key(1)])[..] else { unreachable!() };
        table.carry(shared, &bucket(80), NOW);
        assert!(charge(&table, shared, &bucket(80), NOW));
        (table.seed(), table.word(entry).get(), table.word(shared).get())
    };
    let table = directory.open();
    assert_eq!((table.began(), table.seed(), table.keys()), (Began::Kept, seed, 1));
    let entry = table.find(Area::Keys, key(7)).unwrap();
    assert_eq!(table.word(entry).get(), word);
    assert_eq!(table.measure(entry), bucket(5).measure());
    let again = table.claim_shared(&[key(2), key(1)]);
    assert_eq!(table.word(again[1]).get(), shared);
    assert_ne!(again[0], again[1]);
    let mode = fs::metadata(directory.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_shared_state_stays_until_its_place_is_needed() {
    let table = Table::in_memory(16);
    let keys: Vec<Key> = (0..MOST_SHARED as u64).map(key).collect();
    let first = table.claim_shared(&keys[..10]);
    table.carry(first[3], &bucket(80), NOW);
    assert!(charge(&table, first[3], &bucket(80), NOW));
    let word = table.word(first[3]).get();
    // Rows that are gone keep theirs, as long as others are free.
    let others = table.claim_shared(&keys[10..600]);
    assert!(!others.is_empty() && others.iter().all(|entry| !first.contains(entry)));
    assert_eq!(table.claim_shared(&keys[..10]), first);
    assert_eq!(table.word(first[3]).get(), word);
    let all = table.claim_shared(&keys);
    assert_eq!((all.len(), all[3]), (MOST_SHARED, first[3]));
    assert_eq!(table.word(first[3]).get(), word);
}

#[test]
fn a_state_is_re_scaled_and_that_of_another_algorithm_begins_anew() {
    let table = Table::in_memory(16);
    let entry = owing(&table, 1).unwrap();
    for _ in 0..4 {
        assert!(charge(&table, entry, &bucket(5), NOW));
    }
    assert!(!charge(&table, entry, &bucket(5), NOW));
    // All of it is used, whatever it is.
    for burst in [100, 7, 5] {
        table.carry(entry, &bucket(burst), NOW);
        assert_eq!(table.measure(entry), bucket(burst).measure());
        assert!(!charge(&table, entry, &bucket(burst), NOW), "{burst}");
        assert_eq!(table.find(Area::Keys, key(1)), Some(entry));
    }
    let window = Meter::fixed(Window::new(3, SECOND).unwrap());
    table.carry(entry, &window, NOW);
    assert!(charge(&table, entry, &window, NOW));
}

#[test]
fn a_log_that_another_key_goes_on_with_is_empty() {
    let table = Table::in_memory(16);
    let log = log();
    let events = |number: u64, now: u64| {
        let entry = table.find(Area::Wide, key(number)).unwrap_or_else(|| {
            let entry = table.vacancy(Area::Wide, key(number), now, WAYS, |_| false).unwrap();
            table.insert(entry, key(number), &log, now);
            entry
        });
        let (word, slots) = (table.word(entry), table.slots(entry));
        let mut events = 0;
        while let Ok(look) = log.sliding_log().look(&word, &slots, now) {
            log.sliding_log().attempt(&word, &slots, look, now).unwrap();
            events += 1;
        }
        events
    };
    for round in 0..40 {
        let now = NOW + round * 61 * SECOND;
        // Sixteen logs, one after the other of other keys each time.
        for number in 0..16 {
            assert_eq!(events(round * 16 + number, now), 5);
            assert_eq!(events(round * 16 + number, now), 0);
        }
        assert!(table.vacancy(Area::Wide, key(u64::MAX), now, WAYS, |_| false).is_none());
    }
}

#[test]
fn an_event_that_was_counted_and_not_written_is_one() {
    let directory = Directory::new();
    let log = log();
    let [entry, control] = {
        let table = directory.open();
        let entry = table.vacancy(Area::Wide, key(1), NOW, WAYS, |_| false).unwrap();
        table.insert(entry, key(1), &log, NOW);
        let (word, slots) = (table.word(entry), table.slots(entry));
        for step in 0..150 {
            let now = NOW + step * 20 * SECOND;
            let look = log.sliding_log().look(&word, &slots, now).unwrap();
            log.sliding_log().attempt(&word, &slots, look, now).unwrap();
        }
        // The process is killed after it counted an event.
        let place = 149 % SlidingLog::MOST;
        slots.store(place, table.slots(entry).load(place) ^ 1 << 63);
        let key = table.layout.place(entry, Field::FIRST) as u64;
        [key, word.get()]
    };
    let now = NOW + 149 * 20 * SECOND;
    let table = directory.open();
    let found = table.find(Area::Wide, key(1)).unwrap();
    assert_eq!(table.layout.place(found, Field::FIRST) as u64, entry);
    let (word, slots) = (table.word(found), table.slots(found));
    assert_eq!((word.get(), log.sliding_log().fill(&word, &slots, now)), (control, 3));
    for lap in 0..300 {
        let look = log.sliding_log().look(&word, &slots, now + lap * 20 * SECOND);
        let look = look.unwrap_or_else(|refusal| panic!("{refusal:?} at {lap}"));
        log.sliding_log().attempt(&word, &slots, look, now + lap * 20 * SECOND).unwrap();
    }
}

#[test]
fn two_processes_cannot_have_a_table() {
    let directory = Directory::new();
    let table = directory.open();
    let error = Table::open(&directory.file(), 64).unwrap_err();
    assert!(matches!(error, TableError::InUse { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("stop that process"));
    drop(table);
    assert_eq!(directory.open().began(), Began::Kept);
}

#[test]
fn state_that_is_of_no_use_begins_anew() {
    let directory = Directory::new();
    let make = || {
        fs::write(directory.file(), "").unwrap();
        assert!(owing(&directory.open(), 7).is_some());
    };
    let began_after = |at: usize, word: u64| {
        make();
        let mut bytes = fs::read(directory.file()).unwrap();
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        fs::write(directory.file(), bytes).unwrap();
        let table = directory.open();
        assert_eq!(table.find(Area::Keys, key(7)), None);
        assert_eq!(table.keys(), 0);
        table.began()
    };
    assert_eq!(began_after(1, 1), Began::OtherLayout);
    assert_eq!(began_after(2, 80), Began::Unfinished);
    assert_eq!(began_after(2, 81), Began::OtherLayout);
    assert_eq!(began_after(9, 1), Began::OtherBoot);
    assert_eq!(began_after(11, 0), Began::Unfinished);
    make();
    let bytes = fs::read(directory.file()).unwrap();
    fs::write(directory.file(), &bytes[..bytes.len() - 8]).unwrap();
    assert_eq!(directory.open().began(), Began::Unfinished);
    fs::write(directory.file(), &bytes[..50]).unwrap();
    assert_eq!(directory.open().began(), Began::Unfinished);
    assert!(directory.open().began().to_string().contains("kept"));
}

#[test]
fn what_owes_is_moved_to_a_table_of_another_size() {
    let directory = Directory::new();
    let later = crate::datapath::sys::monotonic() + 3_600 * SECOND;
    let (seed, keys, log, shared) = {
        let table = Table::open(&directory.file(), 64).unwrap();
        for (number, now) in (0..40).zip([later, 0].into_iter().cycle()) {
            let entry = table.vacancy(Area::Keys, key(number), now, WAYS, |_| false).unwrap();
            table.insert(entry, key(number), &bucket(5), now);
            assert!(charge(&table, entry, &bucket(5), now));
        }
        let wide = table.vacancy(Area::Wide, key(7), later, WAYS, |_| false).unwrap();
        table.insert(wide, key(7), &log(), later);
        let (word, slots) = (table.word(wide), table.slots(wide));
        let look = log().sliding_log().look(&word, &slots, later).unwrap();
        log().sliding_log().attempt(&word, &slots, look, later).unwrap();
        let [shared] = table.claim_shared(&[key(1)])[..] else { unreachable!() };
        table.carry(shared, &bucket(80), later);
        assert!(charge(&table, shared, &bucket(80), later));
        let stored = |number| table.stored(table.find(Area::Keys, key(number)).unwrap());
        let keys: Vec<_> = (0..40).step_by(2).map(stored).collect();
        (table.seed(), keys, table.stored(wide), table.stored(shared))
    };
    for (size, kept, lost) in [(16_384, 21, 0), (64, 21, 0), (1, 17, 4)] {
        let table = Table::open(&directory.file(), size).unwrap();
        assert_eq!(table.began(), Began::Resized { kept, lost });
        assert_eq!((table.keys(), table.seed()), (kept, seed), "those that owe nothing are gone");
        let found = |area, stored: &&Stored| {
            table.find(area, stored.key).is_some_and(|entry| table.stored(entry) == **stored)
        };
        assert_eq!(keys.iter().filter(|stored| found(Area::Keys, stored)).count(), kept - 1);
        assert!(found(Area::Wide, &&log));
        assert_eq!(table.stored(table.claim_shared(&[key(2), key(1)])[1]), shared);
        assert_eq!(table.began().is_whole(), lost == 0);
        assert_eq!(table.began().to_string().contains("--keys"), lost > 0);
    }
}

#[test]
fn what_is_no_table_is_left_alone() {
    let directory = Directory::new();
    fs::write(directory.file(), "somebody's notes").unwrap();
    let error = Table::open(&directory.file(), 64).unwrap_err();
    assert!(matches!(error, TableError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(directory.file()).unwrap(), b"somebody's notes");
    let link = directory.0.join("link");
    symlink(directory.file(), &link).unwrap();
    for path in [link, directory.0.clone()] {
        let error = Table::open(&path, 64).unwrap_err();
        assert!(matches!(error, TableError::NotAFile { .. }), "{error}");
    }
    let error = Table::open(&directory.0.join("not/there"), 64).unwrap_err();
    assert!(matches!(error, TableError::NoDirectory { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("mkdir"));
    let error = Table::open(&directory.file(), usize::MAX).unwrap_err();
    assert!(matches!(error, TableError::TooManyKeys { .. }), "{error}");
}

#[test]
fn a_file_on_a_disk_is_refused_and_not_made() {
    // None of these is in memory, whatever the machine that tests has.
    for path in ["/proc/limiter-state", "/sys/limiter-state"] {
        let error = Table::open(Path::new(path), 16).unwrap_err();
        assert!(matches!(error, TableError::OnDisk { .. }), "{error}");
        assert!(error.to_string().contains(path), "{error}");
        assert!(error.remedy().unwrap().contains("/run"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// A key that owes keeps its entry and what is in it, wherever it is moved, and has no other one.
    #[test]
    fn a_key_that_owes_is_there_once(
        is_wide in any::<bool>(),
        steps in prop::collection::vec((0..160_u64, 0..SECOND / 8, 0..3_usize), 250),
    ) {
        // Four sets.
        let (table, area, meter, share) = match is_wide {
            true => (Table::in_memory(2_048), Area::Wide, log(), WAYS),
            false => (Table::in_memory(64), Area::Keys, bucket(5), WAYS / 2),
        };
        let (mut now, mut held) = (NOW, HashMap::new());
        for (number, pause, class) in steps {
            now += pause;
            let key = key(number).of_class(class as u16);
            let found = table.find(area, key);
            let entry = found.or_else(|| {
                let entry = table.vacancy(area, key, now, share, |_| false)?;
                table.insert(entry, key, &meter, now);
                Some(entry)
            });
            if let Some(entry) = entry {
                if meter.is_wide() {
                    let (word, slots) = (table.word(entry), table.slots(entry));
                    let log = meter.sliding_log();
                    if let Ok(look) = log.look(&word, &slots, now) {
                        log.attempt(&word, &slots, look, now).unwrap();
                    }
                } else {
                    charge(&table, entry, &meter, now);
                }
                held.insert(key, (now + table.owes(entry, now), table.stored(entry)));
            }
            held.retain(|_, (until, _)| *until > now);
            for (key, (_, stored)) in &held {
                let found = table.find(area, *key).map(|entry| table.stored(entry));
                prop_assert_eq!(found.as_ref(), Some(stored));
            }
            let mut keys: Vec<_> = table.layout.entries().map(|entry| table.key(entry)).collect();
            keys.retain(|key| !key.is_none());
            prop_assert_eq!(keys.len(), table.keys());
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), table.keys(), "a key is there twice");
            for set in 0..table.layout.sets() {
                for class in 0..3 {
                    prop_assert!(table.entries_of(set, class).count() <= share);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// What is noted of full sets hides no room, whatever keys do meanwhile.
    #[test]
    fn a_set_has_room_exactly_where_a_key_owes_nothing(
        // So short that mostly all keys owe.
        steps in prop::collection::vec((0..160_u64, 0..SECOND / 64, 0..3_u16, 0..12_u8), 250),
        share in prop::sample::select(vec![WAYS / 2, WAYS]),
    ) {
        let (table, meter, mut now) = (Table::in_memory(64), bucket(5), NOW);
        for (number, pause, class, step) in steps {
            now += pause;
            let key = key(number).of_class(class);
            let entry = table.find(Area::Keys, key).or_else(|| {
                let entry = table.vacancy(Area::Keys, key, now, share, |_| false)?;
                table.insert(entry, key, &meter, now);
                Some(entry)
            });
            match (entry, step) {
                (None, _) => {}
                (Some(entry), 0) => table.free(entry),
                // State of another algorithm begins anew.
                (Some(entry), 1) => table.carry(entry, &window(), now),
                (Some(entry), 2) => {
                    let word = table.word(entry);
                    word.compare_exchange(word.get(), meter.give_back(word.get(), now, 1));
                    table.lowered(entry);
                }
                (Some(entry), _) => {
                    table.carry(entry, &meter, now);
                    charge(&table, entry, &meter, now);
                }
            }
            for set in 0..table.layout.sets() {
                let newcomer = key.of_class(class ^ 1);
                for key in [key, newcomer] {
                    let bound = table.bound(set, key, share);
                    let mut open = table.open_to(set, key, bound);
                    let has_room = open.any(|it| table.is_free(it) || table.owes(it, now) == 0);
                    let found = table.vacancy_in(set, key, now, share, &|_| false);
                    prop_assert_eq!(found.is_some(), has_room);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the file holds, the table can be used.
    #[test]
    fn any_content_can_be_read(
        words in prop::collection::vec((any::<u64>(), 0..64_u32), 200),
        steps in prop::collection::vec((0..600_u64, 0..1_u64 << 45), 100),
    ) {
        let directory = Directory::new();
        {
            let table = directory.open();
            let all = table.memory.len();
            for (at, (word, shift)) in words.iter().cycle().take(all - HEADER).enumerate() {
                table.memory[HEADER + at].store(word >> shift, Ordering::Relaxed);
            }
            // Keys where they belong, so that their states are not thrown away.
            for (number, entry) in (0..).zip(table.layout.entries()) {
                let area = if table.layout.slots(entry).is_some() { Area::Wide } else { Area::Keys };
                let own = (number..).map(key).take(600);
                let own = own.filter(|own| table.layout.first_set(area, *own) == entry.set());
                if let Some(own) = own.into_iter().next() {
                    table.store(entry, Field::FIRST, own.first());
                    table.store(entry, Field::SECOND, own.second(Field::STATES[number as usize % 2]));
                }
            }
        }
        let table = directory.open();
        prop_assert_eq!(table.began(), Began::Kept);
        let meters =
            [bucket(5), log(), Meter::sliding(Window::new(9, SECOND).unwrap()), bucket(1 << 20)];
        for (at, (number, now)) in steps.into_iter().enumerate() {
            let meter = &meters[at % meters.len()];
            let area = if meter.is_wide() { Area::Wide } else { Area::Keys };
            let Some(entry) = table.find(area, key(number)) else {
                if let Some(entry) = table.vacancy(area, key(number), now, WAYS, |_| false) {
                    table.insert(entry, key(number), meter, now);
                }
                continue;
            };
            table.carry(entry, meter, now);
            if meter.is_wide() {
                let (word, slots) = (table.word(entry), table.slots(entry));
                let log = meter.sliding_log();
                let _: u64 = log.wait(&word, &slots, now);
                if let Ok(look) = log.look(&word, &slots, now) {
                    prop_assert!(log.attempt(&word, &slots, look, now).is_some());
                }
            } else {
                let _: bool = charge(&table, entry, meter, now);
                let _: u64 = meter.wait(table.word(entry).get(), now, 1);
            }
        }
    }
}
