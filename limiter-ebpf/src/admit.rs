//! Deciding about a packet that is admitted, or refused as the one before, and nothing else is to be
//! said of: most packets there are.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    address::Address,
    contract::{Settings, flag, half},
    gcra::Time,
    limit::Limit,
    policer::Look,
    reason::Reason,
    table::Place,
    word::Word as _,
};

use crate::{
    barrier::publish,
    cache,
    classes::classify_subject,
    clock,
    datapath::InForce,
    entry::SourceEntry,
    inline,
    maps::METERS,
    newcomers::{admit_newcomer, admit_newcomer_by_keys, pass_on_credit},
    opening::remember_opening,
    seat::Seat,
    seats::{Likely, Seats},
    subject::Subject,
    tally::{self, Outcomes},
    verdict::Verdict,
};

/// Decides about the packet of the subject, if that is a simple matter: otherwise it is
/// [`Verdict::OPEN`], or undecided ([`Reason::Contended`]) when its source has no entry yet that is
/// bound to the policy.
#[inline(always)]
pub(crate) fn admit(ctx: *mut xdp_md, subject: &mut Subject, policy: &InForce) -> Verdict {
    let settings = policy.settings;
    classify_subject(subject, policy.epoch, settings);
    // Other parts of the program wrote to it.
    let subject = subject.reread();
    subject.find_source(&settings.mask);
    let place = Place::of(&subject.source, settings.seed, settings.sets);
    subject.place = place;
    // The fast path has asked already, and whoever is asked twice comes to an entry more seldom.
    if subject.seat == Seat::TO_BE_MADE.0 {
        return Verdict::new(Reason::Contended);
    }
    if policy.monitors() == 0 && subject.is_asked == 0 {
        let conform = #[inline(always)]
        |subject: &Subject| Verdict(subject.conform);
        let source = #[inline(always)]
        |subject: &Subject| subject.source;
        let cached = cache::decide(subject, source, policy.epoch, settings, conform);
        if let Some(verdict) = cached {
            return verdict;
        }
    }
    let subject = subject.reread();
    let place = subject.place;
    let Some(seats) = Seats::of(place.set, 0) else { return Verdict::new(Reason::Contended) };
    let likely = seats.likely(place, subject);
    let found = match likely {
        Likely::Entry(number) => {
            SourceEntry::at(number, subject.key(), subject, policy.epoch, policy.settings)
        }
        Likely::Nowhere | Likely::Elsewhere => None,
    };
    let entry = match found {
        Some(entry) => entry,
        None => {
            let is_none =
                matches!(likely, Likely::Nowhere) && subject.source.family != Address::NONE.family;
            let seat = if is_none { Seat::none(subject.tags) } else { Seat::of(subject) };
            if seat == Seat::NEWCOMER {
                // Where no prefix has a profile of its own, it takes no call.
                let (first, applicable) = (&settings.first, subject.applicable);
                if settings.flags & flag::PREFIXES == 0
                    && pass_on_credit(&seats, settings, first, applicable, subject.bytes)
                {
                    return Verdict(subject.conform);
                }
                let by_keys = subject.applicable & settings.buckets_by_key != 0;
                publish(subject);
                let verdict = if by_keys { admit_newcomer_by_keys(ctx) } else { admit_newcomer(0) };
                return Verdict(verdict.into());
            }
            subject.seat = seat.0;
            match SourceEntry::of(subject, policy.epoch) {
                Some(entry) => entry,
                None => return Verdict::new(Reason::Contended),
            }
        }
    };
    let applies = entry.profile.limits & subject.applicable;
    if entry.blocked() | u64::from(entry.lists.listed) | applies & settings.keyed != 0 {
        return match policy.monitors() {
            0 => by_lists(&entry, subject.bytes).unwrap_or(Verdict::OPEN),
            _ => Verdict::OPEN,
        };
    }
    if applies != 0 && policy.monitors() == 0 {
        let comes_often = #[inline(always)]
        |subject: &mut Subject| comes_often(subject, &entry, settings, applies);
        if cache::pass(subject, &entry, applies, comes_often) {
            let subject = subject.reread();
            tally::count_inline(settings, &Outcomes::conform(applies), subject.bytes);
            return Verdict(subject.conform);
        }
    }
    let subject = subject.reread();
    if applies != 0 {
        subject.binding = entry.binding;
        if !charge(subject, &entry, settings, applies) {
            return Verdict::OPEN;
        }
        let outcomes = Outcomes::conform(applies);
        tally::count_inline(settings, &outcomes, subject.reread().bytes);
        if applies & settings.connections != 0 {
            remember_opening(applies & settings.connections);
        }
    }
    let subject = subject.reread();
    entry.account(false, subject.bytes);
    Verdict(subject.conform)
}

/// Decides about a packet of so many bytes by what the lists say of its source, if they name it and it takes no clock
/// to tell.
#[inline(always)]
pub(crate) fn by_lists(entry: &SourceEntry, bytes: u64) -> Option<Verdict> {
    if entry.lists.listed == 0 {
        return None;
    }
    let verdict = Verdict::new(entry.lists.listing_for_ever()?);
    entry.account(verdict.drops(), bytes);
    Some(verdict)
}

/// Whether the subject is charged to one of these limits once more before that is full.
#[inline(always)]
fn comes_often(
    subject: &mut Subject,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> bool {
    let (epoch, now) = (entry.binding.epoch(), clock::ticked(subject).now);
    let is_full = #[inline(always)]
    |place: usize, _| {
        let Some(meter) = METERS.get(half(epoch, entry.profile.meters[place])) else { return true };
        meter.gcra.spent(entry.cell(place).load(), now) == 0
    };
    inline::all(settings, limits, is_full) != 0
}

/// Charges the subject to limits, all of them inline ones of its source, if it conforms to all and leaves
/// all far from being used up: what is near a limit is decided about as what is over it, and counted there.
#[inline(always)]
fn charge(subject: &mut Subject, entry: &SourceEntry, settings: &Settings, limits: u64) -> bool {
    if limits & !settings.unit != 0 {
        subject.find_sort();
    }
    subject.time = clock::ticked(subject);
    if !look(subject, entry, settings, limits) {
        return false;
    }
    let left = inline::commit(subject, entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        subject.bill.charged = limits & !left;
        inline::refund();
    }
    left == 0
}

/// Looks at limits. Whether the subject leaves all of them far; if so, what charging it makes of them is
/// known.
#[inline(always)]
fn look(subject: &mut Subject, entry: &SourceEntry, settings: &Settings, limits: u64) -> bool {
    let epoch = entry.binding.epoch();
    let look_at = #[inline(always)]
    |place: usize, bit: u64| {
        let Some(meter) = METERS.get(half(epoch, entry.profile.meters[place])) else {
            return false;
        };
        let by = |limit: &Limit| limit.cost(subject.sort(), subject.bytes);
        let cost = inline::cost(settings, epoch, bit, by);
        let seen = entry.cell(place).load();
        let mut time = subject.time();
        if !meter.gcra.will_do(time) {
            time = Time::exact(subject.read_clock());
        }
        let Some(next) = meter.gcra.pass_far(seen, time, cost) else { return false };
        *Subject::anew(&mut subject.looks[place]) = Look { seen, next };
        true
    };
    // The words are of this binding if they still are.
    inline::all(settings, limits, look_at) == 0 && entry.bound() == subject.reread().binding
}
