//! What the words of a command line say, if all of them are understood.
//!
//! A hint with a part of them would be about more sources or packets than was meant, or for less time. So it has
//! placeholders instead, such as `RATE`, if there is any word that is not understood.

use limiter_common::algorithm::rate::SECOND;

use super::{is_address, is_name, is_rate};
use crate::policy::units::{parse_rate, parse_time};

/// Services that are limits and ports by their name.
const SERVICES: [(&str, &str); 6] = [
    ("ssh", "tcp"),
    ("http", "tcp"),
    ("https", "tcp"),
    ("smtp", "tcp"),
    ("ntp", "udp"),
    ("dns", "udp"),
];

/// Words that are about a part of the packets.
const NARROWING: [&str; 9] =
    ["syn", "new", "established", "not", "except", "sport", "ipv4", "ipv6", "only"];

/// Prefixes to list, and for how long.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) addresses: Vec<String>,
    pub(super) time: Option<String>,
}

impl Listed {
    /// Reads the words of a command that refuses `refused`.
    pub(super) fn read(mut words: &[String], refused: &str) -> Option<Self> {
        let mut said = Self::default();
        while let [word, rest @ ..] = words {
            words = rest;
            match word.as_str() {
                "for" | "--for" | "-j" | "--json" | "--push" => {}
                "--reason" => words = rest.get(1..)?,
                _ if is_address(word) => said.addresses.push(word.clone()),
                _ if word.starts_with(|it: char| it.is_ascii_digit()) => {
                    let mut time = word.clone();
                    while let [next, after @ ..] = words
                        && let joined = format!("{time}{next}")
                        && !(is_number(&time) && next.starts_with(|it: char| it.is_ascii_digit()))
                        && parse_time(&joined).is_ok()
                    {
                        (time, words) = (joined, after);
                    }
                    parse_time(&time).ok()?;
                    once(&mut said.time, if is_number(&time) { time + "s" } else { time })?;
                }
                _ if word == refused => {
                    // The value of an option that there is not.
                    let value = rest.first().filter(|it| word.starts_with('-') && !is_address(it));
                    if value.is_some_and(|it| !it.starts_with('-')) {
                        words = &rest[1..];
                    }
                }
                _ => return None,
            }
        }
        Some(said)
    }
}

/// A limit, and what it is about.
#[derive(Debug, Default)]
pub(super) struct Limited {
    pub(super) name: Option<String>,
    pub(super) address: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) ports: Option<String>,
    rate: Option<String>,
}

impl Limited {
    /// Reads words, of which a number is a rate if `of_rate`.
    pub(super) fn read(mut words: &[&str], of_rate: bool) -> Option<Self> {
        let (mut said, mut number) = (Self::default(), None);
        while let [word, rest @ ..] = words {
            let (with_unit, lower) = (with_unit(words), word.to_ascii_lowercase());
            words = rest;
            match lower.as_str() {
                "-j" | "--json" | "ip" | "ips" | "address" | "addr" | "host" | "client" => {}
                "rate" | "--rate" | "--pps" => {
                    let rate = rest.first().filter(|it| is_rate(it))?;
                    let with_unit = self::with_unit(rest);
                    words = &rest[1 + usize::from(with_unit.is_some())..];
                    once(&mut said.rate, with_unit.unwrap_or_else(|| (*rate).to_owned()))?;
                }
                "src" | "--src" | "from" => {
                    let address = rest.first().filter(|it| is_address(it))?;
                    words = &rest[1..];
                    once(&mut said.address, (*address).to_owned())?;
                }
                "udp" | "tcp" | "icmp" => {
                    once(&mut said.protocol, lower)?;
                    if let Some(ports) = ports(rest) {
                        words = &rest[1..];
                        once(&mut said.ports, ports)?;
                    }
                }
                "port" | "dport" | "dst-port" => {
                    let ports = ports(rest);
                    words = &rest[usize::from(ports.is_some())..];
                    once(&mut said.ports, ports.unwrap_or_else(|| "PORT".to_owned()))?;
                }
                _ if is_address(word) => once(&mut said.address, (*word).to_owned())?,
                _ if with_unit.is_some() => {
                    words = &rest[1..];
                    once(&mut said.rate, with_unit?)?;
                }
                _ if is_number(word) => once(&mut number, (*word).to_owned())?,
                _ if is_rate(word) => once(&mut said.rate, (*word).to_owned())?,
                // Behind a protocol, and these words anywhere, it narrows what is meant.
                _ if NARROWING.contains(&&*lower) || said.protocol.is_some() => return None,
                _ if is_name(word) => once(&mut said.name, (*word).to_owned())?,
                _ => return None,
            }
        }
        if let Some(number) = number {
            // Beside a protocol or a service it may as well be a port.
            let is_port = said.name.as_ref().is_some_and(|name| protocol_of(name).is_some());
            let is_rate = said.protocol.is_none()
                && !is_port
                && (of_rate || said.name.is_some() || said.address.is_some());
            once(&mut said.rate, is_rate.then_some(number)?)?;
        }
        (said.ports.is_none() || said.protocol.is_some()).then_some(said)
    }

    /// Has a limit of the name of a service be about that.
    pub(super) fn be_of_service(&mut self) {
        if let (None, Some(name)) = (&self.protocol, &self.name) {
            self.protocol = protocol_of(name).map(str::to_owned);
            self.ports = self.protocol.as_ref().and(Some(name.to_lowercase()));
        }
    }

    /// The rate, or what stands for it.
    pub(super) fn rate(&self) -> &str {
        self.rate.as_deref().unwrap_or("RATE")
    }

    /// The options of a new limit for packets of a protocol.
    pub(super) fn options(&self, protocol: &str) -> String {
        let Self { ports, .. } = self;
        let to = ports.as_ref().map_or_else(String::new, |ports| format!(":{ports}"));
        let is_ssh = protocol == "tcp" && ["ssh", "22"].map(Some).contains(&ports.as_deref());
        let rate = if is_ssh && self.rate.is_none() { "5/min" } else { self.rate() };
        // So few packets of TCP are not one connection.
        let are_few =
            parse_rate(rate).is_ok_and(|it| it.packets.saturating_mul(SECOND) < it.period);
        match is_ssh || are_few && protocol == "tcp" {
            true => format!("--match tcp{to} --count connections --rate {rate} --burst 5"),
            false => format!("--match {protocol}{to} --rate {rate}"),
        }
    }
}

/// Puts what is said only once.
fn once<T>(said: &mut Option<T>, value: T) -> Option<()> {
    said.replace(value).is_none().then_some(())
}

/// The rate that the first of some words is together with the unit after it, as in `1000 pps`.
fn with_unit(words: &[&str]) -> Option<String> {
    let [number, unit, ..] = words else { return None };
    let joined = format!("{number}{unit}");
    let is_unit = is_number(number) && !unit.starts_with(|it: char| it.is_ascii_digit());
    (is_unit && is_rate(&joined)).then_some(joined)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The ports that some words begin with: a number that has no unit after it, several between commas, or a service.
fn ports(words: &[&str]) -> Option<String> {
    let are_numbers =
        |word: &str| word.split(',').all(|it| is_number(it) && it.parse::<u16>().is_ok());
    let first = words.first().filter(|it| are_numbers(it) || protocol_of(it).is_some())?;
    with_unit(words).is_none().then(|| first.to_lowercase())
}

/// The protocol of a service.
fn protocol_of(service: &str) -> Option<&'static str> {
    SERVICES.iter().find(|it| it.0.eq_ignore_ascii_case(service)).map(|it| it.1)
}
