//! What a bucket owes, by its word.

use crate::{
    algorithm::gcra::{Gcra, Scale},
    base::word::Word,
};

/// How long after `now` a bucket of this word and scale is full again, in nanoseconds; 0 if it is. A
/// word that is further ahead than any debt was idle for half of its span.
#[inline(always)]
pub const fn owes(word: u64, scale: u64, now: u64) -> u64 {
    let shift = Scale(scale).shift();
    let ahead = word.wrapping_sub(now << shift);
    let most = 2 * Gcra::MAX_DEPTH + (Gcra::TOLERANCE << shift);
    if scale != 0 && ahead != 0 && ahead <= most { (ahead >> shift) + 1 } else { 0 }
}

/// How often a bucket is tried to be retired. Packets that still look at an entry that is given away are few.
const RETIRE_TRIES: u32 = 3;

/// Makes the bucket of an entry that is given away one that is full at `now`, and so of no use to
/// packets that still look at it. `false` if it owes and may not, or if packets charge it all the time.
///
/// One that may owe goes with what it is charged at this moment: an entry that stayed, with some
/// of its buckets made full, would have been forgiven what it owed.
#[inline(always)]
pub fn retire<W: Word>(word: &W, scale: u64, now: u64, may_owe: bool) -> bool {
    if scale == 0 {
        return true;
    }
    let full = now << Scale(scale).shift();
    let mut seen = word.load();
    for _ in 0..RETIRE_TRIES {
        if !may_owe && owes(seen, scale, now) != 0 {
            return false;
        }
        // It becomes another word in any case, by its last bit: who looked before must not charge it.
        let found = word.compare_exchange(seen, full.wrapping_sub(2) & !1 | !seen & 1);
        if found == seen {
            return true;
        }
        seen = found;
    }
    false
}
