//! Leases: what a request is told that took places of limits with `concurrent`, and is to hand back at its end.
//!
//! A text has, for each state that the places are in, 42 hexadecimal digits: both words of the key, the number of the first
//! place, and how many follow each other. Several are parted by points. A key is 111 bits of a keyed hash, so nobody gives back places
//! of a key who had no lease of it. Who had one and may ask can name other places of the same key.

use std::{
    fmt::{self, Display, Formatter},
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
};

use limiter_common::algorithm::concurrent::Concurrent;
use thiserror::Error;

use super::{rules::MOST_AT_ONCE, table::Key};

/// The header that tells a lease, and hands it back.
pub const HEADER: &str = "x-limiter-lease";
/// The digits of the words of a key, of a number and of how many there are.
const DIGITS: [usize; 4] = [16, 16, 8, 2];
/// The digits of a lease.
const LENGTH: usize = 42;

/// Places in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) key: Key,
    /// The number of the first place.
    pub(super) first: u32,
    /// How many places there are, with numbers that follow each other: 1 to [`Concurrent::MOST`].
    pub(super) places: u8,
}

impl Lease {
    /// The [tags](Concurrent::numbered) of the places.
    pub(super) fn tags(self) -> impl Iterator<Item = u32> {
        (0..u64::from(self.places)).map(move |at| Concurrent::numbered(u64::from(self.first) + at))
    }
}

/// The places that a request took: none, or those in the state of each limit that counts how many are open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases(pub(super) Vec<Lease>);

/// A text that is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is no lease: give {HEADER} as the answer about the request had it")]
pub struct LeaseError;

impl Leases {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text that is told; `None` if there is none.
    pub fn told(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_string())
    }
}

impl Display for Leases {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, Lease { key, first, places }) in self.0.iter().enumerate() {
            let point = if at > 0 { "." } else { "" };
            let [one, other] = key.words();
            write!(f, "{point}{one:016x}{other:016x}{first:08x}{places:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Leases {
    type Err = LeaseError;

    fn from_str(text: &str) -> Result<Self, LeaseError> {
        let mut leases = Vec::new();
        for text in text.split('.') {
            if leases.len() == MOST_AT_ONCE {
                return Err(LeaseError);
            }
            leases.push(lease(text).ok_or(LeaseError)?);
        }
        Ok(Self(leases))
    }
}

/// Reads one lease.
fn lease(text: &str) -> Option<Lease> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != LENGTH || !text.bytes().all(is_digit) {
        return None;
    }
    let mut rest = text;
    let mut words = [0; DIGITS.len()];
    for (word, digits) in words.iter_mut().zip(DIGITS) {
        let (own, behind) = rest.split_at_checked(digits)?;
        *word = u64::from_str_radix(own, 16).ok()?;
        rest = behind;
    }
    let [one, other, first, places] = words;
    let key = Key::new([one, other]);
    let is_sound = key.words() == [one, other] && (1..=Concurrent::MOST as u64).contains(&places);
    let (first, places) = (u32::try_from(first).ok()?, u8::try_from(places).ok()?);
    is_sound.then_some(Lease { key, first, places })
}

/// The numbers of places, one after the other. They begin anywhere: a process before handed out others.
#[derive(Debug)]
pub(super) struct Numbers(u32);

impl Numbers {
    pub(super) fn new() -> Self {
        Self(Concurrent::numbered(RandomState::new().hash_one(0)) - 1)
    }

    /// Takes so many.
    pub(super) const fn take(&mut self, places: u8) -> u32 {
        let first = self.0;
        // Behind the last name comes the first one again.
        self.0 = Concurrent::numbered(first as u64 + places as u64) - 1;
        first
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_lease() -> impl Strategy<Value = Lease> {
        let key = any::<[u64; 2]>().prop_map(Key::new);
        (key, any::<u32>(), 1..=128_u8).prop_map(|(key, first, places)| Lease {
            key,
            first,
            places,
        })
    }

    proptest! {
        #[test]
        fn what_was_told_is_read(leases in prop::collection::vec(any_lease(), 1..=MOST_AT_ONCE)) {
            let leases = Leases(leases);
            let text = leases.told().unwrap();
            prop_assert_eq!(text.parse(), Ok(leases));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f.]{0,100}") {
            if let Ok(leases) = text.parse::<Leases>() {
                prop_assert_eq!(leases.told(), Some(text));
            }
        }
    }

    #[test]
    fn what_is_no_lease_is_refused() {
        let lease = Lease { key: Key::new([7, 6]), first: u32::MAX, places: 2 };
        let text = Leases(vec![lease]).to_string();
        assert_eq!(text, "00000000000000070000000000000006ffffffff02");
        let many = vec![&*text; MOST_AT_ONCE + 1].join(".");
        let long = format!("{text}0");
        let none = text.replace('7', "0");
        let odd = text.replace('6', "7");
        let [no_place, too_many] = ["00", "81"].map(|places| format!("{}{places}", &text[..40]));
        let wrong = ["", ".", &text[1..], &long, &many, &none, &odd, &no_place, &too_many];
        for wrong in wrong.into_iter().chain([&*text.to_uppercase(), &text.replace('7', "é")]) {
            assert_eq!(wrong.parse::<Leases>(), Err(LeaseError), "{wrong}");
        }
        assert_eq!(Leases::default().told(), None);
    }

    #[test]
    fn names_begin_anew_behind_the_last_one() {
        let lease = |first| Lease { key: Key::new([1, 0]), first, places: 2 };
        for before in 0..4 {
            let mut numbers = Numbers((1 << 30) - 1 - before);
            let [one, other] = [0, 1].map(|_| lease(numbers.take(2)));
            assert!(one.tags().all(|tag| other.tags().all(|own| own != tag)), "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_places_of_a_request_have_different_tags() {
        let lease = Lease { key: Key::new([1, 0]), first: u32::MAX, places: 128 };
        let tags: std::collections::BTreeSet<u32> = lease.tags().collect();
        assert_eq!(tags.len(), 128);
        assert!(tags.iter().all(|tag| (1..1 << 30).contains(tag)));
    }
}
