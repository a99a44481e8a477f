//! From a rate and a burst to a bucket.

use limiter_common::{
    algorithm::{
        gcra::Gcra,
        rate::{Rate, RateError, SECOND},
    },
    table::untracked::UntrackedAllowance,
};
use proptest::prelude::*;

use super::{cases, dearest, magnitude, stated};

/// A packet in 366 days.
const SLOWEST: u128 = 366 * 24 * 3_600 * SECOND as u128;
/// The whole of what [`promised_error`] is a part of.
const WHOLE: u128 = 100_000_000;

/// The interval of a bucket of `rate` is off by at most this part of [`WHOLE`]; nothing is promised
/// of more than 10^9 packets a second.
const fn promised_error(packets: u128, period: u128, dearest: u64) -> Option<u128> {
    // 2^-13, and for packets above 250 M/s 2^-11.
    match dearest {
        1 if packets > period => None,
        1 if packets > period / 4 => Some(48_829),
        _ => Some(12_208),
    }
}

/// Holds what a bucket gives away beside its word, by the untracked allowance and by leases, against what that may be.
fn assert_shares(gcra: &Gcra) -> Result<(), TestCaseError> {
    let packets = gcra.untracked();
    let most = (gcra.depth / 1_000).min(1_000_000 << gcra.shift);
    prop_assert!(
        gcra.untracked_units(packets) <= most,
        "a thousandth, and a millisecond of the rate"
    );
    prop_assert!(
        packets == UntrackedAllowance::MOST || gcra.untracked_units(packets + 1) > most,
        "no less than that"
    );
    let burst = gcra.left(0);
    for cpus in [0, 1, 2, 8, 64, 1_024, u64::from(u32::MAX)] {
        let lease = gcra.lease(cpus);
        if gcra.units(1) != gcra.dearest {
            prop_assert_eq!(lease, 0, "packets cost more or less");
            continue;
        }
        let cpus = cpus.max(1);
        let fits =
            |packets: u64| packets <= 16 && packets <= burst / 64 && cpus * packets <= burst / 4;
        prop_assert!(lease != 1, "a lease of the packet at hand alone");
        prop_assert!(lease == 0 || fits(lease), "{} packets of {} on {} CPUs", lease, burst, cpus);
        prop_assert!(!fits(lease.max(1) + 1), "no less than that");
    }
    Ok(())
}

/// Holds a bucket against what was stated.
fn assert_promises(gcra: &Gcra, rate: Rate, burst: u64, dearest: u64) -> Result<(), TestCaseError> {
    let [packets, period] = [rate.packets, rate.period].map(u128::from);
    let &Gcra { interval, depth, dearest: most, near: _, shift, fraction, strict, precise } = gcra;
    prop_assert!(shift <= Gcra::MAX_SHIFT && fraction <= Gcra::MAX_FRACTION);
    prop_assert!(
        depth <= Gcra::MAX_DEPTH && most <= Gcra::MAX_DEPTH && interval <= Gcra::MAX_DEPTH
    );
    for (units, cost) in [(depth, burst), (most, dearest)] {
        let product = u128::from(interval) * u128::from(cost);
        prop_assert_eq!(u128::from(units), product >> fraction);
    }
    // What the kernel half multiplies keeps within a word.
    prop_assert!(interval.checked_mul(dearest).is_some());
    prop_assert_eq!((strict, precise), (0, 0));
    assert_shares(gcra)?;
    prop_assert!(fraction == 0 || shift == Gcra::MAX_SHIFT && dearest > 1);
    // interval / 2^(shift + fraction) against period / packets, without rounding.
    let exact = period << (shift + fraction);
    let error = (u128::from(interval) * packets).abs_diff(exact);
    prop_assert!(error <= packets / 2, "not the nearest interval");
    if let Some(share) = promised_error(packets, period, dearest) {
        prop_assert!(error / share * WHOLE <= exact + WHOLE);
    }
    // A bucket of a smaller unit wraps sooner than it must, and so does one of more digits.
    let digits = (shift + fraction).saturating_sub(1);
    prop_assert!(digits == 0 || (period << digits) / packets < 1 << 12);
    Ok(())
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn a_bucket_keeps_its_promises_or_the_error_names_the_cause(
        (rate, burst) in stated(), dearest in dearest(),
    ) {
        let [packets, period] = [rate.packets, rate.period].map(u128::from);
        match rate.bucket(burst, dearest) {
            Ok(gcra) => assert_promises(&gcra, rate, burst, dearest)?,
            Err(RateError::Zero) => prop_assert!(packets == 0 || period == 0),
            Err(RateError::TooFast) => prop_assert!(packets > period * 125),
            Err(RateError::TooSlow) => prop_assert!(period > packets * SLOWEST),
            Err(RateError::NoBurst) => prop_assert_eq!(burst, 0),
            Err(RateError::BurstTooLong) => {
                // In nanoseconds times 2^20, the smallest unit and most digits.
                let refill = (period << 20) / packets;
                let most = u128::from(burst.max(dearest));
                prop_assert!(refill.saturating_mul(most) > u128::from(Gcra::MAX_DEPTH) / 2);
            }
        }
    }

    /// Bytes up to a terabit, and packets that cost more than one.
    #[test]
    fn a_rate_of_bytes_is_within_its_promise(
        bytes in magnitude(37), burst in 1..=1_000_000_000_u64, dearest in 2..=1_u64 << 17,
    ) {
        let rate = Rate::per_second(bytes.clamp(1_000, Rate::MAX_PER_SECOND));
        let gcra = rate.bucket(burst, dearest);
        prop_assert!(gcra.is_ok(), "{:?}", gcra);
        assert_promises(&gcra.unwrap(), rate, burst, dearest)?;
        prop_assert!(gcra.unwrap().interval >= 1 << 12);
    }

    #[test]
    fn what_an_operator_states_makes_a_bucket(
        packets in 1..=10_000_000_u64,
        burst in 1..=1_000_000_u64,
        minute in any::<bool>(),
    ) {
        let period = if minute { 60 * SECOND } else { SECOND };
        let bucket = Rate { packets, period }.bucket(burst, 1);
        prop_assert!(bucket.is_ok());
    }

    #[test]
    fn an_error_is_about_the_rate_before_the_burst((rate, burst) in stated(), dearest in dearest()) {
        let all = [
            rate.bucket(burst, dearest), rate.queue(burst, dearest), rate.gcra(burst, dearest),
        ];
        for made in all {
            match rate.check() {
                Ok(()) => prop_assert!(!matches!(
                    made,
                    Err(RateError::Zero | RateError::TooFast | RateError::TooSlow)
                )),
                Err(cause) => prop_assert_eq!(made, Err(cause)),
            }
        }
    }

    /// A queue has room for its depth and not a unit more; it is a bucket otherwise.
    #[test]
    fn a_queue_is_a_bucket_that_is_strict((rate, depth) in stated(), dearest in dearest()) {
        let strict = |gcra: Gcra| Gcra { depth: gcra.depth + 1, strict: 1, near: 0, ..gcra };
        let queue = rate.queue(depth, dearest).map(|queue| Gcra { near: 0, ..queue });
        prop_assert_eq!(queue, rate.bucket(depth, dearest).map(strict));
    }

    /// A tolerance is that time, whatever the rate.
    #[test]
    fn a_tolerance_is_the_time_that_is_stated(
        (rate, _) in stated(), tolerance in magnitude(62), dearest in dearest(),
    ) {
        let bucket = rate.bucket(1, dearest);
        match (rate.gcra(tolerance, dearest), bucket) {
            (Ok(gcra), Ok(bucket)) => {
                prop_assert_eq!(gcra.depth - 1, tolerance << gcra.shift);
                prop_assert!(gcra.depth <= Gcra::MAX_DEPTH);
                prop_assert_eq!(Gcra { depth: bucket.depth, near: bucket.near, ..gcra }, bucket);
            }
            (Err(RateError::BurstTooLong), Ok(bucket)) => {
                let units = u128::from(tolerance) << bucket.shift;
                prop_assert!(units >= u128::from(Gcra::MAX_DEPTH));
            }
            (gcra, bucket) => prop_assert_eq!(gcra, bucket),
        }
    }
}

#[test]
fn the_bounds_are_within() {
    assert!(Rate::MIN.bucket(18, 1).is_ok());
    assert_eq!(Rate::MIN.bucket(19, 1), Err(RateError::BurstTooLong));
    assert_eq!(Rate::MIN.bucket(1, 19), Err(RateError::BurstTooLong));
    let slower = Rate { period: Rate::MIN.period + 1, ..Rate::MIN };
    assert_eq!(slower.bucket(1, 1), Err(RateError::TooSlow));
    let gcra = Gcra { shift: Gcra::MAX_SHIFT, ..Gcra::default() };
    let packets =
        Gcra { interval: 1 << 10, depth: 1 << 10, dearest: 1 << 10, near: 1 << 10, ..gcra };
    assert_eq!(Rate::per_second(SECOND).bucket(1, 1), Ok(packets));
    let bytes = Gcra { interval: 1 << 12, dearest: 3 << 10, fraction: 2, ..packets };
    assert_eq!(Rate::per_second(SECOND).bucket(1, 3), Ok(bytes));
    let fastest = Rate::per_second(Rate::MAX_PER_SECOND).bucket(1_000, 1_500);
    // 8.192 units of 2^-10 ns are a byte.
    let gcra = Gcra {
        interval: 4194,
        depth: 8191,
        dearest: 12_287,
        near: 8191 - 4194 * 200 / 512,
        fraction: 9,
        ..gcra
    };
    assert_eq!(fastest, Ok(gcra));
    let faster = Rate::per_second(Rate::MAX_PER_SECOND + 1);
    assert_eq!(faster.bucket(1, 1), Err(RateError::TooFast));
    assert_eq!(Rate { packets: 1, period: 0 }.bucket(1, 1), Err(RateError::Zero));
    assert_eq!(Rate::per_second(0).bucket(0, 1), Err(RateError::Zero));
    assert_eq!(Rate::per_second(1).bucket(0, 1), Err(RateError::NoBurst));
    assert_eq!(Rate::per_second(1).queue(0, 1), Err(RateError::NoBurst));
}
