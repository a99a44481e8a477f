//! What must hold of the decision core for every input.

mod address;
mod binding;
mod carry;
mod gcra;
mod rate;

use limiter_common::{gcra::Gcra, rate::Rate};
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

/// Any bucket.
fn bucket() -> impl Strategy<Value = Gcra> {
    let ordinary = (magnitude(40), magnitude(56), magnitude(24))
        .prop_map(|(packets, period, burst)| (Rate { packets, period }, burst));
    prop_oneof![3 => ordinary, 1 => stated()]
        .prop_filter_map("makes no bucket", |(rate, burst)| rate.bucket(burst).ok())
}
