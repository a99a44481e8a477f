//! What the first fragments of datagrams said: to the program, and in frames that were asked about before.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use limiter_common::{
    abi::layout::map,
    memory::fragment::{Datagram, follow},
    packet::headers::Packet,
};

use super::tables::Tables;
use crate::error::Result;

/// The words of frames that were asked about, beside those that the program wrote.
#[derive(Debug, Default)]
pub struct Fragments {
    words: RefCell<HashMap<u32, u64>>,
}

impl Fragments {
    /// Notes what a first fragment says, or gives a later one what was noted. Returns whether a first one contradicts an
    /// earlier one.
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
        let contradicts = follow(packet, datagram, &word, now);
        if word.get() != before {
            self.words.borrow_mut().insert(place, word.get());
        }
        Ok(contradicts)
    }
}
