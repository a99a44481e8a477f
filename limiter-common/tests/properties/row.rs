//! A word and a row of slots that one thread moves.

use core::cell::Cell;

use limiter_common::base::{slots::Slots, word::Word};

/// A word.
pub(crate) type Plain = Cell<u64>;

/// A row of slots, zero at first.
pub(crate) struct Row(pub(crate) [Plain; 128]);

impl Row {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| Plain::default()))
    }

    pub(crate) fn values(&self) -> [u64; 128] {
        self.0.each_ref().map(Word::load)
    }
}

impl limiter_common::algorithm::concurrent::Table for Row {}

impl limiter_common::algorithm::sliding_log::Log for Row {}

impl Slots for Row {
    fn load(&self, place: usize) -> u64 {
        self.0[place].load()
    }

    fn store(&self, place: usize, word: u64) {
        self.0[place].set(word);
    }

    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.0[place].compare_exchange(current, new)
    }
}
