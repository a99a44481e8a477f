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
mod set;
mod syn;
mod table;
mod tick;

use limiter_common::{
    algorithm::policer::{Look, Policer, Refusal},
    base::word::{StoreWord, TRIES, Word},
};
use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use self::model::check;

/// The time of every packet: what races then is the same for all.
const NOW: u64 = 77_000_000_000;

/// A word that no binding is asked for.
struct Plain(AtomicU64);

impl Plain {
    fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    /// Stores a word that other CPUs exchange at the same time. The model checker would give such a store no place
    /// among the exchanges, so it is one of them.
    fn overwrite(&self, word: u64) {
        let _: u64 = self.0.swap(word, Ordering::Relaxed);
    }

    /// The atomic addition of BPF, which has no order if nobody asks for what the word was.
    fn add(&self, delta: u64) {
        self.0.fetch_add(delta, Ordering::Relaxed);
    }
}

impl Word for Plain {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        model::compare_exchange(&self.0, current, new)
    }

    fn back_off(&self, _tries: u32) {
        thread::yield_now();
    }
}

impl StoreWord for Plain {
    fn store(&self, word: u64) {
        self.0.store(word, Ordering::Relaxed);
    }

    fn store_release(&self, word: u64) {
        self.0.store(word, Ordering::Release);
    }
}

/// Charges a packet that conformed at `look`; after a race that is lost, it is looked at anew.
fn charge(
    policer: &impl Policer,
    word: impl Word + Copy,
    mut look: Look,
    cost: u64,
) -> Result<(), Refusal> {
    for _ in 0..TRIES {
        if look.commit(word).is_ok() {
            return Ok(());
        }
        thread::yield_now();
        look = policer.look(&word, NOW, cost)?;
    }
    Err(Refusal::Contended)
}

/// Takes a charge back.
fn refund(policer: &impl Policer, word: impl Word + Copy, now: u64, cost: u64) {
    for _ in 0..TRIES {
        if policer.try_refund(word, now, cost) {
            break;
        }
        thread::yield_now();
    }
}
