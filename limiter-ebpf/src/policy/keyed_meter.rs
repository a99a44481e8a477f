//! The meters of limits with keys of their own.

use limiter_common::algorithm::{
    meter::Meter,
    policer::{Decision, Policer},
};

use crate::kernel::scratch::PacketScratch;

/// A meter whose windows are decided about by functions that are verified by themselves, once each. Their arithmetic has so
/// many branches that the verifier would follow it at length in each function that asks a meter.
#[repr(transparent)]
pub(crate) struct KeyedMeter(Meter);

impl KeyedMeter {
    #[inline(always)]
    pub(crate) const fn of(meter: &Meter) -> &Self {
        // SAFETY: it has the layout of its field.
        unsafe { &*(&raw const *meter).cast() }
    }
}

impl Policer for KeyedMeter {
    #[inline(always)]
    fn fresh(&self, now: u64) -> u64 {
        self.0.fresh(now)
    }

    #[inline(always)]
    fn decide(&self, word: u64, now: u64, cost: u64) -> Decision {
        if let Some(bucket) = self.0.as_bucket() {
            return bucket.decide(word, now, cost);
        }
        let decided = decide_window(&self.0, word, now, cost);
        let next = PacketScratch::get().map_or(0, |scratch| scratch.decided);
        match decided {
            CONFORM => Decision::Conform(next),
            LOST => Decision::Lost(next),
            _ => Decision::Exceed,
        }
    }

    #[inline(always)]
    fn is_near(&self, word: u64, now: u64) -> bool {
        match self.0.as_bucket() {
            Some(bucket) => bucket.is_near(word, now),
            None => is_window_near(&self.0, word, now) != 0,
        }
    }

    #[inline(always)]
    fn undo(&self, word: u64, now: u64, cost: u64) -> u64 {
        self.0.undo(word, now, cost)
    }
}

const CONFORM: u32 = 0;
const EXCEED: u32 = 1;
const LOST: u32 = 2;

/// Decides about the packet by a window, and notes the word to be stored in [`PacketScratch::decided`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn decide_window(meter: *const Meter, word: u64, now: u64, cost: u64) -> u32 {
    let Some(meter) = given(meter) else { return EXCEED };
    let (decided, next) = match meter.decide(word, now, cost) {
        Decision::Conform(next) => (CONFORM, next),
        Decision::Lost(next) => (LOST, next),
        Decision::Exceed => return EXCEED,
    };
    let Some(scratch) = PacketScratch::get() else { return EXCEED };
    scratch.decided = next;
    decided
}

/// Returns 1 if a window is near.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_window_near(meter: *const Meter, word: u64, now: u64) -> u32 {
    given(meter).is_some_and(|meter| meter.is_near(word, now)).into()
}

/// The meter that a part of the program is given; the verifier wants to see that it is there.
#[inline(always)]
fn given(meter: *const Meter) -> Option<&'static Meter> {
    // SAFETY: who calls these functions has a reference to it.
    unsafe { meter.as_ref() }
}
