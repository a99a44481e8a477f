//! The first packet of a source in a set of the table that is full.

use aya_ebpf::{bindings::xdp_md, helpers::bpf_get_prandom_u32};
use limiter_common::{
    binding::Binding,
    contract::{NEWCOMERS, Profile, Settings, flag, half, turnover::SOURCES},
    gcra::{Gcra, Time},
    limit::{Limit, Sort},
    newcomer::{Facts, HELD_OF, Newcomer, State},
    reason::Reason,
};

use crate::{
    barrier::publish,
    clock,
    datapath::InForce,
    entry, inline, keyed,
    maps::{METERS, PROFILES},
    near::{count_near, find_near_keyed},
    offence::{may_be_blocked, recall_offences},
    opening::remember_opening,
    profile,
    seat::Seat,
    seats::Seats,
    subject::Subject,
    tally::{self, Outcomes},
    turnover,
    verdict::Verdict,
};

/// Admits the packet of the subject, whose source has no entry, if there is nothing to be known of that
/// but this packet; gives the place of the reason. Otherwise the source needs an entry, and the packet
/// is undecided. By these limits, which have keys of their own, it was charged before.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn admit_newcomer(by_key: u64) -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else { return undecided };
    admit(subject, &policy, by_key).map_or(undecided, |verdict| verdict.0 as u32)
}

/// Admits the packet of the subject likewise, after it was charged to the limits with keys of their own that are about it
/// and have buckets; or refuses it by one of these. Its headers were read.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn admit_newcomer_by_keys(ctx: *mut xdp_md) -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let by_key = find_keys();
    if by_key != 0 {
        keyed::look(ctx, by_key);
        keyed::charge(ctx);
        if let Some(reason) = refuse_by_key() {
            return reason;
        }
    }
    let verdict = admit_newcomer(by_key);
    if by_key != 0 {
        if verdict == undecided {
            keyed::refund_keyed();
        } else {
            count_by_key();
        }
    }
    verdict
}

/// The limits with keys of their own that the packet of the subject is to be charged to at first, as bits; 0 if there are
/// none, or if it takes more to decide about it. It is charged to them at the time of the clock.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_keys() -> u64 {
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else { return 0 };
    let InForce { epoch, settings, .. } = policy;
    if subject.classified != epoch.into() || policy.monitors() != 0 {
        return 0;
    }
    let number = profile::number(&subject.source, epoch, settings);
    let Some(profile) = PROFILES.get(half(epoch, number)) else { return 0 };
    let applies = profile.limits & subject.applicable;
    let by_key = applies & settings.buckets_by_key;
    let special = applies & !(settings.newcomers | by_key);
    if by_key == 0 || special != 0 || profile.listed != 0 {
        return 0;
    }
    subject.open_bill(by_key, settings.enforced);
    subject.now = subject.now();
    subject.set_time(subject.now);
    let subject = subject.reread();
    subject.binding = Binding::new(epoch, number);
    (subject.number, subject.numbered) = (number, epoch);
    subject.tenant = profile.tenant;
    by_key
}

/// If one of the limits with keys of their own refuses the packet of the subject, the place of the reason: it is charged to
/// none then, and counted.
#[inline(always)]
fn refuse_by_key() -> Option<u32> {
    let subject = Subject::get()?;
    let bill = subject.bill;
    if bill.refused == 0 {
        return None;
    }
    keyed::refund_keyed();
    if bill.contended != 0 {
        return Some(Verdict::new(Reason::Contended).0 as u32);
    }
    keyed::count_keyed(0, bill.refused, bill.monitored());
    if let Some(nobody) = Seat::NOBODY.entry() {
        // SAFETY: a map value that was just looked up.
        unsafe { entry::add(nobody, true, 1, subject.reread().bytes) };
    }
    Some(Verdict::new(Reason::Exceed).0 as u32)
}

/// Counts what the packet of the subject was to the limits with keys of their own that it was charged to.
#[inline(always)]
fn count_by_key() {
    let Some(subject) = Subject::get() else { return };
    subject.near = 0;
    let (bill, epoch) = (subject.bill, subject.binding.epoch());
    keyed::count_keyed(bill.charged, 0, bill.monitored());
    find_near_keyed();
    if subject.reread().near != 0 {
        count_near(epoch);
    }
}

#[inline(always)]
fn admit(subject: &mut Subject, policy: &InForce, by_key: u64) -> Option<Verdict> {
    let (bytes, settings, epoch) = (subject.bytes, policy.settings, policy.epoch);
    // The key of the source is by the policy that the packet was classified under.
    if subject.classified != epoch.into() {
        return None;
    }
    let number = match by_key {
        0 => profile::number(&subject.source, epoch, settings),
        _ if subject.numbered == epoch => subject.number,
        _ => return None,
    };
    let profile = PROFILES.get(half(epoch, number))?;
    if profile.listed != 0 {
        let reason = profile.listing_for_ever().or_else(|| profile.listing(clock::now()));
        if let Some(reason) = reason {
            return decide_listed(subject, policy, Verdict::new(reason));
        }
    }
    let applies = profile.limits & subject.applicable & !by_key;
    let special = applies & !settings.newcomers;
    // Without profiles of prefixes, that was found out before the call.
    if settings.flags & flag::PREFIXES != 0
        && let Some(seats) = Seats::of(subject.place.set, 0)
        && pass_on_credit(&seats, settings, profile, subject.applicable, subject.bytes)
    {
        return Some(Verdict(subject.conform));
    }
    let can_be = Newcomer::can_be(&subject.source) && bytes <= Facts::LONGEST;
    if special != 0 || !can_be {
        return None;
    }
    let packet = Packet { policy, profile, applies, bytes };
    // Where the clock was read, it is at hand, and a tick would mostly not do.
    let mut time = match subject.now {
        0 => clock::ticked(subject),
        now => Time::exact(now),
    };
    // A source that was blocked may have lost its entry, and is whatever the packet is.
    let penalties = settings.penalties & profile.limits;
    if penalties != 0 && may_be_blocked(time.now) && recall_offences(epoch, penalties) > time.now {
        return None;
    }
    // By the time of a tick, who came in it owes.
    let state = subject.state;
    let is_late = time.tick != 0 && state.owes(0, time.now) && state.owes(1, time.now);
    let charge = match if is_late { None } else { packet.charge(time) } {
        Some(charge) => charge,
        None => {
            time = Time::exact(subject.now());
            packet.charge(time)?
        }
    };
    let now = time.now;
    if !State::holds(charge.until, now) {
        subject.owed = charge.owed;
        return None;
    }
    let place = subject.place;
    let seats = Seats::lock(place.set, epoch)?;
    // Where no entry was given away since, the source has none still, and under the lock gets none.
    let same = seats.state().has_number_of(subject.state) && seats.tags() == subject.tags;
    let newcomers = seats.newcomers();
    if !same || newcomers.find(&subject.source) < NEWCOMERS {
        seats.unlock();
        return None;
    }
    let (mut free, mut forgets) = (newcomers.room(now), false);
    if free >= NEWCOMERS {
        let (owes, spared) = (charge.until > now, is_spared());
        let crowded = seats.all_owe(now) == Some(true);
        // Somebody has to be forgotten then who owes for a single packet: mostly who is at hand.
        forgets = owes && spared && crowded;
        // Who owes nothing need not be known, but comes to an entry too if there is one to be had.
        let takes_entry = if owes { !forgets } else { !spared && !crowded };
        if takes_entry {
            seats.unlock();
            subject.owed = charge.owed;
            return None;
        }
        if forgets {
            free = newcomers.first();
        }
    }
    let facts = Facts::new(&subject.source, bytes, charge.places, epoch);
    if free < NEWCOMERS {
        seats.admit(free, &subject.source, Newcomer { time: now, facts }, charge.until);
    } else {
        seats.unlock();
    }
    count_admitted(settings, applies, bytes, forgets);
    let opens = applies & settings.connections;
    if opens != 0 {
        (subject.time, subject.binding) = (time, Binding::new(epoch, 0));
        publish(subject);
        remember_opening(opens);
    }
    if charge.near != 0 {
        subject.near = charge.near;
        publish(subject);
        count_near(epoch);
    }
    Some(Verdict(subject.conform))
}

/// Admits a packet of a source without an entry, and with a place in this set, on
/// [credit](limiter_common::credit), if it has it, and counts it.
#[inline(always)]
pub(crate) fn pass_on_credit(
    seats: &Seats,
    settings: &Settings,
    profile: &Profile,
    applicable: u64,
    bytes: u64,
) -> bool {
    let applies = profile.limits & applicable;
    let has_credit = profile.credit != 0 && applies != 0 && applies & !settings.newcomers == 0;
    let passes = has_credit && seats.admit_on_credit(profile.credit);
    if passes {
        count_admitted(settings, applies, bytes, false);
    }
    passes
}

/// Counts a packet that was admitted without an entry, for which somebody else may have been forgotten.
#[inline(always)]
fn count_admitted(settings: &Settings, applies: u64, bytes: u64, forgets: bool) {
    tally::count_inline(settings, &Outcomes::conform(applies), bytes);
    turnover::count(SOURCES, |turnover| {
        turnover.newcomers += 1;
        turnover.owing += u64::from(forgets);
    });
}

/// Decides about a packet of a source that the lists name, mostly without an entry: it owes nothing, and who is noted
/// to owe does not make room for it.
#[inline(always)]
fn decide_listed(subject: &Subject, policy: &InForce, verdict: Verdict) -> Option<Verdict> {
    let seats = Seats::of(subject.place.set, policy.epoch)?;
    if !is_spared() && seats.all_owe(clock::now()).is_none() {
        return None;
    }
    Some(if policy.monitors() == 0 { verdict } else { verdict.monitored() })
}

/// Whether no entry is to be taken for a first packet that could do without one. The others take one, so
/// that a source that goes on sending comes to have one.
#[inline(always)]
fn is_spared() -> bool {
    // SAFETY: the helper has no precondition.
    let number = unsafe { bpf_get_prandom_u32() };
    number % HELD_OF != 0
}

/// A first packet.
struct Packet<'a> {
    policy: &'a InForce,
    profile: &'a Profile,
    applies: u64,
    bytes: u64,
}

/// What charging it comes to.
struct Charge {
    /// Until when its source has to be remembered for it, in nanoseconds, if that is all that is known of it.
    until: u64,
    /// Until when an entry owes that is made for it.
    owed: u64,
    /// The places of the inline limits that it is charged to, as bits.
    places: u32,
    /// Those of them that it leaves near, by their own bits.
    near: u64,
}

impl Packet<'_> {
    /// The bucket of an inline limit. Where no prefix has a profile of its own, it is at hand.
    #[inline(always)]
    fn bucket(&self, place: usize) -> Option<&Gcra> {
        let InForce { epoch, settings, .. } = *self.policy;
        if settings.flags & flag::PREFIXES == 0 {
            return Some(&settings.buckets[place]);
        }
        Some(&METERS.get(half(epoch, self.profile.meters[place]))?.gcra)
    }

    /// Charges it; `None` if it does not conform, or if that takes a better clock to tell.
    #[inline(always)]
    fn charge(&self, time: Time) -> Option<Charge> {
        let InForce { epoch, settings, .. } = *self.policy;
        let mut charge = Charge { until: time.now, owed: time.now, places: 0, near: 0 };
        let credit = if clock::tick().is_some() { self.profile.credit } else { 0 };
        let charge_one = #[inline(always)]
        |place: usize, bit: u64| {
            let Some(bucket) = self.bucket(place) else { return false };
            let by = |limit: &Limit| limit.cost(Sort::default(), self.bytes);
            let cost = inline::cost(settings, epoch, bit, by);
            let Some(spent) = bucket.admit(0, time, cost) else { return false };
            // Who has credit, and is forgotten as soon as the packet is paid, would be within no limit.
            let more = if credit == 0 { 0 } else { bucket.dearest };
            let until = time.now + bucket.refills(spent + more);
            if until > charge.until {
                charge.until = until;
            }
            let owed = time.now + bucket.refills(spent + bucket.credited(credit));
            if owed > charge.owed {
                charge.owed = owed;
            }
            charge.places |= 1 << place;
            if spent >= bucket.near {
                charge.near |= bit;
            }
            true
        };
        if inline::all(settings, self.applies, charge_one) == 0 { Some(charge) } else { None }
    }
}
