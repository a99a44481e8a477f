//! What is known of peers whose requests limits with a penalty refused.
//!
//! The time over a limit is counted by the rules of the kernel half: see [`Penalty`]. A refusal counts if the peer was told when to
//! come back, and came before. That is kept for each key of the limit, so that users behind one address do not count as
//! one that comes back early. A peer of many keys is the address of many clients, and is not pushed, unless its address is part of
//! the keys. The table is bounded as there: sets of [`WAYS`] records, and the one that would be forgotten first makes room.

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use limiter_common::{
    base::{address::Address, siphash::SipHash, word::Word as _},
    memory::offence::{LINES, Longest, Room, room},
    policy::penalty::{Offence, Penalty},
};
use serde::{Deserialize, Serialize};

use super::super::properties::hash;

/// Records of a set.
const WAYS: usize = LINES as usize - 1;
/// Sets of the table: room for 15,360 records of some 300 bytes.
const SETS: usize = 1_024;
/// For how long a peer whose requests still come is not pushed again, in ns.
const AGAIN: u64 = 250_000_000;
/// Keys of a limit that a peer may be refused by within [`LATELY`] before it counts as shared.
const KEYS: usize = 8;
/// For how long a key that a peer was refused by counts, in ns: 10 minutes.
const LATELY: u64 = 600_000_000_000;
/// The longest times, by which records are weighed.
const LONGEST: Longest = Longest { most: Penalty::LONGEST, rest: Penalty::LONGEST };

/// The offences of peers against limits on requests.
pub(in crate::bridge) struct Offences {
    records: Mutex<Box<[Record]>>,
    /// How often a refusal was noted.
    changes: AtomicU64,
    /// Who does not know it cannot choose peers that share a set. That of the state of keys, so that what is
    /// [stored](Self::stored) is found by the next process.
    seed: [u64; 2],
}

/// What is known of a peer, as it is left to the next process. Times are in ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::bridge) struct Stored {
    limit: u64,
    family: u32,
    peer: [u32; 4],
    /// The times of the [`Offence`] in their order, and the number of blocks.
    offence: [u64; 5],
    /// The digest, the last refusal and the told time of each key that is known.
    keys: Vec<[u64; 3]>,
    shared: u64,
    pushed: u64,
}

/// What is known of a peer, under one limit.
struct Record {
    /// A hash of the name of the limit, and the peer; `None` for a record that is free.
    key: Option<(u64, Address)>,
    offence: Offence<Cell<u64>>,
    /// The keys that the peer was refused by.
    keys: [RefusedKey; KEYS],
    /// When it was refused by more keys than that within [`LATELY`], in ns; 0 if it was not.
    shared: u64,
    /// When it was pushed last, in ns; 0 if it was not.
    pushed: u64,
}

/// A key of a limit that a peer was refused by.
#[derive(Clone, Copy, Default)]
struct RefusedKey {
    /// A digest of it.
    digest: u64,
    /// When it was refused last, in ns; 0 for a place that is free.
    last: u64,
    /// When it was told to come back, in ns.
    told: u64,
}

/// A peer that a limit refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Its address, masked to the key prefix of the policy.
    pub(super) peer: Address,
    /// A digest of the key that the limit refused.
    pub(super) digest: u64,
    /// Whether the keys of the limit have its address. Then it is one client, however many keys it has.
    pub(super) is_one: bool,
}

/// When the request of a key came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// For the first time, or once the key had waited.
    InTime,
    /// Before the key had waited.
    Early,
    /// It is not known: the keys that are known all wait.
    Unknown,
}

/// What a refusal comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The peer is to be blocked until then, in ns of `CLOCK_MONOTONIC`.
    Until(u64),
    /// It came back early, or may have, and is refused by too many keys to be one client.
    Shared,
}

impl Record {
    fn new(key: Option<(u64, Address)>) -> Self {
        let [began, last, since, blocked, blocks] = [const { Cell::new(0) }; 5];
        let offence = Offence { began, last, since, blocked, blocks };
        let keys = [RefusedKey::default(); KEYS];
        Self { key, offence, keys, shared: 0, pushed: 0 }
    }

    /// Notes that a key is refused at `now`, and told to come back at `told`. Returns when it came.
    fn note(&mut self, digest: u64, told: u64, now: u64) -> Came {
        let is_of = |key: &RefusedKey| key.last > 0 && key.digest == digest;
        // A key that is to wait keeps its place. Otherwise none would be known of a peer that takes turns with more keys.
        let order = |key: &&mut RefusedKey| (!is_of(key), key.is_waiting(now), key.last);
        let Some(key) = self.keys.iter_mut().min_by_key(order) else { return Came::Unknown };
        let came = if is_of(key) {
            if now < key.told { Came::Early } else { Came::InTime }
        } else {
            if key.is_recent(now) {
                self.shared = now;
            }
            if key.is_waiting(now) {
                return Came::Unknown;
            }
            Came::InTime
        };
        *key = RefusedKey { digest, last: now, told };
        came
    }

    const fn is_shared(&self, now: u64) -> bool {
        self.shared > 0 && now.saturating_sub(self.shared) < LATELY
    }
}

impl RefusedKey {
    /// Whether it was refused within [`LATELY`].
    const fn is_recent(&self, now: u64) -> bool {
        self.last > 0 && now.saturating_sub(self.last) < LATELY
    }

    /// Whether it was, and is to wait.
    const fn is_waiting(&self, now: u64) -> bool {
        self.is_recent(now) && now < self.told
    }
}

impl Offences {
    /// None yet. Limits and peers are hashed with `seed`.
    pub(in crate::bridge) fn new(seed: [u64; 2]) -> Self {
        let records = std::iter::repeat_with(|| Record::new(None)).take(SETS * WAYS);
        Self { records: Mutex::new(records.collect()), changes: AtomicU64::new(0), seed }
    }

    /// How often something changed.
    pub(in crate::bridge) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// All that is known. Refusals wait for one set at a time.
    pub(in crate::bridge) fn stored(&self) -> Vec<Stored> {
        let stored = |record: &Record| {
            let (limit, Address { family, words: peer }) = record.key?;
            let Offence { began, last, since, blocked, blocks } = &record.offence;
            let offence = [began, last, since, blocked, blocks].map(Cell::get);
            let known = record.keys.iter().filter(|key| key.last > 0);
            let keys = known.map(|key| [key.digest, key.last, key.told]).collect();
            let Record { shared, pushed, .. } = *record;
            Some(Stored { limit, family, peer, offence, keys, shared, pushed })
        };
        let mut all = Vec::new();
        for set in 0..SETS {
            let records = self.lock();
            let set = records.chunks_exact(WAYS).nth(set).unwrap_or_default();
            all.extend(set.iter().filter_map(stored));
        }
        all
    }

    /// Takes over what the process before had [stored](Self::stored) with the same seed.
    pub(in crate::bridge) fn restore(&self, stored: Vec<Stored>) {
        let mut records = self.lock();
        for Stored { limit, family, peer, offence, keys, shared, pushed } in stored {
            let key = (limit, Address { family, words: peer });
            let set = records.chunks_exact_mut(WAYS).nth(self.set(key));
            let Some(free) = set.and_then(|set| set.iter_mut().find(|it| it.key.is_none())) else {
                continue;
            };
            let [began, last, since, blocked, blocks] = offence.map(Cell::new);
            let offence = Offence { began, last, since, blocked, blocks };
            *free = Record { offence, shared, pushed, ..Record::new(Some(key)) };
            for (place, [digest, last, told]) in free.keys.iter_mut().zip(keys) {
                *place = RefusedKey { digest, last, told };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Box<[Record]>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set that the record of a peer under a limit is in.
    fn set(&self, (limit, Address { family, words: [a, b, c, d] }): (u64, Address)) -> usize {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let hash = SipHash::new(self.seed).word(limit).word(family.into()).word(pair(a, b));
        hash.word(pair(c, d)).finish() as usize % SETS
    }

    /// Notes that a request of a peer was refused by a limit at `now`, in ns of `CLOCK_MONOTONIC`, and that the peer is told to
    /// wait, in ns; [`u64::MAX`] if waiting does not help. Returns until when the peer is to be blocked, if that is due
    /// to be pushed: for the first time, or since its requests still come.
    pub(super) fn exceed(
        &self,
        limit: &str,
        penalty: &Penalty,
        Refused { peer, digest, is_one }: Refused,
        wait: u64,
        now: u64,
    ) -> Option<Due> {
        let key = (hash(limit, self.seed), peer);
        let mut records = self.lock();
        self.changes.fetch_add(1, Relaxed);
        let set = records.chunks_exact_mut(WAYS).nth(self.set(key))?;
        let record = match set.iter().position(|record| record.key == Some(key)) {
            Some(at) => set.get_mut(at)?,
            None => {
                let of_line = |line: u32| match set.get(line as usize - 1) {
                    Some(Record { key: Some(_), offence, .. }) => {
                        Room::new(line, LONGEST.useful_until(offence, now))
                    }
                    _ => Room::new(line, 0),
                };
                // Where the blocks of all run, this one is refused by its limit alone.
                let free = set.get_mut(room(of_line)?.line() as usize - 1)?;
                *free = Record::new(Some(key));
                free
            }
        };
        let came = record.note(digest, now.saturating_add(wait), now);
        if came == Came::InTime {
            return None;
        }
        if !is_one && record.is_shared(now) {
            return Some(Due::Shared);
        }
        if came == Came::Unknown {
            // The key may have waited, so that no offence begins. But the peer does not rest.
            let last = &record.offence.last;
            if now.saturating_sub(last.get()) <= penalty.rest() {
                last.set(now);
            }
            return None;
        }
        let until = penalty.exceed(&record.offence, now);
        let is_due = now.saturating_sub(record.pushed) >= AGAIN;
        let is_new = record.pushed < record.offence.since.load();
        if until <= now || !is_due && !is_new {
            return None;
        }
        record.pushed = now;
        Some(Due::Until(until))
    }
}

#[cfg(test)]
impl Offences {
    /// Has so many peers be refused by as many keys as are known of each.
    pub(in crate::bridge) fn fill(&self, peers: u32) {
        let penalty = Penalty { after: 1, block: 1 << 40, most: 1 << 40, ..Penalty::default() };
        for number in 0..peers {
            for digest in 0..KEYS as u64 {
                let refused = Refused {
                    peer: Address { family: 6, words: [u32::MAX - number; 4] },
                    digest: u64::MAX - digest,
                    is_one: true,
                };
                self.exceed("login", &penalty, refused, 0, (1 << 60) + digest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000 * SECOND;

    fn penalty() -> Penalty {
        Penalty {
            after: 10 * SECOND,
            block: 60 * SECOND,
            most: 3600 * SECOND,
            backoff: 2,
            ..Penalty::default()
        }
    }

    fn peer(number: u16) -> Address {
        let [high, low] = number.to_be_bytes();
        Address::v4([198, 18, high, low])
    }

    fn refused(peer: Address, digest: u64) -> Refused {
        Refused { peer, digest, is_one: false }
    }

    /// Offences of peers that are refused by one limit, each time for a minute.
    struct Login(Offences);

    impl Login {
        fn exceed(&self, peer: Address, now: u64) -> Option<u64> {
            let due = self.0.exceed("login", &penalty(), refused(peer, 0), 60 * SECOND, now)?;
            match due {
                Due::Until(until) => Some(until),
                Due::Shared => None,
            }
        }
    }

    #[test]
    fn a_peer_that_goes_on_is_pushed_and_one_that_rests_is_not() {
        let login = Login(Offences::new([1, 2]));
        let exceed = |peer, seconds| login.exceed(peer, NOW + seconds * SECOND);
        assert_eq!(exceed(peer(1), 0), None, "it was not told to wait yet");
        for second in 0..10 {
            assert_eq!(exceed(peer(1), second), None);
            // Another limit, and another peer, are other offences.
            let api = login.0.exceed("api", &penalty(), refused(peer(1), 0), SECOND, NOW);
            assert_eq!((api, exceed(peer(3), 0)), (None, None));
        }
        assert_eq!(exceed(peer(1), 10), Some(NOW + 70 * SECOND));
        // At intervals longer than `after`, it rests in between.
        for step in 0..10 {
            assert_eq!(exceed(peer(2), 11 * step), None);
        }
    }

    #[test]
    fn what_is_stored_goes_on_where_it_was() {
        let (login, second) = (Login(Offences::new([1, 2])), |number: u64| NOW + number * SECOND);
        for number in [0].into_iter().chain(0..10) {
            assert_eq!(login.exceed(peer(1), second(number)), None);
        }
        for number in 1..2_000 {
            login.exceed(peer(number), second(9));
        }
        let stored = login.0.stored();
        assert_eq!(stored.len(), 1_999);
        let text = serde_json::to_vec(&stored).unwrap();
        let restored = Login(Offences::new([1, 2]));
        restored.0.restore(serde_json::from_slice(&text).unwrap());
        assert_eq!(restored.0.stored(), stored);
        assert_eq!(
            restored.exceed(peer(1), second(10)),
            Some(second(70)),
            "for as long as `after`"
        );
        // The next block is longer, also after another restart.
        let again = Login(Offences::new([1, 2]));
        again.0.restore(restored.0.stored());
        for number in [72].into_iter().chain(72..82) {
            assert_eq!(again.exceed(peer(1), second(number)), None);
        }
        assert_eq!(again.exceed(peer(1), second(82)), Some(second(82 + 120)));
    }

    #[test]
    fn a_peer_that_waits_as_long_as_it_is_told_is_never_pushed() {
        let offences = Offences::new([1, 2]);
        let exceed =
            |wait, now| offences.exceed("login", &penalty(), refused(peer(1), 0), wait, now);
        for second in 0..100 {
            assert_eq!(exceed(SECOND, NOW + second * SECOND), None);
        }
        // One that cannot get in by waiting does not wait.
        for second in 100..111 {
            assert_eq!(exceed(u64::MAX, NOW + second * SECOND), None);
        }
        let now = NOW + 111 * SECOND;
        assert_eq!(exceed(u64::MAX, now), Some(Due::Until(now + 60 * SECOND)));
    }

    /// Users behind one address that all wait, and one that does not.
    #[test]
    fn each_key_of_a_peer_waits_for_itself_and_a_peer_of_many_keys_is_shared() {
        let offences = Offences::new([1, 2]);
        let exceed =
            |key, at| offences.exceed("login", &penalty(), refused(peer(1), key), 60 * SECOND, at);
        for round in 0..20 {
            for user in 1..=8 {
                assert_eq!(exceed(user, NOW + (60 * round + user) * SECOND), None);
            }
        }
        let now = NOW + 1_201 * SECOND;
        let early: Vec<_> = (0..12).filter_map(|second| exceed(8, now + second * SECOND)).collect();
        assert_eq!(early.first(), Some(&Due::Until(now + 70 * SECOND)));
        // A ninth key within ten minutes: it is not known any more who goes on.
        let now = now + 12 * SECOND;
        assert_eq!((exceed(9, now), exceed(9, now + SECOND)), (None, Some(Due::Shared)));
        assert_eq!(exceed(9, now + LATELY - 1), None, "it waited");
        // Once the others were not refused for that long, it is one client.
        let now = now + LATELY;
        assert_eq!((exceed(9, now), exceed(9, now + 5 * SECOND)), (None, None));
        assert!(matches!(exceed(9, now + 10 * SECOND), Some(Due::Until(_))));
    }

    /// What refusals of one peer come to, whose keys take turns for a minute.
    fn cycle(keys: u64, is_one: bool, step: u64, wait: u64) -> Vec<Option<Due>> {
        let offences = Offences::new([1, 2]);
        let times = (0..60 * SECOND / step).map(|it| (it, NOW + it * step));
        let exceed = |(at, now)| {
            let refused = Refused { peer: peer(1), digest: at % keys, is_one };
            offences.exceed("pages", &penalty(), refused, wait, now)
        };
        times.map(exceed).collect()
    }

    #[test]
    fn a_client_that_cycles_keys_with_its_address_is_pushed() {
        let first =
            |keys, step| cycle(keys, true, step, 60 * SECOND).iter().position(Option::is_some);
        let tenth = SECOND / 10;
        for keys in [1, 8, 9, 20] {
            // After the penalty's 10 s from when the first key came back.
            assert_eq!(first(keys, tenth), Some(100 + keys as usize), "{keys}");
        }
        // Nor does it rest while others than the known keys are refused. Then the first one comes again after 20 s.
        assert_eq!(first(200, tenth), Some(400));
        // Each key waits as long as it is told.
        assert_eq!(cycle(20, true, tenth, 2 * SECOND), [None; 600]);
        assert_eq!(cycle(200, true, tenth, 20 * SECOND), [None; 600]);
    }

    #[test]
    fn clients_behind_one_address_whose_keys_do_not_have_it_are_shared() {
        let all = cycle(20, false, SECOND / 10, 60 * SECOND);
        let (first, rest) = all.split_at(8);
        assert_eq!(first, [None; 8]);
        assert!(!rest.is_empty() && rest.iter().all(|it| *it == Some(Due::Shared)));
    }

    #[test]
    fn a_peer_whose_requests_still_come_is_pushed_four_times_a_second() {
        let login = Login(Offences::new([1, 2]));
        let exceed = |now| login.exceed(peer(1), now);
        let blocked = NOW + 10 * SECOND;
        assert_eq!((exceed(NOW), exceed(NOW), exceed(NOW + 5 * SECOND)), (None, None, None));
        let until = Some(blocked + 60 * SECOND);
        assert_eq!(exceed(blocked), until);
        assert_eq!((exceed(blocked + 1), exceed(blocked + AGAIN - 1)), (None, None));
        assert_eq!((exceed(blocked + AGAIN), exceed(blocked + AGAIN + 1)), (until, None));
        // The next block is longer.
        let again = blocked + 60 * SECOND;
        assert_eq!((exceed(again - 1), exceed(again)), (until, None));
        assert_eq!(exceed(again + 5 * SECOND), None);
        assert_eq!(exceed(again + 10 * SECOND), Some(again + 130 * SECOND));
    }

    #[test]
    fn many_peers_take_no_more_room_and_push_out_nobody_who_is_blocked() {
        let login = Login(Offences::new([1, 2]));
        let blocked: Vec<Address> = (0..100).map(peer).collect();
        for second in [0, 0, 5, 10] {
            for peer in &blocked {
                login.exceed(*peer, NOW + second * SECOND);
            }
        }
        let now = NOW + 20 * SECOND;
        for number in 100..u16::MAX {
            assert_eq!(login.exceed(peer(number), now), None);
        }
        assert_eq!(login.0.records.lock().unwrap().len(), SETS * WAYS);
        for peer in &blocked {
            assert_eq!(login.exceed(*peer, now), Some(NOW + 70 * SECOND));
        }
    }
}
