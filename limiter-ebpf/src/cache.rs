//! What this CPU holds of sources, see [`limiter_common::cache`]: packets are decided by it before their entries are
//! looked for.

use limiter_common::{
    address::Address,
    cache::Cached,
    contract::{Settings, Tally, half},
    limit::{INLINE, KEYED},
    policer::Look,
    reason::Reason,
    word::Word as _,
};

use crate::{
    barrier::publish,
    clock,
    datapath::settings,
    entry::{self, SourceEntry},
    inline,
    keyed::count_leased,
    maps::{CACHE, METERS, PROFILES},
    source_key::SourceKey,
    subject::Subject,
    tally::{self, Outcome, Outcomes},
    verdict::Verdict,
};

/// The limit that a packet was over, and what comes of that for others of its source.
#[derive(Clone, Copy)]
pub(crate) struct Refusing {
    /// 0 if it was over none.
    pub(crate) bit: u64,
    /// The limits that are about the packet.
    pub(crate) limits: u64,
    /// When it was, in nanoseconds, by the time that the limit goes by.
    pub(crate) since: u64,
    /// For how long it will refuse them for sure, in nanoseconds; 0 if they have to be looked at.
    pub(crate) wait: u64,
    /// Until when the source is blocked from now on, in nanoseconds; 0 if it is not, or was before.
    pub(crate) until: u64,
    pub(crate) tally: u32,
    /// 1 if the clock tells when that ends, 0 if a tick does.
    pub(crate) precise: u32,
}

impl Refusing {
    /// Begins with a limit, or none.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bit: u64) {
        (self.bit, self.wait, self.until) = (bit, 0, 0);
    }
}

/// The slot of the subject, the place of whose source is known.
#[inline(always)]
fn slot(subject: &Subject) -> Option<&'static mut Cached> {
    // SAFETY: fields of the value, which is borrowed. There is no room on the stack to keep them.
    let (of_source, applicable) = unsafe {
        (
            (&raw const subject.place.slot).read_volatile(),
            (&raw const subject.applicable).read_volatile(),
        )
    };
    let cached = CACHE.get_ptr_mut(Cached::slot(of_source, applicable).into())?;
    // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
    // runs with bottom halves disabled. All zeros, which it is at first, is a valid value.
    Some(unsafe { &mut *cached })
}

/// Whether a slot is about the subject, whose source has this key, under an epoch.
#[inline(always)]
fn is_of(cached: &Cached, subject: &Subject, key: SourceKey, epoch: u32) -> bool {
    cached.epoch == epoch
        && cached.applicable == subject.applicable
        // SAFETY: a field of a map value, at a multiple of 8 bytes.
        && unsafe { SourceKey::read(&raw const cached.source) }.is(key)
}

/// Decides about the packet of the subject, whose place is known, by what this CPU holds of its source, and counts it: it
/// is dropped if that is refused, and passes, for a reason, if it was leased.
///
/// The source is asked for twice, as it need not be kept meanwhile: there is no room on the stack.
#[inline(always)]
pub(crate) fn decide(
    subject: &mut Subject,
    source: impl Fn(&Subject) -> Address,
    epoch: u32,
    settings: &Settings,
    conform: impl Fn(&Subject) -> Verdict,
) -> Option<Verdict> {
    let cached = slot(subject)?;
    let key = SourceKey::of(&source(subject));
    if !is_of(cached, subject.reread(), key, epoch) {
        return None;
    }
    let tick = clock::number();
    cached.meet(tick);
    let bytes = subject.reread().bytes;
    if cached.until != 0 {
        // For good, whatever packet it is: when the clock went back, that one may renew the bucket.
        if !holds(cached, subject) {
            cached.until = 0;
        } else {
            tally::add(&mut cached.dropped, bytes);
            tally::count(cached.tally, Outcome::Exceed, bytes);
            if cached.is_due() {
                subject.write_key(SourceKey::of(&source(subject)));
                publish(subject);
                tell_slot(epoch);
            }
            return Some(Verdict::new(Reason::Exceed));
        }
    }
    if !cached.spend(tick) {
        return None;
    }
    tally::add(&mut cached.passed, bytes);
    tally::count_inline(settings, &Outcomes::conform(cached.limits), bytes);
    if cached.limits & settings.keyed != 0 {
        publish(subject);
        count_leased(epoch, cached.limits & settings.keyed);
    }
    Some(conform(subject.reread()))
}

/// Whether a refusal holds still.
#[inline(always)]
fn holds(cached: &Cached, subject: &mut Subject) -> bool {
    let now = if cached.precise == 0 { clock::ticked(subject).now } else { clock::now() };
    cached.holds(now)
}

/// What may be done about the slot of a packet that was not decided by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It is about such packets of its source.
    Own,
    /// It is nobody's, or was not used lately.
    Free,
    /// It is left to others.
    Taken,
}

/// Whose the slot of the subject is, whose source has this key.
#[inline(always)]
pub(crate) fn of(subject: &Subject, key: SourceKey, epoch: u32) -> Slot {
    match slot(subject) {
        Some(cached) if is_of(cached, subject, key, epoch) => Slot::Own,
        Some(cached) if !cached.stays(epoch, clock::number()) => Slot::Free,
        _ => Slot::Taken,
    }
}

/// Whether the packet of the subject, whose source has this entry, passes because it is charged for several; it is in the
/// totals of the source then. A source that `comes_often` gets a slot that is free, so that the next ones may be.
///
/// The limits are those that are about the packet, all of them inline ones.
#[inline(always)]
pub(crate) fn pass(
    subject: &mut Subject,
    entry: &SourceEntry,
    limits: u64,
    comes_often: impl Fn(&mut Subject) -> bool,
) -> bool {
    // Without ticks nothing is leased, as nothing tells when that ends.
    if limits & !entry.profile.leased_of != 0 || clock::tick_length() == 0 {
        return false;
    }
    let epoch = entry.binding.epoch();
    let found = of(subject, subject.key(), epoch);
    let Some(cached) = slot(subject) else { return false };
    let may_lease = found == Slot::Own && cached.demand(entry.profile.lease) > 1;
    if !may_lease && found != Slot::Free || !comes_often(subject) {
        return false;
    }
    publish(subject);
    if may_lease {
        return lease(epoch) != 0;
    }
    take_slot(epoch, limits);
    false
}

/// Gives the slot of the subject to packets of its source that these limits are about, if it is free. It is verified by
/// itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_slot(epoch: u32, limits: u64) -> u32 {
    let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) else { return 0 };
    let Some(cached) = slot(subject) else { return 0 };
    if !is_of(cached, subject, subject.key(), epoch) {
        let tick = clock::number();
        if cached.stays(epoch, tick) {
            return 0;
        }
        tell(cached, subject, settings);
        cached.begin(subject.source, epoch, subject.applicable, limits);
        cached.meet(tick);
    }
    1
}

/// Charges the packet of the subject, in whose slot its source is, to all of its limits for several packets, if all limits
/// lease them; 0 if one does not.
///
/// It is verified by itself, and called once for all that are leased.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease(epoch: u32) -> u32 {
    let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) else { return 0 };
    let Some(entry) = SourceEntry::of(subject, epoch) else { return 0 };
    let Some(cached) = slot(subject) else { return 0 };
    let limits = entry.profile.limits & subject.applicable;
    let packets = cached.demand(entry.profile.lease);
    let is_own = is_of(cached, subject, subject.key(), epoch);
    if packets < 2 || limits & !entry.profile.leased_of != 0 || !is_own {
        return 0;
    }
    // Before the time of the charge is known, so that what is leased is not used for a tick too long.
    let tick = clock::number();
    subject.binding = entry.binding;
    subject.time = clock::ticked(subject);
    if !look(subject, &entry, settings, limits, packets) {
        return 0;
    }
    let left = inline::commit(subject, &entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        subject.bill.charged = limits & !left;
        if limits != left {
            subject.leased = packets - 1;
            inline::refund_inline();
            subject.reread().leased = 0;
        }
        return 0;
    }
    cached.lease(packets - 1, tick);
    let mut passed = cached.passed;
    tally::add(&mut passed, subject.reread().bytes);
    entry.account_passed(&passed);
    clear(&mut cached.passed);
    1
}

/// Finds out for how many packets the subject, which limits with keys of their own are about too, is charged at once by
/// the entry of its source, and notes how many more that are; or that its slot is free, and it may have it.
#[inline(always)]
pub(crate) fn plan_lease(subject: &mut Subject, entry: &SourceEntry, limits: u64) {
    (subject.leased, subject.may_lease) = (0, 0);
    if limits & !entry.profile.leased_of != 0 || clock::tick_length() == 0 || subject.monitors() {
        return;
    }
    // Before the time of the charge is known, so that what is leased is not used for a tick too long.
    subject.lease_tick = clock::number();
    let found = of(subject, subject.key(), entry.binding.epoch());
    subject.may_lease = u64::from(found != Slot::Taken && subject.lease_lost == 0);
    if found == Slot::Own
        && subject.lease_lost == 0
        && let Some(cached) = slot(subject)
    {
        subject.leased = cached.demand(entry.profile.lease).saturating_sub(1);
    }
}

/// Whether all limits that the subject was looked at by, for several packets, have them to spare, as
/// [`Gcra::leased`](limiter_common::gcra::Gcra::leased) says; 0 if one has not.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn may_be_leased() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let (bill, epoch) = (subject.bill, subject.binding.epoch());
    let (Some(settings), Some(profile)) =
        (settings(epoch), PROFILES.get(half(epoch, subject.binding.profile())))
    else {
        return 0;
    };
    if bill.refused | bill.exceeded != 0 {
        return 0;
    }
    for place in 0..INLINE {
        if settings.inline[place] & bill.applies == 0 {
            continue;
        }
        let Some(meter) = METERS.get(half(epoch, profile.meters[place])) else { return 0 };
        if !meter.gcra.spares(subject.looks[place].next, subject.time_of(&meter.gcra)) {
            return 0;
        }
    }
    for place in 0..KEYED {
        if subject.keyed.bits[place] == 0 {
            break;
        }
        let Some(meter) = METERS.get(half(epoch, subject.keyed.meters[place])) else { return 0 };
        if !meter.gcra.spares(subject.keyed.looks[place].next, subject.time.now) {
            return 0;
        }
    }
    1
}

/// Keeps the packets that the subject was charged for and is not itself, in the slot of its source; or gives it the slot.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn keep_lease() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let (epoch, limits, more) = (subject.binding.epoch(), subject.bill.applies, subject.leased());
    if more == 0 {
        return take_slot(epoch, limits);
    }
    subject.leased = 0;
    let Some(cached) = slot(subject) else { return 0 };
    if !is_of(cached, subject, subject.key(), epoch) {
        return 0;
    }
    cached.lease(more, subject.lease_tick);
    if let Some(entry) = SourceEntry::of(subject, epoch)
        && cached.passed.packets != 0
    {
        entry.account_passed(&cached.passed);
        clear(&mut cached.passed);
    }
    1
}

/// Looks at limits by which each packet costs 1. Whether all of them lease so many; if so, what charging them makes of the
/// limits is known.
#[inline(always)]
fn look(
    subject: &mut Subject,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
    packets: u64,
) -> bool {
    let epoch = entry.binding.epoch();
    let look_at = #[inline(always)]
    |place: usize, _| {
        let Some(meter) = METERS.get(half(epoch, entry.profile.meters[place])) else {
            return false;
        };
        let seen = entry.cell(place).load();
        let Some(next) = meter.gcra.leased(seen, subject.time(), packets) else { return false };
        *Subject::anew(&mut subject.looks[place]) = Look { seen, next };
        true
    };
    inline::all(settings, limits, look_at) == 0 && entry.bound() == subject.reread().binding
}

/// Tells the entry of the subject's source what was counted of it. It is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tell_slot(epoch: u32) -> u32 {
    if let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch))
        && let Some(cached) = slot(subject)
    {
        tell(cached, subject, settings);
    }
    0
}

/// Tells the entry of the source of a slot what was counted of it.
#[inline(always)]
fn tell(cached: &mut Cached, subject: &mut Subject, settings: &Settings) {
    if cached.is_untold() {
        entry::account(subject, &cached.source, settings, &cached.passed, &cached.dropped);
        clear(&mut cached.passed);
        clear(&mut cached.dropped);
    }
}

/// Counts anew. Who reads meanwhile must not find the tally of one source under another.
#[inline(always)]
fn clear(tally: &mut Tally) {
    // SAFETY: fields of a value that is borrowed here.
    unsafe {
        (&raw mut tally.packets).write_volatile(0);
        (&raw mut tally.bytes).write_volatile(0);
    }
}

/// Remembers that a limit refused the subject, if others of its source need not be looked at for a while.
///
/// It is called when that is decided: there is no stack for both at once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn remember_refusal() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let Refusing { bit, limits, since, wait, tally, precise, .. } = subject.refusing;
    let epoch = subject.binding.epoch();
    if wait == 0 || take_slot(epoch, limits) == 0 {
        return 0;
    }
    let (Some(cached), Some(settings)) = (slot(subject), settings(epoch)) else { return 0 };
    tell(cached, subject, settings);
    cached.refuse(bit, tally, precise != 0, since, since.saturating_add(wait));
    0
}
