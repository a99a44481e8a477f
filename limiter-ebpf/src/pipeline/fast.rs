//! The fast path: plain packets of sources that are refused, or new, or conform by a look at one limit. Of IPv6, those
//! whose sources are networks of 64 bits at most, as they are unless said otherwise.
//!
//! Of such a packet nothing is read that nobody asks for, nor written into the scratch, but what has no room on the
//! stack: the keys of sources of IPv6. It is decided about, charged and counted as it would be where all packets are,
//! which decides about it anew where it takes more to tell. What is left to that is in no count and charged to no limit;
//! but that a new source needs an entry is found out once.

use limiter_common::{
    abi::policy::{Settings, flag, half},
    algorithm::{policer::Look, time::Time},
    base::{address::Address, word::Word as _},
    memory::event::is_noted,
    packet::{
        plain::{self, V4, V6, Version},
        reason::Reason,
    },
    policy::{limit::INLINE, matching::match_field, rest::Rest},
    table::set::Place,
};

use crate::{
    kernel::{
        barrier::{black_box, escape},
        clock,
        frame::XdpFrame,
        key::SourceKey,
        maps::METERS,
        scratch::{self, PacketScratch},
    },
    limits::{counters, inline},
    pipeline::{
        cache, lease,
        lists::by_lists,
        probation::{admit_newcomer, pass_untracked},
    },
    policy::{
        active::ActivePolicy,
        matching::{applicable, by_port},
        verdict::Verdict,
    },
    table::{
        entry::SourceEntry,
        lookup::EntryId,
        recall::carries,
        set::{Likely, SetRef},
    },
};

/// What a packet that conforms is counted under.
const CONFORM: Verdict = Verdict::new(Reason::Conform);

/// Decides about a frame, if that is a simple matter, and counts it but under its reason. Of the packet, the bytes of
/// the frame are known.
#[inline(always)]
pub(crate) fn decide(frame: &XdpFrame, scratch: &mut PacketScratch) -> Option<Verdict> {
    match plain::ether_type(frame) {
        Some(V4::ETHER_TYPE) => decide_plain::<V4>(frame, scratch),
        Some(V6::ETHER_TYPE) => decide_plain::<V6>(frame, scratch),
        _ => None,
    }
}

/// Decides about a frame of a version of IP, if it is plain.
#[inline(always)]
fn decide_plain<V: Version>(frame: &XdpFrame, scratch: &mut PacketScratch) -> Option<Verdict> {
    let policy = ActivePolicy::get()?;
    let settings = policy.settings;
    if policy.monitors_or(flag::DESTINATIONS) != 0 || !V::has_short_keys(&settings.mask) {
        return None;
    }
    let (source, protocol) = plain::source::<V, _>(frame, &settings.mask)?;
    // A key of two words is kept in the packet: there is no room on the stack.
    let is_kept = V::ETHER_TYPE == V6::ETHER_TYPE;
    if is_kept {
        scratch.write_key(SourceKey::of(&source));
    }
    let source = #[inline(always)]
    |scratch: &PacketScratch| if is_kept { scratch.short_source() } else { source };
    let scratch = scratch.reread();
    // The compiler need not think of destinations.
    let match_fields = settings.match_fields & !match_field::DESTINATION;
    scratch.applicable = if match_fields == 0 {
        u64::MAX
    } else {
        classify_plain::<V>(frame, protocol, scratch.bytes, match_fields, &policy)?
    };
    let rest = #[inline(always)]
    |_: &PacketScratch| Rest::of_plain::<V, _>(frame, protocol, settings.rest);
    scratch.find_rest(settings, rest)?;
    // There is no room on the stack for what was found out of these.
    let (scratch, settings) = (scratch.reread(), hide_provenance(settings));
    scratch.place = Place::of(&source(scratch), settings.table_seed, settings.sets);
    let cached = cache::decide(
        scratch,
        source,
        policy.epoch,
        settings,
        #[inline(always)]
        |_| CONFORM,
    );
    scratch.reread().is_asked = 1;
    if cached.is_some() || settings.flags & flag::FAST == 0 {
        return cached;
    }
    let scratch = scratch.reread();
    let place = scratch.place;
    let set_ref = SetRef::of(place.set, 0)?;
    if settings.flags & flag::CLOCK != 0 {
        // Most packets take it; who is refused has done without by now.
        scratch.now = clock::now();
    }
    match set_ref.likely(place, scratch) {
        // What several limits are about is left alone.
        Likely::Entry(_) if scratch.applicable & settings.conditional_limits != 0 => None,
        Likely::Entry(number) => {
            let key = SourceKey::of(&source(scratch));
            let entry = SourceEntry::at(number, key, scratch, policy.epoch, settings)?;
            decide_known(&entry, key, scratch, policy.epoch, settings)
        }
        Likely::Nowhere => pass_new(&source(scratch), &set_ref, scratch, policy.epoch, settings),
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
    match_fields: u32,
    policy: &ActivePolicy,
) -> Option<u64> {
    let ActivePolicy { epoch, settings, .. } = *policy;
    // Most policies that ask about anything ask about ports alone.
    let limits = if match_fields == match_field::PORT {
        by_port(plain::port::<V, _>(frame)?, epoch, settings)
    } else {
        let packet = plain::without_addresses::<V, _>(frame, protocol)?;
        applicable(&packet, || bytes, match_fields, epoch, settings)
    };
    (limits & settings.connections == 0).then_some(limits)
}

/// Decides about a packet of a source, whose key this is, by its entry.
#[inline(always)]
fn decide_known(
    entry: &SourceEntry,
    key: SourceKey,
    scratch: &mut PacketScratch,
    epoch: u32,
    settings: &Settings,
) -> Option<Verdict> {
    if entry.has_offended() {
        return None;
    }
    if entry.profile.listed != 0 {
        return by_lists(entry, scratch.bytes);
    }
    let applies = entry.profile.limits & scratch.applicable;
    if applies == 0 {
        entry.account(false, scratch.bytes);
        return Some(CONFORM);
    }
    if settings.unit & applies == 0 {
        return None;
    }
    let place = scratch.unknown(inline::place(settings, applies)?) & (INLINE - 1);
    let bucket = if entry.binding.profile() == 0 {
        &settings.default_buckets[place]
    } else {
        &METERS.get(half(epoch, entry.meters[place]))?.gcra
    };
    let cell = entry.cell(place);
    let seen = cell.load_acquire();
    let mut time =
        if scratch.now == 0 { scratch::coarse_now(scratch) } else { Time::exact(scratch.now) };
    if !bucket.will_do(time) {
        time = Time::exact(scratch.now());
    }
    let Some(next) = bucket.pass_far(seen, time, 1) else {
        // The word is of this binding if it still is.
        let refuses = bucket.exceeds(seen, time) && entry.bound() == entry.binding;
        return if refuses { refuse(entry, key, place, time, scratch, settings) } else { None };
    };
    // Who is charged once more before the bucket is full comes often.
    if bucket.spent(seen, time.now) != 0 {
        scratch.write_key(key);
        let comes_often = #[inline(always)]
        |_: &mut PacketScratch| true;
        if lease::pass(scratch, entry, settings, applies, comes_often) {
            counters::count(
                settings.tallies[place],
                counters::Outcome::Conform,
                scratch.reread().bytes,
            );
            return Some(CONFORM);
        }
    }
    if entry.bound() != entry.binding || (Look { seen, next }).commit(cell).is_err() {
        return None;
    }
    let scratch = scratch.reread();
    counters::count(settings.tallies[place], counters::Outcome::Conform, scratch.bytes);
    entry.account(false, scratch.reread().bytes);
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
    scratch: &mut PacketScratch,
    settings: &Settings,
) -> Option<Verdict> {
    let bit = settings.inline[place];
    if bit & settings.enforced & !settings.penalties == 0
        || !is_noted(entry.refused(), time.now, false)
    {
        return None;
    }
    // A slot of the cache is taken by who finds it free: to refuse by the entry takes little more.
    if cache::of(scratch, key, entry.binding.epoch(), settings) != cache::Slot::Taken {
        return None;
    }
    counters::count(settings.tallies[place], counters::Outcome::Exceed, scratch.bytes);
    entry.account(true, scratch.reread().bytes);
    Some(Verdict::new(Reason::Exceed))
}

/// Decides about a packet of a source without an entry, if its set has no free way.
#[inline(always)]
fn pass_new(
    source: &Address,
    set_ref: &SetRef,
    scratch: &mut PacketScratch,
    epoch: u32,
    settings: &Settings,
) -> Option<Verdict> {
    // What has keys of its own is charged where all headers were read. Who comes while state is carried over may owe
    // something in the old table.
    if carries() || scratch.tags.have(0) || scratch.applicable & settings.buckets_by_key != 0 {
        return None;
    }
    // Where no prefix has a profile of its own, it has the first one, and takes no call.
    if settings.flags & flag::PREFIXES == 0 {
        let (first, applicable) = (&settings.default_profile, scratch.applicable);
        if pass_untracked(set_ref, settings, first, applicable, scratch.bytes) {
            return Some(CONFORM);
        }
    }
    scratch.write_key(SourceKey::of(source));
    let scratch = scratch.reread();
    (scratch.classified, scratch.conform) = (epoch.into(), CONFORM.0);
    escape(scratch);
    let verdict = Verdict(admit_newcomer(0).into());
    if verdict.is_decided() {
        return Some(verdict);
    }
    scratch.reread().entry_id = EntryId::MUST_INSERT.0;
    None
}

/// The same settings, of which nothing was read yet as the compiler must take it.
#[inline(always)]
fn hide_provenance(settings: &'static Settings) -> &'static Settings {
    // SAFETY: the pointer is that of the settings.
    unsafe { &*(black_box(&raw const *settings as usize) as *const Settings) }
}
