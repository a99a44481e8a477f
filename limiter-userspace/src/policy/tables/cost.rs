//! Estimates what the most expensive packet costs under a policy.

use limiter_common::policy::limit::INLINE;

use super::{
    super::model::Policy,
    classes::{Kind, together},
    rows::{Row, Rows},
};

/// The most expensive packet: the first of its source and connection, so that each keyed limit creates a
/// state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dearest {
    /// The packet, in words.
    pub packet: String,
    /// Its time on a CPU in nanoseconds, estimated for the machine of docs/benchmarks. A busy host takes up
    /// to twice as long.
    pub nanoseconds: u64,
    /// The names of the limits that cost most of it, in the order in which they are evaluated.
    pub limits: Vec<String>,
}

// Parts of the cost of a packet, in nanoseconds, rounded, each with the row of the benchmarks that it is
// taken from. The decision without limits (`new_source_owing_64k`), an inline limit (`limits_8`), and a keyed
// limit whose key has a bucket (`key_all`).
const PACKET: u64 = 160;
const INLINE_LIMIT: u64 = 5;
const KNOWN_KEY: u64 = 20;
// A key without a bucket (`web_edge_made_up_udp`), wide state (`stacked_sliding_log`), and a SYN that opens a connection
// (`web_edge_made_up_syn`).
const NEW_KEY: u64 = 300;
const WIDE_LIMIT: u64 = 1_100;
const NEW_CONNECTION: u64 = 600;

/// The most expensive packet under a policy; `None` if no limit is about any, or if the policy has too many
/// limits.
pub fn dearest(policy: &Policy) -> Option<Dearest> {
    let rows = Rows::new(policy).ok()?;
    let all: Vec<&Row<'_>> = rows.iter().collect();
    let packets = together(&all).filter(|(_, rows)| !rows.is_empty());
    packets.map(|(kind, rows)| of(kind, &rows)).max_by_key(|dearest| dearest.nanoseconds)
}

fn of(kind: Kind, rows: &[&Row<'_>]) -> Dearest {
    let mut inline = 0;
    let mut nanoseconds = PACKET;
    let mut limits: Vec<String> = Vec::new();
    let mut opens = false;
    for row in rows {
        let is_inline = row.identity().inline && inline < INLINE;
        inline += usize::from(is_inline);
        let cost = match (row.is_wide(), is_inline) {
            _ if row.drops_at_once() => 0,
            (true, _) => WIDE_LIMIT,
            (false, true) => INLINE_LIMIT,
            (false, false) if row.has_few_keys() => KNOWN_KEY,
            (false, false) => NEW_KEY,
        };
        nanoseconds += cost;
        opens |= row.counts_connections();
        let is_dear = !is_inline && !row.drops_at_once() || row.counts_connections();
        if is_dear && !limits.contains(&row.limit.name) {
            limits.push(row.limit.name.clone());
        }
    }
    nanoseconds += if opens { NEW_CONNECTION } else { 0 };
    Dearest { packet: kind.to_string(), nanoseconds, limits }
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
        let (nanoseconds, packet) = cost(&[source, web, opened]);
        assert_eq!(nanoseconds, one + NEW_KEY + INLINE_LIMIT + NEW_CONNECTION);
        assert_eq!(packet, "protocol 6, port 443: d b");
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
