//! Answers that are held back until the turn of their requests.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::sleep;

/// The most answers that are held back at once: each takes one of the connections that there may be.
const MOST: usize = 2_048;

/// A place among the answers that are held back. It is given back when this is dropped, also where the connection breaks.
pub(super) struct Held<'s>(&'s AtomicUsize);

impl<'s> Held<'s> {
    /// Takes a place of those that are counted there; `None` if there is none.
    pub(super) fn take(held: &'s AtomicUsize) -> Option<Self> {
        let place = Self(held);
        (held.fetch_add(1, Relaxed) < MOST).then_some(place)
    }

    /// Waits for so many nanoseconds.
    pub(super) async fn wait(self, nanoseconds: u64) {
        sleep(Duration::from_nanos(nanoseconds)).await;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let held = AtomicUsize::new(0);
        let all: Vec<_> = (0..MOST).map(|_| Held::take(&held).unwrap()).collect();
        assert!(Held::take(&held).is_none());
        assert_eq!(held.load(Relaxed), MOST);
        drop(all);
        assert_eq!(held.load(Relaxed), 0);
    }
}
