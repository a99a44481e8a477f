//! Carrying words of state over to another meter.

use limiter_common::algorithm::meter::Measure;

use crate::kernel::maps::METERS;

/// The word that carries `word`, which was measured so, over to the meter at an entry of
/// [`METERS`]; see [`Meter::carry`](limiter_common::algorithm::meter::Meter::carry).
///
/// The kernel verifies it by itself, once: who calls it tries several times.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn carry_word(word: u64, scale: u64, span: u64, meter: u32, now: u64) -> u64 {
    match METERS.get(meter) {
        Some(meter) => meter.carry(word, Measure { scale, span }, now),
        None => word,
    }
}
