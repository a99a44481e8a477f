//! What proves that a refused packet was not forged, so that it counts towards a block of its source.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::policy::half,
    memory::refused_syn::RefusedSyn,
    packet::headers::Anomaly,
    policy::{
        limit::Limit,
        penalty::{Block, Evidence},
    },
};

use crate::{
    history::{penalties::count_violation, sockets},
    kernel::{
        clock,
        maps::{EVENT_STATS, LIMITS, REFUSED_SYNS_REF},
        scratch::PacketScratch,
    },
    policy::active::settings,
};

/// Notes that a limit with a penalty, whose bit this is, refused the packet. Returns until when its source is blocked, or
/// was, in nanoseconds; [`Block::AWAITS_PROOF`] for a SYN that is remembered, until a connection follows it. A packet that
/// nothing proves counts where the limit asks for no proof; one that declares no length never does, as the kernel drops it
/// when it comes off a wire.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn record_violation(ctx: *mut xdp_md, bit: u64) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let row = half(scratch.binding.epoch(), Limit::row(bit));
    let Some(limit) = LIMITS.get(row) else { return 0 };
    let evidence = Evidence::of(&scratch.packet);
    let now = scratch.time.now;
    let is_unsized = matches!(scratch.packet.anomaly, Anomaly::Unsized);
    let counts = if limit.penalty.unproven != 0 {
        !is_unsized
    } else {
        // A SYN of a connection that there is already is followed by none.
        let has_socket = evidence != Evidence::None && sockets::is_full(ctx, scratch);
        if evidence == Evidence::Follows && !has_socket {
            tally(false);
            return remember_refused_syn(row, bit, limit.penalty.rest());
        }
        has_socket && evidence == Evidence::Socket
    };
    tally(counts);
    if counts { count_violation(row, now, now, now) } else { 0 }
}

/// Remembers that the limit of a row of the table, whose bit this is, refused the packet, a SYN.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
extern "C" fn remember_refused_syn(row: u32, bit: u64, rest: u64) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (Some(settings), Some(limit)) = (settings(scratch.binding.epoch()), LIMITS.get(row)) else {
        return 0;
    };
    let Some(refused_syns) = REFUSED_SYNS_REF.get(0) else { return 0 };
    let now = scratch.time.now;
    scratch.connection = RefusedSyn::key(&scratch.packet, settings.seed);
    scratch.refused_syn = RefusedSyn {
        began: now,
        last: now,
        sequence: scratch.packet.sequence,
        limit: limit.penalty.limit,
        row: Limit::row(bit),
        unused: 0,
    };
    if let Some(known) = refused_syns.get_ptr(&scratch.connection) {
        // SAFETY: a map value that was just looked up, of aligned words.
        let known = unsafe { known.read_volatile() };
        scratch.refused_syn.began = scratch.refused_syn.since(&known, rest);
    }
    // It is exchanged as a whole: of what two CPUs write in its place, half could be of one SYN and half of another.
    let _: Result<(), i32> = refused_syns.insert(&scratch.connection, &scratch.refused_syn, 0);
    Block::AWAITS_PROOF
}

/// Counts the refused SYN that the packet follows, if there is one and its connection has a full socket here, for one of
/// these limits under an epoch. Returns until when its source is blocked for that, or was, in nanoseconds; 0 if nothing was
/// counted.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn prove_refused_syn(ctx: *mut xdp_md, epoch: u32, limits: u64) -> u64 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    if Evidence::of(&scratch.packet) != Evidence::Socket {
        return 0;
    }
    scratch.connection = RefusedSyn::key(&scratch.packet, settings.seed);
    let Some(refused_syns) = REFUSED_SYNS_REF.get(0) else { return 0 };
    let Some(known) = refused_syns.get_ptr(&scratch.connection) else { return 0 };
    let now = clock::now();
    // SAFETY: a map value that was just looked up, of aligned words.
    scratch.refused_syn = unsafe { known.read_volatile() };
    let syn = &scratch.refused_syn;
    let (from, to, of, row) = (syn.began, syn.last, syn.limit, half(epoch, syn.row));
    let follows = syn.is_followed_by(scratch.packet.sequence, now);
    if !sockets::is_full(ctx, scratch) {
        return 0;
    }
    // Whether it follows or not: compared with each segment of the connection, any number would be met in time.
    let _: Result<(), i32> = refused_syns.remove(&scratch.connection);
    if !follows {
        return 0;
    }
    // Another policy may have another limit there.
    let Some(limit) = LIMITS.get(row) else { return 0 };
    if limit.penalty.limit != of || limit.bit & limits == 0 {
        return 0;
    }
    scratch.refusing.blocking = limit.bit;
    tally(true);
    count_violation(row, from, to, now)
}

/// Counts a refused packet that counts towards a block, or does not.
#[inline(always)]
fn tally(counts: bool) {
    let Some(event_stats) = EVENT_STATS.get_ptr_mut(0) else { return };
    // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on a CPU before the next
    // packet.
    unsafe {
        if counts {
            (*event_stats).proven += 1;
        } else {
            (*event_stats).unproven += 1;
        }
    }
}
