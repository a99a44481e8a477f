//! IPv6 extension headers.

/// An IPv6 extension header. Its `next header` byte is filled in when the frame is built.
#[derive(Clone, Debug)]
pub struct Extension {
    number: u8,
    /// All bytes except the first one (`next header`).
    body: Vec<u8>,
}

impl Extension {
    /// Hop-by-hop options of `8 + 8 * units` bytes. The options have an experimental number.
    #[must_use]
    pub fn hop_by_hop(units: u8) -> Self {
        Self::options(0, units)
    }

    /// Destination options of `8 + 8 * units` bytes. The options have an experimental number.
    #[must_use]
    pub fn destination_options(units: u8) -> Self {
        Self::options(60, units)
    }

    /// A routing header of `8 + 8 * units` bytes of an experimental type (253), with no segments left.
    #[must_use]
    pub fn routing(units: u8) -> Self {
        Self::sized(43, units, |body| body[0] = 253)
    }

    /// A mobility header of `8 + 8 * units` bytes: a binding refresh request.
    #[must_use]
    pub fn mobility(units: u8) -> Self {
        Self::sized(135, units, |_| {})
    }

    /// A Host Identity Protocol header of `8 + 8 * units` bytes.
    #[must_use]
    pub fn host_identity(units: u8) -> Self {
        Self::sized(139, units, |_| {})
    }

    /// A shim6 header of `8 + 8 * units` bytes.
    #[must_use]
    pub fn shim6(units: u8) -> Self {
        Self::sized(140, units, |_| {})
    }

    /// An authentication header of `8 + 4 * words` bytes.
    #[must_use]
    pub fn authentication(words: u8) -> Self {
        let mut body = vec![words];
        body.resize(7 + 4 * usize::from(words), 0);
        Self { number: 51, body }
    }

    /// A fragment header; `offset` in units of 8 bytes.
    #[must_use]
    pub fn fragment(identification: u32, offset: u16, more: bool) -> Self {
        let mut body = vec![0];
        body.extend(((offset << 3) | u16::from(more)).to_be_bytes());
        body.extend(identification.to_be_bytes());
        Self { number: 44, body }
    }

    /// Hop-by-hop options with the jumbo payload option: `length` is the length of all that follows the IPv6
    /// header.
    #[must_use]
    pub fn jumbo(length: u32) -> Self {
        let mut body = vec![0, 0xc2, 4];
        body.extend(length.to_be_bytes());
        Self { number: 0, body }
    }

    /// Hop-by-hop options with the router alert option for multicast listener discovery, `at` bytes (0 or 2)
    /// behind the two fixed bytes of the header.
    #[must_use]
    pub fn router_alert(at: usize) -> Self {
        // A PadN option fills the remaining bytes.
        let mut body = vec![0, 1, 0, 1, 0, 1, 0];
        body[1 + at..5 + at].copy_from_slice(&[5, 2, 0, 0]);
        Self { number: 0, body }
    }

    /// The protocol number of this header.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The bytes of the header, followed by a header with number `next`.
    #[must_use]
    pub fn bytes(&self, next: u8) -> Vec<u8> {
        [&[next], self.body.as_slice()].concat()
    }

    /// Whether it is the fragment header of a later fragment, without a transport header.
    pub(super) fn is_later(&self) -> bool {
        self.number == 44 && (self.body[1] != 0 || self.body[2] >= 8)
    }

    fn options(number: u8, units: u8) -> Self {
        Self::sized(number, units, |body| {
            // An experimental option that receivers skip. PadN would not do: Linux drops packets with more
            // than seven bytes of padding in a row.
            let mut rest = body;
            while let Some((kind, behind)) = rest.split_first_mut() {
                let Some((length, data)) = behind.split_first_mut() else {
                    *kind = 0;
                    return;
                };
                let size = data.len().min(255);
                (*kind, *length) = (0x1e, size as u8);
                rest = &mut data[size..];
            }
        })
    }

    /// A header of `8 + 8 * units` bytes; `fill` writes the bytes behind the length byte.
    fn sized(number: u8, units: u8, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut body = vec![units];
        body.resize(7 + 8 * usize::from(units), 0);
        fill(&mut body[1..]);
        Self { number, body }
    }
}
