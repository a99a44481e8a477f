//! Histograms of the states of a limit: by the part that is used, and by the time for which they
//! refuse packets.

use std::time::Duration;

use super::fill::Fill;

/// The classes by the part of a limit that is used: where each begins, as a fraction in text and in
/// percent. From 80 on a limit is [near](limiter_common::algorithm::near). The last class has the
/// states that would refuse a packet.
pub const SHARES: [(&str, u64); 5] = [("0", 0), ("0.5", 50), ("0.8", 80), ("0.9", 90), ("1", 100)];

/// The classes by the time until a packet conforms: where each begins, as seconds in text and as a
/// duration. The last class has the states in which no packet ever conforms.
pub const WAITS: [(&str, Duration); 7] = [
    ("0", Duration::ZERO),
    ("0.1", Duration::from_millis(100)),
    ("1", Duration::from_secs(1)),
    ("10", Duration::from_secs(10)),
    ("60", Duration::from_secs(60)),
    ("600", Duration::from_secs(600)),
    ("+Inf", Duration::MAX),
];

/// The number of states in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// All states, by [`SHARES`].
    pub used: [u64; SHARES.len()],
    /// The states that would refuse a packet, by [`WAITS`].
    pub waits: [u64; WAITS.len()],
}

impl Spread {
    /// Counts a state.
    pub(super) fn add(&mut self, fill: &Fill) {
        let wait = fill.next.unwrap_or(Duration::MAX);
        let refuses = !wait.is_zero();
        if refuses {
            let class = WAITS.iter().rposition(|(_, from)| *from <= wait).unwrap_or(0);
            self.waits[class] += 1;
        }
        let (percent, last) = (fill.percent(), SHARES.len() - 1);
        let begun = |(_, from): &(&str, u64)| *from <= percent;
        let class = SHARES[..last].iter().rposition(begun).unwrap_or(0);
        self.used[if refuses { last } else { class }] += 1;
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::algorithm::near;

    use super::*;

    fn classes(used: u64, most: u64, next: Option<Duration>) -> (usize, Option<usize>) {
        let mut spread = Spread::default();
        spread.add(&Fill { most, used, next, full: Duration::ZERO });
        let one = |counts: &[u64]| counts.iter().position(|count| *count == 1);
        (one(&spread.used).unwrap(), one(&spread.waits))
    }

    #[test]
    fn states_are_told_apart_by_what_is_used() {
        let used = |used, most| classes(used, most, Some(Duration::ZERO));
        for (part, class) in
            [(0, 0), (49, 0), (50, 1), (79, 1), (80, 2), (89, 2), (90, 3), (100, 3)]
        {
            assert_eq!(used(part, 100), (class, None), "{part} %");
        }
        assert_eq!(used(u64::MAX, u64::MAX), (3, None));
        assert_eq!(used(0, 0), (0, None));
    }

    /// A state is in a class from 80 % on exactly when the datapath counts it as near.
    #[test]
    fn a_limit_is_near_from_the_class_of_four_fifths_on() {
        for most in 1..300 {
            for used in 0..=most {
                let (class, _) = classes(used, most, Some(Duration::ZERO));
                assert_eq!(SHARES[class].1 >= 80, near::is(used, most), "{used} of {most}");
            }
        }
    }

    #[test]
    fn those_that_refuse_are_told_apart_by_for_how_long() {
        let waits = |wait| classes(7, 7, wait);
        for (wait, class) in [(1, 0), (99, 0), (100, 1), (999, 1), (1_000, 2), (600_000, 5)] {
            assert_eq!(waits(Some(Duration::from_millis(wait))), (4, Some(class)), "{wait} ms");
        }
        assert_eq!(waits(None), (4, Some(6)));
        // A state can refuse a packet before all is used, if less than one frame is left.
        assert_eq!(classes(1, 100, Some(Duration::from_nanos(1))), (4, Some(0)));
    }
}
