//! How many events of a kind are told of.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Events of a kind that are told of in a second.
const MOST: usize = 10;

/// When events of a kind were told of, so that a flood of them is not.
#[derive(Debug, Default)]
pub(super) struct Told(VecDeque<Instant>);

impl Told {
    /// Whether one more is told of.
    pub(super) fn has_room(&mut self) -> bool {
        let now = Instant::now();
        self.0.retain(|it| now.duration_since(*it) < Duration::from_secs(1));
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push_back(now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_events_of_a_second_are_told_of() {
        let mut told = Told::default();
        assert_eq!((0..50).filter(|_| told.has_room()).count(), MOST);
    }
}
