//! The step after the verdict. A refusal is counted towards a block of the source, and the time for which it holds is found.
//! A packet that passes may prove a SYN that was refused before.
//!
//! It runs after the decision, whose functions would leave too little of the stack.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::policy::Settings,
    algorithm::time::Time,
    base::word::Word as _,
    memory::{cache::Cached, event::STEP, refused_syn::RefusedSyn},
    policy::{limit::INLINE, penalty::Block},
};

use crate::{
    history::proofs::{prove_refused_syn, record_violation},
    kernel::{barrier::escape, clock, scratch::PacketScratch},
    limits::{inline, keyed::find_wait_keyed},
    pipeline::sample::{is_asked_for, sample},
    policy::{active::settings, verdict::Verdict},
    table::{entry::SourceEntry, lookup::EntryId},
};

/// Counts the packet's refusal by an enforced limit, and finds how long it holds. If the packet passes by this verdict
/// instead, counts the refused SYN that it proves.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn settle_refusal(ctx: *mut xdp_md, verdict: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, refused) = (scratch.binding.epoch(), scratch.refused);
    // A limit that only monitors lets the packet pass. That everything does, or that it is dropped, its verdict tells.
    if scratch.refusing.bit != 0 && refused == 0 && is_asked_for() {
        sample(ctx, verdict as u32);
    }
    let is_dropped = Verdict(verdict).drops() || scratch.monitors();
    if refused == 0 && (scratch.may_prove == 0 || is_dropped) {
        return 0;
    }
    // The entry may have been given away since the decision.
    let Some(entry) = SourceEntry::of(scratch, epoch) else { return 0 };
    let Some(settings) = settings(epoch) else { return 0 };
    escape(scratch);
    if refused == 0 {
        prove(ctx, scratch, settings, &entry);
        return 0;
    }
    // What is only monitored blocks nobody later.
    if settings.penalties & refused != 0
        && !scratch.monitors()
        && !EntryId(scratch.entry_id).is_shared()
    {
        penalise(ctx, scratch, &entry);
    }
    find_wait(scratch.reread(), settings, &entry);
    0
}

/// Blocks the source of a packet that was refused by a limit with a penalty, if it has been over that for long enough.
#[inline(always)]
fn penalise(ctx: *mut xdp_md, scratch: &mut PacketScratch, entry: &SourceEntry) {
    let until = record_violation(ctx, scratch.refused);
    if until == Block::AWAITS_PROOF {
        entry.await_proof(true);
        return;
    }
    let scratch = scratch.reread();
    // Another CPU may be about to write the end of the block.
    if until > scratch.time.now && entry.block(until) {
        (scratch.refusing.until, scratch.refusing.blocking) = (until, scratch.refused);
    }
}

/// Blocks the source of a packet that passes, if that proves that it has been over a limit for long enough.
#[inline(always)]
fn prove(ctx: *mut xdp_md, scratch: &mut PacketScratch, settings: &Settings, entry: &SourceEntry) {
    let now = clock::now();
    // The last refusal is noted whichever limit it was by, and by less than a step too early. So no SYN was refused after
    // this time, and the note of a SYN says exactly whether it is forgotten.
    let last = entry.episode().last_at(now) + STEP;
    if RefusedSyn::is_forgotten(last, now) {
        entry.await_proof(false);
        return;
    }
    let limits = settings.penalties & entry.profile.limits;
    let until = prove_refused_syn(ctx, entry.binding.epoch(), limits);
    if until > now && entry.block(until) {
        let scratch = scratch.reread();
        (scratch.time, scratch.refusing.until) = (Time::exact(now), until);
    }
}

/// Finds for how long the limit refuses the next packets of the source for sure.
#[inline(always)]
fn find_wait(scratch: &mut PacketScratch, settings: &Settings, entry: &SourceEntry) {
    let (refused, applies) = (scratch.refused, scratch.bill.applies);
    if EntryId(scratch.entry_id).is_overflow()
        || scratch.monitors()
        || entry.blocked() > scratch.time.now
    {
        return;
    }
    let earlier = applies & (refused - 1);
    let Some(index) = inline::place(settings, refused) else {
        // It may be one of the source next time that refuses the packet, and nothing comes of that but a count.
        if earlier & !(settings.enforced & !settings.penalties & !settings.keyed) == 0 {
            find_wait_keyed(entry.profile.limits & scratch.applicable);
        }
        return;
    };
    // A drop is counted under the limit that is asked first, which may be an earlier one next time.
    if earlier != 0 {
        return;
    }
    let index = scratch.unknown(index) & (INLINE - 1);
    let Some(meter) = entry.meter(index) else { return };
    // Of packets that do not cost the same, one that costs less may conform.
    let cost = u64::from(settings.unit & refused != 0);
    let now = scratch.time_of(&meter.gcra);
    let Some(word) = entry.cell(scratch, index) else { return };
    let wait = meter.gcra.wait(word.load_acquire(), now, cost);
    // The word has to be that of the source still.
    if cost == 0 && meter.gcra.strict != 0 || entry.binding != scratch.binding || !entry.is_bound()
    {
        return;
    }
    // A penalty takes refusals one after the other, and what a later limit refuses is given back to this one.
    let later = applies & !(refused | (refused - 1));
    let is_brief = settings.penalties & refused | later != 0;
    scratch.refusing.since = now;
    scratch.refusing.wait = if is_brief { wait.min(Cached::MOMENT) } else { wait };
    scratch.refusing.precise = u32::from(meter.gcra.takes_clock(clock::tick_length()));
    scratch.refusing.tally = settings.tallies[index];
    scratch.refusing.limits = entry.profile.limits & scratch.applicable;
}
