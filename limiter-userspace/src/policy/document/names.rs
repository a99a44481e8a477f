//! The words of the document, and what they stand for.

use crate::policy::{
    control,
    model::{GlobalMode, Missing, Mode, OfRequests, OnFailure, PacketKind, Proxied, Unproven},
};

/// The word of `ordinary` for all protocols.
pub(super) const ALL_PROTOCOLS: &str = "all";

/// A table of words and what they stand for.
pub(crate) type Words<T> = [(&'static str, T)];

/// The values of `algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    Gcra,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrent,
}

/// The values of `on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Packets,
    Requests,
}

/// The values of `headers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    None,
    Ietf,
    XRatelimit,
    RetryAfter,
}

/// The values of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Packets,
    Bytes,
    Connections,
    Syns,
}

pub(super) static GLOBAL_MODES: [(&str, GlobalMode); 2] =
    [("enforce", GlobalMode::Enforce), ("monitor", GlobalMode::Monitor)];

pub(super) static MODES: [(&str, Mode); 4] = [
    ("enforce", Mode::Enforce),
    ("monitor", Mode::Monitor),
    ("drop", Mode::Drop),
    ("off", Mode::Off),
];

pub(super) static UNPROVEN: [(&str, Unproven); 2] =
    [("ignore", Unproven::Ignore), ("block", Unproven::Block)];

pub(super) static PROXIED: [(&str, Proxied); 2] =
    [("spare", Proxied::Spare), ("block", Proxied::Block)];

pub(super) static ALGORITHMS: [(&str, Algorithm); 7] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("gcra", Algorithm::Gcra),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log", Algorithm::SlidingLog),
    ("concurrent", Algorithm::Concurrent),
];

pub(super) static ON: [(&str, On); 2] = [("packets", On::Packets), ("requests", On::Requests)];

pub(super) static MISSING: [(&str, Missing); 2] =
    [("pass", Missing::Pass), ("refuse", Missing::Refuse)];

pub(super) static HEADERS: [(&str, Header); 4] = [
    ("ietf", Header::Ietf),
    ("x-ratelimit", Header::XRatelimit),
    ("retry-after", Header::RetryAfter),
    ("none", Header::None),
];

pub(super) static ON_FAILURE: [(&str, OnFailure); 2] =
    [("open", OnFailure::Open), ("closed", OnFailure::Closed)];

pub(super) static OF_REQUESTS: [(&str, OfRequests); 3] =
    [("off", OfRequests::Off), ("advise", OfRequests::Advise), ("enforce", OfRequests::Enforce)];

pub(super) static COUNTS: [(&str, Counted); 4] = [
    ("packets", Counted::Packets),
    ("bytes", Counted::Bytes),
    ("connections", Counted::Connections),
    ("syns", Counted::Syns),
];

pub(super) static KINDS: [(&str, PacketKind); 5] = [
    ("fragment", PacketKind::Fragment),
    ("syn", PacketKind::Syn),
    ("icmp", PacketKind::Icmp),
    ("tcp", PacketKind::Tcp),
    ("udp", PacketKind::Udp),
];

/// Protocols by the names of IANA. Of several names for a number, the first is written.
pub(crate) static PROTOCOLS: [(&str, u8); 16] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
];

/// The protocols whose ports the datapath reads.
pub(crate) const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Well-known ports.
pub(crate) static PORTS: [(&str, u16); 22] = [
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("dns", 53),
    ("http", 80),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("dot", 853),
    ("imaps", 993),
    ("mysql", 3306),
    ("rdp", 3389),
    ("sip", 5060),
    ("postgresql", 5432),
    ("wireguard", 51820),
];

/// The flags of the TCP header by their bits.
pub(crate) static FLAGS: [(&str, u8); 8] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

/// The number of a type in ICMP, and in ICMPv6.
pub(crate) type IcmpType = (Option<u8>, Option<u8>);

/// Types of ICMP (RFC 792, RFC 1256) and of ICMPv6 (RFC 4443, RFC 4861), by the name that they share.
pub(crate) static ICMP_TYPES: [(&str, IcmpType); 14] = [
    ("echo-reply", (Some(0), Some(129))),
    ("echo-request", (Some(8), Some(128))),
    ("destination-unreachable", (Some(3), Some(1))),
    ("packet-too-big", (None, Some(2))),
    ("time-exceeded", (Some(11), Some(3))),
    ("parameter-problem", (Some(12), Some(4))),
    ("redirect", (Some(5), Some(137))),
    ("timestamp-request", (Some(13), None)),
    ("timestamp-reply", (Some(14), None)),
    ("router-solicitation", (Some(10), Some(133))),
    ("router-advertisement", (Some(9), Some(134))),
    ("neighbor-solicitation", (None, Some(135))),
    ("neighbor-advertisement", (None, Some(136))),
    ("source-quench", (Some(4), None)),
];

pub(super) fn global_modes() -> Vec<&'static str> {
    words(&GLOBAL_MODES)
}

pub(super) fn modes() -> Vec<&'static str> {
    words(&MODES)
}

pub(super) fn unproven() -> Vec<&'static str> {
    words(&UNPROVEN)
}

pub(super) fn proxied() -> Vec<&'static str> {
    words(&PROXIED)
}

pub(super) fn algorithms() -> Vec<&'static str> {
    words(&ALGORITHMS)
}

/// The values of `on` in a limit on packets.
pub(super) fn packets() -> Vec<&'static str> {
    word_for(&On::Packets, &ON).into_iter().collect()
}

/// The values of `on` in a limit on requests.
pub(super) fn requests() -> Vec<&'static str> {
    word_for(&On::Requests, &ON).into_iter().collect()
}

pub(super) fn missing() -> Vec<&'static str> {
    words(&MISSING)
}

pub(super) fn headers() -> Vec<&'static str> {
    words(&HEADERS)
}

/// Whether a limit that is told with a descriptor is taken.
pub(super) static OVERRIDE: [(&str, bool); 2] = [("ignore", false), ("allow", true)];

/// The words for that.
pub(super) fn override_words() -> Vec<&'static str> {
    words(&OVERRIDE)
}

pub(super) fn on_failure() -> Vec<&'static str> {
    words(&ON_FAILURE)
}

pub(super) fn of_requests() -> Vec<&'static str> {
    words(&OF_REQUESTS)
}

pub(super) fn counts() -> Vec<&'static str> {
    words(&COUNTS)
}

/// The values of `ordinary`: the names of the control protocols, and the word for all of them.
pub(super) fn ordinary() -> Vec<&'static str> {
    control::names().into_iter().chain([ALL_PROTOCOLS]).collect()
}

/// The words of a table.
pub(crate) fn words<T>(table: &Words<T>) -> Vec<&'static str> {
    table.iter().map(|&(word, _)| word).collect()
}

/// What a word stands for.
pub(crate) fn meaning<T: Copy>(word: &str, table: &Words<T>) -> Option<T> {
    table.iter().find(|&&(known, _)| known == word).map(|&(_, meaning)| meaning)
}

/// The word for a value; of several, the first.
pub(crate) fn word_for<T: PartialEq>(meant: &T, table: &Words<T>) -> Option<&'static str> {
    table.iter().find(|(_, meaning)| meaning == meant).map(|&(word, _)| word)
}
