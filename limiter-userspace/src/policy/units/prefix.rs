//! Addresses and prefixes.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, IpSubnets, Ipv4Net, Ipv4Subnets, Ipv6Subnets};

use super::error::{Fault, Quantity, ValueError};

/// Parses a prefix, or an address as the prefix of all its bits. The length of an IPv4 prefix may be a netmask
/// (`203.0.113.0/255.255.255.0`). IPv4 in IPv6 notation (`::ffff:203.0.113.9`) is IPv4.
///
/// # Errors
/// A [`ValueError`] for malformed text, a length above that of an address, host bits, and a zone.
pub fn parse_prefix(text: &str) -> Result<IpNet, ValueError> {
    parsed(text, read(text.trim_ascii()))
}

/// Parses one entry of a list of addresses: what [`parse_prefix`] does, or a range `FIRST-LAST`, as the fewest
/// prefixes with the same addresses.
///
/// # Errors
/// As [`parse_prefix`]; also for a range that is no range.
pub fn parse_addresses(text: &str) -> Result<Vec<IpNet>, ValueError> {
    let trimmed = text.trim_ascii();
    let read = match trimmed.split_once('-') {
        Some((first, last)) => range(first.trim_ascii(), last.trim_ascii()),
        None => read(trimmed).map(|prefix| vec![prefix]),
    };
    parsed(text, read)
}

/// Checks a prefix that [`parse_prefix`] did not parse, such as one from storage.
pub(crate) fn check_prefix(prefix: IpNet) -> Result<(), ValueError> {
    let checked = match mapped(prefix) {
        Some(plain) => Err(Fault::Mapped { plain: plain.trunc() }),
        None => whole(prefix).map(|_| ()),
    };
    checked.map_err(|fault| error(&prefix.to_string(), fault))
}

fn parsed<T>(text: &str, read: Result<T, Fault>) -> Result<T, ValueError> {
    read.map_err(|fault| error(text, fault))
}

fn error(text: &str, fault: Fault) -> ValueError {
    ValueError { quantity: Quantity::Prefix, value: text.to_owned(), fault }
}

fn read(text: &str) -> Result<IpNet, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address = read_address(address)?;
    let (family, bits) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
    let length = match length {
        None => bits,
        Some(mask) if address.is_ipv4() && mask.contains('.') => length_of(mask)?,
        Some(length) if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(Fault::NotAPrefix);
        }
        Some(length) => length.parse().unwrap_or(u8::MAX),
    };
    let prefix = IpNet::new(address, length).map_err(|_| Fault::PrefixTooLong { family, bits })?;
    whole(mapped(prefix).unwrap_or(prefix))
}

/// An address without the brackets that URLs and `limiter policy explain` put around one of IPv6.
pub(crate) fn without_brackets(text: &str) -> &str {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.filter(|inner| inner.contains(':')).unwrap_or(text)
}

fn read_address(text: &str) -> Result<IpAddr, Fault> {
    let text = without_brackets(text);
    if let Some((address, _)) = text.split_once('%') {
        return Err(Fault::Zone { address: address.parse().ok() });
    }
    text.parse().map_err(|_| Fault::NotAPrefix)
}

/// The prefix length of a netmask.
fn length_of(mask: &str) -> Result<u8, Fault> {
    let mask: Ipv4Addr = mask.parse().map_err(|_| Fault::NotAPrefix)?;
    ipnet::ipv4_mask_to_prefix(mask).map_err(|_| Fault::NotAMask)
}

/// The prefixes of a range, both ends included.
fn range(first: &str, last: &str) -> Result<Vec<IpNet>, Fault> {
    let [first, last] = [read_address(first)?, read_address(last)?].map(|end| end.to_canonical());
    let subnets = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
            IpSubnets::V4(Ipv4Subnets::new(first, last, 0))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
            IpSubnets::V6(Ipv6Subnets::new(first, last, 0))
        }
        _ => return Err(Fault::NotARange),
    };
    Ok(subnets.collect())
}

/// A prefix of IPv4 in IPv6 notation as one of IPv4; `None` for any other prefix.
fn mapped(prefix: IpNet) -> Option<IpNet> {
    let IpAddr::V6(address) = prefix.addr() else { return None };
    let length = prefix.prefix_len().checked_sub(96)?;
    Ipv4Net::new(address.to_ipv4_mapped()?, length).ok().map(IpNet::V4)
}

fn whole(prefix: IpNet) -> Result<IpNet, Fault> {
    if prefix.trunc() == prefix { Ok(prefix) } else { Err(Fault::HostBits { prefix }) }
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
            ("[2001:db8::1]", "2001:db8::1/128"),
            ("[2001:db8::]/64", "2001:db8::/64"),
            ("::/0", "::/0"),
            ("::1.2.3.4", "::102:304/128"),
            ("203.0.113.0/255.255.255.0", "203.0.113.0/24"),
            ("203.0.113.7/255.255.255.255", "203.0.113.7/32"),
            ("0.0.0.0/0.0.0.0", "0.0.0.0/0"),
            ("::ffff:1.2.3.4", "1.2.3.4/32"),
            ("::FFFF:1.2.3.0/120", "1.2.3.0/24"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(parse_prefix(text).unwrap().to_string(), prefix, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let examples =
            "give an address or a prefix, such as 203.0.113.9, 203.0.113.0/24 or 2001:db8::/48";
        let neither = "is neither an address nor a prefix";
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
            ("[203.0.113.7]", neither, examples),
            ("[2001:db8::1", neither, examples),
            ("[]", neither, examples),
            ("203.0.113.0/", neither, examples),
            ("203.0.113.0/+8", neither, examples),
            ("203.0.113.0/24/24", neither, examples),
            (
                "203.0.113.0/0.0.0.255",
                "has a netmask whose ones are not all in front",
                "write its length, such as 203.0.113.0/24",
            ),
            ("203.0.113.0/255.255.255", neither, examples),
            ("2001:db8::/255.255.255.0", neither, examples),
            ("203.0.113.256/24", neither, examples),
            ("example.net", neither, examples),
            ("203.0.113.0/33", "is longer than an IPv4 address, which has 32 bits", examples),
            ("2001:db8::/129", "is longer than an IPv6 address, which has 128 bits", examples),
            ("::/99999999999", "is longer than an IPv6 address, which has 128 bits", examples),
            (
                "::ffff:1.2.3.4/120",
                "has host bits set",
                "did you mean 1.2.3.0/24, or the single address 1.2.3.4/32?",
            ),
            (
                "::ffff:1.2.3.4/64",
                "has host bits set",
                "did you mean ::/64, or the single address ::ffff:1.2.3.4/128?",
            ),
            ("fe80::1%eth0", "has a zone, which packets do not carry", "write fe80::1"),
            ("%", "has a zone, which packets do not carry", examples),
        ] {
            let error = parse_prefix(text).unwrap_err();
            assert_eq!(error.to_string(), format!("prefix \"{text}\" {message}"));
            assert_eq!(error.remedy(), remedy, "{text}");
        }
    }

    #[test]
    fn ranges_are_the_fewest_prefixes() {
        let read = |text| {
            let read = parse_addresses(text).map_err(|error| error.to_string())?;
            Ok::<_, String>(read.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, prefixes) in [
            ("192.0.2.4-192.0.2.9", "192.0.2.4/30 192.0.2.8/31"),
            (" 192.0.2.0 - 192.0.2.255 ", "192.0.2.0/24"),
            ("192.0.2.7-192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0-255.255.255.255", "0.0.0.0/0"),
            ("2001:db8::-2001:db8::ffff:ffff:ffff:ffff", "2001:db8::/64"),
            ("::ffff:192.0.2.4-192.0.2.5", "192.0.2.4/31"),
            ("192.0.2.0/24", "192.0.2.0/24"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(prefixes), "{text}");
        }
        for (text, words) in [
            ("192.0.2.9-192.0.2.4", "is no range: it ends before it begins"),
            ("192.0.2.9-2001:db8::", "is no range: it ends before it begins"),
            ("192.0.2.9-", "is neither"),
            ("192.0.2.9-77", "is neither"),
            ("192.0.2.0/24-192.0.3.0/24", "is neither"),
            ("fe80::1%eth0-fe80::2", "has a zone"),
        ] {
            assert!(read(text).unwrap_err().contains(words), "{text}: {:?}", read(text));
        }
        let widest = parse_addresses("::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").unwrap();
        assert_eq!(widest.len(), 254);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*|[0-9a-f.:]{0,40}/[0-9]{0,4}") {
            if let Ok(prefix) = parse_prefix(&text) {
                prop_assert_eq!(parse_prefix(&prefix.to_string()), Ok(prefix));
                prop_assert_eq!(check_prefix(prefix), Ok(()));
            }
            let _ = parse_addresses(&text).map(|prefixes| prefixes.len());
        }
    }
}
