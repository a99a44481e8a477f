//! What a limit of an algorithm, and its time, may be.

/// Why an algorithm cannot have a limit with this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundsError {
    /// The limit is zero.
    NoLimit,
    /// The limit is above the most that the algorithm can have.
    TooMany,
    /// The time is shorter than the shortest that it can have.
    TooShort,
    /// The time is longer than the longest that it can have.
    TooLong,
}

/// Checks a limit from 1 to `most`, and a time from `shortest` to `longest`.
pub(in crate::algorithm) const fn check(
    (limit, most): (u64, u64),
    time: u64,
    (shortest, longest): (u64, u64),
) -> Result<(), BoundsError> {
    if limit == 0 {
        Err(BoundsError::NoLimit)
    } else if limit > most {
        Err(BoundsError::TooMany)
    } else if time < shortest {
        Err(BoundsError::TooShort)
    } else if time > longest {
        Err(BoundsError::TooLong)
    } else {
        Ok(())
    }
}
