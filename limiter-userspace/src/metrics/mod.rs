//! What monitoring systems read: JSON of the schema `limiter.metrics/1`, or the text format of
//! Prometheus (version 0.0.4), which its servers, its agents and the textfile collector of its node
//! exporter read.
//!
//! The number of series depends on the interfaces and the limits, not on the sources: no label is
//! an address.

mod cost;
mod family;
mod instance;
mod sample;

use std::fmt;

use serde::Serialize;

pub use self::family::{Family, Kind, Series, Value};
pub(crate) use self::sample::layer;
use crate::{
    datapath::{bpffs::Pins, link::exists, maps::Maps},
    error::Result,
};

/// The JSON schema.
pub const SCHEMA: &str = "limiter.metrics/1";

/// All metrics of an instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The metrics, in the order of the output.
    pub metrics: Vec<Family>,
}

/// Reads the metrics of the instance with these pins; `unix` is the time in seconds. Without an
/// instance, `limiter_attached` is 0, so that a monitoring system does not keep the values it read
/// before.
///
/// # Errors
/// The pins, a map or the policy cannot be read.
pub fn read(pins: &Pins, unix: u64) -> Result<Metrics> {
    let mut metrics = match exists(pins)? {
        true => instance::families(pins, &Maps::open(pins)?, unix)?,
        false => vec![instance::nothing_attached()],
    };
    metrics.push(build_info());
    Ok(Metrics { schema: SCHEMA, metrics })
}

fn build_info() -> Family {
    Family::new(
        "limiter_build_info",
        Kind::Gauge,
        "1, with the version of the command that prints it.",
    )
    .with([("version", env!("CARGO_PKG_VERSION"))], Value::Whole(1))
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.metrics.iter().try_for_each(|family| family.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let packets = Family::new("limiter_packets_total", Kind::Counter, "Packets received.")
            .with([("interface", "eth0"), ("reason", "exceed")], Value::Whole(u64::MAX))
            .with([("interface", "a\"b\\c\nd"), ("reason", "conform")], Value::Whole(0));
        let rate = Family::new("limiter_limit_rate", Kind::Gauge, "What is admitted per second.")
            .with([("limit", "syn")], Value::Real(0.5));
        let none = Family::new("limiter_none", Kind::Gauge, "Nothing.").with([], Value::Whole(1));
        Metrics { schema: SCHEMA, metrics: vec![packets, rate, none] }
    }

    #[test]
    fn text_is_as_prometheus_has_it() {
        assert_eq!(
            metrics().to_string(),
            "# HELP limiter_packets_total Packets received.\n\
             # TYPE limiter_packets_total counter\n\
             limiter_packets_total{interface=\"eth0\",reason=\"exceed\"} 18446744073709551615\n\
             limiter_packets_total{interface=\"a\\\"b\\\\c\\nd\",reason=\"conform\"} 0\n\
             # HELP limiter_limit_rate What is admitted per second.\n\
             # TYPE limiter_limit_rate gauge\n\
             limiter_limit_rate{limit=\"syn\"} 0.5\n\
             # HELP limiter_none Nothing.\n\
             # TYPE limiter_none gauge\n\
             limiter_none 1\n"
        );
    }

    #[test]
    fn json_has_the_same() {
        let mut metrics = metrics();
        metrics.metrics.drain(..1);
        assert_eq!(
            serde_json::to_string(&metrics).unwrap(),
            r#"{"schema":"limiter.metrics/1","metrics":["#.to_owned()
                + r#"{"name":"limiter_limit_rate","type":"gauge","help":"What is admitted per second.","#
                + r#""series":[{"labels":{"limit":"syn"},"value":0.5}]},"#
                + r#"{"name":"limiter_none","type":"gauge","help":"Nothing.","#
                + r#""series":[{"labels":{},"value":1}]}]}"#
        );
    }
}
