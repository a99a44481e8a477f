//! The algorithms, by which a meter is one of several kinds.

/// Makes the [`Kind`]s, with the numbers that maps have for them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)*) => {
        /// The algorithm of a meter.
        ///
        /// Whoever does something by the algorithm matches all kinds, without `_`. So the compiler tells of each place that a
        /// new kind concerns.
        #[repr(u64)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind = number::$kind,)*
        }

        impl Kind {
            /// The kind with this number in a map. A number that no kind has is taken for open connections, whose limit is the
            /// strictest: no time gives anything back.
            #[inline(always)]
            pub const fn of(number: u64) -> Self {
                match number {
                    $($number => Self::$kind,)*
                    _ => Self::Concurrent,
                }
            }

            /// The number that maps have for it.
            #[inline(always)]
            pub const fn number(self) -> u64 {
                self as u64
            }
        }

        /// The numbers of the kinds, by their names, as patterns.
        #[expect(non_upper_case_globals, reason = "they have the names of the kinds")]
        pub(in crate::algorithm) mod number {
            $(pub(in crate::algorithm) const $kind: u64 = $number;)*
        }
    };
}

kinds! {
    /// Token bucket, leaky bucket or GCRA, which are one arithmetic.
    Bucket = 0,
    /// A fixed window.
    Fixed = 1,
    /// A sliding window counter.
    Sliding = 2,
    /// A sliding log.
    SlidingLog = 3,
    /// Open connections.
    Concurrent = 4,
}

/// Chooses an arm by the number of a kind. It does not compile unless each kind has an arm. The arm after `else` is that of
/// numbers that no kind has, too.
///
/// It is a match of the number itself. To match [`Kind::of`] would first replace the unknown numbers, and the verifier would
/// follow each arm for numbers that were replaced and for those that were not: in the decision of a
/// [`Meter`](crate::algorithm::meter::Meter) alone, 10,000 instructions more. Arms with guards in place of patterns take as
/// many more.
macro_rules! by_kind {
    ($number:expr, { $($($kind:ident)|+ => $arm:expr,)+ } else { $($last:ident)|+ => $rest:expr $(,)? }) => {{
        const {
            use $crate::algorithm::kind::Kind;
            match Kind::Concurrent {
                $($(Kind::$kind)|+ => {})+
                $(Kind::$last)|+ => {}
            }
        }
        match $number {
            $($($crate::algorithm::kind::number::$kind)|+ => $arm,)+
            _ => $rest,
        }
    }};
}

pub(in crate::algorithm) use by_kind;

/// The algorithms whose state is a [`WideState`](crate::abi::state::WideState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WideKind {
    /// A sliding log.
    SlidingLog,
    /// Open connections.
    Concurrent,
}

impl WideKind {
    /// The algorithm with the number of this [`Kind`], of a limit whose state is wide. Any other number is taken for open
    /// connections.
    #[inline(always)]
    pub const fn of(number: u64) -> Self {
        by_kind!(number, {
            SlidingLog => Self::SlidingLog,
        } else { Concurrent | Bucket | Fixed | Sliding => Self::Concurrent })
    }
}

impl Kind {
    /// Whether windows of the kind with this number slide.
    #[inline(always)]
    pub(in crate::algorithm) const fn slides(number: u64) -> bool {
        by_kind!(number, {
            Fixed => false,
        } else { Bucket | Sliding | SlidingLog | Concurrent => true })
    }

    /// Whether the state of the kind with this number is more than a word.
    #[inline(always)]
    pub const fn is_wide(number: u64) -> bool {
        by_kind!(number, {
            Bucket | Fixed | Sliding => false,
        } else { SlidingLog | Concurrent => true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_number_of_its_own_and_any_other_is_the_strictest() {
        for number in 0..=4 {
            assert_eq!(Kind::of(number).number(), number);
        }
        for number in [5, 255, u64::MAX] {
            assert_eq!(Kind::of(number), Kind::Concurrent);
        }
    }
}
