//! CPUs that count packets of one source in a word that is due to be taken.

use limiter_common::{
    base::{tally::Tally, word::Word as _},
    memory::pending::PendingTally,
};
use loom::{sync::Arc, thread};

use super::{Plain, check};

/// As the kernel half does with what passed.
fn count(word: &Plain, passed: &Tally) -> Tally {
    let taken = if PendingTally(word.load()).is_due() {
        PendingTally::take(word)
    } else {
        Tally::default()
    };
    word.add(PendingTally::of(passed).0);
    taken
}

/// A CPU counts one packet, or those that it had leased with it.
#[test]
fn every_packet_is_in_the_word_or_taken_by_one_cpu() {
    /// From so many packets on it is due.
    const MANY: u64 = 1 << 17;
    let [one, leased, last] =
        [(1, 100), (16, 16_000), (1, 10)].map(|(packets, bytes)| Tally { packets, bytes });
    for before in [MANY - 16, MANY - 1, MANY] {
        let full = Tally { packets: before, bytes: before * 60 };
        assert_eq!(PendingTally::of(&full).is_due(), before == MANY);
        check(4, move || {
            let word = Arc::new(Plain::new(PendingTally::of(&full).0));
            let others: Vec<_> = [one, leased]
                .into_iter()
                .map(|passed| {
                    let word = Arc::clone(&word);
                    thread::spawn(move || count(&word, &passed))
                })
                .collect();
            let mut found = vec![count(&word, &last)];
            found.extend(others.into_iter().map(|other| other.join().unwrap()));
            assert!(found.iter().filter(|taken| taken.packets != 0).count() <= 1, "{found:?}");
            found.push(PendingTally(word.load()).tally());
            let packets: u64 = found.iter().map(|tally| tally.packets).sum();
            let bytes: u64 = found.iter().map(|tally| tally.bytes).sum();
            assert_eq!(packets, before + 18);
            assert_eq!(bytes, before * 60 + 16_110);
        });
    }
}
