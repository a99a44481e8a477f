//! What everything else is made of: addresses, hashes, words of state, tallies.

pub mod address;
pub mod seed;
pub mod siphash;
pub mod slots;
pub mod tally;
pub mod word;
