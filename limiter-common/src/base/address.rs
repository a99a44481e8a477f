//! Addresses and prefixes as map keys.

use core::net::IpAddr;

/// An IPv4 or IPv6 address, or a prefix of one with the other bits zero; the key of a source.
///
/// The family is part of the key, so that no IPv6 address, mapped or not, meets an IPv4 one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// [`Address::IPV4`] or [`Address::IPV6`]; 0 only in [`Address::NONE`].
    pub family: u32,
    /// The address in network order as it lies in memory; IPv4 in the first word, the rest zero.
    pub words: [u32; 4],
}

impl Address {
    /// Family of an IPv4 address.
    pub const IPV4: u32 = 4;
    /// Family of an IPv6 address.
    pub const IPV6: u32 = 6;
    /// No address: frames whose source cannot be read.
    pub const NONE: Self = Self { family: 0, words: [0; 4] };
    /// Bits of the family, which every prefix of an address includes.
    pub const FAMILY_BITS: u32 = u32::BITS;
    /// Bits of a whole address with its family, all of which a look-up of prefixes compares.
    pub const BITS: u32 = Self::FAMILY_BITS + 128;

    /// The IPv4 address in these octets.
    #[inline(always)]
    pub const fn v4(octets: [u8; 4]) -> Self {
        Self { family: Self::IPV4, words: [u32::from_ne_bytes(octets), 0, 0, 0] }
    }

    /// The IPv6 address in these four words, each in network order.
    #[inline(always)]
    pub const fn v6(words: [u32; 4]) -> Self {
        Self { family: Self::IPV6, words }
    }

    /// This address with the bits that `mask` does not have set to zero.
    #[inline(always)]
    pub const fn masked(self, mask: &Mask) -> Self {
        let Self { family, words: [a, b, c, d] } = self;
        if family == Self::IPV4 {
            Self { family, words: [a & mask.ipv4, 0, 0, 0] }
        } else {
            let [e, f, g, h] = mask.ipv6;
            Self { family, words: [a & e, b & f, c & g, d & h] }
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::v4(address.octets()),
            IpAddr::V6(address) => Self::v6(words(address.octets())),
        }
    }
}

/// The family of a key read from a map is neither IPv4 nor IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFamily(pub u32);

impl TryFrom<Address> for IpAddr {
    type Error = UnknownFamily;

    fn try_from(address: Address) -> Result<Self, UnknownFamily> {
        let [a, b, c, d] = address.words.map(u32::to_ne_bytes);
        match address.family {
            Address::IPV4 => Ok(Self::from(a)),
            Address::IPV6 => {
                let mut octets = [0; 16];
                for (four, word) in octets.chunks_exact_mut(4).zip([a, b, c, d]) {
                    four.copy_from_slice(&word);
                }
                Ok(Self::from(octets))
            }
            family => Err(UnknownFamily(family)),
        }
    }
}

/// What of an address makes a source: the prefix lengths, as masks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// Mask of an IPv4 address, network order in memory.
    pub ipv4: u32,
    /// Mask of an IPv6 address, network order in memory.
    pub ipv6: [u32; 4],
}

impl Mask {
    /// Whether it keeps no bit that another one does not.
    pub const fn is_within(&self, other: &Self) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.ipv6, other.ipv6);
        self.ipv4 & !other.ipv4 | a & !e | b & !f | c & !g | d & !h == 0
    }

    /// The masks of these prefix lengths; lengths beyond 32 and 128 mean the whole address.
    pub fn new(ipv4: u8, ipv6: u8) -> Self {
        let ipv4 = u32::MAX.checked_shl(32 - u32::from(ipv4.min(32))).unwrap_or(0);
        let ipv6 = u128::MAX.checked_shl(128 - u32::from(ipv6.min(128))).unwrap_or(0);
        Self { ipv4: ipv4.to_be(), ipv6: words(ipv6.to_be_bytes()) }
    }
}

fn words(octets: [u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, four) in words.iter_mut().zip(octets.chunks_exact(4)) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_of_no_family() {
        assert_eq!(IpAddr::try_from(Address::NONE), Err(UnknownFamily(0)));
    }

    #[test]
    fn a_mask_is_within_one_that_is_as_long_in_both_families() {
        for (shorter, longer, is_within) in [
            ((24, 64), (32, 64), true),
            ((32, 64), (32, 64), true),
            ((32, 65), (32, 64), false),
            ((25, 48), (24, 64), false),
            ((0, 128), (0, 128), true),
        ] {
            let [shorter, longer] = [shorter, longer].map(|(ipv4, ipv6)| Mask::new(ipv4, ipv6));
            assert_eq!(shorter.is_within(&longer), is_within, "{shorter:?} {longer:?}");
        }
    }
}
