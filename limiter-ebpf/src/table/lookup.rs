//! Which entry the source of a packet has.

use limiter_common::{
    abi::{
        layout::shared,
        table::{Source, WAYS},
    },
    algorithm::binding::Binding,
    base::address::Address,
    memory::event::Episode,
    table::set::Tags,
};

use crate::{
    kernel::{atomics::MapWord, barrier::escape, maps::SOURCES, scratch::PacketScratch},
    table::{
        recall::carries,
        record::{bound, is_of},
        set::{DebtNotes, SetRef},
    },
};

/// Which entry a source has, by its number in [`SOURCES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(pub(crate) u32);

impl EntryId {
    /// Not known yet.
    pub(crate) const UNKNOWN: Self = Self(u32::MAX);
    /// That of the frames whose source cannot be read.
    pub(crate) const UNREADABLE: Self = Self(shared::UNREADABLE);
    /// Not known yet, in a set without a free way.
    pub(crate) const SET_FULL: Self = Self(u32::MAX - 1);

    /// Whether it is that of the sources that found no room in a set.
    #[inline(always)]
    pub(crate) const fn is_overflow(self) -> bool {
        self.0.wrapping_sub(shared::OVERFLOW) < shared::OVERFLOWS
    }

    /// Whether it is known.
    #[inline(always)]
    pub(crate) const fn is_there(self) -> bool {
        self.0 < Self::SET_FULL.0
    }

    /// Whether several sources share its entry, all of which would pay for what one of them does.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.0 < shared::LEN
    }

    /// The time in which the source of an entry is over its limits, if it is one of the table that is bound
    /// so still, and how many packets of it were dropped.
    #[inline(always)]
    pub(crate) fn episode(self, binding: Binding) -> Option<(Episode<MapWord>, MapWord)> {
        if self.is_shared() {
            return None;
        }
        let source = self.entry()?;
        // SAFETY: it was just looked up.
        if unsafe { bound(source) } != binding {
            return None;
        }
        // SAFETY: as above; aligned words.
        Some(unsafe {
            let [episode, dropped] =
                [&raw mut (*source).episode, &raw mut (*source).dropped.packets]
                    .map(|word| MapWord::new(word));
            (Episode(episode), dropped)
        })
    }

    /// That of the packet's source, whose place is known, if it has one.
    #[inline(always)]
    pub(crate) fn of(scratch: &mut PacketScratch) -> Self {
        if scratch.source.family == Address::NONE.family {
            return Self::UNREADABLE;
        }
        let place = scratch.place;
        let Some(set_ref) = SetRef::of(place.set) else { return Self::UNKNOWN };
        scratch.state = set_ref.state_before();
        scratch.tags = set_ref.tags();
        if scratch.tags.have(place.tag) {
            escape(scratch);
            let way = find_way() as usize;
            if way < WAYS {
                return Self(set_ref.entry(way));
            }
        }
        Self::none(scratch.reread().tags)
    }

    /// That of a source without an entry, in a set that had these tags. While state is carried over, such a source may owe
    /// by the old table, and is given an entry at once.
    #[inline(always)]
    pub(crate) fn none(tags: Tags) -> Self {
        if tags.have(0) || carries() { Self::UNKNOWN } else { Self::SET_FULL }
    }

    #[inline(always)]
    pub(crate) fn entry(self) -> Option<*mut Source> {
        SOURCES.get_ptr_mut(self.0)
    }
}

/// The way of the packet's source, whose place is known, in its set; [`WAYS`] if it has none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_way() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return WAYS as u32 };
    let place = scratch.place;
    let Some(set_ref) = SetRef::of(place.set) else { return WAYS as u32 };
    let Some(notes) = DebtNotes::of(&set_ref) else { return WAYS as u32 };
    let mut found = WAYS;
    for way in 0..WAYS {
        // One branch for both: each doubles what the verifier follows.
        let differs = set_ref.tag(way) ^ place.tag | notes.at(way).tag_ext() ^ place.tag_ext;
        if differs == 0
            && let Some(source) = SOURCES.get_ptr_mut(set_ref.entry(way))
            // SAFETY: it was just looked up.
            && unsafe { is_of(source, scratch.key()) }
        {
            found = way;
            break;
        }
    }
    found as u32
}
