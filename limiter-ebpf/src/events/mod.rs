//! What is told of packets and sources.

#[cfg(feature = "messages")]
pub(crate) mod debug;
pub(crate) mod emit;
