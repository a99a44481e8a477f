//! The way of a packet: parse, source, lists, limits, verdict.

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use limiter_common::{
    abi::policy::flag,
    base::tally::Tally,
    packet::{
        control,
        frame::Frame as _,
        link::{self, Link, NonIp},
        parse::parse_by,
        reason::Reason,
    },
};

#[cfg(feature = "messages")]
use crate::events::debug::{tell_anomaly, tell_binding, tell_giving_up, tell_refusal};
use crate::{
    events::emit::note_refusal,
    kernel::{frame::XdpFrame, scratch::PacketScratch},
    pipeline::{
        cache::remember_refusal,
        control::{decide_early, decide_non_ip},
        fast,
        full::decide_packet,
        lease::keep_lease,
        refusal::settle_refusal,
        simple::admit,
    },
    policy::{active::ActivePolicy, verdict::Verdict},
    table::{entry, insert::find_or_insert_entry, lookup::EntryId},
};

/// How often a packet that is not simply admitted is decided about before it is given up. What other CPUs
/// do at its state is over in less time than an attempt takes.
const ATTEMPTS: u32 = 8;

/// No epoch.
const NEVER: u64 = u64::MAX;

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let Some(scratch) = PacketScratch::get() else {
        return Verdict::new(Reason::Contended).settle(bytes);
    };
    (scratch.bytes, scratch.now, scratch.entry_id) = (bytes, 0, EntryId::UNKNOWN.0);
    scratch.is_asked = 0;
    if let Some(verdict) = fast::decide(&frame, scratch) {
        return verdict.settle(scratch.reread().bytes);
    }
    run_any(ctx.ctx)
}

/// Runs the limiter on a frame that is not decided about by the fast path.
#[inline(always)]
fn run_any(ctx: *mut xdp_md) -> u32 {
    let parsed = parse_packet(ctx);
    let Some(scratch) = PacketScratch::get() else {
        return Verdict::new(Reason::Contended).settle(0);
    };
    if parsed < UNUSUAL {
        let free = Verdict::new(Reason::NonIp);
        let verdict = if parsed == OTHER { Verdict(decide_non_ip().into()) } else { free };
        return verdict.settle(scratch.reread().bytes);
    }
    scratch.refusing.begin(0);
    (scratch.refused, scratch.may_prove) = (0, 0);
    scratch.classified = NEVER;
    scratch.handshake_key = 0;
    scratch.tag = 0;
    (scratch.leased, scratch.lease_lost, scratch.may_lease) = (0, 0, 0);
    #[cfg(feature = "messages")]
    tell_anomaly();
    // What of the packet was written is read back: the ways that the parser took are no longer told apart.
    let scratch = scratch.reread();
    if parsed == UNUSUAL {
        let verdict = Verdict(decide_early().into());
        if !verdict.is_open() {
            return verdict.settle(scratch.reread().bytes);
        }
    }
    // Most packets there are end here.
    let mut verdict = match ActivePolicy::get() {
        Some(policy) => admit(scratch.reread(), &policy),
        None => Verdict::new(Reason::Contended),
    };
    for _ in 0..ATTEMPTS {
        if !verdict.is_decided() {
            bind_packet();
            #[cfg(feature = "messages")]
            tell_binding();
        } else if !verdict.is_open() {
            break;
        }
        verdict = decide_by_entry(ctx);
    }
    if !verdict.is_decided() {
        verdict = Verdict(give_up_packet().into());
        #[cfg(feature = "messages")]
        tell_giving_up(verdict.0 as u32);
    }
    // It is looked up again, as there is no room on the stack to remember where it is.
    let Some(scratch) = PacketScratch::get() else { return verdict.settle(0) };
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
    verdict.settle(bytes)
}

/// Decides about a packet by its entry, if that is known.
#[inline(always)]
fn decide_by_entry(ctx: *mut xdp_md) -> Verdict {
    match PacketScratch::get().and_then(|scratch| EntryId(scratch.entry_id).entry()) {
        Some(source) => Verdict(decide_packet(ctx, source).into()),
        None => Verdict::new(Reason::Contended),
    }
}

/// A frame that is of a protocol of the link itself, see [`NonIp`].
const LINK_PROTOCOL: u32 = 0;
/// Any other frame that is not IP.
const OTHER: u32 = 1;
/// A packet that is [looked at early](decide_early).
const UNUSUAL: u32 = 2;
/// Any other packet.
const USUAL: u32 = 3;

/// Reads the frame, and tells what it is. It is verified by itself: what is on its stack is gone when the packet is
/// decided.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn parse_packet(ctx: *mut xdp_md) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return LINK_PROTOCOL };
    let frame = XdpFrame::of(ctx, scratch.bytes as usize);
    let parsed = parse_by(
        &frame,
        &mut scratch.packet,
        #[inline(always)]
        |_| Link(read_link(ctx)),
    );
    match parsed {
        Ok(conform) => scratch.conform = conform.index() as u64,
        Err(NonIp::LinkProtocol) => return LINK_PROTOCOL,
        Err(NonIp::Other) => return OTHER,
    }
    // What the parser found out is read back: its ways are no longer told apart.
    let scratch = scratch.reread();
    let unusual = scratch.conform == Reason::TooDeep.index() as u64
        || scratch.packet.fragment.0 != 0
        || control::may_be(&scratch.packet);
    if unusual { UNUSUAL } else { USUAL }
}

/// Reads the link headers, and gives them as a [`Link`]. It is verified by itself: what is behind them is then followed
/// once, and not for each number of tags and labels.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_link(ctx: *mut xdp_md) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    link::read(&XdpFrame::of(ctx, scratch.bytes as usize)).0
}

/// Binds the entry of the packet's source to the policy in force, or makes it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bind_packet() -> u32 {
    if let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) {
        scratch.find_source(&policy.settings.mask);
        scratch.entry_id = find_or_insert_entry(scratch, policy.epoch, policy.settings).0;
        scratch.owed = 0;
    }
    0
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
    let (source, packet) = (scratch.source, Tally { packets: 1, bytes: scratch.bytes });
    let none = Tally::default();
    let (passed, dropped) = if verdict.drops() { (&none, &packet) } else { (&packet, &none) };
    entry::account(scratch, &source, policy.settings, passed, dropped);
    verdict.0 as u32
}
