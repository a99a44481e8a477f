//! What a process asks `limiter_push` for, and what it is told.

use crate::base::address::Address;

/// The frame that `limiter_push` is run on: a block of one source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// An address of the source.
    pub source: Address,
    /// 0 to block it; [`LIFT`] to end the block that was pushed before, or [`LIFT_AGAIN`] after [`BUSY`].
    pub lifts: u32,
    /// Until when it is blocked, in nanoseconds of the monotonic clock.
    pub until: u64,
}

const _: () = assert!(size_of::<Push>() == 32);

/// Of [`Push::lifts`]: the record and the block of the entry end.
pub const LIFT: u32 = 1;
/// Of [`Push::lifts`]: the record may have ended already.
pub const LIFT_AGAIN: u32 = 2;

/// It is done.
pub const DONE: u32 = 1;
/// A block that was pushed before lasts longer.
pub const LONGER: u32 = 2;
/// All records of its set are of blocks that run.
pub const FULL: u32 = 3;
/// Packets kept a lock or moved a word for too long. It is to be asked for again.
pub const BUSY: u32 = 4;
/// The list `allow` has the source.
pub const ALLOWED: u32 = 6;
/// No block was pushed that could be ended.
pub const NOT_BLOCKED: u32 = 5;
/// There is no table of offences, or no such source.
pub const REFUSED: u32 = 0;
