//! The entry of a source as layout 29 had it, and the description of it.

use std::{fs, mem::offset_of};

use anyhow::Result;
use aya::{
    Pod,
    maps::{Array, MapData},
};
use limiter_common::{
    abi::{
        description::Description,
        layout::map,
        table::{FurtherLimits, LimitState, Source, UntrackedTotals, WholeSource},
    },
    base::{address::Address, tally::Tally},
    policy::limit::INLINE,
};
use limiter_userspace::datapath::bpffs::Pins;

use crate::program::typed;

/// An entry with the words of all limits side by side, and two times in nanoseconds instead of an episode.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Source29 {
    binding: u64,
    address: Address,
    known: u32,
    words: [u64; INLINE],
    pending: u64,
    blocked: u64,
    dropped: Tally,
    passed: Tally,
    refused: u64,
    told: u64,
    scales: [u64; INLINE],
    limit_ids: [u32; INLINE],
}

// SAFETY: `repr(C)`, of integers alone, and without padding: its size is the sum of its fields, as is asserted below.
unsafe impl Pod for Source29 {}

const _: () = {
    assert!(size_of::<Source29>() == 256);
    assert!(offset_of!(Source29, blocked) == offset_of!(UntrackedTotals, blocked));
    assert!(offset_of!(Source29, passed) == offset_of!(UntrackedTotals, passed));
};

impl Source29 {
    /// The same entry in that layout, of a source that was refused last at one time, which was told last at another.
    pub fn of(source: &WholeSource, refused: u64, told: u64) -> Self {
        let limits: [LimitState; INLINE] = std::array::from_fn(|place| source.limit(place));
        let source = &source.entry;
        Self {
            binding: source.binding,
            address: source.address,
            known: source.known,
            words: limits.map(|it| it.word),
            pending: source.pending,
            blocked: source.blocked,
            dropped: source.dropped,
            passed: source.passed,
            refused,
            told,
            scales: limits.map(|it| it.scale),
            limit_ids: limits.map(|it| it.limit_id),
        }
    }

    /// The description of a layout with such entries, each so many bytes behind the beginning of its value.
    pub fn describe(own: Description, at: u32) -> Description {
        let at = |offset: usize| offset as u32 + at;
        Description {
            layout: 29,
            source_binding: at(offset_of!(Self, binding)),
            source_address: at(offset_of!(Self, address)),
            source_words: at(offset_of!(Self, words)),
            source_scales: at(offset_of!(Self, scales)),
            source_limit_ids: at(offset_of!(Self, limit_ids)),
            source_pending: at(offset_of!(Self, pending)),
            source_dropped: at(offset_of!(Self, dropped)),
            source_passed: at(offset_of!(Self, passed)),
            source_refused: at(offset_of!(Self, refused)),
            source_told: at(offset_of!(Self, told)),
            buckets: 0,
            entry_places: 0,
            further_words: 0,
            further_scales: 0,
            further_limit_ids: 0,
            ..own
        }
    }
}

/// Has the sources of an instance be as an older layout had them, which has no limits beside the entries.
///
/// # Errors
/// Fails if a map cannot be made, read or written.
pub fn replace_sources<T: Pod>(pins: &Pins, of: impl Fn(&WholeSource) -> T) -> Result<()> {
    let now: Array<MapData, Source> = typed(pins, map::SOURCES)?;
    let further: Array<MapData, FurtherLimits> = typed(pins, map::FURTHER_LIMITS)?;
    let mut older = Array::<MapData, T>::create(now.len(), 0)?;
    for number in 0..now.len() {
        let entry = now.get(&number, 0)?;
        if entry.binding != 0 {
            // Without a policy that asks for them, there is but one.
            let further = further.get(&number, 0).unwrap_or_default();
            older.set(number, of(&WholeSource { entry, further }), 0)?;
        }
    }
    let path = pins.map(map::SOURCES);
    fs::remove_file(&path)?;
    older.pin(&path)?;
    Ok(fs::remove_file(pins.map(map::FURTHER_LIMITS))?)
}
