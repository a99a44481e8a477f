//! Prefixes as a text that is read and written in little time.

use std::net::IpAddr;

use ipnet::IpNet;

/// A text that is no result of [`pack`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotPacked;

/// What is added to the length of an IPv6 prefix, so that it is none of IPv4.
const IPV6: u8 = 33;

/// Prefixes as a text that is read and written in little time. Each is its length, and then as many bytes of its address as
/// the length reaches, all in hexadecimal digits.
pub(crate) fn pack(prefixes: impl Iterator<Item = IpNet>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(10 * prefixes.size_hint().0);
    let mut push = |byte: u8| {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    };
    for prefix in prefixes {
        let length = prefix.prefix_len();
        let mut put = |tag: u8, octets: &[u8]| {
            push(tag);
            octets.iter().take(usize::from(length.div_ceil(8))).for_each(|byte| push(*byte));
        };
        match prefix.addr() {
            IpAddr::V4(address) => put(length, &address.octets()),
            IpAddr::V6(address) => put(length + IPV6, &address.octets()),
        }
    }
    text
}

/// The prefixes that were [packed](pack).
pub(crate) fn unpack(text: &str) -> Result<Vec<IpNet>, NotPacked> {
    fn prefix<const N: usize>(
        length: u8,
        bytes: &mut impl Iterator<Item = Result<u8, NotPacked>>,
    ) -> Result<IpNet, NotPacked>
    where
        IpAddr: From<[u8; N]>,
    {
        let mut octets = [0; N];
        for octet in octets.iter_mut().take(usize::from(length.div_ceil(8))) {
            *octet = bytes.next().ok_or(NotPacked)??;
        }
        IpNet::new(octets.into(), length).map_err(|_too_long| NotPacked)
    }
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(NotPacked) };
    let mut bytes = pairs.iter().map(|[high, low]| {
        let (high, low) = digit(*high).zip(digit(*low)).ok_or(NotPacked)?;
        Ok(high << 4 | low)
    });
    let mut prefixes = Vec::with_capacity(text.len() / 10);
    while let Some(tag) = bytes.next() {
        let tag = tag?;
        prefixes.push(match tag.checked_sub(IPV6) {
            Some(length) => prefix::<16>(length, &mut bytes)?,
            None => prefix::<4>(tag, &mut bytes)?,
        });
    }
    Ok(prefixes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_packed_is_told() {
        assert_eq!(unpack(""), Ok(Vec::new()));
        // A digit that is missing, a byte that is, none of a digit, and a length that no prefix has.
        for text in ["2", "20c00002", "20c000020g", "20c00002é", "a2", "ff"] {
            assert_eq!(unpack(text), Err(NotPacked), "{text}");
        }
    }

    proptest! {
        #[test]
        fn prefixes_are_read_as_they_were_packed(prefixes: Vec<(IpAddr, u8)>) {
            let prefix = |(address, length): (IpAddr, u8)| {
                let longest = if address.is_ipv4() { 32 } else { 128 };
                IpNet::new(address, length % (longest + 1)).unwrap().trunc()
            };
            let prefixes: Vec<IpNet> = prefixes.into_iter().map(prefix).collect();
            prop_assert_eq!(unpack(&pack(prefixes.iter().copied())), Ok(prefixes));
        }

        #[test]
        fn no_text_is_too_odd_to_be_unpacked(text in "[0-9a-f]{0,60}|.{0,20}") {
            if let Ok(prefixes) = unpack(&text) {
                prop_assert!(prefixes.len() <= text.len() / 2);
            }
        }
    }
}
