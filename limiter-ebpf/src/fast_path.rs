//! The fast path: plain packets of sources that are refused, or new, or conform by a look at one limit. Of IPv6, those
//! whose sources are networks of 64 bits at most, as they are unless said otherwise.
//!
//! Of such a packet nothing is read that nobody asks for, nor written into the subject, but what has no room on the
//! stack: the keys of sources of IPv6. It is decided about, charged and counted as it would be where all packets are,
//! which decides about it anew where it takes more to tell. What is left to that is in no count and charged to no limit;
//! but that a new source needs an entry is found out once.

use limiter_common::{
    address::Address,
    class::section,
    contract::{Settings, flag, half},
    gcra::Time,
    notice::is_noted,
    plain::{self, V4, V6, Version},
    policer::Look,
    reason::Reason,
    table::Place,
    word::Word as _,
};

use crate::{
    admit::by_lists,
    barrier::{opaque, publish},
    cache,
    classes::{applicable, by_port},
    clock,
    datapath::InForce,
    entry::SourceEntry,
    frame::XdpFrame,
    inline,
    maps::METERS,
    newcomers::{admit_newcomer, pass_on_credit},
    seat::Seat,
    seats::{Likely, Seats},
    source_key::SourceKey,
    subject::Subject,
    tally,
    verdict::Verdict,
};

/// What a packet that conforms is counted under.
const CONFORM: Verdict = Verdict::new(Reason::Conform);

/// Decides about a frame, if that is a simple matter, and counts it but under its reason. Of the subject, the bytes of
/// the frame are known.
#[inline(always)]
pub(crate) fn decide(frame: &XdpFrame, subject: &mut Subject) -> Option<Verdict> {
    match plain::ether_type(frame) {
        Some(V4::ETHER_TYPE) => decide_plain::<V4>(frame, subject),
        Some(V6::ETHER_TYPE) => decide_plain::<V6>(frame, subject),
        _ => None,
    }
}

/// Decides about a frame of a version of IP, if it is plain.
#[inline(always)]
fn decide_plain<V: Version>(frame: &XdpFrame, subject: &mut Subject) -> Option<Verdict> {
    let policy = InForce::get()?;
    let settings = policy.settings;
    if policy.monitors_or(flag::DESTINATIONS) != 0 || !V::has_short_keys(&settings.mask) {
        return None;
    }
    let (source, protocol) = plain::source::<V, _>(frame, &settings.mask)?;
    // A key of two words is kept in the subject: there is no room on the stack.
    let is_kept = V::ETHER_TYPE == V6::ETHER_TYPE;
    if is_kept {
        subject.write_key(SourceKey::of(&source));
    }
    let source = #[inline(always)]
    |subject: &Subject| if is_kept { subject.short_source() } else { source };
    let subject = subject.reread();
    // The compiler need not think of destinations.
    let sections = settings.sections & !section::DESTINATION;
    subject.applicable = if sections == 0 {
        u64::MAX
    } else {
        classify_plain::<V>(frame, protocol, subject.bytes, sections, &policy)?
    };
    // There is no room on the stack for what was found out of these.
    let (subject, settings) = (subject.reread(), again(settings));
    subject.place = Place::of(&source(subject), settings.seed, settings.sets);
    let cached = cache::decide(
        subject,
        source,
        policy.epoch,
        settings,
        #[inline(always)]
        |_| CONFORM,
    );
    subject.reread().is_asked = 1;
    if cached.is_some() || settings.flags & flag::FAST == 0 {
        return cached;
    }
    let subject = subject.reread();
    let place = subject.place;
    let seats = Seats::of(place.set, 0)?;
    if settings.flags & flag::CLOCK != 0 {
        // Most packets take it; who is refused has done without by now.
        subject.now = clock::now();
    }
    match seats.likely(place, subject) {
        // What several limits are about is left alone.
        Likely::Entry(_) if subject.applicable & settings.beside != 0 => None,
        Likely::Entry(number) => {
            let key = SourceKey::of(&source(subject));
            let entry = SourceEntry::at(number, key, subject, policy.epoch, settings)?;
            decide_known(&entry, key, subject, policy.epoch, settings)
        }
        Likely::Nowhere => pass_new(&source(subject), &seats, subject, policy.epoch, settings),
        Likely::Elsewhere => None,
    }
}

/// The limits that a plain packet of so many bytes is about by these properties; `None` if what is asked for cannot be
/// read here, or where others have to recall whether its connection is a new one.
#[inline(always)]
fn classify_plain<V: Version>(
    frame: &XdpFrame,
    protocol: u8,
    bytes: u64,
    sections: u32,
    policy: &InForce,
) -> Option<u64> {
    let InForce { epoch, settings, .. } = *policy;
    // Most policies that ask about anything ask about ports alone.
    let limits = if sections == section::PORT {
        by_port(plain::port::<V, _>(frame)?, epoch, settings)
    } else {
        let packet = plain::without_addresses::<V, _>(frame, protocol)?;
        applicable(&packet, || bytes, sections, epoch, settings)
    };
    (limits & settings.connections == 0).then_some(limits)
}

/// Decides about a packet of a source, whose key this is, by its entry.
#[inline(always)]
fn decide_known(
    entry: &SourceEntry,
    key: SourceKey,
    subject: &mut Subject,
    epoch: u32,
    settings: &Settings,
) -> Option<Verdict> {
    if entry.blocked() != 0 {
        return None;
    }
    if entry.lists.listed != 0 {
        return by_lists(entry, subject.bytes);
    }
    let applies = entry.profile.limits & subject.applicable;
    if applies == 0 {
        entry.account(false, subject.bytes);
        return Some(CONFORM);
    }
    if settings.unit & applies == 0 {
        return None;
    }
    let place = inline::place(settings, applies)?;
    let bucket = if entry.binding.profile() == 0 {
        &settings.buckets[place]
    } else {
        &METERS.get(half(epoch, entry.profile.meters[place]))?.gcra
    };
    let cell = entry.cell(place);
    let seen = cell.load();
    let mut time = if subject.now == 0 { clock::ticked(subject) } else { Time::exact(subject.now) };
    if !bucket.will_do(time) {
        time = Time::exact(subject.now());
    }
    let Some(next) = bucket.pass_far(seen, time, 1) else {
        // The word is of this binding if it still is.
        let refuses = bucket.exceeds(seen, time) && entry.bound() == entry.binding;
        return if refuses { refuse(entry, key, place, time, subject, settings) } else { None };
    };
    // Who is charged once more before the bucket is full comes often.
    if bucket.spent(seen, time.now) != 0 {
        subject.write_key(key);
        let comes_often = #[inline(always)]
        |_: &mut Subject| true;
        if cache::pass(subject, entry, applies, comes_often) {
            tally::count(settings.tallies[place], tally::Outcome::Conform, subject.reread().bytes);
            return Some(CONFORM);
        }
    }
    if entry.bound() != entry.binding || (Look { seen, next }).commit(cell).is_err() {
        return None;
    }
    let subject = subject.reread();
    tally::count(settings.tallies[place], tally::Outcome::Conform, subject.bytes);
    entry.account(false, subject.reread().bytes);
    Some(CONFORM)
}

/// Drops a packet that exceeds the inline limit at a place, which alone is about it, if there is nothing to be said of
/// that: the source is over the limit for a while, and nothing comes of it but that the packet is dropped.
#[inline(always)]
fn refuse(
    entry: &SourceEntry,
    key: SourceKey,
    place: usize,
    time: Time,
    subject: &mut Subject,
    settings: &Settings,
) -> Option<Verdict> {
    let bit = settings.inline[place];
    if bit & settings.enforced & !settings.penalties == 0
        || !is_noted(entry.refused(), time.now, false)
    {
        return None;
    }
    // A slot of the cache is taken by who finds it free: to refuse by the entry takes little more.
    if cache::of(subject, key, entry.binding.epoch()) != cache::Slot::Taken {
        return None;
    }
    tally::count(settings.tallies[place], tally::Outcome::Exceed, subject.bytes);
    entry.account(true, subject.reread().bytes);
    Some(Verdict::new(Reason::Exceed))
}

/// Decides about a packet of a source without an entry, if its set has no free way.
#[inline(always)]
fn pass_new(
    source: &Address,
    seats: &Seats,
    subject: &mut Subject,
    epoch: u32,
    settings: &Settings,
) -> Option<Verdict> {
    // What has keys of its own is charged where all headers were read.
    if subject.tags.have(0) || subject.applicable & settings.buckets_by_key != 0 {
        return None;
    }
    // Where no prefix has a profile of its own, it has the first one, and takes no call.
    if settings.flags & flag::PREFIXES == 0 {
        let (first, applicable) = (&settings.first, subject.applicable);
        if pass_on_credit(seats, settings, first, applicable, subject.bytes) {
            return Some(CONFORM);
        }
    }
    subject.write_key(SourceKey::of(source));
    let subject = subject.reread();
    (subject.classified, subject.conform) = (epoch.into(), CONFORM.0);
    publish(subject);
    let verdict = Verdict(admit_newcomer(0).into());
    if verdict.is_decided() {
        return Some(verdict);
    }
    subject.reread().seat = Seat::TO_BE_MADE.0;
    None
}

/// The same settings, of which nothing was read yet as the compiler must take it.
#[inline(always)]
fn again(settings: &'static Settings) -> &'static Settings {
    // SAFETY: the pointer is that of the settings.
    unsafe { &*(opaque(&raw const *settings as usize) as *const Settings) }
}
