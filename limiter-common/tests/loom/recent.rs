//! CPUs that count packets of one source in a word that is half full.

use limiter_common::{recent::Recent, word::Word as _};
use loom::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};

use super::{Plain, check};

const EPOCH: u32 = 7;

/// As the kernel half does with each packet.
fn count(word: &Plain, bytes: u64) -> [u64; 2] {
    let mut taken = [0, 0];
    if Recent(word.load()).is_half_full() {
        let tally = Recent::take(word);
        taken = [tally.packets, tally.bytes];
    }
    word.0.fetch_add(Recent::packet(bytes).0, SeqCst);
    taken
}

#[test]
fn every_packet_is_in_the_word_or_taken_by_one_cpu() {
    const HALF: u64 = 1 << 17;
    for before in [HALF - 1, HALF] {
        check(4, move || {
            let word = Arc::new(Plain::new(Recent::packet(60).0 * before));
            let others: Vec<_> = [100, 1_000]
                .into_iter()
                .map(|bytes| {
                    let word = Arc::clone(&word);
                    thread::spawn(move || count(&word, bytes))
                })
                .collect();
            let mut sum = count(&word, 10);
            for other in others {
                let taken = other.join().unwrap();
                sum = [sum[0] + taken[0], sum[1] + taken[1]];
            }
            let left = Recent(word.load()).tally();
            assert_eq!(sum[0] + left.packets, before + 3);
            assert_eq!(sum[1] + left.bytes, before * 60 + 1_110);
        });
    }
}

/// An entry: what passed of its source, and the epoch that it is bound under.
struct Entry {
    recent: Plain,
    bound: Plain,
}

impl Entry {
    fn new() -> Arc<Self> {
        let recent = Plain::new(Recent::packet(60).0 * Recent::KEPT);
        Arc::new(Self { recent, bound: Plain::new(EPOCH.into()) })
    }
}

/// As the kernel half does with a packet far from all limits, which pays for so many more, if it pays.
fn send(entry: &Entry, epoch: u32, ahead: u64, charged: &AtomicU64) {
    let word = &entry.recent;
    let recent = Recent(word.load());
    if recent.pass(word, 60) {
        return;
    }
    if recent.is_to_pay() && Recent::begin_paying(word, epoch) {
        charged.fetch_add(1 + ahead, Relaxed);
        let is_bound = entry.bound.load() == epoch.into();
        Recent::end_paying(word, epoch, if is_bound { ahead } else { 0 });
    } else {
        charged.fetch_add(1, Relaxed);
    }
    let _: [u64; 2] = count(word, 60);
}

#[test]
fn what_passes_was_charged_and_what_was_charged_passes() {
    const AHEAD: u64 = 2;
    for before in 0..=AHEAD {
        check(3, move || {
            let entry = Entry::new();
            if before > 0 {
                assert!(Recent::begin_paying(&entry.recent, EPOCH));
                Recent::end_paying(&entry.recent, EPOCH, before);
            }
            let charged = Arc::new(AtomicU64::new(0));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let (entry, charged) = (Arc::clone(&entry), Arc::clone(&charged));
                    thread::spawn(move || send(&entry, EPOCH, AHEAD, &charged))
                })
                .collect();
            send(&entry, EPOCH, AHEAD, &charged);
            for other in others {
                other.join().unwrap();
            }
            let recent = Recent(entry.recent.load());
            assert_eq!(recent.tally().packets, Recent::KEPT + 3);
            let charged = charged.load(Relaxed);
            assert_eq!(before + charged, 3 + recent.paid(), "{before} paid, {charged} charged");
            assert!(recent.paid() <= AHEAD);
        });
    }
}

/// The same under a policy, which is another one meanwhile: who looked before it was has its packets charged to
/// the one before.
#[test]
fn an_entry_that_is_bound_anew_has_nothing_that_was_paid_under_the_policy_before() {
    const AHEAD: u64 = 2;
    check(3, || {
        let entry = Entry::new();
        let [before, after] = [0, 0].map(|charged| Arc::new(AtomicU64::new(charged)));
        let payer = {
            let (entry, before) = (Arc::clone(&entry), Arc::clone(&before));
            thread::spawn(move || send(&entry, EPOCH, AHEAD, &before))
        };
        entry.bound.store((EPOCH + 1).into());
        let repaid = Recent::forfeit(&entry.recent);
        for _ in 0..2 {
            send(&entry, EPOCH + 1, AHEAD - 1, &after);
        }
        payer.join().unwrap();
        let recent = Recent(entry.recent.load());
        assert_eq!(recent.tally().packets, Recent::KEPT + 3);
        let [before, after] = [before, after].map(|charged| charged.load(Relaxed));
        assert!(repaid == 0 || repaid == AHEAD && before == 1 + AHEAD);
        assert!(2 + recent.paid() <= after, "{} paid, {after} charged", recent.paid());
    });
}

/// Who cannot pay has nothing be paid for, and who takes what passed meanwhile loses none of it.
#[test]
fn what_is_not_paid_is_not_paid_for() {
    const HALF: u64 = 1 << 17;
    check(3, || {
        let word = Arc::new(Plain::new(Recent::packet(60).0 * (HALF - 1)));
        let payer = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                let pays = Recent::begin_paying(&*word, EPOCH);
                if pays {
                    Recent::end_paying(&*word, EPOCH, 0);
                }
                count(&word, 60)
            })
        };
        let others = [count(&word, 60), count(&word, 60), payer.join().unwrap()];
        let recent = Recent(word.load());
        assert_eq!(recent.paid(), 0);
        let taken: u64 = others.iter().map(|taken| taken[0]).sum();
        assert_eq!(taken + recent.tally().packets, HALF + 2);
    });
}
