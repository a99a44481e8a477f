//! Reads allowances: how much a limit admits, by which algorithm.

use limiter_common::algorithm::rate::{Rate, RateError, SECOND};

use super::{
    fault::Findings,
    fields::Fields,
    names::{Algorithm, MODES},
    scalar::{self, duration},
    source::Place,
    terms::{KEYS, Terms, at_once, idle_time, keys_of, largest_burst},
    tree::{Node, Value},
    unit::Unit,
};
use crate::policy::{
    model::{Allowance, Mode},
    units::{Burst, time::LONGEST},
};

/// The most events of a sliding log, and the most connections of a concurrent limit.
pub(super) const TRACKED: u64 = 128;
/// The shortest window, in nanoseconds.
const SHORTEST_WINDOW: u64 = 1_000_000;
/// The default of `idle`, in nanoseconds.
const IDLE: u64 = 300 * SECOND;

/// Whether a mapping has any key of an allowance.
pub(super) fn is_given(fields: &Fields<'_, '_>) -> bool {
    KEYS.iter().any(|key| fields.get(key).is_some())
}

/// The action of a limit, and whether its rate is zero. That drops all that the limit is about, as `action: drop` does, and
/// goes with no other action.
pub(super) fn action(
    fields: &Fields<'_, '_>,
    terms: Option<Terms<'_>>,
    findings: &mut Findings<'_>,
) -> (Option<Mode>, bool) {
    let given = fields.get("action");
    let mode =
        given.map_or(Some(Mode::default()), |node| scalar::word(node, "action", &MODES, findings));
    let is_zero = terms.is_some_and(|terms| terms.has_zero_rate(fields));
    if !is_zero || fields.get("layers").is_some() {
        return (mode, false);
    }
    if let Some((key, at)) = KEYS.iter().skip(1).find_map(|key| Some((key, fields.place(key)?))) {
        let message =
            format!("`{key}` has no meaning beside `rate: 0`, which drops all that matches");
        findings.add(at, message, "remove it, or give a rate above zero");
    }
    if let (Some(node), Some(Mode::Monitor | Mode::Off)) = (given, mode) {
        let message = "`rate: 0` drops all that matches, and this action drops nothing";
        findings.add(node.at, message, "remove one of the two");
    }
    (Some(Mode::Drop), true)
}

/// The burst as it was written in a mapping, or in its only layer.
pub(super) fn written_burst(fields: &Fields<'_, '_>, unit: Unit<'_>) -> Option<Burst> {
    const BURSTS: [&str; 3] = ["burst", "depth", "tolerance"];
    let text = |node: &Node<'_>| match &node.value {
        Value::Text(text) => unit.parse_burst(text).ok(),
        _ => None,
    };
    let own = BURSTS.iter().find_map(|key| fields.get(key));
    let of_layer = || {
        let Value::List(layers) = &fields.get("layers")?.value else { return None };
        let [Node { value: Value::Map(pairs), .. }] = layers.as_slice() else { return None };
        let (_, node) = pairs.iter().find(|(word, _)| BURSTS.contains(&&*word.text))?;
        text(node)
    };
    own.map_or_else(of_layer, text)
}

impl Terms<'_> {
    /// Whether `rate` is zero, for an algorithm that has a rate.
    fn has_zero_rate(self, fields: &Fields<'_, '_>) -> bool {
        let rate = fields.get("rate").filter(|_| keys_of(self.algorithm).contains(&"rate"));
        let Some(Node { value: Value::Text(text), .. }) = rate else { return false };
        self.unit.parse_rate(text).is_err_and(|error| error.is_zero_rate())
    }

    /// Reads the allowance from the keys of a mapping.
    pub(super) fn read(
        self,
        fields: &Fields<'_, '_>,
        findings: &mut Findings<'_>,
    ) -> Option<Allowance> {
        let before = findings.total();
        let ours = keys_of(self.algorithm);
        for key in KEYS {
            if let Some(at) = fields.place(key).filter(|_| !ours.contains(&key)) {
                let name = self.algorithm_name();
                let message = format!("`{key}` has no meaning with {name}");
                findings.add(at, message, format!("{name} has `{}`", ours.join("` and `")));
            }
        }
        let allowance = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
                self.bucket(fields, findings)
            }
            Algorithm::Concurrent => self.concurrent(fields, findings),
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                self.window(fields, findings)
            }
        };
        let allowance = allowance.filter(|_| findings.total() == before)?;
        self.check_room(&allowance, fields, findings).then_some(allowance)
    }

    fn needed<'n, 't>(
        self,
        key: &str,
        fields: &Fields<'n, 't>,
        findings: &mut Findings<'_>,
    ) -> Option<&'n Node<'t>> {
        let node = fields.get(key);
        if node.is_none() {
            let example = match key {
                "rate" => self.unit.example(),
                "window" => "1min",
                _ if self.unit.is_bytes() => "64kB",
                _ => "50",
            };
            let message = format!("{} needs `{key}`", self.algorithm_name());
            findings.add(fields.at, message, format!("write it, such as `{key}: {example}`"));
        }
        node
    }

    fn bucket(self, fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<Allowance> {
        let rate = self.needed("rate", fields, findings).and_then(|node| self.rate(node, findings));
        let key = keys_of(self.algorithm).last()?;
        let given = fields.get(key);
        let amount = match given {
            Some(node) => Some(self.amount(node, findings)?),
            None => None,
        };
        let rate = rate?;
        let at = given.or(fields.get("rate")).map_or(fields.at, |node| node.at);
        let count = amount.map_or_else(|| self.default_burst(rate), |amount| amount.packets(rate));
        let tolerance = match amount {
            Some(Burst::Time(time)) => time,
            _ => self.tolerance(rate, count, at, findings)?,
        };
        let held = if self.algorithm == Algorithm::Gcra { at_once(rate, tolerance) } else { count };
        self.check_bucket(rate, held, at, findings)?;
        Some(match self.algorithm {
            Algorithm::LeakyBucket => Allowance::LeakyBucket { rate, depth: count },
            Algorithm::Gcra => Allowance::Gcra { rate, tolerance },
            _ => Allowance::TokenBucket { rate, burst: count },
        })
    }

    /// The tolerance in nanoseconds that admits `count` packets at once; 0 for other algorithms than GCRA.
    fn tolerance(
        self,
        rate: Rate,
        count: u64,
        at: Place,
        findings: &mut Findings<'_>,
    ) -> Option<u64> {
        if self.algorithm != Algorithm::Gcra {
            return Some(0);
        }
        // The first packet needs no tolerance.
        let time = u128::from(count.saturating_sub(1)) * u128::from(rate.period);
        let time = u64::try_from(time.div_ceil(u128::from(rate.packets).max(1)));
        let time = time.ok().filter(|&time| time <= LONGEST);
        if time.is_none() {
            let message = "such a tolerance is longer than 366 days at this rate";
            findings.add(at, message, "give less, or a duration");
        }
        time
    }

    fn check_bucket(
        self,
        rate: Rate,
        held: u64,
        at: Place,
        findings: &mut Findings<'_>,
    ) -> Option<()> {
        let Err(error) = rate.bucket(held, 1) else { return Some(()) };
        let (message, remedy) = match error {
            RateError::BurstTooLong => {
                let largest = largest_burst(rate);
                let what = keys_of(self.algorithm).last().copied().unwrap_or_default();
                let rate = self.rate_name(rate);
                let message = format!("{what} {held} is more than can be kept at {rate}");
                (message, format!("the most at this rate is {largest}"))
            }
            _ => ("the rate is out of bounds".to_owned(), String::new()),
        };
        findings.add(at, message, remedy);
        None
    }

    fn window(self, fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<Allowance> {
        let (limit, window, at) = match fields.get("rate") {
            Some(node) => {
                if let Some(at) = fields.place("limit").or(fields.place("window")) {
                    let message = "`rate` says `limit` and `window` already";
                    findings.add(at, message, "write either `rate: 100/min`, or the two");
                }
                let Rate { packets, period } = self.rate(node, findings)?;
                (packets, period, node.at)
            }
            None if fields.get("limit").is_none() && fields.get("window").is_none() => {
                self.needed("rate", fields, findings)?;
                return None;
            }
            None => {
                let limit = self.needed("limit", fields, findings);
                let window = self.needed("window", fields, findings);
                let (limit, window) = (limit?, window?);
                let (amount, time) = (self.count_of(limit, findings), duration(window, findings));
                (amount?, time?, limit.at)
            }
        };
        let rate = Rate { packets: limit, period: window };
        if window < SHORTEST_WINDOW {
            findings.add(at, "the window is shorter than 1 ms", "give a longer one, such as 1s");
            return None;
        }
        if rate.check().is_err() || window > LONGEST {
            let message = format!("{} is out of bounds", self.rate_name(rate));
            findings.add(at, message, "give 1 in 366 days to 1,000,000,000 a second");
            return None;
        }
        Some(match self.algorithm {
            Algorithm::FixedWindow => Allowance::FixedWindow { limit, window },
            Algorithm::SlidingLog => {
                if limit > TRACKED {
                    let message = format!("a sliding_log keeps {TRACKED} events, not {limit}");
                    let remedy = format!("give at most {TRACKED}, or take sliding_window");
                    findings.add(at, message, remedy);
                    return None;
                }
                Allowance::SlidingLog { limit, window }
            }
            _ => Allowance::SlidingWindow { limit, window },
        })
    }

    /// Reads an amount that may not be a time.
    fn count_of(self, node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u64> {
        match self.amount(node, findings)? {
            Burst::Packets(count) => Some(count),
            Burst::Time(_) => {
                findings.add(node.at, "a limit is an amount, not a time", "give a number");
                None
            }
        }
    }

    fn concurrent(self, fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<Allowance> {
        let node = self.needed("limit", fields, findings);
        let limit = node.and_then(|node| scalar::whole(node, "limit", 1..=TRACKED, findings));
        let idle = match fields.get("idle") {
            Some(node) => idle_time(node, findings),
            None => Some(IDLE),
        };
        Some(Allowance::Concurrent { limit: limit?, idle: idle? })
    }

    /// Whether the allowance admits the dearest packet or request; a fault if not.
    fn check_room(
        self,
        allowance: &Allowance,
        fields: &Fields<'_, '_>,
        findings: &mut Findings<'_>,
    ) -> bool {
        let room = match *allowance {
            Allowance::TokenBucket { burst, .. } => burst,
            Allowance::LeakyBucket { depth, .. } => depth,
            Allowance::Gcra { rate, tolerance } => at_once(rate, tolerance),
            Allowance::FixedWindow { limit, .. } | Allowance::SlidingWindow { limit, .. } => limit,
            Allowance::Concurrent { limit, .. } if matches!(self.unit, Unit::Requests { .. }) => {
                limit
            }
            Allowance::SlidingLog { .. } | Allowance::Concurrent { .. } => return true,
        };
        let dearest = self.dearest();
        if room >= dearest {
            return true;
        }
        let key = keys_of(self.algorithm).iter().rev().find(|key| fields.get(key).is_some());
        let at = key.and_then(|key| fields.get(key)).map_or(fields.at, |node| node.at);
        let message = if self.unit.is_bytes() {
            format!("no packet fits into {room} bytes")
        } else {
            let event = self.unit.event();
            format!("a {event} that costs {dearest} never passes where {room} are admitted")
        };
        findings.add(at, message, format!("give at least {dearest}"));
        false
    }
}
