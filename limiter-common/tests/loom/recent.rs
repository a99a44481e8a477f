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

/// As the kernel half does with a packet far from all limits, and with `ahead` more when it pays.
fn send(word: &Plain, ahead: u64, charged: &AtomicU64) {
    let recent = Recent(word.load());
    if recent.pass(word, 60) {
        return;
    }
    if recent.is_to_pay() && Recent::begin_paying(word) {
        charged.fetch_add(1 + ahead, Relaxed);
        Recent::end_paying(word, ahead);
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
            let word = Arc::new(Plain::new(Recent::packet(60).0 * Recent::KEPT));
            if before > 0 {
                assert!(Recent::begin_paying(&*word));
                Recent::end_paying(&*word, before);
            }
            let charged = Arc::new(AtomicU64::new(0));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let (word, charged) = (Arc::clone(&word), Arc::clone(&charged));
                    thread::spawn(move || send(&word, AHEAD, &charged))
                })
                .collect();
            send(&word, AHEAD, &charged);
            for other in others {
                other.join().unwrap();
            }
            let recent = Recent(word.load());
            assert_eq!(recent.tally().packets, Recent::KEPT + 3);
            let charged = charged.load(Relaxed);
            assert_eq!(before + charged, 3 + recent.paid(), "{before} paid, {charged} charged");
            assert!(recent.paid() <= AHEAD);
        });
    }
}

#[test]
fn an_entry_that_is_bound_anew_has_nothing_that_was_not_paid_for() {
    const AHEAD: u64 = 2;
    check(3, || {
        let word = Arc::new(Plain::new(Recent::packet(60).0 * Recent::KEPT));
        let charged = Arc::new(AtomicU64::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (word, charged) = (Arc::clone(&word), Arc::clone(&charged));
                thread::spawn(move || send(&word, AHEAD, &charged))
            })
            .collect();
        Recent::keep_paid(&*word, 1);
        for other in others {
            other.join().unwrap();
        }
        let recent = Recent(word.load());
        assert_eq!(recent.tally().packets, Recent::KEPT + 2);
        assert!(2 + recent.paid() <= charged.load(Relaxed));
    });
}
