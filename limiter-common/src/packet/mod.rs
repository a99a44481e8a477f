//! How a frame is read, and why it passes or is dropped.

pub mod control;
pub mod extension;
pub mod frame;
pub mod headers;
pub mod link;
mod named;
pub mod parse;
pub mod plain;
pub mod protocol;
pub mod reason;
