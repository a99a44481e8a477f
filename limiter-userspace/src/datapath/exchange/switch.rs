//! The monitor switches of two tables. They take no lock, so one may be thrown in maps that are in use no more, or not yet.

use std::os::fd::AsFd as _;

use limiter_common::abi::{description::Description, layout::map};

use crate::{
    datapath::{
        bpffs::{Pins, sides::word},
        object::only_value,
        open::{missing, pinned},
        sys,
    },
    error::{Error, Result},
};

/// The monitor switch of maps of any layout.
pub(super) struct Switch<'a> {
    pins: &'a Pins,
    /// Where it is in the head, in bytes.
    offset: usize,
}

impl<'a> Switch<'a> {
    /// That of the maps of these pins, which have this layout.
    pub(super) fn of(pins: &'a Pins, layout: &Description) -> Self {
        Self { pins, offset: layout.head_monitor as usize }
    }

    /// What it says; 0 is off.
    pub(super) fn get(&self) -> Result<u64> {
        Ok(word(&head(self.pins)?, self.offset))
    }

    /// Throws it as `other` was since that said `known`. Returns what that says now.
    pub(super) fn follow(&self, other: &Self, known: u64) -> Result<u64> {
        let thrown = other.get()?;
        if thrown != known {
            self.set(thrown)?;
        }
        Ok(thrown)
    }

    fn set(&self, switch: u64) -> Result<()> {
        if head(self.pins)?.len() < self.offset.saturating_add(size_of::<u64>()) {
            return Ok(());
        }
        let map = pinned(self.pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?;
        sys::store_word(map.fd().as_fd(), self.offset, switch)
            .map_err(|error| Error::system("throw the monitor switch", error))
    }
}

/// The value of the head of maps.
pub(super) fn head(pins: &Pins) -> Result<Vec<u8>> {
    only_value(&pinned(pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?, map::HEAD)
}
