//! The slots of a wide state.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use limiter_common::{
    abi::state::{SLOTS, WideState},
    base::slots::Slots,
};

use crate::kernel::barrier::black_box;

/// The slots of a wide state.
#[derive(Clone, Copy)]
pub(crate) struct Row(pub(crate) *mut WideState);

impl Row {
    #[inline(always)]
    fn at(&self, place: usize) -> Option<*mut u64> {
        let place = black_box(place);
        if place >= SLOTS {
            return None;
        }
        // SAFETY: the place is within the array, which is in a map value that was looked up in this
        // run of the program.
        Some(unsafe { (&raw mut (*self.0).slots).cast::<u64>().add(place) })
    }
}

impl Slots for Row {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        // SAFETY: see `at`; an aligned word.
        self.at(place).map_or(0, |word| unsafe { word.read_volatile() })
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        if let Some(slot) = self.at(place) {
            // SAFETY: see `at`; an aligned word.
            unsafe { slot.write_volatile(word) };
        }
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.at(place).map_or(0, |word| {
            // SAFETY: see `at`; an aligned word.
            unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, current, new).0 }
        })
    }
}
