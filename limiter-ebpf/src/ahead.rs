//! Sources that pay for packets ahead, see [`limiter_common::recent`].

use limiter_common::{
    binding::Binding,
    contract::{Settings, half},
    limit::INLINE,
    policer::{Look, TRIES},
    recent::Recent,
    word::Word as _,
};

use crate::{
    barrier::publish,
    cell::Plain,
    clock,
    datapath::settings,
    entry::SourceEntry,
    inline,
    maps::{METERS, PROFILES},
    seat::Seat,
    subject::Subject,
};

/// Whether the packet of the subject, to which these limits apply, passes as its source has paid for it, or pays
/// for it and others now. It is counted in the totals of the source then.
#[inline(always)]
pub(crate) fn pass(subject: &mut Subject, entry: &SourceEntry, limits: u64) -> bool {
    if limits != entry.profile.ahead_of || !clock::is_ticking() {
        return false;
    }
    let word = entry.recent();
    let recent = Recent(word.load());
    if recent.pass(&word, subject.bytes) {
        return true;
    }
    if !recent.is_to_pay() {
        return false;
    }
    publish(subject);
    pay_ahead(entry.binding.epoch()) != 0
}

/// Has the subject's source pay for its packet and some more, if it is far from all limits after that too; 0 if
/// it does not.
///
/// It is verified by itself, and called once for all that are paid for.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pay_ahead(epoch: u32) -> u32 {
    let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) else { return 0 };
    let Some(entry) = SourceEntry::of(subject, epoch) else { return 0 };
    let limits = entry.profile.ahead_of;
    if entry.profile.limits & subject.applicable != limits {
        return 0;
    }
    let packets = 1 + entry.profile.ahead;
    subject.binding = entry.binding;
    subject.time = clock::ticked(subject);
    let word = entry.recent();
    if !look(subject, &entry, settings, limits, packets) || !Recent::begin_paying(&word, epoch) {
        return 0;
    }
    let left = inline::commit(subject, &entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        subject.ahead = entry.profile.ahead;
        subject.bill.charged = limits & !left;
        inline::refund_inline();
        subject.reread().ahead = 0;
    }
    // Who binds the entry anew locks the binding before anything else.
    let is_bound = entry.bound() == entry.binding;
    let ahead = if left == 0 && is_bound { entry.profile.ahead } else { 0 };
    Recent::end_paying(&word, epoch, ahead);
    if left != 0 {
        return 0;
    }
    entry.account(false, subject.reread().bytes);
    1
}

/// Looks at limits by which each packet costs 1. Whether so many leave all of them far; if so, what charging them
/// makes of the limits is known.
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
        let time = subject.time();
        // Who may be near is not worth a reading of the clock: these packets had better pay for themselves.
        if !meter.gcra.is_far(seen, time.now, packets) {
            return false;
        }
        let exact = #[inline(always)]
        || subject.read_clock();
        let Some(next) = meter.gcra.pass_far(seen, time, packets, exact) else { return false };
        *Subject::anew(&mut subject.looks[place]) = Look { seen, next };
        true
    };
    inline::all(settings, limits, look_at) == 0 && entry.bound() == subject.reread().binding
}

/// Gives back what the entry of the subject's source has paid for and did not take, if that was under the epoch
/// before this one: the limits may be others now. It is bound anew, and locked.
///
/// What was paid under an earlier one is lost. The tables of the epoch before may be written for the next one
/// already: then it is given back at the rate of another limit, but a two-thousandth of the burst at most.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn repay(epoch: u32, seen: u64) -> u32 {
    let Some(source) = Subject::get().and_then(|subject| Seat(subject.seat).entry()) else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; aligned words.
    let word = |word: *mut u64| unsafe { Plain::new(word) };
    // SAFETY: as above.
    let paid = Recent::forfeit(&word(unsafe { &raw mut (*source).recent }));
    let (seen, before) = (Binding(seen), epoch.wrapping_sub(1));
    let (Some(settings), Some(profile)) =
        (settings(before), PROFILES.get(half(before, seen.profile())))
    else {
        return 0;
    };
    if paid == 0 || paid > profile.ahead || seen.epoch() != before {
        return 0;
    }
    for place in 0..INLINE {
        let Some(meter) = METERS.get(half(before, profile.meters[place])) else { continue };
        // SAFETY: as above.
        let (state, scale) = unsafe {
            (
                word(&raw mut (*source).words[place]),
                (&raw const (*source).scales[place]).read_volatile(),
            )
        };
        if settings.inline[place] & profile.ahead_of == 0 || scale != meter.gcra.scale().0 {
            continue;
        }
        let units = meter.gcra.repaid(paid);
        for _ in 0..TRIES {
            let seen = state.load();
            if state.compare_exchange(seen, seen.wrapping_sub(units)) == seen {
                break;
            }
        }
    }
    0
}
