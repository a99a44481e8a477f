//! When a limit is nearly used up.
//!
//! A limit is near while at most a fifth is left of what it admits at once after a rest: four fifths of
//! that are used, or more. What is used is counted in whole packets of cost 1, or bytes, so that the rest is
//! what would pass at once; of less than five, it is near when nothing is left. A packet is near a limit
//! if it takes something of it and leaves it so: with a burst of 1 every packet that passes.

/// Of a limit that admits so much at once, what is used where it begins to be near; 0 for no limit.
#[inline(always)]
pub const fn from(most: u64) -> u64 {
    most - most / 5
}

/// Whether a limit that admits so much at once, below 2^61, is near when so much is used, below 2^61 too.
#[inline(always)]
pub const fn is(used: u64, most: u64) -> bool {
    used * 5 >= most * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_left_at_most() {
        for (most, first) in
            [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (9, 8), (10, 8), (11, 9), (128, 103)]
        {
            assert_eq!(from(most), first, "{most}");
            assert!(is(first, most) && !is(first - 1, most), "{most}");
            assert_eq!((most - first), most / 5, "{most}");
        }
        let most = (1 << 61) - 1;
        assert!(is(from(most), most) && !is(from(most) - 1, most));
    }
}
