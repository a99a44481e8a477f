//! A row of `u64`s of shared state.

/// Words that several CPUs move at once, found by place.
///
/// The kernel half implements it over an array in a map value, the tests over the atomics of the
/// host and of the model checker. Who implements it answers a place beyond the row with 0 and
/// stores nothing there; nobody here asks for one, but the kernel's verifier does not see that of a
/// place that was computed: the check has to be one that the compiler cannot leave out. Operations are in one order for all CPUs: stores
/// and loads as on x86-64, and each compare-exchange is a barrier.
pub trait Slots {
    /// The word at this place.
    fn load(&self, place: usize) -> u64;

    /// Stores a word that nobody else may write meanwhile.
    fn store(&self, place: usize, word: u64);

    /// Stores `new` if the word at this place is `current`; returns what the word was, which is
    /// `current` exactly when `new` was stored.
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64;
}
