//! Addresses and prefixes.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::error::{Fault, Quantity, ValueError};

/// Parses a prefix, or an address as the prefix of all its bits.
///
/// # Errors
/// A [`ValueError`] for malformed text, a length above that of an address, host bits, a zone, and an IPv4
/// address in IPv6 notation.
pub fn parse_prefix(text: &str) -> Result<IpNet, ValueError> {
    read(text.trim_ascii()).map_err(|fault| ValueError {
        quantity: Quantity::Prefix,
        value: text.to_owned(),
        fault,
    })
}

/// Checks a prefix that [`parse_prefix`] did not parse, such as one from storage.
pub(crate) fn check_prefix(prefix: IpNet) -> Result<(), ValueError> {
    acceptable(prefix).map_err(|fault| ValueError {
        quantity: Quantity::Prefix,
        value: prefix.to_string(),
        fault,
    })
}

fn read(text: &str) -> Result<IpNet, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    if let Some((address, _)) = address.split_once('%') {
        return Err(Fault::Zone { address: address.parse().ok() });
    }
    let address: IpAddr = address.parse().map_err(|_| Fault::NotAPrefix)?;
    let (family, bits) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
    let length = match length {
        None => bits,
        Some(length) if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(Fault::NotAPrefix);
        }
        Some(length) => length.parse().unwrap_or(u8::MAX),
    };
    let prefix = IpNet::new(address, length).map_err(|_| Fault::PrefixTooLong { family, bits })?;
    acceptable(prefix).map(|()| prefix)
}

fn acceptable(prefix: IpNet) -> Result<(), Fault> {
    if let IpAddr::V6(address) = prefix.addr()
        && let Some(address) = address.to_ipv4_mapped()
    {
        let length = prefix.prefix_len().checked_sub(96).unwrap_or(32);
        let plain = Ipv4Net::new(address, length).unwrap_or_else(|_| address.into());
        return Err(Fault::Mapped { plain: plain.trunc().into() });
    }
    if prefix.trunc() == prefix { Ok(()) } else { Err(Fault::HostBits { prefix }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_and_addresses_are_read() {
        for (text, prefix) in [
            ("203.0.113.0/24", "203.0.113.0/24"),
            (" 203.0.113.7 ", "203.0.113.7/32"),
            ("203.0.113.7/32", "203.0.113.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:DB8:0:0::/64", "2001:db8::/64"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::/0", "::/0"),
            ("::1.2.3.4", "::102:304/128"),
        ] {
            assert_eq!(parse_prefix(text).unwrap().to_string(), prefix, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let examples =
            "give an address or a prefix, such as 203.0.113.9, 203.0.113.0/24 or 2001:db8::/48";
        let neither = "is neither an address nor a prefix";
        let mapped =
            "is an IPv4 address in IPv6 notation, and sources are counted by their own family";
        for (text, message, remedy) in [
            (
                "203.0.113.7/24",
                "has host bits set",
                "did you mean 203.0.113.0/24, or the single address 203.0.113.7/32?",
            ),
            (
                "2001:db8::1/64",
                "has host bits set",
                "did you mean 2001:db8::/64, or the single address 2001:db8::1/128?",
            ),
            ("", "is empty", examples),
            ("203.0.113", neither, examples),
            ("203.0.113.0/", neither, examples),
            ("203.0.113.0/+8", neither, examples),
            ("203.0.113.0/24/24", neither, examples),
            ("203.0.113.0/255.255.255.0", neither, examples),
            ("203.0.113.256/24", neither, examples),
            ("example.net", neither, examples),
            ("203.0.113.0/33", "is longer than an IPv4 address, which has 32 bits", examples),
            ("2001:db8::/129", "is longer than an IPv6 address, which has 128 bits", examples),
            ("::/99999999999", "is longer than an IPv6 address, which has 128 bits", examples),
            ("::ffff:1.2.3.4", mapped, "write 1.2.3.4/32"),
            ("::ffff:1.2.3.0/120", mapped, "write 1.2.3.0/24"),
            ("::ffff:1.2.3.4/64", mapped, "write 1.2.3.4/32"),
            ("fe80::1%eth0", "has a zone, which packets do not carry", "write fe80::1"),
            ("%", "has a zone, which packets do not carry", examples),
        ] {
            let error = parse_prefix(text).unwrap_err();
            assert_eq!(error.to_string(), format!("prefix \"{text}\" {message}"));
            assert_eq!(error.remedy(), remedy, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*|[0-9a-f.:]{0,40}/[0-9]{0,4}") {
            if let Ok(prefix) = parse_prefix(&text) {
                prop_assert_eq!(parse_prefix(&prefix.to_string()), Ok(prefix));
            }
        }
    }
}
