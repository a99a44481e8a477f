//! Every interleaving of a few packets, of a change of policy, of penalties, of totals and of an entry that changes
//! hands, by the model checker.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod change;
mod entry;
mod limits;
#[path = "../model/mod.rs"]
mod model;
mod notice;
mod penalty;
mod recent;
mod table;
mod tick;

use limiter_common::base::word::Word;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};

use self::model::check;

/// The time of every packet: what races then is the same for all.
const NOW: u64 = 77_000_000_000;

/// A word that no binding is asked for.
struct Plain(AtomicU64);

impl Plain {
    fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// By an exchange: loom does not order a store that it sees beside others.
    fn store(&self, word: u64) {
        let _: u64 = self.0.swap(word, SeqCst);
    }
}

impl Word for Plain {
    fn load(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.0.compare_exchange(current, new, SeqCst, SeqCst).unwrap_or_else(|found| found)
    }
}
