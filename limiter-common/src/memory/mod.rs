//! What is remembered of sources and connections beside their entries.

pub mod cache;
pub mod ending;
pub mod event;
pub mod fragment;
pub mod handshake;
pub mod jiffy;
pub mod offence;
pub mod pending;
pub mod refused_syn;
pub mod sample;
