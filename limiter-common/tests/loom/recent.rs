//! CPUs that count packets of one source in a word that is half full.

use limiter_common::{recent::Recent, word::Word as _};
use loom::{sync::Arc, sync::atomic::Ordering::SeqCst, thread};

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
    const HALF: u64 = 1 << 21;
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
