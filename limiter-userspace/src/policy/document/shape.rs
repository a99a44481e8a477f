//! The keys of the document, in tables that both the reader and the schema use.

pub(super) mod request;

use super::names;
use crate::policy::model::Limit;

/// The version of the document format.
pub const VERSION: u64 = 1;
/// The largest number of limits on packets in a document.
pub const LIMITS: usize = 64;

/// The keys of a mapping.
#[derive(Debug)]
pub(super) struct Shape {
    /// The noun for it in messages, such as "a limit".
    pub(super) what: &'static str,
    pub(super) keys: &'static [KeyOf],
}

/// A key of a mapping.
#[derive(Debug)]
pub(super) struct KeyOf {
    pub(super) name: &'static str,
    pub(super) needed: bool,
    pub(super) kind: Kind,
    /// The description in the schema; it is also the remedy if a needed key is missing.
    pub(super) doc: &'static str,
}

/// The syntax of a value. Its meaning is checked where it is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// The version of the document.
    Version,
    /// A single value with a parser of its own, with examples.
    Text(&'static [&'static str]),
    /// A whole number in a range.
    Whole(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of several words.
    Word(fn() -> Vec<&'static str>),
    /// A name that the operator chose.
    Name,
    /// A list.
    List(&'static Kind),
    /// One value or a list of them.
    OneOrMore(&'static Kind),
    /// A mapping.
    Map(&'static Shape),
    /// A single value, or a mapping.
    TextOrMap(&'static [&'static str], &'static Shape),
    /// A mapping whose keys are names that the operator chose.
    Named(&'static Kind),
    /// A mapping whose keys are any texts.
    ByText(&'static Kind),
    /// A mapping that may have names that the operator chose beside its keys.
    Open(&'static Shape, &'static Kind),
    /// A mapping of one of two shapes.
    Either(&'static Shape, &'static Shape),
}

use Kind::{
    Either, Flag, List, Map, Name, Named, OneOrMore, Text, TextOrMap, Version, Whole, Word,
};

/// The parts of limits on packets and of limits on requests: the limit, its match, and others.
static PARTS: [[&Shape; 6]; 2] = [
    [&LIMIT, &MATCH, &COSTS, &LAYER, &OVERRIDE, &ALLOWANCE],
    [
        &request::LIMIT,
        &request::MATCH,
        &request::COSTS,
        &request::LAYER,
        &request::OVERRIDE,
        &request::ALLOWANCE,
    ],
];

/// The other kind of limits, and a remedy, for a key that only those have in the same part or in their match.
pub(super) fn of_other_kind(
    shape: &'static Shape,
    key: &str,
) -> Option<(&'static str, &'static str)> {
    let has = |shape: &Shape| shape.keys.iter().any(|known| known.name == key);
    let [packets, requests] = &PARTS;
    let kinds = [
        (
            (packets, requests),
            ("limits on requests", "remove it, or write `on: requests` in the limit"),
        ),
        ((requests, packets), ("limits on packets", "remove it, or `on: requests` of the limit")),
    ];
    kinds.into_iter().find_map(|((own, others), told)| {
        let place = own.iter().position(|part| std::ptr::eq(*part, shape))?;
        let [limit, matching, ..] = own;
        let is_own = has(limit) || has(matching);
        let [_, matching, ..] = others;
        (!is_own && (has(others.get(place)?) || has(matching))).then_some(told)
    })
}

const fn needed(name: &'static str, kind: Kind, doc: &'static str) -> KeyOf {
    KeyOf { name, needed: true, kind, doc }
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> KeyOf {
    KeyOf { name, needed: false, kind, doc }
}

const PREFIX: Kind = Text(&["203.0.113.9", "203.0.113.0/24", "2001:db8::/48"]);
const WHOM: Kind = Text(&["office", "203.0.113.0/24"]);
const PORT: Kind = Text(&["80", "8000-8010", "ssh"]);
const PROTOCOL: Kind = Text(&["tcp", "udp", "icmp", "47"]);
const RATE: Kind = Text(&["10k pps", "100/min", "2Mbit/s"]);
const AMOUNT: Kind = Text(&["400", "2k", "64kB", "200ms"]);
const DURATION: Kind = Text(&["500ms", "10s", "5m", "1h30m", "1w"]);
const COST: Kind = Whole(1, 65_535);
const KEY_DOC: &str = "What packets must share to be counted together; a list joins.";
const SHADOWED_DOC: &str = "It may have no effect: a list that is asked first may have all of it, or `match` leave it out.";
const PRECISE_DOC: &str = "Exact to the packet: each is charged by the clock, which takes longer; none by the tick, none in advance.";
const SHARED_DOC: &str = "The factor of rate and burst for the bucket that newcomers share when the table is full; 16 by default.";
/// The keys of limits on packets that are a word.
pub(crate) const KEYS: [&str; 8] = [
    "source",
    "source/24",
    "destination",
    "destination_port",
    "connection",
    "tenant",
    "interface",
    "all",
];
const KEY_KIND: Kind = OneOrMore(&TextOrMap(&KEYS, &KEY_SOURCE));

/// The document.
pub(super) static DOCUMENT: Shape = Shape {
    what: "a policy",
    keys: &[
        needed("version", Version, "The version of the document, 1."),
        key("mode", Word(names::global_modes), "`monitor`: nothing is dropped, only counted."),
        key("defaults", Map(&DEFAULTS), "What holds for all limits."),
        key("sets", Named(&Map(&PREFIXES)), "Named sets of prefixes."),
        key("tenants", Named(&Map(&PREFIXES)), "Named groups of prefixes; the longest decides."),
        key("services", Named(&Map(&SERVICE)), "Names for ports."),
        key(
            "attributes",
            Named(&Map(&request::ATTRIBUTE)),
            "Named properties of requests, for limits on requests.",
        ),
        key("allow", List(&TextOrMap(&["office"], &LISTED)), "Never limited, never penalised."),
        key("deny", List(&TextOrMap(&["192.0.2.0/24"], &LISTED)), "Dropped."),
        key("penalties", List(&TextOrMap(&["192.0.2.9"], &LISTED)), "Blocked by hand."),
        key("control", TextOrMap(&["off"], &CONTROL), "Budgets of the link's own control traffic."),
        key(
            "non_ip",
            Map(&BUDGET),
            "What each interface admits of what is not IP; all, if not given.",
        ),
        key(
            "limits",
            List(&Either(&LIMIT, &request::LIMIT)),
            "Evaluated from the top; all that match must admit.",
        ),
    ],
};

/// `control`.
pub(super) static CONTROL: Shape = Shape {
    what: "`control`",
    keys: &[
        key("budget", Map(&BUDGET), "Of each protocol on each interface; 1000/s, burst 2000."),
        key("per_source", Map(&BUDGET), "Of each source of a protocol; 500/s, burst 1000."),
        key("far", Map(&BUDGET), "Of each source that may be forged; 10/s, burst 20."),
        key("ordinary", OneOrMore(&Word(names::ordinary)), "Protocols that have none."),
        key("overrides", List(&Map(&CONTROL_OVERRIDE)), "Budgets of some interfaces."),
    ],
};

/// An override of `control`.
pub(super) static CONTROL_OVERRIDE: Shape = Shape {
    what: "an override of `control`",
    keys: &[
        needed("interface", OneOrMore(&Text(&["eth0"])), "The interfaces."),
        key("budget", Map(&BUDGET), "See that of `control`."),
        key("per_source", Map(&BUDGET), "See that of `control`."),
        key("far", Map(&BUDGET), "See that of `control`."),
        key("ordinary", OneOrMore(&Word(names::ordinary)), "See that of `control`."),
    ],
};

/// A budget of control traffic, or of what is not IP.
pub(super) static BUDGET: Shape = Shape {
    what: "a budget",
    keys: &[
        needed("rate", RATE, "Packets that are admitted in the long run."),
        key("burst", AMOUNT, "Packets that are admitted at once after a rest."),
    ],
};

/// `defaults`.
pub(super) static DEFAULTS: Shape = Shape {
    what: "`defaults`",
    keys: &[key("key_prefix", Map(&LENGTHS), "The prefix lengths that make a source.")],
};

/// Prefix lengths.
pub(super) static LENGTHS: Shape = Shape {
    what: "prefix lengths",
    keys: &[key("ipv4", Whole(0, 32), "Of IPv4."), key("ipv6", Whole(0, 128), "Of IPv6.")],
};

/// A set or a tenant.
pub(super) static PREFIXES: Shape = Shape {
    what: "a set of prefixes",
    keys: &[
        key("cidrs", List(&PREFIX), "Prefixes or addresses."),
        key("file", Text(&["/etc/limiter/cdn.txt"]), "A file with a prefix on each line."),
    ],
};

/// A service.
pub(super) static SERVICE: Shape = Shape {
    what: "a service",
    keys: &[
        needed("protocol", OneOrMore(&PROTOCOL), "Names or numbers of protocols."),
        key("ports", OneOrMore(&PORT), "Destination ports."),
    ],
};

/// An entry of `allow`, `deny` or `penalties` with a time.
pub(super) static LISTED: Shape = Shape {
    what: "an entry",
    keys: &[
        needed("src", WHOM, "The name of a set, or a prefix."),
        key(
            "until",
            Text(&["2027-01-31T18:00:00Z", "2027-01-31T19:00:00+01:00", "2027-01-31"]),
            "When it ends: a time with its offset from UTC, or a date, which begins at 00:00 UTC.",
        ),
        key("shadowed", Flag, SHADOWED_DOC),
    ],
};

/// A limit.
pub(super) static LIMIT: Shape = Shape {
    what: "a limit",
    keys: &[
        needed("name", Name, "The name of the limit, unique in the policy."),
        key(
            "on",
            Word(names::packets),
            "What it limits: packets, which is the default. Limits on requests have other keys.",
        ),
        key("match", Map(&MATCH), "Which packets; all that is given must hold."),
        key("shadowed", Flag, SHADOWED_DOC),
        key("key", KEY_KIND, KEY_DOC),
        key("count", Word(names::counts), "What of a packet is counted; packets by default."),
        key("cost", Map(&COSTS), "What a packet costs by its kind, in place of `count`."),
        key(
            "action",
            Word(names::modes),
            "`monitor` counts what it would drop; `drop` drops all that matches; `off` nothing.",
        ),
        key("algorithm", Word(names::algorithms), "How it decides; token_bucket by default."),
        key("rate", RATE, "What is admitted in the long run."),
        key("burst", AMOUNT, "token_bucket: what is admitted at once after a rest."),
        key("depth", AMOUNT, "leaky_bucket: what the queue holds."),
        key("tolerance", AMOUNT, "gcra: how early packets may come, or how many at once."),
        key("limit", AMOUNT, "Windows: what one admits; concurrent: open connections."),
        key("window", DURATION, "Windows: how long one is."),
        key("idle", DURATION, "concurrent: a connection is closed after so long; 5m by default."),
        key("layers", List(&Map(&LAYER)), "Several rates, all of which must admit."),
        key("unlimited", Flag, "In place of a rate: only those with an override are limited."),
        key("candidate", Map(&ALLOWANCE), "Counted beside the live rate, never enforced."),
        key("penalty", Map(&PENALTY), "What becomes of sources that stay over the limit."),
        key(
            "requests",
            Word(names::of_requests),
            "What requests learn of what the source has left: nothing (`off`, the default), that (`advise`), or 429 where it is little (`enforce`).",
        ),
        key("precise", Flag, PRECISE_DOC),
        key("shared", Whole(1, Limit::MOST_SHARED as u64), SHARED_DOC),
        key("overrides", List(&Map(&OVERRIDE)), "What it admits to some instead."),
    ],
};

/// An allowance where nothing else is given: of a candidate, or of a layer of an override.
pub(super) static ALLOWANCE: Shape = Shape {
    what: "a rate",
    keys: &[
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};

/// A layer.
pub(super) static LAYER: Shape = Shape {
    what: "a layer",
    keys: &[
        key("key", KEY_KIND, "A key of its own, in a ladder."),
        key("algorithm", Word(names::algorithms), "That of the limit by default."),
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};

/// An override.
pub(super) static OVERRIDE: Shape = Shape {
    what: "an override",
    keys: &[
        key("src", PREFIX, "Sources within a prefix; the longest decides."),
        key("tenant", Name, "Sources of a tenant."),
        key("unlimited", Flag, "Not limited at all."),
        key("shadowed", Flag, SHADOWED_DOC),
        key("layers", List(&Map(&ALLOWANCE)), "One for each layer of the limit."),
        key("rate", RATE, "See the limit's."),
        key("burst", AMOUNT, "See the limit's."),
        key("depth", AMOUNT, "See the limit's."),
        key("tolerance", AMOUNT, "See the limit's."),
        key("limit", AMOUNT, "See the limit's."),
        key("window", DURATION, "See the limit's."),
        key("idle", DURATION, "See the limit's."),
    ],
};

/// `match`.
pub(super) static MATCH: Shape = Shape {
    what: "`match`",
    keys: &[
        key("service", Name, "Protocols and ports of a service."),
        key("protocol", OneOrMore(&PROTOCOL), "Names or numbers of protocols."),
        key("ports", OneOrMore(&PORT), "Destination ports."),
        key("source_ports", OneOrMore(&PORT), "Source ports, as answers of DNS or NTP have them."),
        key("tcp_flags", OneOrMore(&Text(&["syn", "syn,!ack"])), "Set, or with `!` not set."),
        key("icmp_type", OneOrMore(&Text(&["echo-request", "8"])), "Types of ICMP."),
        key("fragments", Flag, "`true`: only fragments; `false`: none."),
        key("length", Text(&["64-128"]), "Bytes of the frame, from the Ethernet header on."),
        key("interface", OneOrMore(&Text(&["eth0"])), "The interface it came in by."),
        key("source", OneOrMore(&WHOM), "Sets or prefixes with the source."),
        key("destination", OneOrMore(&WHOM), "Sets or prefixes with the destination."),
        key("except", OneOrMore(&WHOM), "Sets or prefixes without the source."),
        key("except_destination", OneOrMore(&WHOM), "Sets or prefixes without the destination."),
    ],
};

/// `key: {source: ...}`.
pub(super) static KEY_SOURCE: Shape =
    Shape { what: "a key", keys: &[needed("source", Map(&LENGTHS), "Prefix lengths of its own.")] };

/// `cost`.
pub(super) static COSTS: Shape = Shape {
    what: "`cost`",
    keys: &[
        key("default", COST, "Of packets of no other kind; 1 by default."),
        key("fragment", COST, "Of fragments."),
        key("syn", COST, "Of TCP with SYN and without ACK."),
        key("icmp", COST, "Of ICMP and ICMPv6."),
        key("tcp", COST, "Of TCP."),
        key("udp", COST, "Of UDP."),
    ],
};

/// `penalty`.
pub(super) static PENALTY: Shape = Shape {
    what: "`penalty`",
    keys: &[
        needed("after", DURATION, "How long over the limit until a source is blocked."),
        needed("block", DURATION, "How long it is blocked the first time."),
        key("backoff", Whole(1, 10), "How many times as long each next time; 2 by default."),
        key("max", DURATION, "The longest block; 1h by default."),
        key(
            "unproven",
            Word(names::unproven),
            "Whether packets count that no connection to this host proves: `ignore` (the default) or `block`.",
        ),
    ],
};
