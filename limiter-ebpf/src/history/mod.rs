//! What is remembered of sources and connections beside the table of sources.

pub(crate) mod fragments;
pub(crate) mod handshakes;
pub(crate) mod offences;
pub(crate) mod penalties;
pub(crate) mod proofs;
pub(crate) mod sockets;
