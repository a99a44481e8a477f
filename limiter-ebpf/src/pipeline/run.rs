//! The way of a packet: parse, source, lists, limits, verdict.

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use limiter_common::{
    abi::policy::flag,
    base::{tally::Tally, word::RACES},
    packet::{frame::Frame as _, reason::Reason},
    table::set::Place,
};

#[cfg(feature = "messages")]
use crate::events::debug::{tell_anomaly, tell_binding, tell_giving_up, tell_refusal};
use crate::{
    events::emit::note_refusal,
    kernel::{
        frame::XdpFrame,
        scratch::{Blame, PacketScratch},
    },
    pipeline::{
        admit::admit,
        cache::remember_refusal,
        classify::classify_packet,
        control::{decide_early, decide_non_ip},
        full::decide_packet,
        headers::{OTHER, UNUSUAL, read_all, read_plain},
        lease::keep_lease,
        refusal::settle_refusal,
        sample::settle,
    },
    policy::{active::ActivePolicy, verdict::Verdict},
    table::{entry, insert::bind_packet, lookup::EntryId},
};

/// How often a packet that is not simply admitted is decided about before it is given up.
const ATTEMPTS: u32 = 8;

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return settle(ctx.ctx, &Verdict::new(Reason::Contended), bytes);
    };
    (scratch.bytes, scratch.entry_id) = (bytes, EntryId::UNKNOWN.0);
    (scratch.is_read, scratch.races) = (0, 0);
    scratch.blame = Blame::NONE;
    if !read_plain(&frame, scratch, &policy)
        && let Some(verdict) = read_any(ctx.ctx, &policy)
    {
        return settle(ctx.ctx, &verdict, scratch.reread().bytes);
    }
    // What of the packet was written is read back: the ways that it was read in are no longer told apart.
    let verdict = admit(ctx.ctx, scratch.reread(), &policy);
    // Most packets there are end here.
    if verdict.is_decided() {
        return settle(ctx.ctx, &verdict, scratch.reread().bytes);
    }
    decide_fully(ctx.ctx, verdict)
}

/// Reads all headers of a frame, and finds out the limits that it is about; or decides about it, if no limit is about it.
#[inline(always)]
fn read_any(ctx: *mut xdp_md, policy: &ActivePolicy) -> Option<Verdict> {
    let read = read_all(ctx);
    let Some(scratch) = PacketScratch::get() else { return Some(Verdict::new(Reason::Contended)) };
    if read < UNUSUAL {
        let free = Verdict::new(Reason::NonIp);
        return Some(if read == OTHER { Verdict(decide_non_ip().into()) } else { free });
    }
    #[cfg(feature = "messages")]
    tell_anomaly();
    if read == UNUSUAL {
        let verdict = Verdict(decide_early().into());
        if !verdict.is_open() {
            return Some(verdict);
        }
    }
    classify_packet(scratch.reread(), policy.epoch, policy.settings);
    // Other parts of the program wrote to it.
    let (scratch, settings) = (scratch.reread(), policy.settings);
    scratch.find_source(&settings.mask);
    scratch.place = Place::of(&scratch.source, settings.table_seed, settings.sets);
    None
}

/// Decides about a packet that takes a closer look, limit by limit.
#[inline(always)]
fn decide_fully(ctx: *mut xdp_md, mut verdict: Verdict) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return settle(ctx, &verdict, 0) };
    if scratch.is_read == 0 {
        read_all(ctx);
    }
    let scratch = scratch.reread();
    scratch.refusing.begin(0);
    scratch.blame = Blame::REFUSING;
    (scratch.refused, scratch.may_prove) = (0, 0);
    scratch.tag = 0;
    (scratch.lease_lost, scratch.may_lease) = (0, 0);
    for _ in 0..ATTEMPTS {
        if !verdict.is_open() {
            bind_packet();
            #[cfg(feature = "messages")]
            tell_binding();
        }
        verdict = decide_by_entry(ctx);
        if verdict.is_decided() || !verdict.is_open() && may_not_wait() {
            break;
        }
    }
    if !verdict.is_decided() {
        verdict = Verdict(give_up_packet().into());
        #[cfg(feature = "messages")]
        tell_giving_up(verdict.0 as u32);
    }
    // It is looked up again, as there is no room on the stack to remember where it is.
    let Some(scratch) = PacketScratch::get() else { return settle(ctx, &verdict, 0) };
    let bytes = scratch.bytes;
    if scratch.may_lease != 0 {
        keep_lease();
    }
    // All that comes of a refusal is one branch: the verifier follows each to the end.
    if scratch.refusing.bit | scratch.may_prove != 0 {
        settle_refusal(ctx, verdict.0);
        note_refusal();
        remember_refusal();
        #[cfg(feature = "messages")]
        tell_refusal(verdict.0 as u32);
    }
    settle(ctx, &verdict, bytes)
}

/// Whether the packet has waited so often that it waits for no word any more.
#[inline(always)]
fn may_not_wait() -> bool {
    PacketScratch::get().is_none_or(|scratch| scratch.races >= RACES.into())
}

/// Decides about a packet by its entry, if that is known.
#[inline(always)]
fn decide_by_entry(ctx: *mut xdp_md) -> Verdict {
    match PacketScratch::get().and_then(|scratch| EntryId(scratch.entry_id).entry()) {
        Some(source) => Verdict(decide_packet(ctx, source).into()),
        None => Verdict::new(Reason::Contended),
    }
}

/// Gives up on the packet, and gives the place of the reason to pass or drop it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn give_up_packet() -> u32 {
    let undecided = Verdict::new(Reason::Contended);
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return undecided.0 as u32;
    };
    let verdict = if policy.settings.flags & flag::LIMITS == 0 {
        // Nothing that is only observed is dropped.
        Verdict(scratch.conform)
    } else if policy.monitors() != 0 {
        Verdict::new(Reason::Monitor)
    } else {
        undecided
    };
    // It is not charged to what its source would be leased from.
    scratch.may_lease = 0;
    let (source, packet) = (scratch.source, Tally { packets: 1, bytes: scratch.bytes });
    let none = Tally::default();
    let (passed, dropped) = if verdict.drops() { (&none, &packet) } else { (&packet, &none) };
    entry::account(scratch, &source, policy.settings, passed, dropped);
    verdict.0 as u32
}
