//! The keys of sources, as they are compared.

use limiter_common::base::address::Address;

/// The key of a source by words of 64 bits, as it lies in memory, and the one of 32 bits that is left.
///
/// It is written as it is read: what two instructions wrote cannot be read by one before both have left the CPU,
/// for which it waits some nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct SourceKey {
    pairs: [u64; 2],
    last: u32,
}

impl SourceKey {
    /// That of a source.
    #[inline(always)]
    pub(crate) const fn of(source: &Address) -> Self {
        let Address { family, words: [a, b, c, d] } = *source;
        Self { pairs: [pair(family, a), pair(b, c)], last: d }
    }

    /// One that was written.
    ///
    /// # Safety
    /// It lies in a map value, at a multiple of 8 bytes.
    #[inline(always)]
    pub(crate) unsafe fn read(from: *const Address) -> Self {
        // SAFETY: as the caller promises; an address has five words of 32 bits, without padding.
        unsafe {
            let pairs = from.cast::<u64>();
            Self {
                pairs: [pairs.read_volatile(), pairs.add(1).read_volatile()],
                last: from.cast::<u32>().add(4).read_volatile(),
            }
        }
    }

    /// # Safety
    /// As for [`read`](Self::read).
    #[inline(always)]
    pub(crate) unsafe fn write(self, to: *mut Address) {
        // SAFETY: as the caller promises, and as above.
        unsafe {
            let pairs = to.cast::<u64>();
            pairs.write_volatile(self.pairs[0]);
            pairs.add(1).write_volatile(self.pairs[1]);
            to.cast::<u32>().add(4).write_volatile(self.last);
        }
    }

    /// Whether it is the same as another one.
    #[inline(always)]
    pub(crate) const fn is(self, other: Self) -> bool {
        let ([a, b], [c, d]) = (self.pairs, other.pairs);
        (a ^ c) | (b ^ d) | (self.last ^ other.last) as u64 == 0
    }
}

/// Two words as they lie in memory.
#[inline(always)]
const fn pair(first: u32, second: u32) -> u64 {
    let (low, high) =
        if cfg!(target_endian = "little") { (first, second) } else { (second, first) };
    low as u64 | (high as u64) << 32
}
