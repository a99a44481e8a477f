//! The first packet of a source in a set of the table that is full.

use limiter_common::{
    contract::{NEWCOMERS, Profile, half},
    gcra::Time,
    limit::{INLINE, Sort},
    newcomer::{Facts, Newcomer, State},
    policer::Policer as _,
    reason::Reason,
    table,
};

use crate::{
    clock,
    datapath::InForce,
    entry::number,
    inline,
    maps::{METERS, PROFILES},
    seats::Seats,
    subject::Subject,
    tally,
    verdict::Verdict,
};

/// Admits the packet of the subject, whose source has no entry, if there is nothing to be known of that
/// but this packet; gives the place of the reason. Otherwise the source needs an entry, and the packet
/// is undecided.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn admit_newcomer() -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else { return undecided };
    admit(subject, &policy).map_or(undecided, |verdict| verdict.0 as u32)
}

#[inline(always)]
fn admit(subject: &mut Subject, policy: &InForce) -> Option<Verdict> {
    let (bytes, settings, epoch) = (subject.bytes, policy.settings, policy.epoch);
    let profile = PROFILES.get(half(epoch, number(&subject.source, epoch, settings)))?;
    let applies = profile.limits & subject.applicable;
    // Who is blocked is told by the entry alone, whatever the packet is.
    let special = u64::from(profile.listed)
        | applies & !settings.newcomers
        | settings.penalties & profile.limits;
    let can_be = Newcomer::can_be(&subject.source) && bytes <= Facts::LONGEST;
    if special != 0 || !can_be || subject.classified != epoch.into() {
        return None;
    }
    let packet = Packet { policy, profile, applies, bytes };
    let mut time = clock::ticked(subject);
    let until = match packet.charge(time) {
        Some(until) => until,
        None => {
            time = Time::exact(clock::now());
            packet.charge(time)?
        }
    };
    let now = time.now;
    if !State::holds(until, now) {
        return None;
    }
    let place = subject.place;
    let seats = Seats::lock(place.set, epoch)?;
    // Where no entry was given away since, the source has none still, and under the lock gets none.
    let same = seats.state().has_number_of(subject.state) && seats.tags() == subject.tags;
    let newcomers = seats.newcomers();
    let free = newcomers.room(now);
    if !same || free >= NEWCOMERS || newcomers.find(&subject.source) < NEWCOMERS {
        seats.unlock();
        return None;
    }
    let facts = Facts::new(&subject.source, bytes, packet.places(), epoch);
    seats.admit(free, &subject.source, Newcomer { time: now, facts }, until);
    tally::count_inline(settings, applies, 0, bytes);
    Some(Verdict(subject.conform))
}

/// A first packet.
struct Packet<'a> {
    policy: &'a InForce,
    profile: &'a Profile,
    applies: u64,
    bytes: u64,
}

impl Packet<'_> {
    /// Until when its source owes for it, in nanoseconds; `None` if it does not conform, or if that
    /// takes a better clock to tell.
    #[inline(always)]
    fn charge(&self, time: Time) -> Option<u64> {
        let InForce { epoch, settings, .. } = *self.policy;
        let mut until = time.now;
        for place in 0..INLINE {
            let bit = settings.inline[place] & self.applies;
            if bit == 0 {
                continue;
            }
            let meter = METERS.get(half(epoch, self.profile.meters[place]))?;
            let cost = inline::cost(settings, epoch, bit, Sort::default(), self.bytes);
            let next = meter.gcra.conform(meter.gcra.fresh(time.now), time, cost)?;
            let paid = time.now + table::owes(next, meter.gcra.scale().0, time.now);
            if paid > until {
                until = paid;
            }
        }
        Some(until)
    }

    /// The places of the inline limits that it is charged to, as bits.
    #[inline(always)]
    fn places(&self) -> u32 {
        let mut places = 0;
        for place in 0..INLINE {
            if self.policy.settings.inline[place] & self.applies != 0 {
                places |= 1 << place;
            }
        }
        places
    }
}
