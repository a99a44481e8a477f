//! Whether an entry is in use, and until when it owes. The lock of its set is held.

use limiter_common::{
    abi::policy::half,
    algorithm::{binding::Binding, debt},
    memory::pending::PendingTally,
    policy::penalty::Block,
};

use crate::{
    kernel::{
        barrier::black_box,
        maps::{METERS, PROFILES, SOURCES},
    },
    policy::{active, profile},
    table::record::Places,
};

/// It owes nothing, and nobody used it since it was asked last.
pub(crate) const IDLE: u64 = 0;
/// It owes nothing, and its source sent packets since then.
pub(crate) const REFERENCED: u64 = 1;
/// Set in the time until which an entry owes for a single packet, or only to limits that are gone, or changed
/// since.
pub(crate) const SINGLE: u64 = 1;

/// What became of an entry: one of the constants here, or until when it owes, in nanoseconds.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn debt_of(entry: u32, epoch: u32, now: u64) -> u64 {
    let Some(source) = SOURCES.get_ptr_mut(entry) else { return IDLE };
    let Some(of) = Places::of(entry, source) else { return IDLE };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let (binding, block, packets, known) = unsafe {
        let recent = PendingTally((&raw const (*source).pending).read_volatile());
        (
            Binding((&raw const (*source).binding).read_volatile()),
            Block((&raw const (*source).blocked).read_volatile()),
            (&raw const (*source).passed.packets).read_volatile()
                + (&raw const (*source).dropped.packets).read_volatile()
                + recent.tally().packets,
            &raw mut (*source).known,
        )
    };
    let blocked = block.until(binding).saturating_sub(now);
    // SAFETY: as above.
    let owes = unsafe { owed(of, u32::MAX, now) }.max(blocked);
    if owes != 0 {
        // Of one packet nobody has to know to what limits it was charged.
        let (places, blocked) = match packets {
            0 | 1 => (0, 0),
            _ if binding.is_under(epoch) => (places_in_force(entry, epoch), blocked),
            _ => (places_in_force(entry, epoch), 0),
        };
        // SAFETY: as above.
        let in_force = unsafe { owed(of, places, now) }.max(blocked);
        return if in_force == 0 { (now + owes) | SINGLE } else { (now + in_force) & !SINGLE };
    }
    // SAFETY: as above; who holds the lock of the set alone writes it.
    unsafe {
        if known.read_volatile() == packets as u32 {
            return IDLE;
        }
        known.write_volatile(packets as u32);
    }
    REFERENCED
}

/// How long after `now` an entry owes to the limits at these places, as bits, in nanoseconds; 0 if it does not.
///
/// # Safety
/// They were looked up in this run of the program.
#[inline(always)]
unsafe fn owed(of: Places, places: u32, now: u64) -> u64 {
    let mut most = 0;
    of.all(|place, state| {
        // SAFETY: as the caller promises; aligned words.
        let (word, scale) = unsafe { (state.word.read_volatile(), state.scale.read_volatile()) };
        // Without a branch, as each of them doubles what the verifier follows.
        let is_asked = u64::from(places >> place & 1);
        let ahead = debt::owes(word, scale * is_asked, now);
        if ahead > most {
            most = ahead;
        }
        true
    });
    most
}

/// The places of the inline limits, as bits, that are in force as they were when an entry was charged to them
/// last: its source owes to them still what it did then. Where sources counted by fewer bits of their addresses then,
/// the entry of a network is taken for one of the source at its beginning.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn places_in_force(entry: u32, epoch: u32) -> u32 {
    let (Some(source), Some(settings)) = (SOURCES.get_ptr_mut(entry), active::settings(epoch))
    else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let binding = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
    let number = if binding.is_under(epoch) {
        binding.profile()
    } else {
        // SAFETY: as above; who holds the lock of the set alone writes it.
        let address = unsafe { &(*source).address };
        let masked = address.masked(&settings.mask);
        // No packet has such a key any more.
        if (0..masked.words.len()).any(|word| masked.words[word] != address.words[word]) {
            return 0;
        }
        profile::number(address, epoch, settings)
    };
    let Some(profile) = PROFILES.get(half(epoch, number)) else { return 0 };
    let Some(of) = Places::of(entry, source) else { return 0 };
    let mut places = 0;
    of.all(|place, state| {
        let Some(meter) = METERS.get(half(epoch, profile.meters[place])) else { return true };
        // SAFETY: as above.
        let (scale, limit_id) =
            unsafe { (state.scale.read_volatile(), state.limit_id.read_volatile()) };
        let differs =
            u64::from(limit_id ^ settings.limit_ids[place]) | scale ^ meter.gcra.scale().0;
        // Without a branch, as in `owed`: the sign is that of one or the other unless it is zero.
        let is_same = !(differs | differs.wrapping_neg()) >> 63;
        places |= black_box((is_same << place) as usize) as u32;
        true
    });
    places
}
