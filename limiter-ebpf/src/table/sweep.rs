//! The sweep: carries over the state of sources and keys that send nothing while state is carried over.
//!
//! The program `limiter_carry`, which no interface runs, goes through the old table in batches. It inserts each source and
//! key by the functions that packets use, while packets are decided.

use aya_ebpf::programs::XdpContext;
use limiter_common::{
    abi::{
        description::{Batch, Request, carried},
        layout::shared,
        table::{Source, WAYS},
    },
    algorithm::binding::{Binding, merge},
    base::address::Address,
    policy::limit::INLINE,
    table::set::Place,
};

use crate::{
    kernel::{
        atomics::MapWord,
        barrier::escape,
        maps::{BUCKETS, MEASURES, OLD_BUCKETS, OLD_SETS, SOURCES},
        scratch::PacketScratch,
    },
    policy::active::{ActivePolicy, settings},
    table::{
        buckets::{
            NONE, begin_bucket, enter_bucket, find_room_for, give_bucket_to, is_of, place,
            seek_bucket_at,
        },
        evict::find_or_insert,
        insert::find_time,
        lookup::EntryId,
        recall::{
            OldRef, carries, merge_limit, old, old_measure, old_owes, recall_bucket, take_key,
        },
        record::add,
        set::SetRef,
    },
};

/// Carries over the entries of the [`Request`] in the frame. Returns a [`Batch`].
#[inline(always)]
pub fn run(ctx: &XdpContext) -> u32 {
    let start = ctx.data();
    if start + size_of::<Request>() > ctx.data_end() {
        return 0;
    }
    // SAFETY: the frame is as long.
    let Request { kind, first, .. } = unsafe { (start as *const Request).read_unaligned() };
    let mut batch = 0;
    for at in 0..carried::BATCH {
        let number = first.wrapping_add(at);
        batch += if kind == carried::BUCKETS {
            carry_old_bucket(number)
        } else {
            carry_old_source(number, kind)
        };
    }
    batch
}

/// Whether an old entry has a tag. `first` is the number of sets before those of its kind.
#[inline(always)]
fn is_used(number: u32, first: u32) -> bool {
    let set = OldRef::at(&OLD_SETS, first.wrapping_add(number / WAYS as u32));
    set.is_some_and(|set| set.tag(number as usize & (WAYS - 1)) != 0)
}

/// Carries over the old entry of a source, if it is of this kind. Returns a [`Batch`] of one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn carry_old_source(number: u32, kind: u32) -> u32 {
    let Some(way) = number.checked_sub(shared::LEN) else {
        return if kind == carried::SOURCES { carry_shared_source(number) } else { 0 };
    };
    if !carries() || !is_used(way, 0) {
        return 0;
    }
    let (Some(scratch), Some(policy), Some(old)) =
        (PacketScratch::get(), ActivePolicy::get(), OldRef::<Source>::of(number))
    else {
        return 0;
    };
    if old.is_locked(old!(layout.source_binding)) {
        return Batch::BUSY.0;
    }
    find_time();
    let scratch = scratch.reread();
    let now = scratch.by_tick();
    let mut owes = 0;
    for place in 0..INLINE as u32 {
        owes |= old_owes(number, place, now);
    }
    if (owes == 0) != (kind == carried::IDLE) {
        return 0;
    }
    scratch.write_key(old.key());
    scratch.owed = 0;
    escape(scratch);
    place_old_source(number, kind, policy.epoch)
}

/// Merges an old entry that sources share into the new one, which was copied from it. What was charged and counted there
/// meanwhile is found now. Returns a [`Batch`] of none, or of one that other CPUs moved.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn carry_shared_source(number: u32) -> u32 {
    if !carries() || number == shared::UNTRACKED {
        return 0;
    }
    let (Some(old), Some(new)) = (OldRef::<Source>::of(number), SOURCES.get_ptr_mut(number)) else {
        return 0;
    };
    if old.is_locked(old!(layout.source_binding)) {
        return Batch::BUSY.0;
    }
    for (tally, dropped) in old.take_totals().into_iter().zip([true, false]) {
        // SAFETY: a map value that was just looked up.
        unsafe { add(new, dropped, tally.packets, tally.bytes) };
    }
    find_time();
    let Some(now) = PacketScratch::get().map(|scratch| scratch.by_tick()) else { return 0 };
    let mut lost = 0;
    for place in 0..INLINE as u32 {
        lost |= merge_limit(number, number, place, now);
    }
    lost * Batch::BUSY.0
}

/// Finds or inserts the entry of the source in the scratch, and merges the old words into it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn place_old_source(number: u32, kind: u32, epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    if !carries() || scratch.source.family == Address::NONE.family {
        return 0;
    }
    scratch.place = Place::of(&scratch.source, settings.table_seed, settings.sets);
    escape(scratch);
    let Some(set_ref) = SetRef::lock(scratch.place.set) else { return Batch::BUSY.0 };
    // The totals of a source that owes nothing take only a free way.
    if kind == carried::IDLE && !set_ref.tags().have(0) {
        set_ref.unlock();
        return 0;
    }
    let entry_id = EntryId(find_or_insert(epoch));
    let batch = if entry_id == EntryId::SET_FULL {
        Batch::LOST
    } else if entry_id == EntryId::UNKNOWN {
        Batch::BUSY
    } else {
        let (entry, now) = (entry_id.0, scratch.reread().by_tick());
        let mut lost = 0;
        for place in 0..INLINE as u32 {
            lost |= merge_limit(number, entry, place, now);
        }
        if lost == 0 { Batch::CARRIED } else { Batch::BUSY }
    };
    set_ref.unlock_changed();
    batch.0
}

/// Carries over an old bucket that owes. Returns a [`Batch`] of one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn carry_old_bucket(number: u32) -> u32 {
    let sets = old!(source_sets);
    let own = (old!(bucket_sets) + old!(wide_sets)) * WAYS as u32;
    if !carries() || number < own && !is_used(number, sets) {
        return 0;
    }
    let (Some(scratch), Some(policy), Some(old)) =
        (PacketScratch::get(), ActivePolicy::get(), OldRef::at(&OLD_BUCKETS, number))
    else {
        return 0;
    };
    if old.is_locked(old!(layout.bucket_binding)) {
        return Batch::BUSY.0;
    }
    if take_key(scratch, &old) == 0 {
        return 0;
    }
    find_time();
    let scratch = scratch.reread();
    scratch.binding = Binding::new(policy.epoch, 0);
    let keyed = PacketScratch::hide_provenance(&mut scratch.keyed);
    // No meter is known here. The bucket's own measure tells what it owes.
    (keyed.bits[0], keyed.meters[0]) = (0, 0);
    keyed.entries[0] = policy.settings.first_shared() + number.wrapping_sub(own);
    // The kind tells in which sets the key is looked for.
    keyed.kinds[0] = old_measure(number).kind() as u32;
    escape(scratch);
    recall_bucket(0);
    let scratch = scratch.reread();
    let recalled = scratch.keyed.recalled;
    if recalled.measure.owes(recalled.word, scratch.time().now) == 0 {
        return 0;
    }
    place_old_bucket(u32::from(number >= own))
}

/// Finds or inserts the bucket of the key in the scratch, or takes the shared bucket of its limit, and merges the old word
/// into it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn place_old_bucket(is_shared: u32) -> u32 {
    if !carries() {
        return 0;
    }
    if is_shared != 0 {
        let Some(scratch) = PacketScratch::get() else { return 0 };
        // Where a key came for it already, it has what was known.
        let entry = scratch.keyed.entries[0];
        if is_of(entry, &scratch.keyed.keys[0]) {
            return merge_bucket().0;
        }
        // The old limit is gone, and another one has its tally: that keeps what it has.
        if is_taken(entry) {
            return Batch::LOST.0;
        }
        scratch.keyed.room.owes = false;
        scratch.keyed.idle = u64::MAX;
        escape(scratch);
        return if give_bucket_to(0, 0) != 0 { Batch::CARRIED.0 } else { Batch::BUSY.0 };
    }
    if let Some(scratch) = PacketScratch::get() {
        let is_wide = scratch.keyed.is_wide(0);
        place(scratch, 0, is_wide);
    }
    let set = |scratch: &mut PacketScratch| scratch.keyed.places[0].set;
    let Some(set_ref) = PacketScratch::get().and_then(|scratch| SetRef::lock(set(scratch))) else {
        return Batch::BUSY.0;
    };
    let batch = if seek_bucket_at(0) != NONE {
        merge_bucket()
    } else if find_room_for(0) == 0 {
        Batch::LOST
    } else {
        begin_bucket(0, 0);
        if enter_bucket(0, 0) != 0 { Batch::CARRIED } else { Batch::BUSY }
    };
    set_ref.unlock();
    batch.0
}

/// Whether a bucket is that of a key.
#[inline(always)]
fn is_taken(entry: u32) -> bool {
    // SAFETY: a map value that was just looked up; an aligned number.
    BUCKETS
        .get_ptr(entry)
        .is_some_and(|bucket| unsafe { (&raw const (*bucket).key.limit_id).read_volatile() != 0 })
}

/// Stores the old word in the bucket that the key has already, if it owes more: another CPU or interface charged the old
/// bucket after the key had got its new one.
#[inline(always)]
fn merge_bucket() -> Batch {
    let Some(scratch) = PacketScratch::get() else { return Batch::BUSY };
    let (entry, recalled) = (scratch.keyed.entries[0], scratch.keyed.recalled);
    let (Some(bucket), Some(measure)) = (BUCKETS.get_ptr_mut(entry), MEASURES.get_ptr(entry))
    else {
        return Batch::BUSY;
    };
    let measured = recalled.measure;
    // A wide state is as it was when the key came for it. What another CPU charged to the old one since is lost.
    if measured.is_wide() {
        return Batch::CARRIED;
    }
    // SAFETY: map values that were just looked up; their fields are aligned words.
    let (binding, word) = unsafe {
        (MapWord::new(&raw mut (*bucket).binding), MapWord::new(&raw mut (*bucket).word))
    };
    // SAFETY: as above.
    let is_same = || unsafe {
        (&raw const (*measure).scale).read_volatile() == measured.scale
            && (&raw const (*measure).span).read_volatile() == measured.span
    };
    let now = scratch.time().now;
    match merge(&binding, &word, recalled.word, is_same, |word| measured.owes(word, now)) {
        true => Batch::CARRIED,
        false => Batch::BUSY,
    }
}
