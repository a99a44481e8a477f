//! Copies what the entries that sources share owe.
//!
//! They are copied shortly before the new program runs. What the old one charges to them after that, and all that it counted
//! there, `limiter_carry` merges.

use std::{os::fd::AsFd as _, thread, time::Duration};

use aya::maps::{Array, MapData};
use limiter_common::{
    abi::{
        description::Description,
        layout::{map, shared},
        table::{FurtherLimits, LimitState, Source, WholeSource},
    },
    algorithm::binding::Binding,
    policy::limit::INLINE,
};

use super::{Old, TRIES};
use crate::{
    datapath::{
        bpffs::sides::word,
        maps::Maps,
        object::object,
        open::{missing, pinned, typed},
        sys,
    },
    error::{Error, Result},
};

/// Copies them. No packet may go by the new ones. Returns how many packets brought up to date all the time: those begin anew.
pub(super) fn bring(old: &Old, maps: &Maps) -> Result<u32> {
    let layout = &old.layout;
    let sources = Values::open(old, layout.shared_sources())?;
    let further = match old.from.tables.has_further {
        0 => None,
        _ => Some(Values::open(old, map::FURTHER_LIMITS)?),
    };
    let failed = |error| object("copy the entries that sources share", &error);
    let mut to: Array<MapData, Source> = typed(&maps.pins, map::SOURCES)?;
    let mut to_further: Array<MapData, FurtherLimits> = typed(&maps.pins, map::FURTHER_LIMITS)?;
    let mut lost = 0;
    for number in (0..shared::LEN).filter(|number| *number != shared::UNTRACKED) {
        let mut is_whole = false;
        for _ in 0..TRIES {
            let entry = sources.get(number)?;
            let limits = further.as_ref().map(|further| further.get(number)).transpose()?;
            let binding = |entry: &Value| entry.word(layout.source_binding, 0);
            let after = binding(&sources.get(number)?);
            // While a packet brings it up to date, it is not whole.
            if !Binding(after).is_locked() && after == binding(&entry) {
                let WholeSource { entry, further } = copy(layout, &entry, limits.as_ref());
                to.set(number, entry, 0).map_err(failed)?;
                if number < to_further.len() {
                    to_further.set(number, further, 0).map_err(failed)?;
                }
                is_whole = true;
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        lost += u32::from(!is_whole);
    }
    Ok(lost)
}

/// What an old entry, and what is beside it, owes to limits, in an entry that is not bound yet. What it counted stays there.
fn copy(layout: &Description, entry: &Value, beside: Option<&Value>) -> WholeSource {
    let in_entry = if layout.entry_places == 0 { INLINE } else { layout.entry_places as usize };
    let mut copied = WholeSource::default();
    for place in 0..INLINE {
        let (value, fields, at) = match place.checked_sub(in_entry) {
            None => {
                let fields = [layout.source_words, layout.source_scales, layout.source_limit_ids];
                (Some(entry), fields, place)
            }
            Some(at) => {
                let fields =
                    [layout.further_words, layout.further_scales, layout.further_limit_ids];
                (beside, fields, at)
            }
        };
        let Some(value) = value else { break };
        let [words, scales, limit_ids] = fields;
        copied.set_limit(
            place,
            LimitState {
                word: value.word(words, at),
                scale: value.word(scales, at),
                limit_id: value.half(limit_ids, at),
            },
        );
    }
    copied
}

/// The values of an array of any layout.
struct Values {
    map: MapData,
    bytes: usize,
    name: &'static str,
}

impl Values {
    fn open(old: &Old, name: &'static str) -> Result<Self> {
        let map = pinned(&old.from.pins, name)?.ok_or_else(|| missing(name))?;
        let info = map.info().map_err(|error| object("look at a map", &error))?;
        let bytes = info.value_size() as usize;
        Ok(Self { map, bytes, name })
    }

    fn get(&self, number: u32) -> Result<Value> {
        let value = sys::value(self.map.fd().as_fd(), number, self.bytes);
        value
            .map(Value)
            .map_err(|error| Error::system(format!("read the map {}", self.name), error))
    }
}

/// The bytes of a value.
struct Value(Vec<u8>);

impl Value {
    /// The word `index` of those that begin at `offset`, in bytes; 0 if the value ends before it.
    fn word(&self, offset: u32, index: usize) -> u64 {
        word(&self.0, offset as usize + index * size_of::<u64>())
    }

    /// The same of numbers of 32 bits.
    fn half(&self, offset: u32, index: usize) -> u32 {
        let at = offset as usize + index * size_of::<u32>();
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        u32::from_ne_bytes(bytes.copied().unwrap_or_default())
    }
}
