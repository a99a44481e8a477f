//! A metric with its series, and how it is written as JSON and as text.

use std::fmt;

use serde::{Serialize, Serializer};

/// A metric with all of its series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Family {
    /// Its name. The name of a counter ends with `_total`.
    pub name: &'static str,
    /// The kind of its values.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its meaning, in a sentence.
    pub help: &'static str,
    /// Its series. No two have the same labels.
    pub series: Vec<Series>,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A count that only grows, and restarts at 0 when the counted object is made anew.
    Counter,
    /// The value at this time, which may grow and shrink.
    Gauge,
    /// How often a measured value was at most the bound `le`, with their sum and number; all only grow.
    Histogram,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What of a histogram it is, which is added to the name: `_bucket`, `_sum` or `_count`; otherwise empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub part: &'static str,
    /// The names and values of the labels.
    #[serde(serialize_with = "as_map")]
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// The value of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measured number.
    Real(f64),
}

impl Family {
    /// A metric without series.
    pub(crate) const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, kind, help, series: Vec::new() }
    }

    /// Adds a series.
    pub(crate) fn with<const N: usize>(
        mut self,
        labels: [(&'static str, &str); N],
        value: Value,
    ) -> Self {
        self.push(labels, value);
        self
    }

    pub(crate) fn push<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: Value) {
        self.push_part("", labels, value);
    }

    /// Adds a series of a part of a histogram.
    pub(crate) fn push_part<const N: usize>(
        &mut self,
        part: &'static str,
        labels: [(&'static str, &str); N],
        value: Value,
    ) {
        let labels = labels.map(|(name, value)| (name, value.to_owned())).into();
        self.series.push(Series { part, labels, value });
    }
}

impl Kind {
    /// The word for the kind in the text format.
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, help, series } = self;
        writeln!(f, "# HELP {name} {help}\n# TYPE {name} {}", kind.name())?;
        for Series { part, labels, value } in series {
            write!(f, "{name}{part}")?;
            for (place, (label, value)) in labels.iter().enumerate() {
                let before = if place == 0 { '{' } else { ',' };
                write!(f, "{before}{label}=\"{}\"", Escaped(value))?;
            }
            let after = if labels.is_empty() { "" } else { "}" };
            writeln!(f, "{after} {value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

/// The value of a label, escaped for its place between quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            other => write!(f, "{other}"),
        })
    }
}

fn as_map<S: Serializer>(
    labels: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().map(|(name, value)| (name, value)))
}
