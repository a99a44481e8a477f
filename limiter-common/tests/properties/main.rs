//! What must hold of the decision core for every input.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up fails")]

mod address;
mod binding;
mod carry;
mod cpus;
mod edge;
mod episode;
mod examples;
mod fragment;
mod gcra;
mod key;
mod lease;
mod limit;
mod listing;
mod log;
mod near;
mod newcomer;
mod penalty;
mod place;
mod promise;
mod random;
mod rate;
mod revert;
mod row;
mod settle;
mod siphash;
mod table;
mod traffic;
mod untracked;
mod window;
mod window_carry;

use limiter_common::algorithm::{
    gcra::Gcra,
    rate::{Rate, RateError},
};
use proptest::prelude::*;

/// So many cases; one that fails is printed at its smallest, not kept in a file. About every other
/// rate and burst that is tried makes no bucket.
fn cases(cases: u32) -> ProptestConfig {
    let max_local_rejects = cases * 16;
    let default = ProptestConfig::default();
    ProptestConfig { cases, max_local_rejects, failure_persistence: None, ..default }
}

/// A number below 2^`bits`, each length as likely.
fn magnitude(bits: u32) -> impl Strategy<Value = u64> {
    (any::<u64>(), 64 - bits..=64).prop_map(|(value, drop)| value.checked_shr(drop).unwrap_or(0))
}

/// Any rate and burst, most of which make no bucket.
fn stated() -> impl Strategy<Value = (Rate, u64)> {
    (magnitude(64), magnitude(64), magnitude(64))
        .prop_map(|(packets, period, burst)| (Rate { packets, period }, burst))
}

/// What a packet costs at most: a packet, some of them, or bytes.
fn dearest() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), 2..=100_u64, 1_500..=1_u64 << 17]
}

/// Which of the algorithms that are one arithmetic.
#[derive(Clone, Copy, Debug)]
enum Kind {
    TokenBucket,
    LeakyBucket,
    Gcra,
}

impl Kind {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            2 => Just(Self::TokenBucket),
            1 => Just(Self::LeakyBucket),
            1 => Just(Self::Gcra),
        ]
    }

    /// One of a rate and a burst, or depth, or tolerance.
    fn make(self, rate: Rate, size: u64, dearest: u64) -> Result<Gcra, RateError> {
        match self {
            Self::TokenBucket => rate.bucket(size, dearest),
            Self::LeakyBucket => rate.queue(size, dearest),
            Self::Gcra => rate.gcra(size, dearest),
        }
    }
}

/// Any token bucket, leaky bucket or GCRA, and what a packet costs at most.
fn bucket() -> impl Strategy<Value = (Gcra, u64)> {
    let ordinary = (magnitude(40), magnitude(56), magnitude(34))
        .prop_map(|(packets, period, burst)| (Rate { packets, period }, burst));
    let stated = prop_oneof![3 => ordinary, 1 => stated()];
    (Kind::any(), stated, dearest())
        .prop_filter_map("makes no bucket", |(kind, (rate, size), dearest)| {
            Some((kind.make(rate, size, dearest).ok()?, dearest))
        })
}

/// How far ahead of now a word is, in units; a word that has passed is not ahead.
fn ahead(gcra: &Gcra, word: u64, now: u64) -> u64 {
    u64::try_from(word.wrapping_sub(now << gcra.shift).cast_signed()).unwrap_or(0)
}
