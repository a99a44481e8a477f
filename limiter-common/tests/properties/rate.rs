//! From a rate and a burst to a bucket.

use limiter_common::{
    gcra::Gcra,
    rate::{Rate, RateError, SECOND},
};
use proptest::prelude::*;

use super::{cases, stated};

/// A packet in 366 days.
const SLOWEST: u128 = 366 * 24 * 3_600 * SECOND as u128;

/// The interval of a bucket of `rate` is off by at most this part in 10^8.
const fn promised_error(packets: u128, period: u128) -> u128 {
    // 2^-13, and above 250 M/s 2^-11.
    if packets > period / 4 { 48_829 } else { 12_208 }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_bucket_keeps_its_promises_or_the_error_names_the_cause((rate, burst) in stated()) {
        let [packets, period] = [rate.packets, rate.period].map(u128::from);
        match rate.bucket(burst) {
            Ok(Gcra { interval, depth, shift }) => {
                prop_assert!(shift <= Gcra::MAX_SHIFT);
                prop_assert!(depth <= Gcra::MAX_DEPTH);
                prop_assert_eq!(u128::from(depth), u128::from(interval) * u128::from(burst));
                // interval / 2^shift against period / packets, without rounding.
                let exact = period << shift;
                let error = (u128::from(interval) * packets).abs_diff(exact);
                prop_assert!(error <= packets / 2, "not the nearest interval");
                let share = promised_error(packets, period);
                prop_assert!(error / share * 100_000_000 <= exact + 100_000_000);
                // A bucket of a smaller unit wraps sooner than it must.
                prop_assert!(shift == 0 || (period << (shift - 1)) / packets < 1 << 12);
            }
            Err(RateError::Zero) => prop_assert!(packets == 0 || period == 0),
            Err(RateError::TooFast) => prop_assert!(packets > period),
            Err(RateError::TooSlow) => prop_assert!(period > packets * SLOWEST),
            Err(RateError::NoBurst) => prop_assert_eq!(burst, 0),
            Err(RateError::BurstTooLong) => {
                // In nanoseconds times 2^10, the smallest unit.
                let refill = (period << 10) / packets;
                prop_assert!(refill.saturating_mul(burst.into()) > u128::from(Gcra::MAX_DEPTH) / 2);
            }
        }
    }

    #[test]
    fn what_an_operator_states_makes_a_bucket(
        packets in 1..=10_000_000_u64,
        burst in 1..=1_000_000_u64,
        minute in any::<bool>(),
    ) {
        let period = if minute { 60 * SECOND } else { SECOND };
        let bucket = Rate { packets, period }.bucket(burst);
        prop_assert!(bucket.is_ok());
    }

    #[test]
    fn an_error_is_about_the_rate_before_the_burst((rate, burst) in stated()) {
        match rate.check() {
            Ok(()) => prop_assert!(!matches!(
                rate.bucket(burst),
                Err(RateError::Zero | RateError::TooFast | RateError::TooSlow)
            )),
            Err(cause) => prop_assert_eq!(rate.bucket(burst), Err(cause)),
        }
    }
}

#[test]
fn the_bounds_are_within() {
    assert!(Rate::MIN.bucket(18).is_ok());
    assert_eq!(Rate::MIN.bucket(19), Err(RateError::BurstTooLong));
    let slower = Rate { period: Rate::MIN.period + 1, ..Rate::MIN };
    assert_eq!(slower.bucket(1), Err(RateError::TooSlow));
    let fastest = Rate::per_second(Rate::MAX_PER_SECOND);
    let gcra = Gcra { interval: 1 << 10, depth: 1 << 10, shift: Gcra::MAX_SHIFT };
    assert_eq!(fastest.bucket(1), Ok(gcra));
    let faster = Rate::per_second(Rate::MAX_PER_SECOND + 1);
    assert_eq!(faster.bucket(1), Err(RateError::TooFast));
    assert_eq!(Rate { packets: 1, period: 0 }.bucket(1), Err(RateError::Zero));
    assert_eq!(Rate::per_second(0).bucket(0), Err(RateError::Zero));
    assert_eq!(Rate::per_second(1).bucket(0), Err(RateError::NoBurst));
}
