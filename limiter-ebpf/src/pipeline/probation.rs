//! The first packet of a source in a set of the table that is full.

use core::ptr::null_mut;

use aya_ebpf::helpers::bpf_get_prandom_u32;
use limiter_common::{
    abi::{
        layout::table_stats::SOURCES,
        policy::{Profile, Settings, flag, half},
        table::PROBATION_SLOTS,
    },
    algorithm::binding::Binding,
    packet::reason::Reason,
    policy::limit::{CostClass, Limit},
    table::probation::{HELD_OF, ProbationFacts, ProbationSlot, SetState},
};

use crate::{
    history::{
        handshakes::record_syn,
        penalties::{may_be_blocked, recall_offences},
    },
    kernel::{
        barrier::escape,
        churn, clock,
        maps::{METERS, PROFILES},
        scratch::{self, Blame, FirstCharge, PacketScratch},
    },
    limits::{
        counters::{self, Outcomes},
        inline, keyed,
    },
    pipeline::lists::drop_by_limit,
    policy::{
        active::{self, ActivePolicy},
        profile,
        verdict::Verdict,
    },
    table::{
        insert::{bind_packet, enter},
        set::{ALL_OWE, HAS_IDLE, ONE_OWES_LITTLE, SetRef, debts_of_set},
    },
};

/// In the place of a reason: the packet is admitted, if its source is [given an entry](enter_newcomer). The lock of the set is
/// held then, and given back by that.
const TAKES_ENTRY: u32 = u32::MAX;

/// Admits the packet as [`admit_newcomer`] does, and gives its source an entry if it takes one; gives the place of the reason.
/// Otherwise the packet is undecided.
#[inline(always)]
pub(crate) fn admit_or_enter(by_key: u64) -> u32 {
    let verdict = admit_newcomer(by_key);
    if verdict == TAKES_ENTRY { enter_newcomer() } else { verdict }
}

/// Admits the packet, whose source has no entry, if there is nothing to be known of that
/// but this packet; gives the place of the reason, or [`TAKES_ENTRY`]. Otherwise the packet is undecided.
/// By these limits, which have keys of their own, it was charged before.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn admit_newcomer(by_key: u64) -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return undecided;
    };
    admit(scratch, &policy, by_key).map_or(undecided, |verdict| verdict.0 as u32)
}

/// Admits the packet likewise, after it was charged to the limits with keys of their own that are about it
/// and have buckets; or refuses it by one of these. Its headers were read.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn admit_newcomer_by_keys() -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let by_key = find_keys();
    if by_key != 0 {
        keyed::look::<false>(null_mut(), by_key);
        keyed::charge::<false>(null_mut());
        if let Some(reason) = refuse_by_key() {
            return reason;
        }
    }
    let verdict = admit_or_enter(by_key);
    if by_key != 0 {
        if verdict == undecided {
            keyed::refund_keyed();
        } else {
            count_by_key();
        }
    }
    verdict
}

/// The limits with keys of their own that the packet is to be charged to at first, as bits; 0 if there are
/// none, or if it takes more to decide about it. It is charged to them at the time of the clock.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_keys() -> u64 {
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return 0;
    };
    let ActivePolicy { epoch, settings, .. } = policy;
    if scratch.classified != epoch.into() {
        return 0;
    }
    let number = profile::number(&scratch.source, epoch, settings);
    let Some(profile) = PROFILES.get(half(epoch, number)) else { return 0 };
    let applies = profile.limits & scratch.applicable;
    let by_key = applies & settings.buckets_by_key;
    // What such a limit with a penalty refuses is to be noted in an entry.
    let special = applies & !(settings.newcomers | by_key) | by_key & settings.penalties;
    if by_key == 0 || special != 0 || profile.listed != 0 || may_owe(scratch) {
        return 0;
    }
    scratch.open_bill(by_key, settings.enforced);
    scratch.set_time(clock::now());
    let scratch = scratch.reread();
    if is_blocked(epoch, settings.penalties & profile.limits, scratch.time().now) {
        return 0;
    }
    scratch.binding = Binding::new(epoch, number);
    (scratch.number, scratch.numbered) = (number, epoch);
    scratch.tenant = profile.tenant;
    by_key
}

/// Whether the source of the packet is blocked at `now`, in nanoseconds, under one of these limits, which have penalties. A
/// blocked source may have lost its entry.
#[inline(always)]
fn is_blocked(epoch: u32, penalties: u64, now: u64) -> bool {
    penalties != 0 && may_be_blocked(now) && recall_offences(epoch, penalties) > now
}

/// Whether the source of the packet may be on probation. What it owes may refuse the packet then, before limits with other keys
/// are asked.
#[inline(always)]
fn may_owe(scratch: &PacketScratch) -> bool {
    SetRef::of(scratch.place.set).is_some_and(|set_ref| set_ref.may_have_come(&scratch.source))
}

/// If one of the limits with keys of their own refuses the packet, the place of the reason: it is charged to
/// none then, and counted. One of a few brings its source an entry, if one is not noted to owe, so that what follows is told of. Where
/// nothing is dropped, what a limit would refuse is left to the full decision, which tells of it.
#[inline(always)]
fn refuse_by_key() -> Option<u32> {
    let scratch = PacketScratch::get()?;
    let bill = scratch.bill;
    if bill.refused | bill.exceeded & scratch.monitored() == 0 {
        return None;
    }
    keyed::refund_keyed();
    if bill.contended != 0 || scratch.monitors() {
        return Some(Verdict::new(Reason::Contended).0 as u32);
    }
    scratch.blame = Blame::REFUSING;
    scratch.refusing.begin(bill.refused);
    counters::count_keyed(scratch.binding.epoch(), 0, bill.refused, bill.monitored());
    if !does_without_entry(scratch.reread()) {
        bind_packet();
    }
    Some(Verdict::new(Reason::Exceed).0 as u32)
}

/// Counts what the packet was to the limits with keys of their own that it was charged to.
#[inline(always)]
fn count_by_key() {
    let Some(scratch) = PacketScratch::get() else { return };
    let (bill, epoch) = (scratch.bill, scratch.binding.epoch());
    let near = bill.near & bill.charged;
    counters::count_keyed(epoch, bill.charged, 0, bill.monitored());
    if near != 0 {
        counters::count_near(epoch, near);
    }
}

#[inline(always)]
fn admit(scratch: &mut PacketScratch, policy: &ActivePolicy, by_key: u64) -> Option<Verdict> {
    let (bytes, settings, epoch) = (scratch.bytes, policy.settings, policy.epoch);
    // The key of the source is by the policy that the packet was classified under.
    if scratch.classified != epoch.into() {
        return None;
    }
    if by_key == 0 {
        scratch.number = profile::number(&scratch.source, epoch, settings);
        scratch.numbered = epoch;
    } else if scratch.numbered != epoch {
        return None;
    }
    let profile = PROFILES.get(half(epoch, scratch.number))?;
    if profile.listed != 0 {
        let reason = profile.listing_for_ever().or_else(|| profile.listing(clock::now()));
        if let Some(reason) = reason {
            return if does_without_entry(scratch) {
                Some(monitored(policy, Verdict::new(reason)))
            } else {
                None
            };
        }
    }
    let applies = profile.limits & scratch.applicable & !by_key;
    let drops = applies & settings.drops;
    if drops != 0 {
        return if does_without_entry(scratch) {
            Some(monitored(policy, drop_by_limit(scratch, epoch, drops)))
        } else {
            None
        };
    }
    let special = applies & !settings.newcomers;
    // Without profiles of prefixes, that was found out before the call.
    if settings.flags & flag::PREFIXES != 0
        && let Some(set_ref) = SetRef::of(scratch.place.set)
        && pass_untracked(&set_ref, settings, profile, scratch.applicable, scratch.bytes)
    {
        return Some(Verdict(scratch.conform));
    }
    let can_be = ProbationSlot::can_be(&scratch.source) && bytes <= ProbationFacts::LONGEST;
    if special != 0 || !can_be {
        return None;
    }
    // Where keys were charged, the clock was read for them.
    let time = if by_key == 0 { scratch::coarse_now(scratch) } else { scratch.time() };
    if is_blocked(epoch, settings.penalties & profile.limits, time.now) {
        return None;
    }
    // By the time of a tick, who came in it owes.
    let state = scratch.state;
    let is_late = time.tick != 0 && state.owes(0, time.now) && state.owes(1, time.now);
    scratch.time = time;
    if is_late || !charge_first(scratch.reread(), settings, profile, applies) {
        scratch.reread().read_clock();
        if !charge_first(scratch.reread(), settings, profile, applies) {
            return None;
        }
    }
    let scratch = scratch.reread();
    let (charge, now) = (scratch.first, scratch.time.now);
    if !SetState::holds(charge.until, now) {
        scratch.owed = charge.owed;
        return None;
    }
    let place = scratch.place;
    let set_ref = SetRef::lock(place.set)?;
    // Where no entry was given away since, the source has none still, and under the lock gets none.
    let same = set_ref.state().has_number_of(scratch.state) && set_ref.tags() == scratch.tags;
    let probation = set_ref.probation();
    if !same || probation.find(&scratch.source) < PROBATION_SLOTS {
        set_ref.unlock();
        return None;
    }
    let opens = (applies | scratch.bill.charged & by_key) & settings.connections;
    let facts = ProbationFacts::new(&scratch.source, bytes, charge.places, epoch);
    let newcomer = ProbationSlot { time: now, facts };
    let (mut free, mut forgets) = (probation.room(now), false);
    if free >= PROBATION_SLOTS {
        let (owes, spared) = (charge.until > now, is_spared());
        let debts = debts_of_set(place.set, now);
        let crowded = debts == ONE_OWES_LITTLE;
        // Somebody has to be forgotten then who owes for a single packet: mostly who is at hand.
        forgets = owes && spared && crowded;
        // Who owes nothing need not be known, but comes to an entry too if there is one to be had.
        let takes_entry = if owes { !forgets } else { !spared && !crowded };
        if takes_entry {
            (scratch.owed, scratch.newcomer) = (charge.owed, newcomer);
            if debts != ALL_OWE {
                (scratch.first.limits, scratch.first.opens) = (applies, opens);
                return Some(Verdict(TAKES_ENTRY.into()));
            }
            set_ref.unlock();
            return None;
        }
        if forgets {
            free = probation.first();
        }
    }
    if free < PROBATION_SLOTS {
        set_ref.admit(free, &scratch.source, newcomer, charge.until);
    } else {
        set_ref.unlock();
    }
    count_admitted(settings, applies, bytes, forgets);
    note_first(scratch, charge.near, opens);
    Some(Verdict(scratch.conform))
}

/// Gives the source of the packet an entry that is charged with the packet, as [`admit_newcomer`] found it; gives the place of
/// the reason. The packet is undecided if there is no entry to be had. The lock of the set is held, and given back.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn enter_newcomer() -> u32 {
    let undecided = Verdict::new(Reason::Contended).0 as u32;
    let epoch = |scratch: &mut PacketScratch| scratch.numbered;
    let Some(epoch) = PacketScratch::get().map(epoch) else { return undecided };
    if enter(epoch) == 0 {
        return undecided;
    }
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), active::settings(epoch)) else {
        return undecided;
    };
    let FirstCharge { limits, near, opens, .. } = scratch.first;
    counters::count_inline(settings, &Outcomes::conform(limits), scratch.bytes);
    note_first(scratch, near, opens);
    scratch.conform as u32
}

/// Notes of an admitted first packet that it leaves limits near, and opens a connection that limits count.
#[inline(always)]
fn note_first(scratch: &mut PacketScratch, near: u64, opens: u64) {
    let epoch = scratch.numbered;
    if opens != 0 {
        scratch.binding = Binding::new(epoch, 0);
        escape(scratch);
        record_syn(opens);
    }
    if near != 0 {
        counters::count_near(epoch, near);
    }
}

/// Admits a packet of a source without an entry, and with a place in this set, by the
/// [untracked allowance](limiter_common::table::untracked), if something is left of it, and counts it.
#[inline(always)]
pub(crate) fn pass_untracked(
    set_ref: &SetRef,
    settings: &Settings,
    profile: &Profile,
    applicable: u64,
    bytes: u64,
) -> bool {
    let applies = profile.limits & applicable;
    let has_credit = profile.untracked != 0 && applies != 0 && applies & !settings.newcomers == 0;
    let passes = has_credit && set_ref.admit_untracked(profile.untracked);
    if passes {
        count_admitted(settings, applies, bytes, false);
    }
    passes
}

/// Counts a packet that was admitted without an entry, for which somebody else may have been forgotten.
#[inline(always)]
fn count_admitted(settings: &Settings, applies: u64, bytes: u64, forgets: bool) {
    // First, so that the verifier does not follow the rest for each of whether somebody is forgotten.
    churn::count(SOURCES, |table_stats| {
        table_stats.untracked += 1;
        table_stats.evicted_owing += u64::from(forgets);
    });
    counters::count_inline(settings, &Outcomes::conform(applies), bytes);
}

/// Whether a packet that lists or a limit decide about does without an entry, as most do: its source owes nothing, and who is
/// noted to owe does not make room for it.
#[inline(always)]
fn does_without_entry(scratch: &PacketScratch) -> bool {
    is_spared() || debts_of_set(scratch.place.set, clock::now()) != HAS_IDLE
}

/// The verdict under a policy.
#[inline(always)]
fn monitored(policy: &ActivePolicy, verdict: Verdict) -> Verdict {
    if policy.monitors() == 0 { verdict } else { verdict.monitored() }
}

/// Whether no entry is to be taken for a first packet that could do without one. The others take one, so
/// that a source that goes on sending comes to have one.
#[inline(always)]
fn is_spared() -> bool {
    // SAFETY: the helper has no precondition.
    let number = unsafe { bpf_get_prandom_u32() };
    number % HELD_OF != 0
}

/// Charges a first packet to these limits, all of them inline ones, at the [time](PacketScratch::time) of the packet, and
/// notes in [`PacketScratch::first`] what that comes to. Whether it conforms; if not, that may take a better clock to tell.
#[inline(always)]
fn charge_first(
    scratch: &mut PacketScratch,
    settings: &Settings,
    profile: &Profile,
    limits: u64,
) -> bool {
    let (epoch, time) = (scratch.numbered, scratch.time());
    let (until, owed) = (time.now, time.now);
    scratch.first = FirstCharge { until, owed, places: 0, near: 0, limits: 0, opens: 0 };
    let credit = if clock::tick().is_some() { profile.untracked } else { 0 };
    let charge_one = #[inline(always)]
    |place: usize, bit: u64| {
        let Some(meter) = METERS.get(half(epoch, profile.meters[place])) else { return false };
        let (bucket, bytes, time) = (&meter.gcra, scratch.bytes, scratch.time());
        let by = |limit: &Limit| limit.cost(CostClass::default(), bytes);
        let cost = inline::cost(settings, epoch, bit, by);
        let Some(spent) = bucket.admit(0, time, cost) else { return false };
        // A source that sends untracked packets, and is forgotten as soon as this one is paid, would be within no limit.
        let more = if credit == 0 { 0 } else { bucket.dearest };
        let until = time.now + bucket.refills(spent + more);
        let owed = time.now + bucket.refills(spent + bucket.untracked_units(credit));
        let first = PacketScratch::hide_provenance(&mut scratch.first);
        first.until = first.until.max(until);
        first.owed = first.owed.max(owed);
        first.places |= 1 << place;
        if spent >= bucket.near {
            first.near |= bit;
        }
        true
    };
    inline::all(settings, limits, charge_one) == 0
}
