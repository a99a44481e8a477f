//! The words of `--match`: what a limit is about, on a command line.
//!
//! A word is one of these:
//!
//! - a key of `match` with its values: `ports:22,80`, `source_ports:53`, `source:office`, `length:64-128`;
//! - protocols, with destination ports or types of ICMP: `tcp`, `tcp:22,80`, `tcp,udp:53`, `icmp:echo-request`;
//! - `syn`: new TCP connections; `fragments`: fragments;
//! - the name of a service of the policy.
//!
//! A packet has to meet all of them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{
    names::{PORTS, PROTOCOLS, meaning, words},
    scalar::number,
    shape::MATCH,
    text::{mapping, one_or_list, scalar},
};
use crate::policy::{model::Policy, nearest::nearest, units::quoted};

/// Other names of keys, as tcpdump, nft and `ss` have them.
const ALIASES: [(&str, &str); 9] = [
    ("proto", "protocol"),
    ("port", "ports"),
    ("dport", "ports"),
    ("sport", "source_ports"),
    ("source_port", "source_ports"),
    ("src", "source"),
    ("dst", "destination"),
    ("flags", "tcp_flags"),
    ("iface", "interface"),
];

/// Examples of words, for a remedy.
const EXAMPLES: &str = "write for example tcp:22, udp:53, tcp:80,443, icmp, syn, sport:53, src:203.0.113.0/24 or \
                        dst:198.51.100.1; several words have to be met together";

/// The message and the remedy of a word that means nothing.
type Refused = (String, String);

/// Pairs of a key of `match` and its values.
type Pairs = Vec<(&'static str, Vec<String>)>;

/// The value of `match` for words, each of which may be several with spaces in between; `None` without words.
///
/// # Errors
/// The message and the remedy, for a word that means nothing, and for a key that is given twice.
pub(super) fn match_text(options: &[String], policy: &Policy) -> Result<Option<String>, Refused> {
    if options.is_empty() {
        return Ok(None);
    }
    let mut found: Pairs = Vec::new();
    for word in options.iter().flat_map(|option| option.split_whitespace()) {
        for (key, values) in pairs_of(word, policy)? {
            match found.iter().find(|(other, _)| *other == key) {
                // `tcp:22 syn` says `protocol: tcp` twice.
                Some((_, other)) if *other == values && key == "protocol" => {}
                Some(_) => {
                    return Err((
                        format!("`{key}` is given twice in `--match`"),
                        "join the values by commas, or add a limit for each".to_owned(),
                    ));
                }
                None => found.push((key, values)),
            }
        }
    }
    if found.is_empty() {
        return Err(("`--match` says nothing".to_owned(), EXAMPLES.to_owned()));
    }
    let pairs = found
        .into_iter()
        .map(|(key, values)| (key, one_or_list(values.iter().map(|value| scalar(value)))));
    Ok(Some(mapping(pairs)))
}

/// The keys and values that a word stands for.
fn pairs_of(word: &str, policy: &Policy) -> Result<Pairs, Refused> {
    let one = |key, value: &str| vec![(key, vec![value.to_owned()])];
    // First, as those of IPv6 have colons.
    if word.parse::<IpAddr>().is_ok() || word.parse::<IpNet>().is_ok() {
        let message = format!("{} may be where packets come from or go to", quoted(word));
        return Err((message, format!("write src:{word} or dst:{word}")));
    }
    if word == "syn" {
        return Ok([one("protocol", "tcp"), one("tcp_flags", "syn")].concat());
    }
    if word == "fragments" {
        return Ok(one("fragments", "true"));
    }
    let Some((key, values)) = word.split_once([':', '=']) else { return bare(word, policy) };
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    if let Some(key) = key_named(key) {
        return Ok(vec![(key, values)]);
    }
    let Some(protocols) = protocols(key) else { return Err(unknown(word, key)) };
    let of_icmp = protocols.iter().all(|name| name.starts_with("icmp"));
    let key = if of_icmp { "icmp_type" } else { "ports" };
    Ok(vec![("protocol", protocols), (key, values)])
}

/// A word without a value: protocols, or a service.
fn bare(word: &str, policy: &Policy) -> Result<Pairs, Refused> {
    if policy.services.contains_key(word) {
        return Ok(vec![("service", vec![word.to_owned()])]);
    }
    if word.split(',').any(|one| number(one).is_some()) {
        let message = format!("{} may be ports or protocols", quoted(word));
        return Err((
            message,
            format!("write tcp:{word} or udp:{word}; protocol:{word} is about IP protocols"),
        ));
    }
    if let Some(protocols) = protocols(word) {
        return Ok(vec![("protocol", protocols)]);
    }
    if key_named(word).is_some() {
        let message = format!("{} lacks its value", quoted(word));
        return Err((message, format!("join them by a colon, as {word}:22; {EXAMPLES}")));
    }
    if meaning(word, &PORTS).is_some() {
        let message = format!("{} is a port, and `--match` needs its protocol", quoted(word));
        return Err((message, format!("write tcp:{word} or udp:{word}")));
    }
    Err(unknown(word, word))
}

/// The key of `match` with this name.
fn key_named(word: &str) -> Option<&'static str> {
    let known = MATCH.keys.iter().map(|key| key.name).find(|&name| name == word);
    known.or_else(|| meaning(word, &ALIASES))
}

/// The names or numbers of protocols, if all are some.
fn protocols(words: &str) -> Option<Vec<String>> {
    let is_protocol = |word: &str| {
        meaning(word, &PROTOCOLS).is_some() || number(word).is_some_and(|number| number <= 255)
    };
    words.split(',').map(|word| is_protocol(word).then(|| word.to_owned())).collect()
}

fn unknown(word: &str, key: &str) -> Refused {
    let message = format!("{} is nothing that `--match` knows", quoted(word));
    let keys = MATCH.keys.iter().map(|key| key.name);
    let known = words(&PROTOCOLS).into_iter().chain(words(&ALIASES)).chain(keys);
    // Numbers are misspelt addresses rather than misspelt names.
    let near =
        nearest(key, known).filter(|_| !key.contains(|letter: char| letter.is_ascii_digit()));
    let remedy = match near {
        Some(near) => format!("did you mean {near}? {EXAMPLES}"),
        None => EXAMPLES.to_owned(),
    };
    (message, remedy)
}
