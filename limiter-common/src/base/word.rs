//! One `u64` of shared state, and the order in which other CPUs see it moved.
//!
//! A protocol that needs an order asks for it here, by name. It asks for no more than it needs:
//!
//! * [`Word::load`] has no order. Another load of the same CPU may be done before it or after it.
//! * [`Word::load_acquire`] comes before all that the CPU loads and stores later.
//! * [`Word::compare_exchange`] that stores is a full barrier. One that fails is a
//!   [`load_acquire`](Word::load_acquire).
//! * [`StoreWord::store`] has no order.
//! * [`StoreWord::store_release`] comes after all that the CPU loaded and stored before.
//!
//! On x86-64 all loads and stores have the order of `acquire` and `release`. So the kernel half makes the
//! same plain instructions of both (`limiter-ebpf/src/kernel/atomics.rs`, which says what another machine would
//! need). The models in `tests/loom` have no more order than is asked for.

/// A word that several CPUs move at once.
///
/// The kernel half implements it with BPF's atomic instructions on a map value, the tests with the
/// atomics of the host and of the model checker.
pub trait Word {
    /// The word at some moment: the newest value, or one before that which this CPU has no reason to know to be old.
    fn load(&self) -> u64;

    /// The word as [`load`](Self::load) gives it. What the CPU that stored it made before by
    /// [`compare_exchange`](Self::compare_exchange) or [`StoreWord::store_release`] is seen from then on.
    fn load_acquire(&self) -> u64;

    /// Stores `new` if the word is `current`; returns what the word was, which is `current` exactly
    /// when `new` was stored.
    fn compare_exchange(&self, current: u64, new: u64) -> u64;

    /// Whether the word is still measured in what it was found under.
    ///
    /// Asked after each [`load_acquire`](Self::load_acquire) of the word: a change of policy marks the entry first and
    /// re-scales its words then. So a word that was loaded before the mark can only be exchanged if it
    /// was not re-scaled since.
    fn bound(&self) -> bool {
        true
    }

    /// Waits for about [`wait`] before a try to take a lock that another CPU has.
    fn back_off(&self, tries: u32) {
        for _ in 0..wait(tries) {
            core::hint::spin_loop();
        }
    }
}

/// How often a CPU tries to move a word that other CPUs move.
pub const TRIES: u32 = 12;

/// The races for words that a packet may lose, all together, and wait before it tries again: for 0.33 ms in all at most. With the next
/// one it is given up. With fewer, more packets are given up where dozens of CPUs charge one limit at once.
pub const RACES: u32 = 12;

/// How often a CPU tries to take a lock, or looks whether it was given back: for 10 us. The host may have stopped a virtual CPU
/// that has the lock, so it is no use to wait for longer.
pub const LOCK_TRIES: u32 = 8;

/// Nanoseconds for which a CPU waits before a try: none before the first one, number 0, then 80, and twice as long before each
/// later one. If CPUs at one word did not wait, each of them would make all the others fail, and the line of the word would be
/// with who tries in vain for most of the time.
#[inline(always)]
pub const fn wait(tries: u32) -> u64 {
    if tries == 0 { 0 } else { 40 << tries }
}

/// A word that a CPU may store into without an exchange, as no other CPU does so at that moment, or as it does not matter
/// which of them is the last.
pub trait StoreWord: Word {
    /// Stores the word at some moment: a store that this CPU makes later may be seen before it.
    fn store(&self, word: u64);

    /// Stores the word. Who loads it by [`Word::load_acquire`], or exchanges it, sees all that this CPU stored before.
    fn store_release(&self, word: u64);
}

impl<T: Word + ?Sized> Word for &T {
    #[inline(always)]
    fn load(&self) -> u64 {
        (**self).load()
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        (**self).load_acquire()
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        (**self).compare_exchange(current, new)
    }

    #[inline(always)]
    fn bound(&self) -> bool {
        (**self).bound()
    }

    #[inline(always)]
    fn back_off(&self, tries: u32) {
        (**self).back_off(tries);
    }
}

/// A word of one thread.
impl Word for core::cell::Cell<u64> {
    fn load(&self) -> u64 {
        self.get()
    }

    fn load_acquire(&self) -> u64 {
        self.get()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        let found = self.get();
        if found == current {
            self.set(new);
        }
        found
    }
}

impl StoreWord for core::cell::Cell<u64> {
    fn store(&self, word: u64) {
        self.set(word);
    }

    fn store_release(&self, word: u64) {
        self.set(word);
    }
}
