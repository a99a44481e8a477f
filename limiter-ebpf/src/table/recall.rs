//! Copies the state of a source or a key from the old table into its new entry.
//!
//! While state is carried over, the old table is loaded beside the new one. A source or a key gets its old words with its
//! new entry, before its packet is decided. What another CPU or interface charges to the old table after that is merged by
//! the [sweep](super::sweep). The old table may have an older layout: the loader sets the offsets of its fields as
//! constants, from the [`Description`](limiter_common::abi::description::Description) that is pinned beside it.

use aya_ebpf::maps::Array;
use limiter_common::{
    abi::{
        description::OldTables,
        layout::shared,
        state::Bucket,
        table::{LimitState, Set, Source, WAYS},
    },
    algorithm::{
        binding::{self, Binding},
        debt,
        meter::Measure,
    },
    base::{address::Address, tally::Tally},
    memory::{event::Episode, pending::PendingTally},
    policy::limit::{BucketKey, INLINE, KEYED},
    table::set::Place,
};

use crate::{
    kernel::{
        atomics::MapWord,
        barrier::black_box,
        key::SourceKey,
        maps::{
            OLD_BUCKETS, OLD_FURTHER_LIMITS, OLD_MEASURES, OLD_SETS, OLD_SOURCES, OLD_TABLES,
            SHARED_SOURCES, SOURCES,
        },
        scratch::{PacketScratch, Recalled},
    },
    policy::active,
    table::record::{LimitRef, Places, has_place},
};

/// Reads a field of [`OLD_TABLES`].
macro_rules! old {
    ($($field:ident).+) => {{
        let all = $crate::table::recall::old_tables();
        // SAFETY: it points to the constant.
        unsafe { (&raw const (*all).$($field).+).read_volatile() }
    }};
}
pub(super) use old;

/// A pointer to the value of [`OLD_TABLES`]. `Global` has the layout of its value.
#[inline(always)]
pub(super) const fn old_tables() -> *const OldTables {
    (&raw const OLD_TABLES).cast()
}

/// Whether there is an old table. The constant is frozen at load time, so the verifier removes the branch not taken.
#[inline(always)]
pub(crate) fn carries() -> bool {
    old!(source_sets) != 0
}

/// A value of the old table.
pub(super) struct OldRef<T>(*const T);

impl<T> OldRef<T> {
    /// The value with this number in a map of the old table.
    #[inline(always)]
    pub(super) fn at(map: &'static Array<T>, number: u32) -> Option<Self> {
        map.get_ptr(number).map(Self)
    }

    /// The aligned word `index` of the words that begin at `offset`, in bytes.
    #[inline(always)]
    pub(super) fn word(&self, offset: u32, index: usize) -> u64 {
        // SAFETY: the value was looked up in this run of the program. The verifier checks that the word is within it.
        unsafe { self.0.byte_add(offset as usize).cast::<u64>().add(index).read_volatile() }
    }

    /// The aligned 32-bit number `index` of those that begin at `offset`, in bytes.
    #[inline(always)]
    fn half(&self, offset: u32, index: usize) -> u32 {
        // SAFETY: as in `word`.
        unsafe { self.0.byte_add(offset as usize).cast::<u32>().add(index).read_volatile() }
    }

    /// Whether the version word at an offset is locked, as while the entry changes hands.
    #[inline(always)]
    pub(super) fn is_locked(&self, binding: u32) -> bool {
        Binding(self.word(binding, 0)).is_locked()
    }
}

impl OldRef<Set> {
    /// The tag of a way.
    #[inline(always)]
    pub(super) fn tag(&self, way: usize) -> u8 {
        let tags = old!(layout.set_tags) as usize;
        // SAFETY: as in `word`; a set has a tag for each way.
        unsafe { self.0.cast::<u8>().byte_add(tags).add(way & (WAYS - 1)).read_volatile() }
    }
}

impl OldRef<Source> {
    /// That of this number, as entries are numbered in this layout.
    #[inline(always)]
    pub(super) fn of(number: u32) -> Option<Self> {
        let first = old!(layout.source_first);
        let found = match number.checked_sub(shared::LEN) {
            Some(way) => OLD_SOURCES.get_ptr(first.wrapping_add(way)),
            None if first != 0 => OLD_SOURCES.get_ptr(number),
            // It is the map that both tables have.
            None => SHARED_SOURCES.get_ptr(number).map(<*const _>::cast),
        };
        found.map(Self)
    }

    /// Takes the totals out of it. No program counts there any more.
    #[inline(always)]
    pub(super) fn take_totals(&self) -> [Tally; 2] {
        let take = |offset: u32, word| {
            let found = self.word(offset, word);
            // SAFETY: as in `word`.
            unsafe {
                self.0
                    .byte_add(offset as usize)
                    .cast_mut()
                    .cast::<u64>()
                    .add(word)
                    .write_volatile(0);
            }
            found
        };
        let pending = PendingTally(take(old!(layout.source_pending), 0)).tally();
        let [dropped, mut passed] = [old!(layout.source_dropped), old!(layout.source_passed)]
            .map(|offset| Tally { packets: take(offset, 0), bytes: take(offset, 1) });
        passed.packets += pending.packets;
        passed.bytes += pending.bytes;
        [dropped, passed]
    }

    /// The address of its source.
    #[inline(always)]
    pub(super) fn key(&self) -> SourceKey {
        let offset = old!(layout.source_address) as usize;
        // SAFETY: as in `word`; the offset is a multiple of 8.
        unsafe { SourceKey::read(self.0.byte_add(offset).cast::<Address>()) }
    }

    /// The state of the inline limit at a place of the entry of this number, which this is. It is of no limit if the old table
    /// has no such place.
    #[inline(always)]
    pub(super) fn limit(&self, number: u32, place: usize) -> LimitState {
        let entry_places = match old!(layout.entry_places) {
            0 => INLINE,
            places => places as usize,
        };
        // Told by its bits, as in `LimitRef`.
        if black_box(place & !(entry_places - 1)) == 0 {
            let place = place & (entry_places - 1);
            return LimitState {
                word: self.word(old!(layout.source_words), place),
                scale: self.word(old!(layout.source_scales), place),
                limit_id: self.half(old!(layout.source_limit_ids), place),
            };
        }
        if old!(has_further) == 0 {
            return LimitState::default();
        }
        let Some(further) = OLD_FURTHER_LIMITS.get_ptr(number).map(OldRef) else {
            return LimitState::default();
        };
        let place = black_box(place - entry_places) & (INLINE - 1);
        LimitState {
            word: further.word(old!(layout.further_words), place),
            scale: further.word(old!(layout.further_scales), place),
            limit_id: further.half(old!(layout.further_limit_ids), place),
        }
    }
}

impl OldRef<Measure> {
    #[inline(always)]
    fn measure(&self) -> Measure {
        Measure {
            scale: self.word(old!(layout.measure_scale), 0),
            span: self.word(old!(layout.measure_span), 0),
        }
    }
}

/// Copies the old entry of the packet's source into the new one, which is not bound yet. Returns 1, or 0 if the old table
/// has no entry of the source. The lock of the set is held.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn recall_source(entry: u32) -> u32 {
    if !carries() {
        return 0;
    }
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let place = Place::of(&scratch.source, old!(seed), old!(source_sets));
    let Some(set) = OldRef::at(&OLD_SETS, place.set) else { return 0 };
    for way in 0..WAYS {
        if set.tag(way) == place.tag && copy_source(shared::entry(place.set, way), entry) != 0 {
            return 1;
        }
    }
    0
}

/// Copies the old entry `from` into the entry `to` if it is that of the packet's source. Returns 0 if it is not.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy_source(from: u32, to: u32) -> u32 {
    if !carries() {
        return 0;
    }
    let (Some(scratch), Some(old), Some(new)) =
        (PacketScratch::get(), OldRef::<Source>::of(from), SOURCES.get_ptr_mut(to))
    else {
        return 0;
    };
    if old.is_locked(old!(layout.source_binding)) || !old.key().is(scratch.key()) {
        return 0;
    }
    let Some(places) = Places::of(to, new) else { return 0 };
    places.all(|place, state| {
        // SAFETY: the entry was just looked up. Nobody else writes one that is not bound yet.
        unsafe { state.write(old.limit(from, place)) };
        true
    });
    let [dropped, passed] = [old!(layout.source_dropped), old!(layout.source_passed)]
        .map(|offset| Tally { packets: old.word(offset, 0), bytes: old.word(offset, 1) });
    let [pending, refused] = [old!(layout.source_pending), old!(layout.source_refused)]
        .map(|offset| old.word(offset, 0));
    // Before layout 30, it was two times.
    let episode = match old!(layout.source_told) {
        0 => Episode(refused),
        told => Episode::of_times(refused, old.word(told, 0)),
    };
    // SAFETY: as above.
    unsafe {
        (&raw mut (*new).dropped).write_volatile(dropped);
        (&raw mut (*new).passed).write_volatile(passed);
        (&raw mut (*new).pending).write_volatile(pending);
        (&raw mut (*new).episode).write_volatile(episode.0);
    }
    1
}

/// Returns for how long an old entry owes to the inline limit at a place, in nanoseconds. It is verified by itself, or the
/// verifier would follow both outcomes of each place.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn old_owes(number: u32, place: u32, now: u64) -> u64 {
    if !carries() {
        return 0;
    }
    let Some(old) = OldRef::<Source>::of(number) else { return 0 };
    let LimitState { word, scale, .. } = old.limit(number, place as usize & (INLINE - 1));
    debt::owes(word, scale, now)
}

/// Stores the word of the old entry `from` in the entry `to` if it owes more to the inline limit at a place. That is so when
/// another CPU or interface charged the old entry after the source had got its new one. Returns 1 if a packet was at the new
/// entry meanwhile, otherwise 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn merge_limit(from: u32, to: u32, place: u32, now: u64) -> u32 {
    if !carries() {
        return 0;
    }
    let (Some(old), Some(new)) = (OldRef::<Source>::of(from), SOURCES.get_ptr_mut(to)) else {
        return 0;
    };
    let place = place as usize & (INLINE - 1);
    let LimitState { word: brought, scale, limit_id } = old.limit(from, place);
    if !has_place(place) {
        return 0;
    }
    let Some(state) = LimitRef::at(to, new, place) else { return 0 };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let (entry, word) =
        unsafe { (MapWord::new(&raw mut (*new).binding), MapWord::new(state.word)) };
    // SAFETY: as above.
    let is_same = || unsafe {
        state.scale.read_volatile() == scale && state.limit_id.read_volatile() == limit_id
    };
    let merged =
        binding::merge(&entry, &word, brought, is_same, |word| debt::owes(word, scale, now));
    u32::from(!merged)
}

/// Notes the old bucket of the key at a place of the packet in [`Keyed::recalled`](crate::kernel::scratch::Keyed).
/// Returns 0 if the old table has none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn recall_bucket(at: u32) -> u32 {
    if !carries() {
        return 0;
    }
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let Some(settings) = active::settings(scratch.binding.epoch()) else { return 0 };
    let at = at as usize & (KEYED - 1);
    scratch.keyed.recalled = Recalled::default();
    scratch.keyed.recalled_wide = 0;
    let (sets, bucket_sets) = (old!(source_sets), old!(bucket_sets));
    let wide_sets = old!(wide_sets);
    let key = &scratch.keyed.keys[at];
    // A word says nothing without its slots.
    if old!(has_wide) == 0 && scratch.keyed.is_wide(at) {
        return 0;
    }
    if key.is_shared() {
        let tally = scratch.keyed.entries[at].wrapping_sub(settings.first_shared());
        return copy_bucket((bucket_sets + wide_sets) * WAYS as u32 + tally, at as u32);
    }
    let (first, number_of_sets) = if scratch.keyed.is_wide(at) {
        (sets + bucket_sets, wide_sets)
    } else {
        (sets, bucket_sets)
    };
    let place = Place::of_key(key, old!(seed), first, number_of_sets);
    let Some(set) = OldRef::at(&OLD_SETS, place.set) else { return 0 };
    for way in 0..WAYS {
        if set.tag(way) == place.tag
            && copy_bucket((place.set - sets) * WAYS as u32 + way as u32, at as u32) != 0
        {
            return 1;
        }
    }
    0
}

/// What the word of an old bucket is measured in.
#[inline(always)]
pub(super) fn old_measure(number: u32) -> Measure {
    OldRef::at(&OLD_MEASURES, number).map_or(Measure::default(), |measure| measure.measure())
}

/// Notes the old bucket `from` if it is that of the key at a place of the packet. Returns 0 if it is not.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy_bucket(from: u32, at: u32) -> u32 {
    if !carries() {
        return 0;
    }
    let (Some(scratch), Some(bucket), Some(measure)) =
        (PacketScratch::get(), OldRef::at(&OLD_BUCKETS, from), OldRef::at(&OLD_MEASURES, from))
    else {
        return 0;
    };
    let key = (&raw const scratch.keyed.keys[at as usize & (KEYED - 1)]).cast::<u64>();
    let binding = bucket.word(old!(layout.bucket_binding), 0);
    let mut differs = u64::from(Binding(binding).is_locked());
    for word in 0..BucketKey::WORDS {
        // SAFETY: a key of the packet is as long and as aligned as its words of 64 bits.
        let own = unsafe { key.add(word).read_volatile() };
        differs |= bucket.word(old!(layout.bucket_key), word) ^ own;
    }
    if differs != 0 {
        return 0;
    }
    let word = bucket.word(old!(layout.bucket_word), 0);
    let recalled = Recalled { word, measure: measure.measure() };
    // A packet that is under way by the old program re-scales the word before its measure. What it leaves, the sweep finds.
    if bucket.word(old!(layout.bucket_binding), 0) != binding {
        return 0;
    }
    scratch.keyed.recalled = recalled;
    let first_wide = old!(bucket_sets) * WAYS as u32;
    scratch.keyed.recalled_wide = (from + 1).saturating_sub(first_wide);
    1
}

/// Stores the key of an old bucket as the first key of the packet. Returns its limit id, which is 0 for a free bucket.
#[inline(always)]
pub(super) fn take_key(scratch: &mut PacketScratch, bucket: &OldRef<Bucket>) -> u32 {
    let key = (&raw mut scratch.keyed.keys[0]).cast::<u64>();
    for word in 0..BucketKey::WORDS {
        let of = bucket.word(old!(layout.bucket_key), word);
        // SAFETY: as in `copy_bucket`.
        unsafe { key.add(word).write_volatile(of) };
    }
    scratch.reread().keyed.keys[0].limit_id
}
