//! Reading and writing what is said of packets: protocols, ports, flags, types.

use std::net::IpAddr;

use super::InquiryError;
use crate::policy::{
    spec::names::{
        FLAGS, ICMP_TYPES, PORTS, PROTOCOLS, WITH_PORTS, Words, meaning, word_for, words,
    },
    units::quoted,
};

/// The number of ICMP for IPv6.
const ICMPV6: u8 = 58;
const ICMP: u8 = 1;
const TCP: u8 = 6;

/// The address and, if they are given, the port and the protocol in `ADDRESS[:PORT][/PROTO]`; IPv6
/// addresses are in brackets before a port.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_target(text: &str) -> Result<(IpAddr, Option<u16>, Option<u8>), InquiryError> {
    let refused = |fault, examples: String| InquiryError::Value {
        what: "source",
        value: quoted(text),
        fault,
        examples,
    };
    let fault = |fault| {
        let examples = "give an address, alone or with a port and a protocol, such as 203.0.113.9, \
                        203.0.113.9:443/tcp, 203.0.113.9/icmp or [2001:db8::1]:53/udp";
        refused(fault, examples.to_owned())
    };
    let (place, protocol) = match text.rsplit_once('/') {
        Some((place, protocol)) => (place, Some(protocol)),
        None => (text, None),
    };
    let (address, port) = match (place.strip_prefix('['), place.rsplit_once(':')) {
        (Some(rest), _) => match rest.split_once(']') {
            Some((address, "")) => (address, None),
            Some((address, port)) => {
                let port = port.strip_prefix(':').ok_or_else(|| fault("is not understood"))?;
                (address, Some(port))
            }
            None => return Err(fault("has a bracket that does not close")),
        },
        // More than one colon: an IPv6 address without a port.
        (None, Some((address, port))) if !address.contains(':') => (address, Some(port)),
        (None, _) => (place, None),
    };
    let address: IpAddr = address.parse().map_err(|_| fault("does not begin with an address"))?;
    check_family("source", text, address)?;
    if port.is_none() && protocol.is_some_and(|length| is_prefix_length(length, address)) {
        return Err(fault("has a prefix length, where only a protocol can be"));
    }
    let protocol = protocol.map(|text| parse_protocol(text, address.is_ipv4())).transpose()?;
    let port = port.map(|text| parse_port("port", text)).transpose()?;
    if port.is_some() && protocol.is_some_and(|protocol| !has_ports(protocol)) {
        return Err(fault("has a port, and its protocol has none"));
    }
    if port.is_none()
        && protocol.is_some_and(has_ports)
        && let Some((address, end)) = place.rsplit_once(':')
        && address.parse::<IpAddr>().is_ok()
        && parse_port("port", end).is_ok()
    {
        let name = text.rsplit_once('/').map_or("tcp", |(_, name)| name);
        return Err(refused(
            "ends with what may be a port or of the address",
            format!(
                "write [{address}]:{end}/{name}, or, if all of it is the address, [{place}]/{name}"
            ),
        ));
    }
    Ok((address, port, protocol))
}

/// An address.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_address(what: &'static str, text: &str) -> Result<IpAddr, InquiryError> {
    let address = text.trim().parse().map_err(|_| InquiryError::Value {
        what,
        value: quoted(text),
        fault: "is no address",
        examples: "give an address, such as 203.0.113.9 or 2001:db8::1".to_owned(),
    })?;
    check_family(what, text, address)?;
    Ok(address)
}

/// Refuses an address of the family that it is not of.
fn check_family(what: &'static str, text: &str, address: IpAddr) -> Result<(), InquiryError> {
    let plain = address.to_canonical();
    if plain == address {
        return Ok(());
    }
    Err(InquiryError::Value {
        what,
        value: quoted(text),
        fault: "has an IPv4 address in IPv6 notation",
        examples: format!("write {plain}"),
    })
}

/// Whether a text after an address is a length that a prefix of it can have.
fn is_prefix_length(text: &str, address: IpAddr) -> bool {
    let most = if address.is_ipv4() { 32 } else { 128 };
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse().is_ok_and(|it: u8| it <= most)
}

/// Whether packets of a protocol have the flags and the type that are asked for.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn check_protocol(
    protocol: u8,
    ipv4: bool,
    flags: Option<&str>,
    icmp: Option<&str>,
) -> Result<(), InquiryError> {
    let of_family = if ipv4 { ICMP } else { ICMPV6 };
    for (what, value, owner) in [("flags", flags, TCP), ("type of ICMP", icmp, of_family)] {
        if let Some(value) = value.filter(|_| protocol != owner) {
            return Err(InquiryError::Value {
                what,
                value: quoted(value),
                fault: "is nothing that packets of the protocol have",
                examples: format!(
                    "leave it out, or give the protocol {} instead of {}",
                    protocol_name(owner),
                    protocol_name(protocol)
                ),
            });
        }
    }
    Ok(())
}

/// A protocol by its name or number; `icmp` is that of the family.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_protocol(text: &str, ipv4: bool) -> Result<u8, InquiryError> {
    let lower = text.to_ascii_lowercase();
    if lower == "icmp" {
        return Ok(if ipv4 { ICMP } else { ICMPV6 });
    }
    number_or_word("protocol", text, &lower, &PROTOCOLS)
}

/// A port by its number or the name of a well-known service.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_port(what: &'static str, text: &str) -> Result<u16, InquiryError> {
    number_or_word(what, text, &text.to_ascii_lowercase(), &PORTS)
}

/// The flags of TCP in a list of names, such as `syn,ack`; `none` for none.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_flags(text: &str) -> Result<u8, InquiryError> {
    let lower = text.to_ascii_lowercase();
    if lower == "none" {
        return Ok(0);
    }
    lower.split(',').try_fold(0, |flags, word| match meaning(word.trim(), &FLAGS) {
        Some(flag) => Ok(flags | flag),
        None => Err(InquiryError::Value {
            what: "flags",
            value: quoted(text),
            fault: "are not flags of TCP",
            examples: format!(
                "give some of {}, with commas between them, or none",
                words(&FLAGS).join(", ")
            ),
        }),
    })
}

/// A type of ICMP, or of ICMPv6, by its name or number.
///
/// # Errors
/// [`InquiryError::Value`].
pub fn parse_icmp(text: &str, ipv4: bool) -> Result<u8, InquiryError> {
    let lower = text.to_ascii_lowercase();
    let of_family = |(four, six)| if ipv4 { four } else { six };
    if let Some(number) = meaning(&lower, &ICMP_TYPES).and_then(of_family) {
        return Ok(number);
    }
    lower.parse().map_err(|_| InquiryError::Value {
        what: "type of ICMP",
        value: quoted(text),
        fault: "is not known for this family",
        examples: "give a number up to 255, or a name such as echo-request".to_owned(),
    })
}

fn number_or_word<T: Copy + std::str::FromStr>(
    what: &'static str,
    text: &str,
    lower: &str,
    table: &Words<T>,
) -> Result<T, InquiryError> {
    if let Some(number) = meaning(lower, table) {
        return Ok(number);
    }
    // A sign is nothing that a number here has.
    let digits = !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_digit());
    lower.parse().ok().filter(|_| digits).ok_or_else(|| InquiryError::Value {
        what,
        value: quoted(text),
        fault: "is neither a number nor a known name",
        examples: format!("give a number, or one of {}", words(table).join(", ")),
    })
}

/// Whether a protocol has ports.
pub fn has_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol)
}

/// Whether a protocol is ICMP or ICMPv6.
pub const fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

/// A protocol as operators write it.
pub fn protocol_name(protocol: u8) -> String {
    word_for(&protocol, &PROTOCOLS).map_or_else(|| protocol.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_with_what_follows() {
        for (text, address, port, protocol) in [
            ("203.0.113.9", "203.0.113.9", None, None),
            ("203.0.113.9:443/tcp", "203.0.113.9", Some(443), Some(6)),
            ("203.0.113.9:https/TCP", "203.0.113.9", Some(443), Some(6)),
            ("203.0.113.9:53", "203.0.113.9", Some(53), None),
            ("203.0.113.9/icmp", "203.0.113.9", None, Some(1)),
            ("203.0.113.9/47", "203.0.113.9", None, Some(47)),
            ("2001:db8::1", "2001:db8::1", None, None),
            ("2001:db8::1/icmp", "2001:db8::1", None, Some(58)),
            ("[2001:db8::1]:53/udp", "2001:db8::1", Some(53), Some(17)),
            ("[2001:db8::1]/sctp", "2001:db8::1", None, Some(132)),
            ("2001:db8::1/tcp", "2001:db8::1", None, Some(6)),
            ("2001:db8::1:80", "2001:db8::1:80", None, None),
            ("[2001:db8::1:80]/tcp", "2001:db8::1:80", None, Some(6)),
            ("2001:db8::1:80/icmp", "2001:db8::1:80", None, Some(58)),
            ("203.0.113.9:443/6", "203.0.113.9", Some(443), Some(6)),
            ("[2001:db8::1]:443/17", "2001:db8::1", Some(443), Some(17)),
        ] {
            let expected = (address.parse().unwrap(), port, protocol);
            assert_eq!(parse_target(text).unwrap(), expected, "{text}");
        }
        for (text, told) in [
            ("", "does not begin with an address"),
            ("example.org", "does not begin with an address"),
            ("[2001:db8::1", "bracket"),
            ("[2001:db8::1]53", "is not understood"),
            ("203.0.113.9:443/icmp", "its protocol has none"),
            ("203.0.113.9:70000/tcp", "neither a number nor a known name"),
            ("203.0.113.9:+5/tcp", "neither a number nor a known name"),
            ("203.0.113.0/24", "has a prefix length"),
            ("203.0.113.9/32", "has a prefix length"),
            ("203.0.113.9/0", "has a prefix length"),
            ("2001:db8::/48", "has a prefix length"),
            ("[2001:db8::1]/128", "has a prefix length"),
            ("2001:db8::1:80/tcp", "write [2001:db8::1]:80/tcp, or"),
            ("2001:db8::1:80/TCP", "[2001:db8::1:80]/TCP"),
            ("::ffff:10.5.5.5", "write 10.5.5.5"),
            ("[::ffff:10.5.5.5]:80/tcp", "write 10.5.5.5"),
            ("203.0.113.0/256", "neither a number nor a known name"),
            ("203.0.113.9:443/\u{1b}[2J", "neither a number"),
        ] {
            let error = parse_target(text).unwrap_err();
            let message = format!("{error} {}", error.remedy().unwrap());
            assert!(message.contains(told) && !message.contains('\u{1b}'), "{text}: {message}");
        }
    }

    #[test]
    fn flags_are_of_tcp_and_types_of_icmp() {
        for (protocol, ipv4, flags, icmp, fits) in [
            (6, true, Some("syn"), None, true),
            (17, true, None, None, true),
            (17, true, Some("syn"), None, false),
            (1, true, None, Some("8"), true),
            (1, false, None, Some("8"), false),
            (58, false, None, Some("128"), true),
            (6, true, None, Some("8"), false),
        ] {
            let checked = check_protocol(protocol, ipv4, flags, icmp);
            assert_eq!(checked.is_ok(), fits, "{protocol} {flags:?} {icmp:?}");
        }
        let error = check_protocol(17, true, Some("syn"), None).unwrap_err();
        assert!(error.remedy().unwrap().contains("protocol tcp instead of udp"), "{error}");
    }

    #[test]
    fn an_address_is_of_its_own_family() {
        assert_eq!(parse_address("source", " 10.5.5.5").unwrap().to_string(), "10.5.5.5");
        for (text, told) in [("::ffff:10.5.5.5", "write 10.5.5.5"), ("10.5.5", "is no address")] {
            let error = parse_address("destination", text).unwrap_err();
            let message = format!("{error} {}", error.remedy().unwrap());
            assert!(message.starts_with("destination") && message.contains(told), "{message}");
        }
    }

    #[test]
    fn flags_and_types_have_names() {
        assert_eq!(parse_flags("syn").unwrap(), 0x02);
        assert_eq!(parse_flags("SYN, ack").unwrap(), 0x12);
        assert_eq!(parse_flags("none").unwrap(), 0);
        assert!(parse_flags("syn,,ack").is_err() && parse_flags("sny").is_err());
        assert_eq!(parse_icmp("echo-request", true).unwrap(), 8);
        assert_eq!(parse_icmp("echo-request", false).unwrap(), 128);
        assert_eq!(parse_icmp("3", true).unwrap(), 3);
        assert!(parse_icmp("packet-too-big", true).is_err(), "of IPv6 alone");
        assert!(parse_icmp("256", true).is_err());
    }
}
