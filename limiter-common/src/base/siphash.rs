//! SipHash-1-3 (Aumasson and Bernstein, 2012) of words: a hash that nobody can steer who does not
//! know its key.

/// A hash in the making.
#[derive(Clone, Copy, Debug)]
pub struct SipHash {
    state: [u64; 4],
    words: u64,
}

impl SipHash {
    /// By a key.
    #[inline(always)]
    pub const fn new([low, high]: [u64; 2]) -> Self {
        let state = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        Self { state, words: 0 }
    }

    /// After another word.
    #[inline(always)]
    pub const fn word(self, word: u64) -> Self {
        let [a, b, c, d] = self.state;
        let [a, b, c, d] = round([a, b, c, d ^ word]);
        Self { state: [a ^ word, b, c, d], words: self.words + 1 }
    }

    /// The hash of all of them.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        let [a, b, c, d] = self.end();
        let [a, b, c, d] = thrice([a, b, c ^ 0xff, d]);
        a ^ b ^ c ^ d
    }

    /// The state after the last block, which has the number of bytes in its highest one.
    #[inline(always)]
    const fn end(self) -> [u64; 4] {
        self.word((self.words * 8) << 56).state
    }
}

/// A hash of 128 bits in the making: the variant of [`SipHash`] that its authors give for it.
#[derive(Clone, Copy, Debug)]
pub struct SipHash128(SipHash);

impl SipHash128 {
    /// By a key.
    #[inline(always)]
    pub const fn new(key: [u64; 2]) -> Self {
        let SipHash { state: [a, b, c, d], words } = SipHash::new(key);
        Self(SipHash { state: [a, b ^ 0xee, c, d], words })
    }

    /// After another word.
    #[inline(always)]
    pub const fn word(self, word: u64) -> Self {
        Self(self.0.word(word))
    }

    /// The hash of all of them, its lower half first.
    #[inline(always)]
    pub const fn finish(self) -> [u64; 2] {
        let [a, b, c, d] = self.0.end();
        let [a, b, c, d] = thrice([a, b, c ^ 0xee, d]);
        let low = a ^ b ^ c ^ d;
        let [a, b, c, d] = thrice([a, b ^ 0xdd, c, d]);
        [low, a ^ b ^ c ^ d]
    }
}

#[inline(always)]
const fn thrice(state: [u64; 4]) -> [u64; 4] {
    round(round(round(state)))
}

#[inline(always)]
const fn round([a, b, c, d]: [u64; 4]) -> [u64; 4] {
    let a = a.wrapping_add(b);
    let b = b.rotate_left(13) ^ a;
    let a = a.rotate_left(32);
    let c = c.wrapping_add(d);
    let d = d.rotate_left(16) ^ c;
    let a = a.wrapping_add(d);
    let d = d.rotate_left(21) ^ a;
    let c = c.wrapping_add(b);
    let b = b.rotate_left(17) ^ c;
    [a, b, c.rotate_left(32), d]
}
