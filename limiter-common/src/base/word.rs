//! One `u64` of shared state.

/// A word that several CPUs move at once.
///
/// The kernel half implements it with BPF's atomic instructions on a map value, the tests with the
/// atomics of the host and of the model checker.
pub trait Word {
    /// The word as it is now.
    fn load(&self) -> u64;

    /// Stores `new` if the word is `current`; returns what the word was, which is `current` exactly
    /// when `new` was stored.
    fn compare_exchange(&self, current: u64, new: u64) -> u64;

    /// Whether the word is still measured in what it was found under.
    ///
    /// Asked after each load: a change of policy marks the entry first and re-scales its words
    /// then, so a word that was loaded before the mark can only be exchanged if it was not
    /// re-scaled since. That relies on loads that are not reordered, as on x86-64.
    fn bound(&self) -> bool {
        true
    }

    /// Lets a moment pass, in which another CPU may get done with what it is at.
    fn pause(&self) {
        core::hint::spin_loop();
    }
}

impl<T: Word + ?Sized> Word for &T {
    fn load(&self) -> u64 {
        (**self).load()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        (**self).compare_exchange(current, new)
    }

    fn bound(&self) -> bool {
        (**self).bound()
    }

    fn pause(&self) {
        (**self).pause();
    }
}

/// A word of one thread.
impl Word for core::cell::Cell<u64> {
    fn load(&self) -> u64 {
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
