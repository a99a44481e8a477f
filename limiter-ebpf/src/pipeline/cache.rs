//! What this CPU holds of sources, see [`limiter_common::memory::cache`]: packets are decided by it before their entries are
//! looked for.

use limiter_common::{
    abi::policy::{Settings, half},
    memory::cache::{Cached, Recent},
    packet::reason::Reason,
    policy::{limit::Limit, rest::Rest},
};

use crate::{
    kernel::{
        barrier::{escape, read},
        clock,
        key::SourceKey,
        maps::{CACHE, LIMITS},
        scratch::{self, Blame, PacketScratch, Refusing},
    },
    limits::counters::{self, Outcome, Outcomes},
    policy::{active::settings, verdict::Verdict},
    table::{entry, recall::carries},
};

/// The slot of the packet, the place of whose source is known.
#[inline(always)]
pub(super) fn slot(scratch: &PacketScratch) -> Option<&'static mut Cached> {
    slot_at(scratch, read(&scratch.spread))
}

/// The same where the rest of its key has this spread.
#[inline(always)]
fn slot_at(scratch: &PacketScratch, spread: u64) -> Option<&'static mut Cached> {
    let (of_source, applicable) = (read(&scratch.place.slot), read(&scratch.applicable));
    let cached = CACHE.get_ptr_mut(Cached::slot(of_source, applicable, spread as u16).into())?;
    // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
    // runs with bottom halves disabled. All zeros, which it is at first, is a valid value.
    Some(unsafe { &mut *cached })
}

/// Whether a slot is about the packet, whose source has this key, under an epoch.
#[inline(always)]
pub(super) fn is_of(
    cached: &Cached,
    scratch: &PacketScratch,
    key: SourceKey,
    epoch: u32,
    settings: &Settings,
) -> bool {
    // Where no limit is kept by a rest of the key, none of the slots with these limits has one.
    is_of_kind(cached, scratch, key, epoch)
        && (scratch.applicable & settings.by_rest == 0 || cached.rest.is(&scratch.rest))
}

/// Whether a slot is about packets of this source that these limits are about, whatever the rest of their key is.
#[inline(always)]
fn is_of_kind(cached: &Cached, scratch: &PacketScratch, key: SourceKey, epoch: u32) -> bool {
    cached.epoch == epoch
        && cached.applicable == scratch.applicable
        // SAFETY: a field of a map value, at a multiple of 8 bytes.
        && unsafe { SourceKey::read(&raw const cached.source) }.is(key)
}

/// The slot that the packet is decided by. Where its own one is of a rest of the key, that is the one without, if a limit
/// refuses the source there, whatever the rest of its packets' keys. No slot of a rest is [there](Cached::spread).
#[inline(always)]
fn choose_slot(
    scratch: &mut PacketScratch,
    key: SourceKey,
    epoch: u32,
    settings: &Settings,
) -> Option<&'static mut Cached> {
    let plain = slot_at(scratch, 0)?;
    let is_plain = is_of_kind(plain, scratch.reread(), key, epoch);
    // Most policies have no such limit.
    if scratch.applicable & settings.by_rest == 0 {
        return is_plain.then_some(plain);
    }
    if is_plain && plain.until != 0 {
        scratch.spread = 0;
        return Some(plain);
    }
    let cached = slot(scratch)?;
    is_of(cached, scratch.reread(), key, epoch, settings).then_some(cached)
}

/// Decides about the packet, whose place is known, by what this CPU holds of its source, and counts it: it
/// is dropped if that is refused, and passes if it was leased.
#[inline(always)]
pub(crate) fn decide(
    scratch: &mut PacketScratch,
    epoch: u32,
    settings: &Settings,
) -> Option<Verdict> {
    let key = scratch.key();
    let cached = choose_slot(scratch.reread(), key, epoch, settings)?;
    let tick = clock::number();
    cached.meet(tick);
    let bytes = scratch.reread().bytes;
    if cached.until != 0 {
        // For good, whatever packet it is: when the clock went back, that one may renew the bucket. While state is carried
        // over, the packet brings its source to the table.
        if carries() || !holds(cached, scratch) {
            cached.until = 0;
        } else {
            cached.dropped.add(bytes);
            counters::count(cached.tally.into(), Outcome::Exceed, bytes);
            scratch.reread().blame = Blame::tally(cached.tally.into());
            if cached.is_due() {
                escape(scratch);
                tell_slot(epoch);
            }
            return Some(Verdict::new(Reason::Exceed));
        }
    }
    if !cached.spend(tick) {
        return None;
    }
    cached.passed.add(bytes);
    counters::count_inline(settings, &Outcomes::conform(cached.limits), bytes);
    let by_key = cached.limits & settings.keyed;
    if by_key != 0 {
        count_conform(scratch, epoch, by_key, bytes);
    }
    Some(Verdict(scratch.reread().conform))
}

/// Counts the packet under limits with keys of their own that it was leased from. Mostly it is one, which takes no call.
#[inline(always)]
fn count_conform(scratch: &mut PacketScratch, epoch: u32, limits: u64, bytes: u64) {
    if limits & (limits - 1) != 0 {
        escape(scratch);
        counters::count_keyed(epoch, limits, 0, 0);
    } else if let Some(limit) = LIMITS.get(half(epoch, Limit::row(limits))) {
        counters::count(limit.tally, Outcome::Conform, bytes);
    }
}

/// Whether a refusal holds still.
#[inline(always)]
fn holds(cached: &Cached, scratch: &mut PacketScratch) -> bool {
    let now = if cached.precise == 0 { scratch::coarse_now(scratch).now } else { clock::now() };
    cached.holds(now)
}

/// What may be done about the slot of a packet that was not decided by it.
pub(crate) enum Slot {
    /// This one is about such packets of its source.
    Own(&'static mut Cached),
    /// It is nobody's, or was not used lately.
    Free,
    /// It is left to others.
    Taken,
}

/// Whose the slot of the packet is, whose source has this key.
#[inline(always)]
pub(crate) fn of(scratch: &PacketScratch, key: SourceKey, epoch: u32, settings: &Settings) -> Slot {
    match slot(scratch) {
        Some(cached) if is_of(cached, scratch, key, epoch, settings) => Slot::Own(cached),
        Some(cached) if !cached.stays(epoch, clock::number()) => Slot::Free,
        _ => Slot::Taken,
    }
}

/// Whether others have the slot that a refusal of the packet's source is kept in, whatever the rest of its key is.
#[inline(always)]
pub(crate) fn is_plain_taken(scratch: &PacketScratch, key: SourceKey, epoch: u32) -> bool {
    slot_at(scratch, 0).is_some_and(|cached| {
        !is_of_kind(cached, scratch, key, epoch) && cached.stays(epoch, clock::number())
    })
}

/// Gives the slot of the packet to packets of its source that these limits are about, if it is free. It is verified by
/// itself.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn take_slot(epoch: u32, limits: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let Some(cached) = slot(scratch) else { return 0 };
    if !is_of(cached, scratch, scratch.key(), epoch, settings) {
        let tick = clock::number();
        if cached.stays(epoch, tick) {
            return 0;
        }
        if cached.is_untold() {
            tell_slot(epoch);
        }
        let Some(cached) = slot(scratch) else { return 0 };
        let rest =
            if scratch.applicable & settings.by_rest == 0 { Rest::NONE } else { scratch.rest };
        cached.begin(scratch.source, rest, epoch, scratch.applicable, limits);
        cached.meet(tick);
    }
    1
}

/// Tells the entry of the source of the packet's slot what was counted of it. It is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tell_slot(epoch: u32) -> u32 {
    if let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch))
        && let Some(cached) = slot(scratch)
    {
        let (passed, dropped) = (cached.passed.tally(), cached.dropped.tally());
        entry::account(scratch, &cached.source, settings, &passed, &dropped);
        clear(&mut cached.passed);
        clear(&mut cached.dropped);
    }
    0
}

/// Counts anew. Who reads meanwhile must not find the tally of one source under another.
#[inline(always)]
pub(super) fn clear(tally: &mut Recent) {
    // SAFETY: fields of a value that is borrowed here.
    unsafe {
        (&raw mut tally.packets).write_volatile(0);
        (&raw mut tally.bytes).write_volatile(0);
    }
}

/// Remembers that a limit refused the packet, if others of its source need not be looked at for a while.
///
/// It is called when that is decided: there is no stack for both at once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn remember_refusal() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let Refusing { bit, limits, since, wait, tally, precise, .. } = scratch.refusing;
    let epoch = scratch.binding.epoch();
    let Some(settings) = settings(epoch) else { return 0 };
    if bit & settings.by_rest == 0 {
        // Whatever the rest of the key is, others of the source are refused too.
        (scratch.rest, scratch.spread) = (Rest::NONE, 0);
    } else if scratch.spread == 0 {
        // It was decided by the slot of all rests, which a refusal of one of them is not for.
        return 0;
    }
    if wait == 0 || take_slot(epoch, limits) == 0 {
        return 0;
    }
    let Some(cached) = slot(scratch) else { return 0 };
    if cached.is_untold() {
        tell_slot(epoch);
    }
    let Some(cached) = slot(scratch) else { return 0 };
    cached.refuse(tally, precise != 0, since, since.saturating_add(wait));
    0
}
