//! A limit and its fill for one source, in words and in JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    limits::{NOTHING, written, written_cells},
    number::{grouped, wait},
    table::Cell,
    tone::Tone,
};
use crate::{
    policy::{
        model::{Allowance, Count, Mode},
        units::{format_size, rate_per_second},
    },
    query::{
        Fill,
        limit::{Kept, LimitReport, Origin},
        lists::Until,
    },
};

/// The cells of the rate and the burst of a limit.
pub(crate) fn setting_cells(report: &LimitReport) -> [Cell; 2] {
    if report.mode == Mode::Drop.name() {
        return NOTHING.map(Cell::from);
    }
    written_cells(report.allowance.map(|allowance| written(&report.count, allowance)))
}

/// The words for the sources that a setting is for; empty if it is for all.
pub(super) fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Default => String::new(),
        Origin::Prefix(prefix) => format!("for {prefix}"),
        Origin::Tenant(name) => format!("for tenant {name}"),
        Origin::Candidate => "tried".to_owned(),
    }
}

/// The cells of a fill: the part used, the part left, the time until a packet conforms, and the
/// time until nothing is used.
pub(super) fn fill_cells(fill: Option<&Fill>, count: &Count) -> [Cell; 4] {
    let Some(fill) = fill else { return [(); 4].map(|()| Cell::new("-", Tone::Faint)) };
    let amount = |amount: u64| match count {
        Count::Bytes => format_size(amount),
        _ => grouped(amount),
    };
    let tone = if fill.next == Some(Duration::ZERO) { Tone::Plain } else { Tone::Dropped };
    [
        format!("{} of {}", amount(fill.used), amount(fill.most)).into(),
        amount(fill.left()).into(),
        Cell::new(fill.next.map_or_else(|| "never".to_owned(), wait), tone),
        wait(fill.full).into(),
    ]
}

/// The cells of a limit's fill. If the limit has several states for the source, they say `per key`.
pub(super) fn kept_cells(report: &LimitReport) -> [Cell; 4] {
    match report.kept {
        Kept::One(ref fill) => fill_cells(fill.as_ref(), &report.count),
        Kept::Many => {
            let [_, left, next, full] = fill_cells(None, &report.count);
            [Cell::new("per key", Tone::Faint), left, next, full]
        }
        Kept::None => [(); 4].map(|()| Cell::default()),
    }
}

/// Writes how long a list entry or a block lasts.
pub(super) fn until(until: Until) -> String {
    match until {
        Until::Forever => "for ever".to_owned(),
        Until::For(left) => format!("for {} more", wait(left)),
    }
}

/// The same in JSON: an object with the seconds left, which are null for ever. Null for `None`.
pub(super) fn until_json(until: Option<Until>) -> Value {
    match until {
        None => Value::Null,
        Some(Until::Forever) => json!({ "seconds_left": null }),
        Some(Until::For(left)) => json!({ "seconds_left": left.as_secs_f64() }),
    }
}

/// A limit for one source, in JSON.
pub(crate) fn limit_json(report: &LimitReport) -> Value {
    let set_for = match &report.origin {
        Origin::Default => "default".to_owned(),
        Origin::Prefix(prefix) => prefix.to_string(),
        Origin::Tenant(name) => format!("tenant {name}"),
        Origin::Candidate => "candidate".to_owned(),
    };
    json!({
        "name": report.name,
        "key": report.key,
        "algorithm": report.allowance.map(Allowance::algorithm),
        "mode": report.mode,
        "count": report.count.name(),
        "rate_per_second": report.allowance.and_then(Allowance::rate).map(rate_per_second),
        "burst": report.allowance.map(|allowance| allowance.bucket().burst),
        "set_for": set_for,
        "per_key": report.kept == Kept::Many,
        "state": report.fill().map(fill_json),
    })
}

/// A fill in JSON.
pub(super) fn fill_json(fill: &Fill) -> Value {
    json!({
        "limit": fill.most,
        "used": fill.used,
        "remaining": fill.left(),
        "next_packet_seconds": fill.next.map(|next| next.as_secs_f64()),
        "full_seconds": fill.full.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_no_rate() {
        let report = LimitReport {
            name: "web".into(),
            key: "source".into(),
            count: Count::Connections,
            mode: "enforce",
            allowance: Some(Allowance::Concurrent { limit: 2, idle: 60_000_000_000 }),
            origin: Origin::Default,
            kept: Kept::None,
        };
        let [rate, burst] = setting_cells(&report);
        assert_eq!((rate, burst), ("2 open".into(), Cell::default()));
        let json = limit_json(&report);
        assert_eq!((&json["rate_per_second"], &json["burst"]), (&Value::Null, &2.into()));
        assert_eq!(
            (&json["count"], &json["algorithm"]),
            (&"connections".into(), &"concurrent".into())
        );
    }
}
