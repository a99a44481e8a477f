//! The keyed hash of a row and of what a request has of its key.

use limiter_common::base::siphash::SipHash;

use super::super::table::Key;

/// Two SipHashes by different keys, of the same words.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash([SipHash; 2]);

impl KeyHash {
    /// By the seed of a table.
    pub(super) fn new([a, b, c, d]: [u64; 4]) -> Self {
        Self([SipHash::new([a, b]), SipHash::new([c, d])])
    }

    /// After another word.
    #[inline]
    pub(super) const fn word(self, word: u64) -> Self {
        let Self([one, other]) = self;
        Self([one.word(word), other.word(word)])
    }

    /// After a text, and nothing else that a longer text could have.
    #[inline]
    pub(super) fn text(self, text: &str) -> Self {
        let (words, rest) = text.as_bytes().as_chunks();
        let hash = words
            .iter()
            .fold(self.word(text.len() as u64), |hash, word| hash.word(u64::from_le_bytes(*word)));
        if rest.is_empty() {
            return hash;
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash.word(u64::from_le_bytes(last))
    }

    /// The key with this hash.
    #[inline]
    pub(super) fn key(self) -> Key {
        Key::new(self.0.map(SipHash::finish))
    }

    /// 64 bits of it, not 0.
    pub(super) fn number(self) -> u64 {
        self.0[0].finish().max(1)
    }
}
