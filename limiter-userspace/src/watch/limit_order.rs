//! The order of the limits on the screen.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::history::Rates;
use crate::output::limits::LimitRow;

/// How long a limit counts as one that refuses packets after the last one that it refused. A limit
/// that refuses now and then keeps its place for this time, so rows do not move at each reading.
const HOLD: Duration = Duration::from_secs(60);

/// What the place of a limit goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It refused packets within [`HOLD`].
    Refuses,
    /// It is set.
    Set,
    /// It is off for all sources.
    Off,
}

/// When each limit refused a packet the last time.
#[derive(Clone, Debug, Default)]
pub struct LimitOrder {
    refused: HashMap<String, Instant>,
}

impl LimitOrder {
    /// Notes which limits refused packets up to `now`.
    pub fn note(&mut self, rates: Option<&Rates>, now: Instant) {
        let limits = rates.map(|rates| rates.limits.as_slice()).unwrap_or_default();
        for limit in limits.iter().filter(|limit| limit.over().packets > 0.0) {
            self.refused.insert(limit.name.clone(), now);
        }
        self.refused.retain(|_, at| now.saturating_duration_since(*at) < HOLD);
    }

    /// Sorts limits: those that refuse packets, then those that are set, then those that are off.
    /// Within each of these classes the order of the policy stays. The layers and the candidate of
    /// a limit stay together.
    pub fn arrange(&self, rows: &mut [LimitRow], now: Instant) {
        let mut classes: HashMap<String, Class> = HashMap::new();
        for row in rows.iter() {
            let class = self.class(row, now);
            let of_limit = classes.entry(row.limit.clone()).or_insert(class);
            *of_limit = class.min(*of_limit);
        }
        rows.sort_by_key(|row| classes.get(&row.limit).copied().unwrap_or(Class::Off));
    }

    fn class(&self, row: &LimitRow, now: Instant) -> Class {
        let refused = self.refused.get(&row.name);
        if refused.is_some_and(|at| now.saturating_duration_since(*at) < HOLD) {
            Class::Refuses
        } else if row.rate.is_some() || row.overrides > 0 {
            Class::Set
        } else {
            Class::Off
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{history::History, screen::example};

    fn row(limit: &str, name: &str, is_set: bool) -> LimitRow {
        let rate = is_set.then(|| "1kpps".to_owned());
        LimitRow { rate, limit: limit.into(), ..LimitRow::off(name) }
    }

    fn names(order: &LimitOrder, now: Instant) -> Vec<String> {
        let mut rows = [
            row("connection", "connection", false),
            row("web", "web", true),
            row("web", "web.2", true),
            row("dns", "dns", true),
            row("source", "source", true),
            row("syn", "syn", true),
        ];
        order.arrange(&mut rows, now);
        rows.map(|row| row.name).into()
    }

    #[test]
    fn limits_that_refuse_come_first_and_keep_their_place_for_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut order = LimitOrder::default();
        assert_eq!(
            names(&order, start),
            ["web", "web.2", "dns", "source", "syn", "connection"],
            "nothing is refused"
        );
        // In the example, `syn` and `source` refuse packets.
        let mut history = History::new(example::reading(start, Duration::ZERO, false).snapshot);
        history.record(example::reading(at(5), Duration::from_secs(5), false).snapshot);
        order.note(history.rates(), at(5));
        let first = ["source", "syn", "web", "web.2", "dns", "connection"];
        assert_eq!(names(&order, at(5)), first);
        // Nothing is refused after that.
        order.note(None, at(64));
        assert_eq!(names(&order, at(64)), first);
        order.note(None, at(65));
        assert_eq!(names(&order, at(65))[0], "web");
        // One layer that refuses brings the other ones of its limit along.
        order.refused.insert("web.2".into(), at(65));
        assert_eq!(names(&order, at(65))[..3], ["web", "web.2", "dns"]);
        order.refused.insert("dns".into(), at(65));
        order.refused.remove("web.2");
        assert_eq!(names(&order, at(65))[..3], ["dns", "web", "web.2"]);
    }
}
