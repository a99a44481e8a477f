//! Requests that are held back until their turn.

use limiter_common::algorithm::{kind::Kind, policer::Refusal};

use super::{Limited, State};

impl Limited<'_> {
    /// The place whose queue lets a request out last that no row refuses, before it is charged, and the nanoseconds until then.
    /// `None` if nothing holds it back.
    pub(in crate::bridge::decide) fn hold(&self) -> Option<(usize, u64)> {
        let due = self.bill.due();
        let places = (0..self.places.len()).filter(|at| due >> at & 1 != 0);
        let turns = places.map(|at| (at, self.turn(at))).filter(|(_, turn)| *turn > 0);
        turns.max_by_key(|(_, turn)| *turn)
    }

    /// Refuses a request that the queue at a place would hold back.
    pub(in crate::bridge::decide) fn refuse(&mut self, at: usize) {
        self.bill.refuse(1 << at, Refusal::Exceed);
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
