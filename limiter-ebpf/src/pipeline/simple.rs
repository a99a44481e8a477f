//! Deciding about a packet that is admitted, or refused as the one before, and nothing else is to be
//! said of: most packets there are.

use limiter_common::{
    abi::policy::{Settings, flag, half},
    algorithm::{policer::Look, time::Time},
    base::{address::Address, word::Word as _},
    packet::reason::Reason,
    policy::limit::Limit,
    table::set::Place,
};

use crate::{
    history::handshakes::record_syn,
    kernel::{
        barrier::escape,
        maps::METERS,
        scratch::{self, PacketScratch},
    },
    limits::{
        counters::{self, Outcomes},
        inline,
    },
    pipeline::{
        cache,
        classify::classify_packet,
        lease,
        lists::by_lists,
        probation::{admit_newcomer, admit_newcomer_by_keys, pass_untracked},
    },
    policy::{active::ActivePolicy, verdict::Verdict},
    table::{
        entry::SourceEntry,
        lookup::EntryId,
        set::{Likely, SetRef},
    },
};

/// Decides about the packet, if that is a simple matter: otherwise it is
/// [`Verdict::OPEN`], or undecided ([`Reason::Contended`]) when its source has no entry yet that is
/// bound to the policy.
#[inline(always)]
pub(crate) fn admit(scratch: &mut PacketScratch, policy: &ActivePolicy) -> Verdict {
    let settings = policy.settings;
    classify_packet(scratch, policy.epoch, settings);
    // Other parts of the program wrote to it.
    let scratch = scratch.reread();
    scratch.find_source(&settings.mask);
    let place = Place::of(&scratch.source, settings.table_seed, settings.sets);
    scratch.place = place;
    // The fast path has asked already, and whoever is asked twice comes to an entry more seldom.
    if scratch.entry_id == EntryId::MUST_INSERT.0 {
        return Verdict::new(Reason::Contended);
    }
    if policy.monitors() == 0 && scratch.is_asked == 0 {
        let conform = #[inline(always)]
        |scratch: &PacketScratch| Verdict(scratch.conform);
        let source = #[inline(always)]
        |scratch: &PacketScratch| scratch.source;
        let cached = cache::decide(scratch, source, policy.epoch, settings, conform);
        if let Some(verdict) = cached {
            return verdict;
        }
    }
    let scratch = scratch.reread();
    let place = scratch.place;
    let Some(set_ref) = SetRef::of(place.set, 0) else { return Verdict::new(Reason::Contended) };
    let likely = set_ref.likely(place, scratch);
    let found = match likely {
        Likely::Entry(number) => {
            SourceEntry::at(number, scratch.key(), scratch, policy.epoch, policy.settings)
        }
        Likely::Nowhere | Likely::Elsewhere => None,
    };
    let entry = match found {
        Some(entry) => entry,
        None => {
            let is_none =
                matches!(likely, Likely::Nowhere) && scratch.source.family != Address::NONE.family;
            let entry_id = if is_none { EntryId::none(scratch.tags) } else { EntryId::of(scratch) };
            if entry_id == EntryId::SET_FULL {
                // Where no prefix has a profile of its own, it takes no call.
                let (first, applicable) = (&settings.default_profile, scratch.applicable);
                if settings.flags & flag::PREFIXES == 0
                    && pass_untracked(&set_ref, settings, first, applicable, scratch.bytes)
                {
                    return Verdict(scratch.conform);
                }
                let by_keys = scratch.applicable & settings.buckets_by_key != 0;
                escape(scratch);
                let verdict = if by_keys { admit_newcomer_by_keys() } else { admit_newcomer(0) };
                return Verdict(verdict.into());
            }
            scratch.entry_id = entry_id.0;
            match SourceEntry::of(scratch, policy.epoch) {
                Some(entry) => entry,
                None => return Verdict::new(Reason::Contended),
            }
        }
    };
    let applies = entry.profile.limits & scratch.applicable;
    if entry.has_offended() || u64::from(entry.profile.listed) | applies & settings.keyed != 0 {
        return match policy.monitors() {
            0 => by_lists(&entry, scratch.bytes).unwrap_or(Verdict::OPEN),
            _ => Verdict::OPEN,
        };
    }
    if applies != 0 && policy.monitors() == 0 {
        let comes_often =
            #[inline(always)]
            |scratch: &mut PacketScratch| comes_often(scratch, &entry, settings, applies);
        if lease::pass(scratch, &entry, settings, applies, comes_often) {
            let scratch = scratch.reread();
            counters::count_inline(settings, &Outcomes::conform(applies), scratch.bytes);
            return Verdict(scratch.conform);
        }
    }
    let scratch = scratch.reread();
    if applies != 0 {
        scratch.binding = entry.binding;
        if !charge(scratch, &entry, settings, applies) {
            return Verdict::OPEN;
        }
        let outcomes = Outcomes::conform(applies);
        counters::count_inline(settings, &outcomes, scratch.reread().bytes);
        if applies & settings.connections != 0 {
            record_syn(applies & settings.connections);
        }
    }
    let scratch = scratch.reread();
    entry.account(false, scratch.bytes);
    Verdict(scratch.conform)
}

/// Whether the packet is charged to one of these limits once more before that is full.
#[inline(always)]
fn comes_often(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> bool {
    let (epoch, now) = (entry.binding.epoch(), scratch::coarse_now(scratch).now);
    let is_full = #[inline(always)]
    |place: usize, _| {
        let Some(meter) = METERS.get(half(epoch, entry.meters[place])) else { return true };
        meter.gcra.spent(entry.cell(place).load(), now) == 0
    };
    inline::all(settings, limits, is_full) != 0
}

/// Charges the packet to limits, all of them inline ones of its source, if it conforms to all and leaves
/// all far from being used up: what is near a limit is decided about as what is over it, and counted there.
#[inline(always)]
fn charge(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> bool {
    if limits & !settings.unit != 0 {
        scratch.classify_cost();
    }
    scratch.time = scratch::coarse_now(scratch);
    if !look(scratch, entry, settings, limits) {
        return false;
    }
    let left = inline::commit(scratch, entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        scratch.bill.charged = limits & !left;
        inline::refund_inline();
    }
    left == 0
}

/// Looks at limits. Whether the packet leaves all of them far; if so, what charging it makes of them is
/// known.
#[inline(always)]
fn look(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> bool {
    let epoch = entry.binding.epoch();
    let look_at = #[inline(always)]
    |place: usize, bit: u64| {
        let Some(meter) = METERS.get(half(epoch, entry.meters[place])) else {
            return false;
        };
        let by = |limit: &Limit| limit.cost(scratch.cost_class(), scratch.bytes);
        let cost = inline::cost(settings, epoch, bit, by);
        let seen = entry.cell(place).load_acquire();
        let mut time = scratch.time();
        if !meter.gcra.will_do(time) {
            time = Time::exact(scratch.read_clock());
        }
        let Some(next) = meter.gcra.pass_far(seen, time, cost) else { return false };
        *PacketScratch::hide_provenance(&mut scratch.looks[place]) = Look { seen, next };
        true
    };
    // The words are of this binding if they still are.
    inline::all(settings, limits, look_at) == 0 && entry.bound() == scratch.reread().binding
}
