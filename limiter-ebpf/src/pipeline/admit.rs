//! What settles most packets: those of sources that are refused, or new, or conform to limits of their source.
//!
//! What is decided here is decided, charged and counted as [`full`](super::full) would. What is left to that is in no count
//! and charged to no limit.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::policy::{Settings, flag},
    algorithm::{gcra::Gcra, policer::Look},
    base::{address::Address, word::Word as _},
    packet::reason::Reason,
    policy::limit::{INLINE, Limit},
};

use crate::{
    history::handshakes::record_syn,
    kernel::{
        atomics::BoundWord,
        barrier::escape,
        scratch::{self, Blame, PacketScratch},
    },
    limits::{
        counters::{self, Outcome, Outcomes},
        inline,
    },
    pipeline::{
        cache,
        headers::read_all,
        lease,
        lists::{by_lists, drop_by_limit},
        probation::{admit_newcomer_by_keys, admit_or_enter, pass_untracked},
    },
    policy::{
        active::{ActivePolicy, hide_provenance},
        verdict::Verdict,
    },
    table::{
        entry::SourceEntry,
        lookup::EntryId,
        set::{Likely, SetRef},
    },
};

/// Decides about the packet, if that is a simple matter: otherwise it is [`Verdict::OPEN`], or undecided
/// ([`Reason::Contended`]) when its source has no entry yet that is bound to the policy. Its source is known, and the limits
/// that it is about.
#[inline(always)]
pub(super) fn admit(
    ctx: *mut xdp_md,
    scratch: &mut PacketScratch,
    policy: &ActivePolicy,
) -> Verdict {
    // There is no room on the stack for what was found out of these.
    let (scratch, settings) = (scratch.reread(), hide_provenance(policy.settings));
    if policy.monitors() == 0
        && let Some(verdict) = cache::decide(scratch, policy.epoch, settings)
    {
        return verdict;
    }
    let scratch = scratch.reread();
    (scratch.monitor, scratch.leased) = (policy.monitors(), 0);
    let scratch = scratch.reread();
    let place = scratch.place;
    let Some(set_ref) = SetRef::of(place.set) else { return Verdict::new(Reason::Contended) };
    let likely = set_ref.likely(place, scratch);
    let found = match likely {
        Likely::Entry(number) => {
            SourceEntry::at(number, scratch.key(), scratch, policy.epoch, settings)
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
                return admit_new(ctx, scratch, &set_ref, settings);
            }
            scratch.entry_id = entry_id.0;
            match SourceEntry::of(scratch.reread(), policy.epoch) {
                Some(entry) => entry,
                None => return Verdict::new(Reason::Contended),
            }
        }
    };
    let applies = entry.profile.limits & scratch.applicable;
    let drops = applies & settings.drops;
    if entry.has_offended() || u64::from(entry.profile.listed) | drops != 0 {
        if scratch.reread().monitors() {
            return Verdict::OPEN;
        }
        if entry.profile.listed == 0 && !entry.has_offended() && drops != 0 {
            let verdict = drop_by_limit(scratch.reread(), policy.epoch, drops);
            entry.account(true, scratch.reread().bytes);
            return verdict;
        }
        let verdict = by_lists(&entry, scratch.reread().bytes);
        // A block or an entry of a list that is over decides nothing any more. Of an entry that is bound anew it is not known.
        if verdict.is_some() || entry.has_offended() || drops != 0 || !entry.is_bound() {
            return verdict.unwrap_or(Verdict::OPEN);
        }
    }
    let scratch = scratch.reread();
    let is_keyed = applies & settings.keyed != 0;
    // What has a key of its own is left to the full decision, unless an inline limit refuses the packet: it does so most likely
    // where the source was refused lately.
    if is_keyed
        && (applies & !settings.keyed == 0
            || !entry.episode().is_noted(scratch::coarse_now(scratch).now, false))
    {
        return Verdict::OPEN;
    }
    if !is_keyed && !scratch.monitors() && lease::pass(scratch, &entry, settings, applies) {
        let scratch = scratch.reread();
        counters::count_inline(settings, &Outcomes::conform(applies), scratch.bytes);
        return Verdict(scratch.conform);
    }
    let scratch = scratch.reread();
    if applies != 0 {
        scratch.binding = entry.binding;
        if !charge(ctx, scratch, &entry, settings, applies) {
            let scratch = scratch.reread();
            return if scratch.monitors() {
                Verdict::OPEN
            } else {
                refuse(scratch, &entry, settings)
            };
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

/// Decides about a packet of a source without an entry, in a set without a free way.
#[inline(always)]
fn admit_new(
    ctx: *mut xdp_md,
    scratch: &mut PacketScratch,
    set_ref: &SetRef,
    settings: &Settings,
) -> Verdict {
    // Where no prefix has a profile of its own, it takes no call.
    let (first, applicable) = (&settings.default_profile, scratch.applicable);
    if settings.flags & flag::PREFIXES == 0
        && pass_untracked(set_ref, settings, first, applicable, scratch.bytes)
    {
        return Verdict(scratch.conform);
    }
    let by_keys = scratch.applicable & settings.buckets_by_key != 0;
    escape(scratch);
    if !by_keys {
        return Verdict(admit_or_enter(0).into());
    }
    if scratch.reread().is_read == 0 {
        read_all(ctx);
    }
    Verdict(admit_newcomer_by_keys().into())
}

/// Charges the packet to limits, if all of them are inline ones of its source and it conforms to all. Where some have other
/// keys, it finds out whether an inline one refuses the packet.
#[inline(always)]
fn charge(
    ctx: *mut xdp_md,
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &'static Settings,
    limits: u64,
) -> bool {
    // Bytes are known without headers, and what costs neither those nor 1 is no newcomer's limit.
    if limits & !(settings.keyed | settings.newcomers) != 0 {
        if scratch.is_read == 0 {
            escape(scratch);
            read_all(ctx);
        }
        scratch.reread().classify_cost();
    }
    let scratch = scratch.reread();
    scratch.time = scratch::coarse_now(scratch);
    scratch.bill.near = 0;
    let over = look(scratch, entry, settings, limits & !settings.keyed);
    // What has another key is left to the full decision.
    let over = over | limits & hide_provenance(settings).keyed;
    scratch.over = over;
    if over != 0 {
        return false;
    }
    let left = inline::commit(scratch, entry, settings, limits);
    if left != 0 && !charge_again(scratch, entry, settings, left) {
        scratch.bill.charged = limits & !left;
        inline::refund_inline();
        return false;
    }
    let near = scratch.reread().bill.near;
    if near != 0 {
        counters::count_near(entry.binding.epoch(), near);
    }
    true
}

/// Charges the limit that another CPU was first at, by the word that was found, if it is the last one. It is tried once,
/// without a call before it: the other CPU needs longer than that to be first again. A third one may be, and then the full
/// decision charges the packet.
#[inline(always)]
fn charge_again(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    left: u64,
) -> bool {
    let place = scratch.looked as usize & (INLINE - 1);
    let Some(meter) = entry.meter(place) else { return false };
    let found = PacketScratch::hide_provenance(&mut scratch.looks[place]).seen;
    // The time of the packet will do: the limit was looked at by it.
    left & (left - 1) == 0
        && judge(scratch, entry, settings, &meter.gcra, left, found)
            .zip(entry.cell(scratch, place))
            .is_some_and(|(look, word)| entry.is_bound() && look.commit(word).is_ok())
}

/// Looks at limits. Gives the first one that the packet does not conform to, and those that were not asked after it, as bits;
/// if there are none, what charging it makes of all is known.
#[inline(always)]
fn look(scratch: &mut PacketScratch, entry: &SourceEntry, settings: &Settings, limits: u64) -> u64 {
    let look_at = #[inline(always)]
    |scratch: &mut PacketScratch, place: usize, bit: u64, word: BoundWord| {
        let Some(meter) = entry.meter(place) else { return false };
        let seen = word.load_acquire();
        if !meter.gcra.will_do(scratch.time()) {
            scratch.read_clock();
        }
        let Some(look) = judge(scratch, entry, settings, &meter.gcra, bit, seen) else {
            scratch.looked = place as u64;
            return false;
        };
        *PacketScratch::hide_provenance(&mut scratch.looks[place]) = look;
        true
    };
    let left = inline::all_words(scratch, entry, settings, limits, look_at);
    // The words are of this binding if they still are. If not, `refuse` finds that out too.
    if entry.is_bound() { left } else { u64::MAX }
}

/// What charging the packet to a limit with this bit makes of a word, by the time of the packet, if it conforms. If it leaves
/// the limit nearly used up, that is noted.
#[inline(always)]
fn judge(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    gcra: &Gcra,
    bit: u64,
    seen: u64,
) -> Option<Look> {
    let by = |limit: &Limit| limit.cost(scratch.cost_class(), scratch.bytes);
    let cost = inline::cost(settings, entry.binding.epoch(), bit, by);
    let (next, near) = gcra.pass(seen, scratch.time(), cost)?;
    scratch.reread().bill.note_near(bit, near);
    Some(Look { seen, next })
}

/// Drops the packet if it exceeds the limit that was looked at last, and there is nothing to be said of that: the source is
/// over the limit for a while, and nothing comes of it but that the packet is dropped.
#[inline(always)]
fn refuse(scratch: &mut PacketScratch, entry: &SourceEntry, settings: &Settings) -> Verdict {
    let place = scratch.looked as usize & (INLINE - 1);
    let bit = settings.inline[place];
    // Those before it might refuse it too.
    let is_first = scratch.over & bit != 0 && scratch.over & (bit - 1) == 0;
    if !is_first || bit & settings.enforced & settings.unit & !settings.penalties == 0 {
        return Verdict::OPEN;
    }
    let epoch = entry.binding.epoch();
    let Some(meter) = entry.meter(place) else { return Verdict::OPEN };
    let time = scratch.time();
    let Some(word) = entry.cell(scratch, place) else { return Verdict::OPEN };
    if !meter.gcra.exceeds(word.load_acquire(), time)
        || !entry.episode().is_noted(time.now, false)
        // The word is of this binding if it still is.
        || !entry.is_bound()
        // What the first limit refuses is remembered by who finds a slot of the cache free: to refuse by the entry takes
        // little more. What a later one refuses is not remembered.
        || entry.profile.limits & scratch.applicable & (bit - 1) == 0
            && !cache::is_plain_taken(scratch, scratch.key(), epoch)
    {
        return Verdict::OPEN;
    }
    let tally = settings.tallies[place];
    counters::count(tally, Outcome::Exceed, scratch.bytes);
    scratch.blame = Blame::tally(tally);
    entry.account(true, scratch.reread().bytes);
    Verdict::new(Reason::Exceed)
}
