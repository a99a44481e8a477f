//! The entries of sources, made, and brought up to date.

use limiter_common::{
    abi::{
        layout::shared,
        policy::{Profile, Settings, half},
        table::{PROBATION_SLOTS, Source},
    },
    algorithm::{
        binding::{Binding, Bucket, bind},
        debt,
        gcra::Scale,
    },
    base::{address::Address, word::Word as _},
    policy::{
        limit::{INLINE, Limit},
        penalty::Block,
    },
    table::{probation::ProbationSlot, set::Place},
};

use crate::{
    history::penalties::{may_be_blocked, recall_offences},
    kernel::{
        atomics::MapWord,
        barrier::escape,
        clock,
        maps::{LIMITS, METERS, PROFILES},
        scratch::PacketScratch,
    },
    policy::{
        active::{self, ActivePolicy},
        profile,
    },
    table::{
        evict::{find_or_insert, touch},
        lookup::EntryId,
        record::{LimitRef, add},
        set::SetRef,
    },
};

/// Binds the entry of the packet's source to the policy in force, or makes it.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn bind_packet() -> u32 {
    if let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) {
        scratch.find_source(&policy.settings.mask);
        scratch.entry_id = find_or_insert_entry(scratch, policy.epoch, policy.settings).0;
        scratch.owed = 0;
    }
    0
}

/// Makes the entry of the packet's source if there is none, and brings it up to date. Gives where it
/// is; [`EntryId::UNKNOWN`] when other CPUs keep it from being found.
#[inline(always)]
fn find_or_insert_entry(scratch: &mut PacketScratch, epoch: u32, settings: &Settings) -> EntryId {
    let number = profile::number(&scratch.source, epoch, settings);
    (scratch.number, scratch.numbered) = (number, epoch);
    let mut entry_id = EntryId::UNREADABLE;
    if scratch.source.family != Address::NONE.family {
        scratch.place = Place::of(&scratch.source, settings.table_seed, settings.sets);
        touch(scratch.place);
        let Some(set_ref) = SetRef::lock(scratch.place.set) else { return EntryId::UNKNOWN };
        find_time();
        let probation = set_ref.probation();
        let came = probation.find(&scratch.source);
        let has_come = came < PROBATION_SLOTS;
        scratch.newcomer = if has_come { probation.at(came) } else { ProbationSlot::NONE };
        entry_id = insert(scratch, epoch);
        if has_come && entry_id.is_there() {
            set_ref.forget(came);
        }
        set_ref.unlock_changed();
        if entry_id != EntryId::SET_FULL {
            return entry_id;
        }
        entry_id = EntryId(shared::overflow(scratch.reread().place.set));
    }
    if let Some(source) = entry_id.entry() {
        scratch.entry_id = entry_id.0;
        find_time();
        scratch.was_full = 0;
        scratch.newcomer = ProbationSlot::NONE;
        escape(scratch);
        let number = if entry_id.is_overflow() { Profile::SHARED } else { 0 };
        migrate_entry(source, epoch, number, 1);
    }
    entry_id
}

/// Makes the entry of the packet's source, which has none, and charges it with the packet, which is its
/// [`PacketScratch::newcomer`]. The [time](PacketScratch::time) of the packet and the number of its profile are known. Returns
/// 0 if there is no entry to be had. The lock of the set is held, and given back.
#[inline(always)]
pub(crate) fn enter(epoch: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let Some(set_ref) = SetRef::of(scratch.place.set) else { return 0 };
    scratch.note_tick();
    let entered = insert(scratch, epoch).is_there();
    if entered {
        scratch.reread().owed = 0;
    }
    set_ref.unlock_changed();
    entered.into()
}

/// Finds or makes the entry of the packet's source, and brings it up to date, with what its [`PacketScratch::newcomer`] is
/// charged. Gives its number; [`EntryId::SET_FULL`] if there is no entry to be had, and [`EntryId::UNKNOWN`] when other CPUs
/// keep it from being found. The lock of the set is held.
#[inline(always)]
fn insert(scratch: &mut PacketScratch, epoch: u32) -> EntryId {
    scratch.was_full = 0;
    escape(scratch);
    let entry_id = EntryId(find_or_insert(epoch));
    if let Some(source) = entry_id.entry() {
        let scratch = scratch.reread();
        scratch.entry_id = entry_id.0;
        let number = scratch.number;
        escape(scratch);
        migrate_entry(source, epoch, number, 0);
    }
    entry_id
}

/// Finds out when the packet's entry is bound. It is verified by itself, as there is little room on the stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn find_time() -> u32 {
    if let Some(scratch) = PacketScratch::get() {
        scratch.set_time(clock::now());
        scratch.reread().note_lag();
    }
    0
}

/// Brings an entry up to date, which has the profile of this number, and charges it with the packet that
/// its source was admitted with before it had one, at the time of the packet. It is verified by itself: it is called
/// where an entry was found in any of many ways.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn migrate_entry(source: *mut Source, epoch: u32, number: u32, is_shared: u32) -> u32 {
    let (false, Some(scratch), Some(settings), Some(profile)) = (
        source.is_null(),
        PacketScratch::get(),
        active::settings(epoch),
        PROFILES.get(half(epoch, number)),
    ) else {
        return 0;
    };
    // SAFETY: the caller looked the entry up in this run; an aligned word. It changes no more, but for
    // that of a shared entry, which has one generation.
    let seen = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
    let target = Binding::new(epoch, number).like(seen);
    // SAFETY: the caller looked the entry up in this run. It is written under its lock, so no binding
    // is asked for.
    let cell = |word: *mut u64| unsafe { MapWord::new(word) };
    // SAFETY: as above.
    let entry = cell(unsafe { &raw mut (*source).binding });
    let _: Option<Binding> = bind(&entry, target, || {
        let epoch = target.epoch();
        // A block is of a limit: it goes, and comes back, with that being about the source.
        let penalties = if is_shared != 0 { 0 } else { settings.penalties & profile.limits };
        let until = if penalties == 0 || !may_be_blocked(scratch.time().now) {
            0
        } else {
            recall_offences(epoch, penalties)
        };
        let until = if until > scratch.time().now { until } else { 0 };
        // SAFETY: as above.
        unsafe { (&raw mut (*source).blocked).write_volatile(Block::new(until, target).0) };
        // If that half is being written for the next one already, it is told of a limit that it has changed since: the
        // charge of one packet.
        let before = active::settings(epoch.wrapping_sub(1));
        let charged =
            before.map_or(0, |before| scratch.newcomer.facts.charged(epoch, settings, before));
        scratch.credit = scratch.untracked(profile);
        escape(scratch);
        for place in 0..INLINE {
            if settings.inline[place] & profile.limits != 0 {
                let is_charged = charged >> place & 1;
                migrate_limit_at(source, place as u32, epoch, profile.meters[place], is_charged);
            }
        }
        if scratch.newcomer.facts.bytes() != 0 {
            // SAFETY: as above.
            unsafe { add(source, false, 1, scratch.newcomer.facts.bytes()) };
        }
    });
    0
}

/// Brings the limit at a place of an entry up to date, which has the meter of this number. The lock of the entry is held. It is
/// verified by itself, once for all places.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn migrate_limit_at(
    source: *mut Source,
    place: u32,
    epoch: u32,
    number: u32,
    is_charged: u32,
) -> u32 {
    let (place, number) = (place as usize & (INLINE - 1), half(epoch, number));
    let (false, Some(scratch), Some(settings), Some(meter)) =
        (source.is_null(), PacketScratch::get(), active::settings(epoch), METERS.get(number))
    else {
        return 0;
    };
    let Some(LimitRef { word, scale, limit_id }) = LimitRef::at(scratch.entry_id, source, place)
    else {
        return 0;
    };
    // SAFETY: the caller looked the entry up in this run, and holds its lock, so no binding is asked for; its fields are
    // aligned words.
    let bucket = unsafe { Bucket { word: MapWord::new(word), scale: MapWord::new(scale) } };
    let (now, after) = (scratch.time_of(&meter.gcra), settings.limit_ids[place]);
    // SAFETY: as above.
    if unsafe { limit_id.read_volatile() } == after {
        bucket.rescale(meter.gcra.scale(), |word, from| carry_word(word, from.0, number, now));
        return 0;
    }
    let credited = meter.gcra.untracked_units(scratch.credit);
    bucket.renew(&meter.gcra, now, credited);
    // SAFETY: as above.
    unsafe { limit_id.write_volatile(after) };
    // One that owes nothing any more is charged to nothing; its time may be long ago.
    if is_charged != 0
        && let Some(limit) = LIMITS.get(half(epoch, Limit::row(settings.inline[place])))
    {
        // The clock may have been read for a packet that is charged at the time of a tick.
        let time = scratch.newcomer.time.min(now);
        let word = ProbationSlot { time, ..scratch.newcomer }.word(limit, &meter.gcra);
        if debt::owes(word, meter.gcra.scale().0, now) != 0 {
            let word = word.wrapping_add(credited);
            let _: u64 = bucket.word.compare_exchange(bucket.word.load(), word);
        }
    }
    0
}

/// The word that carries `word`, which was measured by this scale, over to the bucket of a meter; see
/// [`Gcra::carry`](limiter_common::algorithm::gcra::Gcra::carry).
///
/// The kernel verifies it by itself, once: who calls it tries several times.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn carry_word(word: u64, scale: u64, meter: u32, now: u64) -> u64 {
    METERS.get(meter).map_or(word, |meter| meter.gcra.carry(word, Scale(scale), now))
}
