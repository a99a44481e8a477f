//! By what the tables of an instance are hashed.

/// By what the hashes of an instance are keyed: random.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub [u64; 4]);

impl Seed {
    /// The key of the hash of connections.
    #[inline(always)]
    pub const fn key(self) -> [u64; 2] {
        let [.., a, b] = self.0;
        [a, b]
    }
}
