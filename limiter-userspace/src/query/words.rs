//! Reads and writes the fields of packets in words: protocols, ports, TCP flags, ICMP types.

use limiter_common::packet::protocol::{ICMP, ICMPV6, TCP};

use super::InquiryError;
use crate::policy::{
    document::names::{
        FLAGS, ICMP_TYPES, PORTS, PROTOCOLS, WITH_PORTS, Words, meaning, word_for, words,
    },
    units::quoted,
};

/// Checks that packets of a protocol have the TCP flags and the ICMP type that were given.
///
/// # Errors
/// [`InquiryError::Value`], if they have not.
pub fn check_protocol(
    protocol: u8,
    ipv4: bool,
    flags: Option<&str>,
    icmp: Option<&str>,
) -> Result<(), InquiryError> {
    for (what, value, owner) in [("flags", flags, TCP), ("type of ICMP", icmp, icmp_of(ipv4))] {
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

/// Checks that packets of a protocol have ports, if one was given. `what` names the port in the
/// message.
///
/// # Errors
/// [`InquiryError::Value`], if they have none.
pub fn check_port(
    what: &'static str,
    protocol: u8,
    port: Option<&str>,
) -> Result<(), InquiryError> {
    match port {
        Some(port) if !has_ports(protocol) => Err(InquiryError::Value {
            what,
            value: quoted(port),
            fault: "is nothing that packets of the protocol have",
            examples: format!(
                "leave it out, or give a protocol with ports, such as tcp, instead of {}",
                protocol_name(protocol)
            ),
        }),
        _ => Ok(()),
    }
}

/// Reads a protocol, as a name or a number. The name `icmp` means the protocol of the family.
///
/// # Errors
/// [`InquiryError::Value`], if the text is neither.
pub fn parse_protocol(text: &str, ipv4: bool) -> Result<u8, InquiryError> {
    let lower = text.to_ascii_lowercase();
    if lower == "icmp" {
        return Ok(icmp_of(ipv4));
    }
    number_or_word("protocol", text, &lower, &PROTOCOLS)
}

/// Reads a port, as a number or the name of a well-known service. `what` names the port in the
/// message.
///
/// # Errors
/// [`InquiryError::Value`], if the text is neither.
pub fn parse_port(what: &'static str, text: &str) -> Result<u16, InquiryError> {
    number_or_word(what, text, &text.to_ascii_lowercase(), &PORTS)
}

/// Reads TCP flags, as a list of names such as `syn,ack`, or `none`. Returns the byte of flags.
///
/// # Errors
/// [`InquiryError::Value`], if a name is not known.
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

/// Reads a type of ICMP, or of ICMPv6, as a name or a number.
///
/// # Errors
/// [`InquiryError::Value`], if the text is neither, or the family has no type of that name.
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
    // Rust's parser takes a leading `+`.
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

/// The protocol number of ICMP for a family.
pub const fn icmp_of(ipv4: bool) -> u8 {
    if ipv4 { ICMP } else { ICMPV6 }
}

/// Whether a protocol is ICMP or ICMPv6.
pub const fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

/// Writes a protocol as operators do: its name, or else its number.
pub fn protocol_name(protocol: u8) -> String {
    word_for(&protocol, &PROTOCOLS).map_or_else(|| protocol.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure as _;

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
    fn ports_are_of_protocols_that_have_some() {
        for (protocol, port, fits) in [
            (6, Some("22"), true),
            (17, Some("dns"), true),
            (132, Some("0"), true),
            (1, Some("22"), false),
            (58, Some("0"), false),
            (47, Some("22"), false),
            (47, None, true),
        ] {
            let checked = check_port("port", protocol, port);
            assert_eq!(checked.is_ok(), fits, "{protocol} {port:?}");
        }
        let error = check_port("source port", 1, Some("22")).unwrap_err();
        assert!(error.to_string().starts_with("source port "), "{error}");
        assert!(error.remedy().unwrap().ends_with("such as tcp, instead of icmp"), "{error}");
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
