//! Dropped packets, as they are printed: a line for each, and at the end what most of them have in common.

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt,
    io::Write,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use limiter_common::packet::protocol::UNKNOWN_PROTOCOL;
use serde_json::{Value, json};

use super::{
    number::{grouped, share},
    stream::{Output, OutputError},
    table::{Cell, Column, GAP, Table},
    timestamp::utc,
    tone::Tone,
};
use crate::{
    policy::document::names::FLAGS,
    query::{
        dropped::{Content, Dropped, Headers},
        words::protocol_name,
    },
};

/// The JSON schema of a packet.
const SCHEMA: &str = "limiter.drop/1";
/// The JSON schema of the summary.
const SUMMARY: &str = "limiter.drops/1";
/// The most rows of each part of the summary.
const ROWS: usize = 10;
/// The most different values that are counted of a kind, so that sources that are made up take no more memory.
const MOST: usize = 1 << 16;

/// Prints the titles of the lines; JSON has none.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
pub fn titles<W: Write>(output: &mut Output<W>) -> Result<(), OutputError> {
    if output.is_json() {
        return Ok(());
    }
    write_line(output, ["TIME", "INTERFACE", "VERDICT", "REASON", "LIMIT", "BYTES"], "PACKET")
}

/// Prints a packet.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, dropped: &Dropped) -> Result<(), OutputError> {
    if output.is_json() {
        return output.shape(SCHEMA, &json(dropped));
    }
    let limit = dropped.limit.as_deref().unwrap_or("-");
    let (time, bytes) = (clock(dropped.time), dropped.bytes.to_string());
    let cells = [&time, &dropped.interface, verdict(dropped), dropped.reason.name(), limit, &bytes];
    write_line(output, cells, &dropped.content.to_string())
}

/// Writes a line in columns. What is wider than its column moves the rest.
fn write_line<W: Write>(
    output: &mut Output<W>,
    [time, interface, verdict, reason, limit, bytes]: [&str; 6],
    packet: &str,
) -> Result<(), OutputError> {
    writeln!(
        output,
        "{time:<15}{GAP}{interface:<9}{GAP}{verdict:<9}{GAP}{reason:<8}{GAP}{limit:<10}{GAP}\
         {bytes:>5}{GAP}{packet}"
    )
}

/// What became of a packet: `dropped`, or `monitored` if it passed.
const fn verdict(dropped: &Dropped) -> &'static str {
    if dropped.monitored { "monitored" } else { "dropped" }
}

/// What dropped a packet, in a word or two: the limit or the reason, marked if it is only monitored.
pub fn line(dropped: &Dropped) -> String {
    let by = dropped.limit.as_deref().unwrap_or_else(|| dropped.reason.name());
    if dropped.monitored { format!("monitor: {by}") } else { by.to_owned() }
}

/// Where a packet comes from, without the port.
pub fn source(content: &Content) -> String {
    match content {
        Content::Ip(headers) => headers.source.to_string(),
        Content::Other(_) => String::new(),
    }
}

/// What a packet is sent to, in a word or two: the port and the protocol.
pub fn service(content: &Content) -> String {
    match content {
        Content::Ip(Headers { ports: Some(ports), protocol: number, .. }) => {
            format!("{}/{}", ports.destination, protocol(*number))
        }
        Content::Ip(headers) => protocol(headers.protocol),
        other => other.to_string(),
    }
}

/// The time of day in UTC, to the second.
pub fn time_of_day(time: SystemTime) -> String {
    let date = utc(time);
    let of_day = date.split_once('T').map_or("", |(_, of_day)| of_day);
    of_day.trim_end_matches('Z').to_owned()
}

/// The time of day in UTC, to the microsecond.
fn clock(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:06}", time_of_day(time), since.subsec_micros())
}

fn json(dropped: &Dropped) -> Value {
    let since = dropped.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut value = json!({
        "time": since.as_secs_f64(),
        "interface": dropped.interface,
        "verdict": verdict(dropped),
        "reason": dropped.reason.name(),
        "limit": dropped.limit,
        "bytes": dropped.bytes,
    });
    let more = match &dropped.content {
        Content::Ip(headers) => json!({
            "source": headers.source,
            "destination": headers.destination,
            "protocol": protocol(headers.protocol),
            "source_port": headers.ports.map(|ports| ports.source),
            "destination_port": headers.ports.map(|ports| ports.destination),
            "flags": headers.flags.map(flags),
            "icmp_type": headers.icmp,
            "fragment": headers.fragment,
        }),
        Content::Other(kind) => json!({ "ethertype": kind }),
    };
    if let (Some(members), Value::Object(more)) = (value.as_object_mut(), more) {
        members.extend(more);
    }
    value
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(headers) => write!(f, "{headers}"),
            Self::Other(Some(kind)) => write!(f, "ethertype 0x{kind:04x}"),
            Self::Other(None) => write!(f, "no header"),
        }
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol: number, ports, flags: bits, icmp, fragment } =
            self;
        match ports {
            Some(ports) => {
                let source = SocketAddr::new(*source, ports.source);
                write!(f, "{source} > {}", SocketAddr::new(*destination, ports.destination))?;
            }
            None => write!(f, "{source} > {destination}")?,
        }
        write!(f, "/{}", protocol(*number))?;
        if let Some(bits) = bits {
            write!(f, " {}", flags(*bits))?;
        }
        if let Some(kind) = icmp {
            write!(f, " type {kind}")?;
        }
        if *fragment { write!(f, " fragment") } else { Ok(()) }
    }
}

/// The name of a protocol.
fn protocol(number: u8) -> String {
    if number == UNKNOWN_PROTOCOL { "unknown".to_owned() } else { protocol_name(number) }
}

/// TCP flags, as `limiter test --flags` takes them.
fn flags(bits: u8) -> String {
    let names: Vec<_> =
        FLAGS.iter().filter(|(_, flag)| bits & flag != 0).map(|(name, _)| *name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// What packets have in common, by how many have it.
#[derive(Clone, Debug, Default)]
pub struct Tops {
    packets: u64,
    /// By reason and limit, protocol, destination port, and source.
    kinds: [HashMap<String, u64>; 4],
}

/// The title and the JSON member of each kind.
const KINDS: [(&str, &str); 4] = [
    ("LIMIT OR REASON", "limits"),
    ("PROTOCOL", "protocols"),
    ("PORT", "ports"),
    ("SOURCE", "sources"),
];

impl Tops {
    /// Counts a packet.
    pub fn add(&mut self, dropped: &Dropped) {
        self.packets += 1;
        let limit = dropped.limit.clone().unwrap_or_else(|| dropped.reason.name().to_owned());
        let [of_limits, of_protocols, of_ports, of_sources] = &mut self.kinds;
        count(of_limits, limit);
        let content = &dropped.content;
        match content {
            Content::Ip(headers) => {
                if headers.ports.is_some() {
                    count(of_ports, service(content));
                }
                count(of_sources, source(content));
                count(of_protocols, protocol(headers.protocol));
            }
            other => count(of_protocols, other.to_string()),
        }
    }

    /// The number of packets.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// The most frequent values of each kind, at most so many, with how many packets have them.
    pub fn most(&self, rows: usize) -> [Vec<(&str, u64)>; 4] {
        self.kinds.each_ref().map(|kind| {
            let mut values: Vec<_> = kind.iter().map(|(it, count)| (it.as_str(), *count)).collect();
            values.sort_by_key(|(value, count)| (Reverse(*count), *value));
            values.truncate(rows);
            values
        })
    }

    /// Prints the summary, after so much time. `missed` packets were dropped and not shown, if that is known.
    ///
    /// # Errors
    /// [`OutputError`], if it cannot be written.
    pub fn print<W: Write>(
        &self,
        output: &mut Output<W>,
        time: Duration,
        missed: Option<u64>,
    ) -> Result<(), OutputError> {
        if output.is_json() {
            return output.shape(SUMMARY, &self.json(time, missed));
        }
        let shown = match self.packets {
            1 => "1 packet was shown".to_owned(),
            packets => format!("{} packets were shown", grouped(packets)),
        };
        match missed {
            Some(missed) => writeln!(output, "{shown}, and {} were not", grouped(missed))?,
            None => writeln!(output, "{shown}")?,
        }
        for ((title, _), rows) in KINDS.iter().zip(self.most(ROWS)) {
            if rows.is_empty() {
                continue;
            }
            let columns = [Column::left(*title), Column::right("PACKETS"), Column::right("SHARE")];
            let mut table = Table::new(columns);
            for (value, packets) in rows {
                let share = share(packets as f64, self.packets as f64);
                table.row([Cell::new(value, Tone::Strong), grouped(packets).into(), share.into()]);
            }
            writeln!(output)?;
            output.table(&table)?;
        }
        Ok(())
    }

    fn json(&self, time: Duration, missed: Option<u64>) -> Value {
        let mut value = json!({
            "seconds": (time.as_secs_f64() * 1000.0).round() / 1000.0,
            "packets": self.packets,
            "not_shown": missed,
        });
        for ((_, member), rows) in KINDS.iter().zip(self.most(ROWS)) {
            let row = |(value, packets): (&str, u64)| json!({ "value": value, "packets": packets });
            value[*member] = rows.into_iter().map(row).collect();
        }
        value
    }
}

/// Counts a value, unless there are too many different ones.
fn count(kind: &mut HashMap<String, u64>, value: String) {
    if kind.len() < MOST || kind.contains_key(&value) {
        *kind.entry(value).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::{memory::sample::Sampling, packet::reason::Reason};

    use super::*;
    use crate::{
        output::stream::printed,
        query::dropped::tests::{names, sample, syn},
    };

    fn dropped(frame: &[u8], reason: Reason, tally: u32) -> Dropped {
        let now = UNIX_EPOCH + Duration::from_micros(1_800_000_000_123_456);
        Dropped::of(&sample(frame, reason, tally), &names(), now, 5_000)
    }

    #[test]
    fn a_dropped_packet_is_a_line() {
        let text = printed(false, false, |output| {
            titles(output)?;
            print(output, &dropped(&syn(), Reason::Exceed, 3))?;
            print(output, &dropped(&syn(), Reason::Monitor, 3))?;
            print(output, &dropped(&[0; 60], Reason::NonIpExceed, Sampling::NO_LIMIT))
        });
        assert_eq!(
            text,
            "\
TIME             INTERFACE  VERDICT    REASON    LIMIT       BYTES  PACKET
08:00:00.123456  eth0       dropped    exceed    ssh            60  192.0.2.7:40000 > 198.51.100.1:22/tcp syn
08:00:00.123456  eth0       monitored  exceed    ssh            60  192.0.2.7:40000 > 198.51.100.1:22/tcp syn
08:00:00.123456  eth0       dropped    non_ip_exceed  -              60  ethertype 0x0000
"
        );
    }

    #[test]
    fn a_dropped_packet_is_an_object() {
        let told = |dropped: &Dropped| -> Value {
            let text = printed(true, false, |output| print(output, dropped));
            serde_json::from_str(&text).unwrap()
        };
        let value = told(&dropped(&syn(), Reason::Exceed, 3));
        assert_eq!((&value["schema"], &value["limit"]), (&SCHEMA.into(), &"ssh".into()));
        assert_eq!((&value["source"], &value["flags"]), (&"192.0.2.7".into(), &"syn".into()));
        assert_eq!((&value["destination_port"], &value["bytes"]), (&22.into(), &60.into()));
        let value = told(&dropped(&[0; 60], Reason::NonIpExceed, Sampling::NO_LIMIT));
        assert_eq!((&value["limit"], &value["ethertype"]), (&Value::Null, &0.into()));
    }

    #[test]
    fn a_summary_has_shares_and_what_was_not_shown() {
        let mut tops = Tops::default();
        for _ in 0..3 {
            tops.add(&dropped(&syn(), Reason::Exceed, 3));
        }
        tops.add(&dropped(&[0; 60], Reason::NonIpExceed, Sampling::NO_LIMIT));
        let time = Duration::from_millis(2_500);
        let text = printed(false, false, |output| tops.print(output, time, Some(1_234)));
        assert_eq!(
            text,
            "\
4 packets were shown, and 1,234 were not

LIMIT OR REASON  PACKETS  SHARE
ssh                    3  75.0%
non_ip_exceed          1  25.0%

PROTOCOL          PACKETS  SHARE
tcp                     3  75.0%
ethertype 0x0000        1  25.0%

PORT    PACKETS  SHARE
22/tcp        3  75.0%

SOURCE     PACKETS  SHARE
192.0.2.7        3  75.0%
"
        );
        let text = printed(true, false, |output| tops.print(output, time, None));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["packets"], &value["not_shown"]), (&4.into(), &Value::Null));
        assert_eq!(value["ports"][0], json!({ "value": "22/tcp", "packets": 3 }));
    }

    #[test]
    fn made_up_sources_take_no_more_memory() {
        let mut kind = HashMap::new();
        for number in 0..2 * MOST {
            count(&mut kind, number.to_string());
        }
        count(&mut kind, "0".to_owned());
        assert_eq!((kind.len(), kind["0"]), (MOST, 2));
    }
}
