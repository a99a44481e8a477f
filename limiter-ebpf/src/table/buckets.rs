//! The table of buckets that are kept by other keys than the source: finding one, and making one.
//!
//! The functions here are verified by themselves, once each. What they find is noted in the [`PacketScratch`]: their stack
//! is below that of [`decide`](crate::pipeline::full), which leaves little.

use limiter_common::{
    abi::{
        layout::table_stats,
        policy::{Settings, half},
        table::WAYS,
    },
    algorithm::{
        binding::Binding,
        concurrent::Concurrent,
        kind::WideKind,
        meter::{Measure, Meter},
        policer::{Policer as _, Refusal},
        sliding_log::SlidingLog,
    },
    base::word::Word as _,
    policy::limit::{BucketKey, KEYED, LIMITS as LIMIT_COUNT, Limit},
    table::set::{self, DebtUntil, Eviction, Place, Room},
};

use crate::{
    kernel::{
        atomics::{MapWord, load_acquire},
        barrier::black_box,
        churn::{count, count_given},
        maps::{BUCKETS, LIMITS, MEASURES, METERS},
        scratch::{Keyed, PacketScratch, Recalled},
    },
    policy::{active, keyed_meter::KeyedMeter},
    table::{
        debt::IDLE,
        recall::{carries, recall_bucket},
        set::{LockedSet, SetRef},
        wide::{Wide, give_wide},
    },
};

/// No entry, or no meter.
pub(crate) const NONE: u32 = u32::MAX;

/// The shared bucket was that of another limit, which is gone.
const FOREIGN: u32 = NONE - 1;

/// Finds the entry of the key at a place, notes its number and version word in the scratch, and returns the number:
/// [`NONE`] if the key has no entry, [`FOREIGN`] if the shared bucket is not yet that of the limit.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn seek_bucket_at(at: u32) -> u32 {
    PacketScratch::get().map_or(NONE, |scratch| seek(scratch, at as usize & (KEYED - 1)))
}

/// The same, where it is a part of another function: each call costs a packet some nanoseconds.
#[inline(always)]
pub(crate) fn seek(scratch: &mut PacketScratch, at: usize) -> u32 {
    let epoch = scratch.binding.epoch();
    let Some(settings) = active::settings(epoch) else { return NONE };
    let keyed = &mut scratch.keyed;
    let key = &keyed.keys[at];
    let place = keyed.places[at];
    let (entry, found) = if key.is_shared() {
        let limit = LIMITS.get(half(epoch, Limit::row(keyed.bits[at])));
        let tally = limit.map_or(0, |limit| limit.tally);
        let entry = settings.first_shared() + tally;
        (entry, if is_of(entry, key) { entry } else { FOREIGN })
    } else {
        let found = find(place, key, settings);
        (found, found)
    };
    keyed.entries[at] = entry;
    note_binding(PacketScratch::hide_provenance(keyed), at, epoch);
    found
}

/// Notes what the entry of the key at a place has to be bound to: 0 if it is given away at this moment.
#[inline(always)]
fn note_binding(keyed: &mut Keyed, at: usize, epoch: u32) {
    keyed.bindings[at] = 0;
    let entry = keyed.entries[at];
    let Some(bucket) = BUCKETS.get_ptr(entry) else { return };
    // SAFETY: a map value that was just looked up; an aligned word.
    let seen = || Binding(unsafe { load_acquire(&raw const (*bucket).binding) });
    let before = seen();
    // It may change hands while it is asked whose it is.
    if !before.is_locked() && is_of(entry, &keyed.keys[at]) && seen() == before {
        keyed.bindings[at] = Binding::new(epoch, keyed.meters[at]).like(before).0;
    }
}

/// Notes where the entry of the key at a place of the packet is, if it has one; `wide` says that it has a wide state.
#[inline(always)]
pub(crate) fn place(scratch: &mut PacketScratch, at: usize, wide: bool) {
    let Some(settings) = active::settings(scratch.binding.epoch()) else { return };
    let (first, sets) = if wide {
        (settings.sets + settings.bucket_sets, settings.wide_sets)
    } else {
        (settings.sets, settings.bucket_sets)
    };
    scratch.keyed.places[at] =
        Place::of_key(&scratch.keyed.keys[at], settings.table_seed, first, sets);
}

/// Finds the entry of the key at a place of the packet, whose limit has a wide state. Returns 0 if there is none to be looked
/// at: a packet without a connection is charged to no list of connections.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_wide_at(at: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let number = at;
    let at = at as usize & (KEYED - 1);
    let is_of_connections = match WideKind::of(scratch.keyed.kinds[at].into()) {
        WideKind::SlidingLog => false,
        WideKind::Concurrent => true,
    };
    if is_of_connections {
        if !scratch.packet.has_connection() {
            scratch.bill.charged |= scratch.keyed.bits[at];
            return 0;
        }
        // What tells the connection from others, hashed once: the seed is that of the instance.
        if scratch.tag == 0
            && let Some(settings) = active::settings(scratch.binding.epoch())
        {
            scratch.tag = Concurrent::tag(scratch.packet.hash(settings.seed, 0));
        }
    }
    scratch.keyed.written[at].looked = 0;
    // What an entry that is made for it owes for.
    scratch.keyed.looks[at].next = SlidingLog::begun_at(scratch.time.now);
    place(scratch, at, true);
    u32::from(seek_bucket_at(number) != NONE)
}

/// The number of the entry of a key with this place; [`NONE`] if it has none.
///
/// The preferred way is compared first. Most keys are there, and one line of memory tells.
#[inline(always)]
fn find(place: Place, key: &BucketKey, settings: &Settings) -> u32 {
    let first = entry_of(place, place.home.into(), settings);
    if is_of(first, key) {
        return first;
    }
    let Some(set_ref) = SetRef::of(place.set) else { return NONE };
    if set_ref.tags().have(place.tag) {
        for way in 0..WAYS {
            let entry = entry_of(place, way, settings);
            if set_ref.tag(way) == place.tag && is_of(entry, key) {
                return entry;
            }
        }
    }
    NONE
}

/// The number of the entry of a way of the set of a place.
#[inline(always)]
fn entry_of(place: Place, way: usize, settings: &Settings) -> u32 {
    (place.set - settings.sets) * WAYS as u32 + way as u32
}

/// Whether an entry is that of a key.
#[inline(always)]
pub(super) fn is_of(entry: u32, key: &BucketKey) -> bool {
    let Some(bucket) = BUCKETS.get_ptr(entry) else { return false };
    let key = (&raw const *key).cast::<u64>();
    let mut differs = 0;
    for word in 0..BucketKey::WORDS {
        // SAFETY: a map value that was just looked up, and a key of the packet: both are as long and as aligned as
        // their words of 64 bits.
        differs |= unsafe {
            let other = (&raw const (*bucket).key).cast::<u64>().add(word).read_volatile();
            other ^ key.add(word).read_volatile()
        };
        // So that the words need not be kept until all are read: there is little room on the stack.
        differs = black_box(differs as usize) as u64;
    }
    differs == 0
}

/// Makes an entry for the key at a place, which was sought and has none. Where all of its set owe, the key takes the entry
/// that keys share. It has none still if another CPU holds the set, or the entry. With `charges` 1, the check of the packet
/// found no entry, and a new one begins with the charge that was checked: that spares a packet of a new key a third of its
/// time. Returns 1 if the packet was charged so.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn make_bucket_at(at: u32, charges: u32) -> u32 {
    let place = |scratch: &mut PacketScratch| scratch.keyed.places[at as usize & (KEYED - 1)];
    let Some(place) = PacketScratch::get().map(place) else { return 0 };
    let Some(set_ref) = SetRef::lock(place.set) else { return 0 };
    let mut charged = 0;
    // Another CPU may have made it meanwhile.
    if !set_ref.tags().have(place.tag) || seek_bucket_at(at) == NONE {
        if find_room_for(at) == 0 {
            share_bucket_at(at);
        } else {
            let charges = begin_bucket(at, charges);
            charged = charges & enter_bucket(at, charges);
        }
    }
    set_ref.unlock();
    charged
}

/// Gives the way that was found to the key at a place of the packet, whose bucket [begins](begin_bucket) so; 0 as
/// [`give_bucket_to`] says. The lock of the set is held.
#[inline(always)]
pub(super) fn enter_bucket(at: u32, charges: u32) -> u32 {
    let given = give_bucket_to(at, charges);
    if given != 0 {
        enter_bucket_at(at);
    }
    given
}

/// Notes in [`Keyed::recalled`] what a new bucket at a place of the packet begins with: what the old table knows of the key, while
/// state is carried over; otherwise, with `charges` 1, what the check of the packet found, which is charged then. Returns 1 if it
/// is that.
#[inline(always)]
pub(super) fn begin_bucket(at: u32, charges: u32) -> u32 {
    if carries() {
        recall_bucket(at);
        return 0;
    }
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if charges == 0 {
        scratch.keyed.recalled = Recalled::default();
        return 0;
    }
    let (at, epoch) = (at as usize & (KEYED - 1), scratch.binding.epoch());
    let Some(meter) = METERS.get(half(epoch, scratch.keyed.meters[at])) else { return 0 };
    let (word, measure) = (scratch.keyed.looks[at].next, meter.measure());
    scratch.keyed.recalled = Recalled { word, measure };
    1
}

/// Finds the way that is to be given to the key at a place of the packet, and notes it; 0 if there is none. The lock of
/// the set is held.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn find_room_for(at: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let at = at as usize & (KEYED - 1);
    let (place, now) = (scratch.keyed.places[at], scratch.time.now);
    let Some(settings) = active::settings(scratch.binding.epoch()) else { return 0 };
    let Some(set_ref) = SetRef::of(place.set) else { return 0 };
    let Some(ways) = LockedSet::of(set_ref, |way, _| eviction_of(way as u32)) else { return 0 };
    scratch.keyed.first = entry_of(place, 0, settings);
    let room = set::room(&ways, place, now);
    scratch.keyed.room = room;
    u32::from(room.way < WAYS)
}

/// Writes the tag and the debt note of the way that the key at a place was given. The lock of the set is held.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn enter_bucket_at(at: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (at, now) = (at as usize & (KEYED - 1), scratch.time.now);
    let (place, Room { way, owes }) = (scratch.keyed.places[at], scratch.keyed.room);
    let Some(set_ref) = SetRef::of(place.set) else { return 0 };
    // The check of the packet has found what the bucket will owe for it.
    let meter = METERS.get(half(scratch.binding.epoch(), scratch.keyed.meters[at]));
    let debt = meter.map_or(0, |meter| meter.measure().owes(scratch.keyed.looks[at].next, now));
    let debt =
        if debt != 0 { DebtUntil::until(now + debt, now, true) } else { DebtUntil::past(now) };
    let is_free = set_ref.tag(way) == 0;
    // As in `find_or_insert`.
    set_ref.set_debt(way, debt.with_tag_ext(place.tag_ext));
    set_ref.set_tag(way, place.tag);
    count_given(table_stats::BUCKETS, owes, is_free);
    0
}

/// Charges the packet to the bucket that keys of the limit at a place share.
#[inline(always)]
fn share_bucket_at(at: u32) {
    let Some(scratch) = PacketScratch::get() else { return };
    let epoch = scratch.binding.epoch();
    let place = at as usize & (KEYED - 1);
    let keyed = &mut scratch.keyed;
    keyed.keys[place] = BucketKey::shared(keyed.keys[place].limit_id);
    // Keys of several profiles share it, so no override holds.
    if let Some(limit) = LIMITS.get(half(epoch, Limit::row(keyed.bits[place]))) {
        keyed.meters[place] = limit.shared_meter;
    }
    // A limit that is gone may have had this tally.
    if seek_bucket_at(at) == FOREIGN {
        if let Some(scratch) = PacketScratch::get() {
            // What it owes is owed to a limit that is gone.
            scratch.keyed.room.owes = true;
        }
        begin_bucket(at, 0);
        give_bucket_to(at, 0);
    }
    if !scratch.reread().keyed.is_wide(place) {
        look_again_at(at);
    }
    count(table_stats::BUCKETS, |table_stats| table_stats.untracked += 1);
}

/// Checks the packet anew, against a fresh bucket of the shared meter. The first check was by the meter of the key, and its
/// result would be stored if the shared bucket is as fresh as a new one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_again_at(at: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, now, at) = (scratch.binding.epoch(), scratch.time.now, at as usize & (KEYED - 1));
    let (number, cost, bit) =
        (scratch.keyed.meters[at], scratch.keyed.costs[at], scratch.keyed.bits[at]);
    let looked = match METERS.get(half(epoch, number)) {
        Some(meter) => {
            let meter = KeyedMeter::of(meter);
            meter.look_fresh(now, cost).map(|look| (look, meter.is_near(look.next, now)))
        }
        None => Err(Refusal::Contended),
    };
    match looked {
        Ok((look, is_near)) => {
            scratch.keyed.looks[at] = look;
            scratch.bill.note_near(bit, is_near);
        }
        Err(refusal) => scratch.bill.refuse(bit, refusal),
    }
    0
}

/// Gives the way that was found, or the entry that keys share, to the key at a place of the packet; 0, and none is noted,
/// if that owes and may not, or if another CPU is at it. It begins with what is noted in
/// [`Keyed::recalled`]. With `charges` 1, that is of the meter of the key already, and charged with the packet.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn give_bucket_to(at: u32, charges: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, keyed) = (scratch.binding.epoch(), &mut scratch.keyed);
    let Some(settings) = active::settings(epoch) else { return 0 };
    let (at, is_shared) =
        (at as usize & (KEYED - 1), keyed.keys[at as usize & (KEYED - 1)].is_shared());
    let (own, noted) = (entry_of(keyed.places[at], keyed.room.way, settings), keyed.entries[at]);
    let entry = if is_shared { noted } else { own };
    keyed.entries[at] = NONE;
    let (Some(bucket), Some(measure)) = (BUCKETS.get_ptr_mut(entry), MEASURES.get_ptr_mut(entry))
    else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; aligned words.
    let [binding, word] = unsafe {
        [&raw mut (*bucket).binding, &raw mut (*bucket).word].map(|word| MapWord::new(word))
    };
    let before = binding.load();
    let taken = Binding(before).vacated(epoch);
    if Binding(before).is_locked() || binding.compare_exchange(before, taken.0) != before {
        return 0;
    }
    let may_owe = keyed.room.owes;
    // It owed nothing with this word, or was nobody's yet.
    let idle = keyed.idle;
    // SAFETY: map values that were just looked up; their fields are aligned words. The key is as long and as aligned.
    unsafe {
        let owes = |word| u64::from((*measure).scale != 0 && word != idle);
        if !set::retire_by(&word, may_owe, owes) {
            let _: u64 = binding.compare_exchange(taken.0, before);
            return 0;
        }
        if scratch.reread().keyed.is_wide(at) {
            give_wide(entry, at as u32, (*measure).kind());
        }
        let Recalled { word: brought, measure: Measure { scale, span } } =
            scratch.reread().keyed.recalled;
        if scale | span != 0 {
            (&raw mut (*bucket).word).write_volatile(brought);
        }
        (&raw mut (*measure).scale).write_volatile(scale);
        (&raw mut (*measure).span).write_volatile(span);
        let key = (&raw const scratch.reread().keyed.keys[at]).cast::<u64>();
        let to = (&raw mut (*bucket).key).cast::<u64>();
        for word in 0..BucketKey::WORDS {
            to.add(word).write_volatile(key.add(word).read_volatile());
        }
        let scratch = scratch.reread();
        let after = if charges == 0 {
            taken.unlocked()
        } else {
            scratch.bill.charged |= scratch.keyed.bits[at];
            Binding::new(scratch.binding.epoch(), scratch.keyed.meters[at]).like(taken)
        };
        scratch.keyed.bindings[at] = after.0;
        let _: u64 = binding.compare_exchange(taken.0, after.0);
    }
    scratch.reread().keyed.entries[at] = entry;
    1
}

/// What became of the bucket of a way. The lock of the set is held.
#[inline(always)]
fn eviction_of(way: u32) -> Eviction {
    let until = bucket_usage_of(way);
    if until == IDLE {
        return Eviction::Idle;
    }
    find_meter_of(way);
    // One of them is about the bucket. A branch would double what the verifier follows in each turn of a loop.
    Eviction::Owes(until, is_single(way) | holds_one(way) != 0)
}

/// Returns until when the bucket of a way owes, in nanoseconds, or [`IDLE`]. The lock of the set is held.
///
/// This and what is asked after it are verified by themselves: together, the verifier would follow each of them for all that
/// the ones before may find.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bucket_usage_of(way: u32) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return IDLE };
    let entry = scratch.keyed.first + way;
    let (Some(bucket), Some(measure)) = (BUCKETS.get_ptr(entry), MEASURES.get(entry)) else {
        return IDLE;
    };
    let now = scratch.time.now;
    // SAFETY: a map value that was just looked up; an aligned word.
    let word = unsafe { (&raw const (*bucket).word).read_volatile() };
    scratch.keyed.idle = word;
    let owes = measure.owes(word, now);
    if owes == 0 {
        return IDLE;
    }
    scratch.keyed.usage_wide = measure.is_wide().into();
    now + owes
}

/// Notes in [`Keyed::usage_meter`] which meter the bucket of a way goes by under the policy of the packet; [`NONE`] if its
/// limit is gone.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_meter_of(way: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    scratch.keyed.usage_meter = NONE;
    let Some(bucket) = BUCKETS.get_ptr(scratch.keyed.first + way) else { return 0 };
    let epoch = scratch.binding.epoch();
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let (binding, limit_id) = unsafe {
        (
            Binding((&raw const (*bucket).binding).read_volatile()),
            (&raw const (*bucket).key.limit_id).read_volatile(),
        )
    };
    if binding.is_under(epoch) {
        scratch.keyed.usage_meter = binding.profile();
        return 0;
    }
    for part in 0..LIMIT_COUNT / PART {
        if find_meter_among(part * PART, limit_id) != 0 {
            break;
        }
    }
    0
}

/// Rows of limits that are looked through at once.
const PART: u32 = 8;

/// The same, given the limit id, among the limits of [`PART`] rows. Returns 1 if it is one of theirs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_meter_among(first: u32, limit_id: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    for row in first..first + PART {
        if let Some(limit) = LIMITS.get(half(scratch.binding.epoch(), row))
            && limit.bit != 0
            && limit.limit_id == limit_id
        {
            scratch.keyed.usage_meter = limit.meter;
            return 1;
        }
    }
    0
}

/// Returns 1 if the bucket of a way has no wide state and owes no more than one packet, as far as that [is read](is_read), or to a
/// limit that is gone.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_single(way: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if scratch.keyed.usage_wide != 0 {
        return 0;
    }
    let (entry, now) = (scratch.keyed.first + way, scratch.time.now);
    let number = half(scratch.binding.epoch(), scratch.keyed.usage_meter);
    let Some(meter) = METERS.get(number) else { return 1 };
    let Some(bucket) = BUCKETS.get_ptr(entry) else { return 0 };
    if !is_read(scratch, way, meter) {
        return 0;
    }
    // SAFETY: as in `bucket_usage_of`.
    let word = unsafe { (&raw const (*bucket).word).read_volatile() };
    meter.is_single(word, now).into()
}

/// Whether the bucket of a way is measured as a meter measures. Where the rate or the window has changed since, or is that of
/// an override, the meter does not tell what the bucket owes.
#[inline(always)]
fn is_read(scratch: &PacketScratch, way: u32, meter: &Meter) -> bool {
    MEASURES.get(scratch.keyed.first + way).is_some_and(|measure| meter.measure() == *measure)
}

/// Returns 1 if a way has a wide state with no more than one event, or connection, as far as that [is read](is_read), or that of a
/// limit that is gone.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn holds_one(way: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if scratch.keyed.usage_wide == 0 {
        return 0;
    }
    let epoch = scratch.binding.epoch();
    let Some(meter) = METERS.get(half(epoch, scratch.keyed.usage_meter)) else { return 1 };
    if !is_read(scratch, way, meter) {
        return 0;
    }
    let Some(wide) = Wide::at(epoch, scratch.keyed.first + way, Binding(0)) else { return 0 };
    wide.holds_one(meter, scratch.reread().time.now).into()
}
