//! Random limits of an algorithm, their exact models, and packet times that test their edges.

use std::collections::BTreeMap;

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::model::{self, Flow, LOST, Model};
use limiter_userspace::policy::model::{Allowance, Costs, Count, KeyPart, Limit, PacketKind};

use super::super::{
    define::{limit, within},
    differential::any_rate,
    mutation::Random,
};

/// Makes a random allowance of one algorithm, of about this size.
pub(in super::super) type Any = fn(&mut Random, u64) -> Allowance;

pub(in super::super) const TOKEN_BUCKET: Any =
    |random, burst| Allowance::TokenBucket { rate: any_rate(random), burst };
pub(in super::super) const LEAKY_BUCKET: Any =
    |random, depth| Allowance::LeakyBucket { rate: any_rate(random), depth };
pub(in super::super) const GCRA: Any = |random, packets| {
    let rate = any_rate(random);
    Allowance::Gcra { rate, tolerance: rate.period / rate.packets * (packets - 1) }
};
pub(in super::super) const FIXED_WINDOW: Any =
    |random, limit| Allowance::FixedWindow { limit, window: any_window(random) };
pub(in super::super) const SLIDING_WINDOW: Any =
    |random, limit| Allowance::SlidingWindow { limit, window: any_window(random) };
pub(in super::super) const SLIDING_LOG: Any = |random, limit| {
    let window = any_window(random);
    Allowance::SlidingLog { limit: limit.min(model::SlidingLog::MOST as u64), window }
};

/// A random window, from a millisecond to an hour, in nanoseconds.
fn any_window(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => SECOND * *random.pick(&[1, 10, 60, 3_600]),
        1 => 1_000_000 + random.below(1_000) as u64,
        _ => 1_000_000 + random.below(1 << 40) as u64,
    }
}

/// The exact model of an allowance, without any charge, for packets of cost `dearest` at most.
pub(super) fn exact(allowance: Allowance, dearest: u64, now: u64) -> Model {
    // The program rounds the cost of a packet to its unit. The model has the same grain; nothing else is
    // rounded.
    let gcra = allowance.meter(dearest).unwrap().gcra;
    let flow = |Rate { packets, period }: Rate| {
        let [packets, period] = [packets, period].map(i128::from);
        let digits = gcra.shift + gcra.fraction;
        assert_eq!((period << digits).rem_euclid(packets), 0, "{allowance:?} is rounded");
        let grain = packets << gcra.fraction;
        Flow { per_nanosecond: packets << digits, per_cost: period << digits, grain }
    };
    match allowance {
        Allowance::TokenBucket { rate, burst } => {
            Model::Bucket(model::Bucket::of(flow(rate), burst, dearest, now))
        }
        Allowance::LeakyBucket { rate, depth } => {
            Model::Queue(model::Queue::of(flow(rate), depth, dearest, now))
        }
        Allowance::Gcra { rate, tolerance } => {
            Model::Cells(model::Cells::of(flow(rate), tolerance, dearest, now))
        }
        Allowance::FixedWindow { limit, window } => {
            Model::Window(model::Window::fixed(limit, window, now))
        }
        Allowance::SlidingWindow { limit, window } => {
            Model::Window(model::Window::sliding(limit, window, now))
        }
        Allowance::SlidingLog { limit, window } => {
            Model::SlidingLog(model::SlidingLog::new(limit, window))
        }
        Allowance::Concurrent { .. } => unreachable!("connections have a model of their own"),
    }
}

/// The time in which one unit of cost is refilled, and in which all are, in nanoseconds.
pub(super) fn pace(allowance: Allowance) -> [u64; 2] {
    let bucket = allowance.bucket();
    let unit = bucket.rate.period / bucket.rate.packets;
    let all = match allowance {
        Allowance::TokenBucket { .. } | Allowance::LeakyBucket { .. } => unit * bucket.burst,
        Allowance::Gcra { tolerance, .. } => tolerance + unit,
        _ => bucket.rate.period,
    };
    [unit, all]
}

/// The time of the next packet: at once, about when a packet conforms again, about when all is refilled or a
/// window ends, or earlier, as after a clock that went back.
pub(in super::super) fn step(
    random: &mut Random,
    allowance: Allowance,
    cost: u64,
    now: u64,
) -> u64 {
    let [unit, all] = pace(allowance);
    let mut below = |most: u64| random.below(most as usize + 1) as u64;
    match below(99) {
        0..45 => now,
        45..65 => now + below(2 * unit * cost),
        65..75 => (now + unit * cost + below(2)).saturating_sub(1),
        75..81 => now + below(all),
        81..85 => (now + all + below(2)).saturating_sub(1),
        85..89 => (now / all + 1) * all - below(1),
        89..91 => now + below(3 * all),
        91..95 => now.saturating_sub(below(unit)),
        95..98 => now.saturating_sub(below(LOST)),
        _ => now.saturating_sub(below(2 * all + 2 * LOST)),
    }
}

fn any_count(random: &mut Random) -> Count {
    match random.below(3) {
        0 => Count::Bytes,
        1 => {
            let kinds = [PacketKind::Fragment, PacketKind::Syn, PacketKind::Icmp, PacketKind::Udp];
            let some = kinds.into_iter().filter(|_| random.below(2) == 0).collect::<Vec<_>>();
            let by_kind: BTreeMap<_, _> =
                some.into_iter().map(|kind| (kind, 1 + random.below(40) as u16)).collect();
            Count::Weighted(Costs { default: 1 + random.below(3) as u16, by_kind })
        }
        _ => Count::Packets,
    }
}

/// A random limit of an algorithm: inline, or with another key.
pub(super) fn any_limit(random: &mut Random, name: &str, any: Any) -> Limit {
    let keys: [&[KeyPart]; 6] = [
        &[KeyPart::Source],
        &[within(24, 48)],
        &[KeyPart::Destination],
        &[KeyPart::Connection],
        &[KeyPart::Source, KeyPart::DestinationPort],
        &[],
    ];
    let keyed = 1 + random.below(keys.len() - 1);
    let parts = keys[if random.below(2) == 0 { 0 } else { keyed }];
    let count = any_count(random);
    let bits = random.below(if count == Count::Bytes { 14 } else { 9 });
    let size = 1 + random.below(1 << bits) as u64;
    let allowance = any(random, size);
    // A sliding log counts packets only.
    let is_log = matches!(allowance, Allowance::SlidingLog { .. });
    Limit { count: if is_log { Count::Packets } else { count }, ..limit(name, parts, allowance) }
}
