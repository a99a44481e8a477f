//! What a process asks `limiter_push` for, and what it is told.

use core::mem::offset_of;

use crate::{base::address::Address, policy::penalty::Offence};

/// The frame that `limiter_push` is run on: a block of one source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// The first address of the source. A record of another address is found by no packet.
    pub source: Address,
    /// 0 to block it; [`LIFT`] to end the block that was pushed before, or [`LIFT_AGAIN`] after [`BUSY`].
    pub lifts: u32,
    /// Until when it is blocked, in nanoseconds of the monotonic clock.
    pub until: u64,
    /// Whose block it is: [`SHARED`] or [`CROWDSEC`].
    pub owner: u64,
}

const _: () = assert!(size_of::<Push>() == 40);

/// Of [`Push::owner`]: all commands and programs that push. They share one end for each source, the latest.
pub const SHARED: u64 = 0;
/// Of [`Push::owner`]: the decisions of CrowdSec. They have an end of their own for each source, the last that was pushed.
pub const CROWDSEC: u64 = 1;

/// The ends of a pushed block by owner, in nanoseconds: the source is blocked until the later one.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// That of [`SHARED`], in [`Offence::last`].
    pub shared: u64,
    /// That of [`CROWDSEC`], in [`Offence::began`].
    pub crowdsec: u64,
}

impl Ends {
    /// Those in a record under [`Penalty::PUSHED`](crate::policy::penalty::Penalty::PUSHED). Before there were owners, all blocks were
    /// shared, and both words were 0.
    pub const fn of(offence: &Offence) -> Self {
        let Offence { last, began, blocked, .. } = *offence;
        Self { shared: if last | began == 0 { blocked } else { last }, crowdsec: began }
    }
}

// The program finds them by the number of the owner.
const _: () =
    assert!(offset_of!(Offence, began) == 0 && offset_of!(Offence, last) == size_of::<u64>());

/// Of [`Push::lifts`]: the record and the block of the entry end.
pub const LIFT: u32 = 1;
/// Of [`Push::lifts`]: the record may have ended already.
pub const LIFT_AGAIN: u32 = 2;

/// It is done.
pub const DONE: u32 = 1;
/// A block that the same owner pushed before lasts longer.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_before_there_were_owners_is_shared() {
        let ends = |last, began| {
            let Ends { shared, crowdsec } =
                Ends::of(&Offence { last, began, blocked: 9, ..Offence::default() });
            [shared, crowdsec]
        };
        assert_eq!(
            [ends(0, 0), ends(9, 0), ends(0, 9), ends(7, 9)],
            [[9, 0], [9, 0], [0, 9], [7, 9]]
        );
    }
}
