//! What the kernel gives: maps, clock, atomics, the bytes of a packet, and the scratch of the CPU.

pub(crate) mod atomics;
pub(crate) mod barrier;
pub(crate) mod churn;
pub(crate) mod clock;
pub(crate) mod frame;
pub(crate) mod key;
pub(crate) mod maps;
pub(crate) mod scratch;
