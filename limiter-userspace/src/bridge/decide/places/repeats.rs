//! Requests that are sent again.

use super::{
    super::{
        super::request::Request,
        counts::Tally,
        repeats::{Repeat, Repeats},
    },
    Limited,
};

impl Limited<'_> {
    /// Finds the rows that were charged with the request before: they are asked no more.
    #[inline]
    pub(in crate::bridge::decide) fn find_repeats(
        &mut self,
        repeats: &Repeats,
        request: &Request<'_>,
    ) {
        for (at, place) in self.places.iter_mut().enumerate() {
            if self.rules.rows[place.row].idempotency.is_none() {
                continue;
            }
            let Some(key) = self.rules.repeat_key(request, place.key, place.cost) else { continue };
            place.repeat = repeats.find(key, self.now);
            if matches!(place.repeat, Repeat::Again(_)) {
                self.bill.applies &= !(1 << at);
            }
        }
    }

    /// Notes what the rows are to know of a request that passes.
    #[inline]
    pub(in crate::bridge::decide) fn note_repeats(
        &self,
        repeats: &mut Repeats,
        tallies: &mut [Tally],
    ) {
        for (at, place) in self.places.iter().enumerate() {
            let Some(window) = self.rules.rows[place.row].idempotency else { continue };
            let is_charged = self.bill.charged >> at & 1 != 0;
            if matches!(place.repeat, Repeat::Again(_)) {
                tallies[place.row].repeat += 1;
            } else if !is_charged {
                continue;
            }
            repeats.note(place.repeat, self.now, window);
        }
    }
}
