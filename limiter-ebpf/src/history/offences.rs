//! Finding and making the records of offences in their table.
//!
//! What is found is noted in the [`PacketScratch`]: the key and the place of the record.

use limiter_common::{
    abi::{
        layout::table_stats,
        state::{OffenceHead, OffenceKey, OffenceRecord},
    },
    base::word::{LOCK_TRIES, StoreWord as _, Word as _},
    memory::offence::{self, LINES, Place, Room},
    policy::penalty::Offence,
};

use crate::{
    kernel::{
        atomics::MapWord,
        barrier::escape,
        churn::{count, count_given},
        maps::OFFENCES_REF,
        scratch::PacketScratch,
    },
    policy::active::settings,
};

/// The line of no record: that of the first head.
pub(crate) const NONE: u32 = 0;

/// A record of the table, looked up.
#[inline(always)]
pub(crate) fn record(line: u32) -> Option<*mut OffenceRecord> {
    OFFENCES_REF.get(0)?.get_ptr_mut(line)
}

/// The words of the offence in a record that was just looked up.
#[inline(always)]
pub(crate) fn words(record: *mut OffenceRecord) -> Offence<MapWord> {
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let [began, last, since, blocked, blocks] = unsafe {
        let known = &raw mut (*record).offence;
        [
            &raw mut (*known).began,
            &raw mut (*known).last,
            &raw mut (*known).since,
            &raw mut (*known).blocked,
            &raw mut (*known).blocks,
        ]
        .map(|word| MapWord::new(word))
    };
    Offence { began, last, since, blocked, blocks }
}

/// Notes the place of the packet's source under an epoch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn place_offences(epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let place = Place::of(&scratch.source, settings.seed, settings.offence_sets);
    (scratch.offence_head, scratch.offence_tag) = (place.head, place.tag.into());
    0
}

/// Finds the record of the packet's source, whose place was noted, for a limit with this
/// [`Penalty::limit`](limiter_common::policy::penalty::Penalty::limit). Notes the key, and returns the line, or [`NONE`].
#[inline(always)]
pub(crate) fn find_offence(scratch: &mut PacketScratch, limit: u32) -> u32 {
    scratch.offence = OffenceKey { source: scratch.source, limit };
    let (first, own) = (scratch.offence_head, scratch.offence_tag as u16);
    // Where the search ends is unknown to the verifier from the beginning on. It would follow each line by itself.
    let mut found = scratch.unknown(NONE as usize) as u32;
    escape(scratch);
    let Some(head) = record(first).map(<*mut OffenceRecord>::cast::<OffenceHead>) else {
        return NONE;
    };
    for line in 1..LINES {
        // SAFETY: a map value that was just looked up, which is as long as a head; an aligned field of it.
        let tag = unsafe { (&raw const (*head).tags[line as usize]).read_volatile() };
        if tag == own {
            found |= is_offence(first + line);
        }
    }
    found
}

/// Returns the number of a line if it is the record of the key that was noted, otherwise [`NONE`]. It is verified by itself, and
/// not for each line.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn is_offence(line: u32) -> u32 {
    let (Some(scratch), Some(record)) = (PacketScratch::get(), record(line)) else { return NONE };
    let key = (&raw const scratch.offence).cast::<u32>();
    let mut differs = 0;
    for word in 0..OffenceKey::WORDS {
        // SAFETY: a map value that was just looked up, and a key of the packet: both are as long and as aligned as
        // their words of 32 bits.
        differs |= unsafe {
            let other = (&raw const (*record).key).cast::<u32>().add(word).read_volatile();
            other ^ key.add(word).read_volatile()
        };
    }
    if differs == 0 { line } else { NONE }
}

/// Takes the lock of the set that was noted. Returns 0 if another CPU has it for too long.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn lock_offences() -> u32 {
    let Some(lock) = lock() else { return 0 };
    for tries in 0..LOCK_TRIES {
        lock.back_off(tries);
        if lock.compare_exchange(0, 1) == 0 {
            return 1;
        }
    }
    0
}

/// Gives it back.
#[inline(always)]
pub(crate) fn unlock_offences() {
    if let Some(lock) = lock() {
        lock.store_release(0);
    }
}

#[inline(always)]
fn lock() -> Option<MapWord> {
    let head = record(PacketScratch::get()?.offence_head)?.cast::<OffenceHead>();
    // SAFETY: a map value that was just looked up, which is as long as a head; an aligned word.
    Some(unsafe { MapWord::new(&raw mut (*head).lock) })
}

/// Returns the [`Room`] that a line is under an epoch. It is verified by itself, and not for each line: whoever calls it does not
/// know which bits of the result are those of the line.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn room_of(line: u32, epoch: u32, now: u64) -> u64 {
    let (Some(known), Some(settings)) = (record(line), settings(epoch)) else { return Room::NONE };
    if is_free(known) {
        return Room::new(line, 0).0;
    }
    Room::new(line, settings.longest.useful_until(&words(known), now)).0
}

/// Whether a record that was just looked up is nobody's.
#[inline(always)]
fn is_free(record: *mut OffenceRecord) -> bool {
    // SAFETY: a map value that was just looked up; an aligned field.
    unsafe { (&raw const (*record).key.source.family).read_volatile() == 0 }
}

/// Counts that a refusal found no record, and got none.
#[inline(always)]
pub(crate) fn count_unrecorded() {
    count(table_stats::OFFENCES, |table_stats| table_stats.untracked += 1);
}

/// Makes a record that of nobody.
///
/// # Safety
/// It was looked up in this run of the program.
#[inline(always)]
pub(crate) unsafe fn blank(record: *mut OffenceRecord) {
    for word in 0..size_of::<OffenceRecord>() / size_of::<u64>() {
        // SAFETY: as the caller promises; aligned words.
        unsafe { record.cast::<u64>().add(word).write_volatile(0) };
    }
}

/// Makes a record for the key that was noted, which has none, in place of the one with the least debt. Returns its line, or
/// [`NONE`] if all blocks of the set run. The lock is held.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn make_offence(now: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return NONE };
    let (head, epoch) = (scratch.offence_head, scratch.binding.epoch());
    let Some(set) = record(head) else { return NONE };
    // SAFETY: a map value that was just looked up, which is as long as a head; an aligned word, that only the holder of the
    // lock writes.
    let full_until = unsafe { &raw mut (*set.cast::<OffenceHead>()).full_until };
    // SAFETY: as above.
    if offence::is_full(unsafe { full_until.read_volatile() }, now) {
        count_unrecorded();
        return NONE;
    }
    escape(scratch);
    let Some(found) = offence::room(|line| Room(room_of(head + line, epoch, now))) else {
        // SAFETY: as above.
        unsafe { full_until.write_volatile(now + offence::FULL) };
        count_unrecorded();
        return NONE;
    };
    let (line, until) = (found.line(), found.until());
    let Some(made) = record(head + line) else { return NONE };
    let was_free = is_free(made);
    // SAFETY: map values that were just looked up; aligned fields. Only the holder of the lock writes here.
    unsafe {
        // Before the new key, so that no CPU takes the block before for one of that.
        blank(made);
        let key = (&raw const scratch.offence).cast::<u32>();
        for word in 0..OffenceKey::WORDS {
            let to = (&raw mut (*made).key).cast::<u32>().add(word);
            to.write_volatile(key.add(word).read_volatile());
        }
        let set = set.cast::<OffenceHead>();
        (&raw mut (*set).tags[line as usize]).write_volatile(scratch.offence_tag as u16);
        count_given(table_stats::OFFENCES, !was_free & (until > now), was_free);
    }
    head + line
}
