//! Reads addresses, with a port and a protocol after them.

use std::net::IpAddr;

use super::{
    InquiryError,
    words::{has_ports, parse_port, parse_protocol},
};
use crate::policy::units::{prefix::without_brackets, quoted};

/// Reads an address and, if they are given, its port and protocol: `ADDRESS[:PORT][/PROTO]`. An
/// IPv6 address before a port is in brackets.
///
/// # Errors
/// [`InquiryError::Value`], if the text is not of this form or can be read in two ways.
///
/// # Examples
/// ```
/// use limiter_userspace::query::target::parse_target;
///
/// let (address, port, protocol) = parse_target("[2001:db8::1]:53/udp").unwrap();
/// assert_eq!(address.to_string(), "2001:db8::1");
/// assert_eq!((port, protocol), (Some(53), Some(17)));
/// ```
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
    let (place, name) = match text.rsplit_once('/') {
        Some((place, name)) => (place, Some(name)),
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
    let address = match read(address) {
        Ok(address) => address,
        Err(Some(plain)) => return Err(refused(ZONE, format!("write {plain}"))),
        Err(None) => return Err(fault("does not begin with an address")),
    };
    if port.is_none() && name.is_some_and(|length| is_prefix_length(length, address)) {
        return Err(fault("has a prefix length, where only a protocol can be"));
    }
    let protocol = name.map(|name| parse_protocol(name, address.is_ipv4())).transpose()?;
    let port = port.map(|text| parse_port("port", text)).transpose()?;
    if port.is_some() && protocol.is_some_and(|protocol| !has_ports(protocol)) {
        return Err(fault("has a port, and its protocol has none"));
    }
    if let (None, Some(name)) = (port, name)
        && protocol.is_some_and(has_ports)
        && let Some((address, end)) = place.rsplit_once(':')
        && address.parse::<IpAddr>().is_ok()
        && parse_port("port", end).is_ok()
    {
        return Err(refused(
            "ends with what may be a port or of the address",
            format!(
                "write [{address}]:{end}/{name}, or, if all of it is the address, [{place}]/{name}"
            ),
        ));
    }
    Ok((address, port, protocol))
}

/// Reads an address; one of IPv4 in IPv6 notation is IPv4. `what` names it in the message.
///
/// # Errors
/// [`InquiryError::Value`], if the text is no address, or has a zone.
pub fn parse_address(what: &'static str, text: &str) -> Result<IpAddr, InquiryError> {
    read(without_brackets(text.trim())).map_err(|plain| {
        let (fault, examples) = match plain {
            Some(plain) => (ZONE, format!("write {plain}")),
            None => {
                ("is no address", "give an address, such as 203.0.113.9 or 2001:db8::1".to_owned())
            }
        };
        InquiryError::Value { what, value: quoted(text), fault, examples }
    })
}

/// The fault of an address with a zone, such as `fe80::1%eth0`.
const ZONE: &str = "has a zone, which packets do not carry";

/// Reads an address; one of IPv4 in IPv6 notation is IPv4. The error is the address without its zone, if it has one.
fn read(text: &str) -> Result<IpAddr, Option<IpAddr>> {
    let plain = |text: &str| text.parse::<IpAddr>().ok();
    match text.split_once('%') {
        Some((address, _)) => Err(plain(address)),
        None => plain(text).map(|address| address.to_canonical()).ok_or(None),
    }
}

/// Whether `text` is a valid prefix length for an address of this family.
fn is_prefix_length(text: &str, address: IpAddr) -> bool {
    let most = if address.is_ipv4() { 32 } else { 128 };
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse().is_ok_and(|it: u8| it <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure as _;

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
            ("[2001:db8::1]", "2001:db8::1", None, None),
            ("[2001:db8::1]/sctp", "2001:db8::1", None, Some(132)),
            ("2001:db8::1/tcp", "2001:db8::1", None, Some(6)),
            ("2001:db8::1:80", "2001:db8::1:80", None, None),
            ("[2001:db8::1:80]/tcp", "2001:db8::1:80", None, Some(6)),
            ("2001:db8::1:80/icmp", "2001:db8::1:80", None, Some(58)),
            ("203.0.113.9:443/6", "203.0.113.9", Some(443), Some(6)),
            ("::ffff:203.0.113.9", "203.0.113.9", None, None),
            ("::ffff:203.0.113.9/icmp", "203.0.113.9", None, Some(1)),
            ("[::ffff:203.0.113.9]:443/tcp", "203.0.113.9", Some(443), Some(6)),
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
            ("fe80::1%eth0", "has a zone, which packets do not carry write fe80::1"),
            ("fe80::1%eth0/tcp", "has a zone, which packets do not carry write fe80::1"),
            ("[fe80::1%eth0]:80/tcp", "has a zone, which packets do not carry write fe80::1"),
            ("eth0%", "does not begin with an address"),
            ("203.0.113.0/256", "neither a number nor a known name"),
            ("203.0.113.9:443/\u{1b}[2J", "neither a number"),
        ] {
            let error = parse_target(text).unwrap_err();
            let message = format!("{error} {}", error.remedy().unwrap());
            assert!(message.contains(told) && !message.contains('\u{1b}'), "{text}: {message}");
        }
    }

    #[test]
    fn an_address_is_read_without_what_packets_do_not_carry() {
        assert_eq!(parse_address("source", " 10.5.5.5").unwrap().to_string(), "10.5.5.5");
        assert_eq!(parse_address("source", "::ffff:10.5.5.5").unwrap().to_string(), "10.5.5.5");
        assert_eq!(parse_address("source", "[2001:db8::2]").unwrap().to_string(), "2001:db8::2");
        for (text, told) in [
            ("fe80::1%eth0", "has a zone, which packets do not carry write fe80::1"),
            ("[fe80::1%eth0]", "has a zone, which packets do not carry write fe80::1"),
            ("10.5.5", "is no address"),
            ("10.5.5%1", "is no address"),
        ] {
            let error = parse_address("destination", text).unwrap_err();
            let message = format!("{error} {}", error.remedy().unwrap());
            assert!(message.starts_with("destination") && message.contains(told), "{message}");
        }
    }
}
