//! The slots of a wide state.

use limiter_common::{
    abi::state::{SLOTS, WideState},
    base::{
        slots::Slots,
        word::{StoreWord as _, Word as _},
    },
};

use crate::kernel::{atomics::MapWord, barrier::black_box};

/// The slots of a wide state.
#[derive(Clone, Copy)]
pub(crate) struct Row(pub(crate) *mut WideState);

impl Row {
    #[inline(always)]
    fn at(&self, place: usize) -> Option<MapWord> {
        let place = black_box(place);
        if place >= SLOTS {
            return None;
        }
        // SAFETY: the place is within the array, which is in a map value that was looked up in this
        // run of the program; an aligned word.
        Some(unsafe { MapWord::new((&raw mut (*self.0).slots).cast::<u64>().add(place)) })
    }
}

impl Slots for Row {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        self.at(place).map_or(0, |word| word.load())
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        if let Some(slot) = self.at(place) {
            slot.store(word);
        }
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.at(place).map_or(0, |word| word.compare_exchange(current, new))
    }
}
