//! Values as SPOP encodes them: integers of variable length, texts, and typed data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Fault;

/// The smallest integer that takes more than one byte.
const LONG: u64 = 240;
/// The bits of a type byte that tell the type; the others are flags.
const TYPE: u8 = 0xf;
/// The flag of a boolean that is true.
const TRUE: u8 = 0x10;

/// The type of a value.
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const BOOLEAN: u8 = 1;
    pub(super) const INT32: u8 = 2;
    pub(super) const UINT32: u8 = 3;
    pub(super) const INT64: u8 = 4;
    pub(super) const UINT64: u8 = 5;
    pub(super) const IPV4: u8 = 6;
    pub(super) const IPV6: u8 = 7;
    pub(super) const STRING: u8 = 8;
    pub(super) const BINARY: u8 = 9;
}

/// A typed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'f> {
    /// A sample that HAProxy could not fetch.
    Null,
    Boolean(bool),
    /// An integer of any of the four types. A negative one is its two's complement of 64 bits.
    Integer(u64),
    Address(IpAddr),
    /// A string or binary data.
    Bytes(&'f [u8]),
}

impl<'f> Value<'f> {
    /// The text of a string.
    pub(super) fn text(self) -> Option<&'f str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Reads from the bytes of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'f>(pub(super) &'f [u8]);

impl<'f> Reader<'f> {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `count` bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'f [u8], Fault> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Fault::INVALID)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The next bytes, as many as an array has.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Fault::INVALID)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// An integer of variable length: up to 239 in a byte; of a larger one, the low 4 bits are in the first byte, and 7 bits in
    /// each of the others, of what is left after the least number that needs the byte is taken off.
    pub(super) fn integer(&mut self) -> Result<u64, Fault> {
        let mut value = u64::from(self.byte()?);
        if value < LONG {
            return Ok(value);
        }
        let mut shift = 4;
        loop {
            let byte = self.byte()?;
            let part = u64::from(byte).checked_mul(1_u64.checked_shl(shift).ok_or(Fault::INVALID)?);
            value = part.and_then(|part| value.checked_add(part)).ok_or(Fault::INVALID)?;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Bytes with their length before them.
    pub(super) fn counted(&mut self) -> Result<&'f [u8], Fault> {
        let length = self.integer()?;
        self.bytes(usize::try_from(length).map_err(|_| Fault::INVALID)?)
    }

    /// A text with its length before it.
    pub(super) fn name(&mut self) -> Result<&'f str, Fault> {
        std::str::from_utf8(self.counted()?).map_err(|_| Fault::INVALID)
    }

    pub(super) fn value(&mut self) -> Result<Value<'f>, Fault> {
        let byte = self.byte()?;
        Ok(match byte & TYPE {
            kind::NULL => Value::Null,
            kind::BOOLEAN => Value::Boolean(byte & TRUE != 0),
            kind::INT32 | kind::UINT32 | kind::INT64 | kind::UINT64 => {
                Value::Integer(self.integer()?)
            }
            kind::IPV4 => Value::Address(Ipv4Addr::from(self.array()?).into()),
            kind::IPV6 => Value::Address(Ipv6Addr::from(self.array()?).into()),
            kind::STRING | kind::BINARY => Value::Bytes(self.counted()?),
            _ => return Err(Fault::INVALID),
        })
    }
}

/// Appends an integer of variable length, as [`Reader::integer`] reads it.
pub(super) fn write_integer(to: &mut Vec<u8>, value: u64) {
    if value < LONG {
        to.push(value as u8);
        return;
    }
    to.push(value as u8 | 0xf0);
    let mut rest = (value - LONG) >> 4;
    while rest >= 0x80 {
        to.push(rest as u8 | 0x80);
        rest = (rest - 0x80) >> 7;
    }
    to.push(rest as u8);
}

/// Appends bytes with their length before them.
pub(super) fn write_counted(to: &mut Vec<u8>, bytes: &[u8]) {
    write_integer(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a typed text.
pub(super) fn write_text(to: &mut Vec<u8>, text: &str) {
    to.push(kind::STRING);
    write_counted(to, text.as_bytes());
}

/// Appends a typed integer of 32 bits.
pub(super) fn write_number(to: &mut Vec<u8>, number: u32) {
    to.push(kind::UINT32);
    write_integer(to, number.into());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_encoded_as_the_specification_shows() {
        for (value, encoded) in [
            (0, &[0][..]),
            (239, &[239]),
            (240, &[0xf0, 0]),
            (2_287, &[0xff, 0x7f]),
            (2_288, &[0xf0, 0x80, 0]),
            (264_431, &[0xff, 0xff, 0x7f]),
            (264_432, &[0xf0, 0x80, 0x80, 0]),
        ] {
            let mut written = Vec::new();
            write_integer(&mut written, value);
            assert_eq!(written, encoded, "{value}");
        }
        // It does not fit into 64 bits.
        let endless = [0xff; 20];
        assert_eq!(Reader(&endless).integer(), Err(Fault::INVALID));
        assert_eq!(Reader(&[0xf0]).integer(), Err(Fault::INVALID));
    }

    #[test]
    fn values_of_each_type_are_read() {
        let read = |bytes: &'static [u8]| Reader(bytes).value();
        assert_eq!(read(&[0]), Ok(Value::Null));
        assert_eq!(read(&[0x11]), Ok(Value::Boolean(true)));
        assert_eq!(read(&[0x01]), Ok(Value::Boolean(false)));
        assert_eq!(read(&[3, 7]), Ok(Value::Integer(7)));
        assert_eq!(read(&[6, 192, 0, 2, 1]), Ok(Value::Address([192, 0, 2, 1].into())));
        assert_eq!(read(&[8, 2, b'h', b'i']).map(Value::text), Ok(Some("hi")));
        for broken in [&[][..], &[6, 192, 0], &[8, 9, 1], &[15], &[7; 16]] {
            assert_eq!(Reader(broken).value(), Err(Fault::INVALID), "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_are_read_as_they_were_written(value: u64) {
            let mut written = Vec::new();
            write_integer(&mut written, value);
            let mut reader = Reader(&written);
            prop_assert_eq!(reader.integer(), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn whatever_comes_is_no_panic(bytes: Vec<u8>) {
            let mut reader = Reader(&bytes);
            while !reader.is_empty() && reader.value().is_ok() {}
        }
    }
}
