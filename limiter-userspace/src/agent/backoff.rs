//! How soon something that takes long is tried again.

use std::time::{Duration, Instant};

/// The least time from one try to the next.
const LEAST: Duration = Duration::from_secs(5);
/// The longest time.
const MOST: Duration = Duration::from_secs(60);

/// Each try doubles the time until the next one. It begins anew when there was none for twice the longest time.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The time of the last try, and until the next one.
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Whether it may be tried now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|(last, wait)| now.saturating_duration_since(last) >= wait)
    }

    /// Notes a try.
    pub(super) fn tried(&mut self, now: Instant) {
        let wait = match self.last {
            Some((last, wait)) if now.saturating_duration_since(last) < 2 * MOST => {
                (2 * wait).min(MOST)
            }
            _ => LEAST,
        };
        self.last = Some((now, wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rarer_and_begin_anew_after_a_rest() {
        let (begin, mut backoff) = (Instant::now(), Backoff::default());
        let mut tries = Vec::new();
        for second in 0..400 {
            let now = begin + Duration::from_secs(second);
            if backoff.is_due(now) {
                backoff.tried(now);
                tries.push(second);
            }
        }
        assert_eq!(tries, [0, 5, 15, 35, 75, 135, 195, 255, 315, 375]);
        let later = begin + Duration::from_secs(375) + 2 * MOST;
        backoff.tried(later);
        assert!(!backoff.is_due(later + LEAST / 2) && backoff.is_due(later + LEAST));
    }
}
