//! What the command prints: one way to standard output, aligned text, and the JSON that scripts
//! rely on.

pub mod limits;
pub mod number;
pub mod status;
pub mod stream;
pub mod table;
pub mod timestamp;
pub mod tone;
pub mod top;
