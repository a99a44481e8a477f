//! The keyed hash of a row and of what a request has of its key.

use limiter_common::base::siphash::SipHash128;

use super::super::table::Key;

/// A keyed hash in the making, of words and texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(SipHash128);

impl KeyHash {
    /// By the seed of a table.
    pub(super) const fn new(seed: [u64; 2]) -> Self {
        Self(SipHash128::new(seed))
    }

    /// After another word.
    #[inline]
    pub(super) const fn word(self, word: u64) -> Self {
        Self(self.0.word(word))
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
        Key::new(self.0.finish())
    }

    /// 64 bits of it, not 0.
    pub(super) fn number(self) -> u64 {
        let [number, _] = self.0.finish();
        number.max(1)
    }
}
