//! What the dearest packet costs under a policy.

use limiter_common::policy::limit::INLINE;

use super::{
    super::model::Policy,
    classes::together,
    rows::{Row, Rows},
};

/// A packet, and what the limits that are about it cost where each of them meets it for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dearest {
    /// The packet, in words.
    pub packet: String,
    /// Nanoseconds of a CPU of the machine of docs/benchmarks when its neighbours are quiet; half as much more, or twice as
    /// much, when they are busy.
    pub nanoseconds: u64,
    /// The limits that make it dear, in the order in which they are asked.
    pub limits: Vec<String>,
}

// Nanoseconds of what a packet may meet, by rows of the benchmark: `new_source_64k` with the full decision, each of
// `limits_8`, `key_all`, each of `stacked_keyed`, of `stacked_sliding_log` and `stacked_concurrent`, and `new_syn`.
const PACKET: u64 = 300;
const INLINE_LIMIT: u64 = 10;
const KNOWN_KEY: u64 = 80;
const NEW_KEY: u64 = 600;
const WIDE_LIMIT: u64 = 700;
const NEW_CONNECTION: u64 = 900;

/// The dearest packet that limits of a policy are about; `None` where there are none, or too many.
pub fn dearest(policy: &Policy) -> Option<Dearest> {
    let rows = Rows::new(policy).ok()?;
    let all: Vec<&Row<'_>> = rows.iter().collect();
    let packets = together(&all).into_iter().filter(|(_, rows)| !rows.is_empty());
    packets.map(|(packet, rows)| of(packet, &rows)).max_by_key(|dearest| dearest.nanoseconds)
}

fn of(packet: String, rows: &[&Row<'_>]) -> Dearest {
    let mut inline = 0;
    let mut nanoseconds = PACKET;
    let mut limits: Vec<String> = Vec::new();
    let mut opens = false;
    for row in rows {
        let is_inline = row.identity().inline && inline < INLINE;
        inline += usize::from(is_inline);
        let cost = match (row.is_wide(), is_inline) {
            (true, _) => WIDE_LIMIT,
            (false, true) => INLINE_LIMIT,
            (false, false) if row.has_few_keys() => KNOWN_KEY,
            (false, false) => NEW_KEY,
        };
        nanoseconds += cost;
        opens |= row.counts_new_connections();
        if (cost != INLINE_LIMIT || row.counts_new_connections())
            && !limits.contains(&row.limit.name)
        {
            limits.push(row.limit.name.clone());
        }
    }
    nanoseconds += if opens { NEW_CONNECTION } else { 0 };
    Dearest { packet, nanoseconds, limits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::parse;

    fn cost(limits: &[&str]) -> (u64, String) {
        let text = format!("version: 1\nlimits: [{}]", limits.join(", "));
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let Dearest { packet, nanoseconds, limits } = dearest(&policy).unwrap();
        (nanoseconds, format!("{packet}: {}", limits.join(" ")))
    }

    #[test]
    fn the_dearest_packet_is_that_which_most_limits_by_other_keys_are_about() {
        let source = "{name: a, key: source, rate: 1/s}";
        let web = "{name: b, match: {protocol: tcp, ports: 443}, key: connection, rate: 1/s}";
        let log = "{name: c, match: {protocol: udp, ports: 53}, key: destination, \
                   algorithm: sliding_log, limit: 9, window: 1s}";
        let opened =
            "{name: d, match: {protocol: tcp}, key: source, count: connections, rate: 1/s}";
        let one = PACKET + INLINE_LIMIT;
        assert_eq!(cost(&[source]), (one, "any protocol: ".into()));
        assert_eq!(cost(&[source, web]), (one + NEW_KEY, "protocol 6, port 443: b".into()));
        assert_eq!(cost(&[source, web, log]).0, one + WIDE_LIMIT);
        let (nanoseconds, packet) = cost(&[source, web, log, opened]);
        assert_eq!(nanoseconds, one + NEW_KEY + INLINE_LIMIT + NEW_CONNECTION);
        assert_eq!(packet, "protocol 6, port 443: b d");
    }

    #[test]
    fn limits_of_the_source_without_a_word_in_its_entry_are_looked_up() {
        let layer = |number| format!("{{rate: {number}/s, burst: {}}}", 100 - number);
        let layers: Vec<String> = (1..=INLINE).map(layer).collect();
        let limit = format!("{{name: n, key: source, layers: [{}]}}", layers.join(", "));
        let more = "{name: m, match: {protocol: tcp}, key: source, rate: 1/s}";
        assert_eq!(cost(&[&limit, more]).0, PACKET + INLINE as u64 * INLINE_LIMIT + NEW_KEY);
    }
}
