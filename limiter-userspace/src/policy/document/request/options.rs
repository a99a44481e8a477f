//! Reads what a limit on requests does beside its rates.

use limiter_common::algorithm::rate::SECOND;

use super::super::{
    fault::Findings,
    fields::Fields,
    scalar::{duration, number, text},
    shape::request::{DEGRADE, IDEMPOTENCY},
    source::{Place, ticked},
    tree::Node,
};
use crate::policy::{
    model::{Allowance, Idempotency, RequestLimit},
    units::format_duration,
};

/// How long a request may be known for its repeats, in nanoseconds.
const WINDOWS: std::ops::RangeInclusive<u64> = SECOND..=24 * 3_600 * SECOND;
/// How long a request may be held back, in nanoseconds.
const DELAYS: std::ops::RangeInclusive<u64> = SECOND / 1_000..=RequestLimit::LONGEST_DELAY;

/// Reads `idempotency`.
pub(super) fn idempotency(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Idempotency> {
    let fields = Fields::read(node, &IDEMPOTENCY, findings)?;
    let node = fields.get("window")?;
    let window = duration(node, findings)?;
    if !WINDOWS.contains(&window) {
        let message = "requests are known for 1 s to 24 h";
        findings.add(node.at, message, "give such as `window: 5m`");
        return None;
    }
    Some(Idempotency { window })
}

/// Reads `degrade`: a share in percent.
pub(super) fn degrade(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u8> {
    let fields = Fields::read(node, &DEGRADE, findings)?;
    let node = fields.get("at")?;
    let text = text(node, findings)?;
    let share = text.strip_suffix('%').and_then(|share| number(share.trim_end()));
    let share = share.and_then(|share| u8::try_from(share).ok());
    let share = share.filter(|share| (1..100).contains(share));
    if share.is_none() {
        let message = format!("{} is no share from 1% to 99%", ticked(text));
        findings.add(node.at, message, "give what is left of the quota, such as `at: 20%`");
    }
    share
}

/// Reads `delay`.
pub(super) fn delay(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    let delay = duration(node, findings)?;
    if !DELAYS.contains(&delay) {
        let message = "requests are held back for 1 ms to 10 s";
        findings.add(node.at, message, "give such as `delay: 500ms`");
        return None;
    }
    Some(delay)
}

/// Reports a queue that `delay` is too short for, and what has no queue.
pub(super) fn check_delay(
    delay: u64,
    limit: &RequestLimit,
    at: Place,
    findings: &mut Findings<'_>,
) {
    let layers = limit.layers.iter().map(|layer| layer.allowance);
    let overrides = limit.overrides.iter().filter_map(|one| one.layers.as_ref()).flatten();
    for allowance in layers.chain(overrides.copied()) {
        let Allowance::LeakyBucket { rate, depth } = allowance else {
            let message = "`delay` holds requests back in a queue, which only leaky_bucket has";
            findings.add(at, message, "give `algorithm: leaky_bucket`, or remove `delay`");
            return;
        };
        let [depth, packets, period, delay] =
            [depth, rate.packets, rate.period, delay].map(u128::from);
        let drains = depth.saturating_sub(1) * period / packets.max(1);
        if drains > delay {
            let fits = delay * packets / period.max(1) + 1;
            let drains = u64::try_from(drains).map_or("too long".to_owned(), format_duration);
            let message = format!(
                "the last of {depth} in the queue waits {drains}: that is longer than `delay`"
            );
            findings.add(
                at,
                message,
                format!("give `depth: {fits}`, or a longer delay, 10s at most"),
            );
            return;
        }
    }
}
