//! Notes of first fragments: those of the program, and those of frames that were asked about
//! before.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use limiter_common::{
    abi::layout::map,
    memory::fragment::{Datagram, follow},
    packet::headers::Packet,
    policy::matching::match_field,
};

use super::tables::Tables;
use crate::error::Result;

/// Notes made by questions, by their place in the program's map. A place without one has the
/// program's note.
#[derive(Debug, Default)]
pub struct Fragments {
    words: RefCell<HashMap<u32, u64>>,
}

impl Fragments {
    /// Notes the transport fields of a first fragment, or copies the noted ones into a later
    /// fragment. Returns whether a first fragment contradicts an earlier one of its datagram. `now`
    /// is the time at which the frame came in, in nanoseconds.
    pub(super) fn follow(
        &self,
        tables: &Tables<'_>,
        packet: &mut Packet,
        now: u64,
    ) -> Result<bool> {
        let datagram = Datagram::of(packet, tables.settings.seed);
        let place = datagram.place();
        let known = self.words.borrow().get(&place).copied();
        let before = match known {
            Some(word) => word,
            None => tables.maps.entry(map::FRAGMENTS, &place)?.unwrap_or_default(),
        };
        let word = Cell::new(before);
        let by_source_port = tables.settings.match_fields & match_field::SOURCE_PORT != 0;
        let contradicts = follow(packet, datagram, &word, now, by_source_port);
        if word.get() != before {
            self.words.borrow_mut().insert(place, word.get());
        }
        Ok(contradicts)
    }
}
