//! The manual page on policy documents, made from their schema.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use clap_mangen::roff::{Roff, bold, roman};
use serde_json::Value;

use super::{SOURCE, definitions, paragraphs};
use crate::policy::document::schema;

/// The file name of the page.
pub(super) const NAME: &str = "limiter-policy.5";

const DESCRIPTION: &str = "\
A policy is a document in YAML. These are all of its keys, each with the path to it: [] is each entry of a \
list, NAME a name of your choice. A key that is marked with * is required.

limiter policy check FILE reports all that is wrong with a document, and limiter policy schema prints these \
keys as a JSON Schema for editors. How keys work together is in /usr/share/doc/limiter/policy.md.";

/// How amounts are written.
const UNITS: [(&str, &str); 5] = [
    (
        "rate",
        "A number for a time: 50/s, 5/min, 100/h, 1,000/d, 1e6/s, 10k pps. Of a limit of bytes: 2Mbit/s, 10MB/s, 64KiB/s. \
         k, M and G are powers of 1000; Ki, Mi and Gi of 1024. bps is refused: it is bits to some and bytes to others.",
    ),
    (
        "burst, depth, limit",
        "A number: 400, 2k; of bytes: 64kB, 1MiB; or the time in which the rate admits it: 200ms.",
    ),
    ("time", "500ms, 10s, 5m, 1h30m, 3d 04h, 1w."),
    (
        "instant",
        "With its offset from UTC: 2027-01-31T18:00:00Z, 2027-01-31T19:00:00+01:00; or a date, which begins at 00:00 UTC.",
    ),
    ("source", "203.0.113.9, 203.0.113.0/24, 2001:db8::/48, or the name of a set."),
];

/// The algorithms of limits.
const ALGORITHMS: [(&str, &str); 7] = [
    ("token_bucket", "rate, burst. Admits burst at once, and rate in the long run. The default."),
    ("leaky_bucket", "rate, depth. As a queue that drains at rate; never more than depth at once."),
    ("gcra", "rate, tolerance. A packet conforms no earlier than tolerance before its time."),
    (
        "fixed_window",
        "limit, window. Counts in windows that begin at multiples of their length; twice the limit at an edge.",
    ),
    ("sliding_window", "limit, window. Counts in this window and, in part, in the one before."),
    ("sliding_log", "limit, window. Exact in every window; 128 events at most."),
    ("concurrent", "limit, idle. Open TCP connections; 128 at most."),
];

const EXAMPLE: &str = "\
version: 1
limits:
  - name: ssh
    match: { protocol: tcp, ports: ssh }
    key: source
    count: connections
    rate: 5/min
    burst: 5
  - name: dns
    match: { protocol: udp, ports: dns }
    key: source/24
    count: bytes
    rate: 2Mbit/s
    action: monitor
";

const FILES: [(&str, &str); 2] = [
    ("/usr/share/doc/limiter/examples", "Policies to begin with."),
    ("/usr/share/doc/limiter/algorithms.md", "What each algorithm guarantees and costs."),
];

pub(super) fn render(to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("TH", ["limiter-policy", "5", "", SOURCE, "limiter"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("limiter-policy - policy documents of limiter")]);
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, DESCRIPTION);
    roff.control("SH", ["KEYS"]);
    keys(&mut roff, "", &schema(), &mut BTreeSet::new());
    roff.control("SH", ["UNITS"]);
    definitions(&mut roff, UNITS);
    roff.control("SH", ["ALGORITHMS"]);
    definitions(&mut roff, ALGORITHMS);
    roff.control("SH", ["EXAMPLES"]);
    roff.control("PP", []);
    roff.text([roman("Five new connections a minute to ssh for each source, and 2 Mbit/s of DNS for each /24, which is only counted:")]);
    roff.control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["FILES"]);
    definitions(&mut roff, FILES);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("limiter-policy-check(8), limiter-policy-apply(8), limiter-agent(8)")]);
    roff.to_writer(to)
}

/// Adds the keys of a part of the schema, which is at `path`, and of the parts below it. A key is
/// added once.
fn keys(roff: &mut Roff, path: &str, part: &Value, told: &mut BTreeSet<String>) {
    let needed = |name: &str| {
        part["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name))
    };
    for (name, key) in part["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if told.insert(path.clone()) {
            roff.control("TP", []);
            roff.text([bold(&path), roman(if needed(name) { " *" } else { "" })]);
            let mut text = vec![key["description"].as_str().unwrap_or_default().to_owned()];
            text.extend(values(key));
            roff.text([roman(text.join(" "))]);
        }
        keys(roff, &path, key, told);
    }
    if part["additionalProperties"].is_object() {
        keys(roff, &format!("{path}.NAME"), &part["additionalProperties"], told);
    }
    if part["items"].is_object() {
        keys(roff, &format!("{path}[]"), &part["items"], told);
    }
    for one in part["anyOf"].as_array().into_iter().flatten() {
        let path = match one["title"].as_str() {
            Some(title) => format!("{path} ({title})"),
            None => path.to_owned(),
        };
        keys(roff, &path, one, told);
    }
}

/// The possible values of a key, if the schema has them.
fn values(key: &Value) -> Option<String> {
    if let Some(words) = key["enum"].as_array() {
        return Some(format!("One of {}.", joined(words)));
    }
    if let (Some(least), Some(most)) = (key["minimum"].as_u64(), key["maximum"].as_u64()) {
        return Some(format!("A number from {least} to {most}."));
    }
    if let Some(examples) = key["examples"].as_array() {
        return Some(format!("For example {}.", joined(examples)));
    }
    if key["type"] == "boolean" {
        return Some("true or false.".to_owned());
    }
    if let Some(version) = key["const"].as_u64() {
        return Some(format!("{version}."));
    }
    let below = key["anyOf"].as_array().into_iter().flatten().chain(key.get("items"));
    below.into_iter().find_map(values)
}

fn joined(words: &[Value]) -> String {
    let words = words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), Into::into));
    words.collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        document::{self, parse_instant},
        units::{
            parse_burst, parse_data_burst, parse_data_rate, parse_prefix, parse_rate, parse_time,
        },
    };

    #[test]
    fn amounts_are_written_as_the_page_shows() {
        let mut page = Vec::new();
        render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        let (_, units) = page.split_once(".SH UNITS\n").unwrap();
        let units = units.split(".SH ").next().unwrap();
        type Reads = fn(&str) -> bool;
        let all: [(&str, Reads, &[&str]); 7] = [
            (
                "rate",
                |it| parse_rate(it).is_ok(),
                &["50/s", "5/min", "100/h", "1,000/d", "1e6/s", "10k pps"],
            ),
            ("rate", |it| parse_data_rate(it).is_ok(), &["2Mbit/s", "10MB/s", "64KiB/s"]),
            ("burst, depth, limit", |it| parse_burst(it).is_ok(), &["400", "2k", "200ms"]),
            ("burst, depth, limit", |it| parse_data_burst(it).is_ok(), &["64kB", "1MiB"]),
            ("time", |it| parse_time(it).is_ok(), &["500ms", "10s", "5m", "1h30m", "3d 04h", "1w"]),
            (
                "instant",
                |it| parse_instant(it).is_some(),
                &["2027-01-31T18:00:00Z", "2027-01-31T19:00:00+01:00"],
            ),
            (
                "source",
                |it| parse_prefix(it).is_ok(),
                &["203.0.113.9", "203.0.113.0/24", "2001:db8::/48"],
            ),
        ];
        for (name, reads, examples) in all {
            let title = format!("\\fB{name}\\fR\n");
            let text = units.split_once(&title).map_or("", |it| it.1);
            let text = text.split(".TP").next().unwrap();
            for example in examples {
                assert!(text.contains(example) && reads(example), "{name}: {example} in {text}");
            }
        }
        assert!(parse_data_rate("10Mbps").is_err() && units.contains("bps is refused"));
    }

    #[test]
    fn the_example_is_a_policy_and_every_algorithm_is_told() {
        let limits =
            document::parse("example", EXAMPLE.as_bytes(), &mut |_| unreachable!()).unwrap().limits;
        assert_eq!(limits.len(), 2);
        let told = ALGORITHMS.map(|(name, _)| Value::from(name));
        assert_eq!(
            schema()["properties"]["limits"]["items"]["anyOf"][0]["properties"]["algorithm"]["enum"],
            Value::from(told.to_vec())
        );
    }
}
