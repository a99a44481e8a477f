//! What the datapath writes into a ring for a reader.

use std::marker::PhantomData;

use aya::{
    Pod,
    maps::{MapData, RingBuf},
};
use limiter_common::{
    abi::layout::map,
    memory::{event::SourceEvent, sample::Sample},
};

use super::{bpffs::Pins, open::typed};
use crate::error::Result;

/// The values in a ring that nobody took yet. A ring has one reader: others get the same, or what is overwritten by then, and
/// the datapath waits with new ones for the slowest.
pub struct Ring<T> {
    ring: RingBuf<MapData>,
    of: PhantomData<T>,
}

impl Ring<SourceEvent> {
    /// The events of the instance that is pinned there.
    ///
    /// # Errors
    /// What the system says.
    pub fn events(pins: &Pins) -> Result<Self> {
        Self::open(pins, map::EVENTS)
    }
}

impl Ring<Sample> {
    /// The samples of dropped packets of the instance that is pinned there.
    ///
    /// # Errors
    /// What the system says.
    pub fn samples(pins: &Pins) -> Result<Self> {
        Self::open(pins, map::SAMPLES)
    }
}

impl<T> Ring<T> {
    fn open(pins: &Pins, name: &str) -> Result<Self> {
        Ok(Self { ring: typed(pins, name)?, of: PhantomData })
    }
}

impl<T: Pod> Iterator for Ring<T> {
    type Item = T;

    /// The next value, if there is one yet.
    fn next(&mut self) -> Option<T> {
        loop {
            // Nobody else writes there; what is of another size is passed over all the same.
            if let Some(value) = value(&self.ring.next()?) {
                return Some(value);
            }
        }
    }
}

/// A value by its bytes, if there are as many as it has.
fn value<T: Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() != size_of::<T>() {
        return None;
    }
    // SAFETY: there are as many bytes, of which any make a valid value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
