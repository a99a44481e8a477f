//! Requests that are held back until their turn.

use limiter_common::algorithm::kind::Kind;

use super::{Limited, State};

impl Limited<'_> {
    /// Nanoseconds until the turn of a request that no row refuses, before it is charged.
    pub(in crate::bridge::decide) fn hold(&self) -> u64 {
        let due = self.bill.due();
        let turns = (0..self.places.len()).filter(|at| due >> at & 1 != 0).map(|at| self.turn(at));
        turns.max().unwrap_or(0)
    }

    /// Nanoseconds until the queue at a place has let out all that is in it; 0 where nothing is held back.
    pub(super) fn turn(&self, at: usize) -> u64 {
        let place = &self.places[at];
        match place.state {
            State::Own(entry) | State::Shared(entry)
                if self.rules.rows[place.row].delays && self.meter(at).kind() == Kind::Bucket =>
            {
                let gcra = &self.meter(at).gcra;
                gcra.spent(self.table.word(entry).get(), self.now).div_ceil(1 << gcra.shift)
            }
            _ => 0,
        }
    }
}
