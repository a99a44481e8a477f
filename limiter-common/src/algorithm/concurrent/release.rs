//! Places that are given back by whoever knows that what had them is over. It is for a table that nobody else moves meanwhile.

use super::Concurrent;
use crate::base::slots::Slots;

impl Concurrent {
    /// The name of the place with a number, where places are numbered: 30 bits, never 0. Numbers that are less than 2^30 - 1
    /// apart have different names.
    pub const fn numbered(number: u64) -> u32 {
        const NAMES: u64 = (1 << 30) - 1;
        (number % NAMES) as u32 + 1
    }

    /// Gives back the place of this tag; `false` if there is none.
    pub fn release(slots: &impl Slots, tag: u32) -> bool {
        let place = (0..Self::MOST).find(|place| Self::tag_of(slots.load(*place)) == tag);
        if let Some(place) = place {
            slots.store(place, 0);
        }
        place.is_some()
    }
}
