//! The limits of a packet whose state is a wide state: logs of events and leases of connections.
//!
//! As for the other limits that are kept by keys of their own, each step is verified by itself.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::{policy::half, state::WideState},
    algorithm::{
        concurrent::{Concurrent, Signal, Socket, Table as _},
        kind::{Kind, WideKind},
        meter::Meter,
        policer::Refusal,
        sliding_log::{Event, SlidingLog},
    },
    base::{seed::Seed, slots::Slots as _, word::Word as _},
    policy::{charge::Charge, limit::KEYED},
};

use crate::{
    history::sockets,
    kernel::{maps::METERS, scratch::PacketScratch},
    limits::step::{AGAIN, CHARGED, DONE, FULL},
    policy::active::settings,
    table::wide::{Search, Wide},
};

/// What tells the connection of the packet from others, hashed once: the seed is that of the instance.
#[inline(always)]
fn tag(scratch: &mut PacketScratch) -> u32 {
    if scratch.tag == 0 {
        let seed =
            settings(scratch.binding.epoch()).map_or(Seed::default(), |settings| settings.seed);
        scratch.tag = Concurrent::tag(scratch.packet.hash(seed, 0));
    }
    scratch.tag
}

/// The meter of the limit at a place.
#[inline(always)]
fn meter(scratch: &PacketScratch, place: usize) -> Option<&'static Meter> {
    METERS.get(half(scratch.binding.epoch(), scratch.keyed.meters[place]))
}

/// Looks at the limit at a place; `last` says that one without a free place refuses.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn look_wide_at(place: u32, last: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bit = scratch.keyed.bits[place] & scratch.bill.asked();
    if bit == 0 {
        return DONE;
    }
    let Some(meter) = meter(scratch, place) else { return DONE };
    let Some(entry) = Wide::of(scratch, place) else { return DONE };
    let kind = WideKind::of(meter.kind);
    let looked = match kind {
        WideKind::SlidingLog => {
            // Events are counted by any numbers, so that the state need not be bound to these.
            let control = entry.control.unbound();
            meter.sliding_log().look(&control, &entry.slots, scratch.time.now).map(|_| ())
        }
        WideKind::Concurrent => {
            let (tag, signal) = (tag(scratch), Signal::of(&scratch.packet));
            meter.concurrent().look(&entry.slots, tag, signal, scratch.time.now).map(|_| ())
        }
    };
    match looked {
        // What was looked at may be of another key by now. If so, this one has room.
        Err(_) if !entry.is_kept(scratch, place) => {}
        Err(Refusal::Exceed) if last == 0 && kind == WideKind::Concurrent => return FULL,
        Err(refusal) => scratch.bill.refuse(bit, refusal),
        Ok(()) => {}
    }
    DONE
}

/// Looks up the sockets of the connections that say that they are done, as the limit at a place has
/// no place that is free. It refuses if there are none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn make_room_at(ctx: *mut xdp_md, place: u32) -> u32 {
    /// Sockets that may be found in vain: a packet that is refused must not cost much more than others.
    const IN_VAIN: u64 = 4;
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let at = place as usize & (KEYED - 1);
    if let (Some(meter), Some(entry)) = (meter(scratch, at), Wide::of(scratch, at)) {
        let (leases, slots, now) = (meter.concurrent(), entry.slots, scratch.time.now);
        scratch.in_vain = 0;
        // A connection whose socket is found has its place for longer.
        leases.stamp(&entry.control, now);
        // Each packet begins elsewhere, so that those that are found in vain hide no other.
        let mut lease = slots.due(&leases, now, (now >> 10) as usize);
        if lease < Concurrent::MOST {
            for _ in 0..Concurrent::MOST {
                look_lease_up(ctx, slots.0, place, lease as u32);
                if PacketScratch::hide_provenance(scratch).in_vain >= IN_VAIN {
                    break;
                }
                lease = slots.due(&leases, now, lease + 1);
                if lease >= Concurrent::MOST {
                    break;
                }
            }
            return AGAIN;
        }
    }
    scratch.bill.refuse(scratch.keyed.bits[at], Refusal::Exceed);
    DONE
}

/// Looks up the socket of the connection that has this lease of the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_lease_up(
    ctx: *mut xdp_md,
    state: *mut WideState,
    place: u32,
    lease: u32,
) -> u32 {
    let (Some(scratch), Some(slots)) = (PacketScratch::get(), Search::of(state)) else { return 0 };
    let Some(meter) = meter(scratch, place as usize & (KEYED - 1)) else { return 0 };
    let (leases, now, lease) = (meter.concurrent(), scratch.time.now, lease as usize);
    let slot = slots.load(lease);
    if leases.is_due(slot, now) {
        let socket = sockets::recall(ctx, Concurrent::tag_of(slot));
        if leases.answer(&slots, lease, slot, socket, now) {
            scratch.in_vain += 1;
        }
    }
    0
}

/// Writes down the connection of the packet, if it was charged to the limit at a place and says that
/// it is done.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn write_lease_down(ctx: *mut xdp_md, place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
    let is_charged = scratch.keyed.bits[place] & scratch.bill.charged != 0;
    if !is_charged
        || scratch.keyed.kinds[place] != Kind::Concurrent.number() as u32
        || !scratch.packet.has_connection()
        || !scratch.keyed.written[place].lease.closes()
    {
        return 0;
    }
    if sockets::write_down(ctx, scratch) != Socket::None
        && let Some(slots) = Wide::slots_of(scratch, place)
    {
        Concurrent::keep_socket(&slots, scratch.keyed.written[place].lease);
    }
    0
}

/// Charges the limit at a place; `last` says that a lost race refuses. What is charged is to be
/// [settled](settle_wide_at).
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn charge_wide_at(place: u32, last: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bill = &scratch.bill;
    let bit = scratch.keyed.bits[place] & if bill.refused == 0 { bill.due() } else { 0 };
    if bit == 0 {
        return DONE;
    }
    match charge(scratch, place) {
        Ok(Charge::Made) => return CHARGED,
        Ok(Charge::LostRace) if last == 0 => return AGAIN,
        Ok(Charge::LostRace) => scratch.bill.refuse(bit, Refusal::Contended),
        Err(refusal) => scratch.bill.refuse(bit, refusal),
    }
    DONE
}

/// Settles what was just charged to the limit at a place; `last` says that a lost race refuses. It is
/// not part of [`charge_wide_at`] because both do not have room on the stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn settle_wide_at(place: u32, last: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let at = place as usize & (KEYED - 1);
    let (bit, now) = (scratch.keyed.bits[at], scratch.time.now);
    let (Some(meter), Some(slots)) = (meter(scratch, at), Wide::slots_of(scratch, at)) else {
        // Others needed the room meanwhile.
        scratch.bill.charged |= bit;
        return DONE;
    };
    let is_lease = WideKind::of(meter.kind) == WideKind::Concurrent;
    if is_lease && !meter.concurrent().settled(&slots, scratch.keyed.written[at].lease, now) {
        if last == 0 {
            return AGAIN;
        }
        scratch.bill.refuse(bit, Refusal::Contended);
        return DONE;
    }
    scratch.bill.charged |= bit;
    near_wide(slots.0, place);
    DONE
}

#[inline(always)]
fn charge(scratch: &mut PacketScratch, place: usize) -> Result<Charge, Refusal> {
    let now = scratch.time.now;
    let (Some(meter), Some(entry)) = (meter(scratch, place), Wide::of(scratch, place)) else {
        return Ok(Charge::LostRace);
    };
    if !entry.control.bound() {
        return Ok(Charge::LostRace);
    }
    match WideKind::of(meter.kind) {
        WideKind::SlidingLog => {
            let log = meter.sliding_log();
            let look = log.look(&entry.control, &entry.slots, now)?;
            let Some(event) = log.attempt(&entry.control, &entry.slots, look, now) else {
                return Ok(Charge::LostRace);
            };
            scratch.keyed.written[place].event = event.0;
        }
        WideKind::Concurrent => {
            let (tag, signal) = (tag(scratch), Signal::of(&scratch.packet));
            let leases = meter.concurrent();
            let look = leases.look(&entry.slots, tag, signal, now)?;
            // Written before, it is not kept on the stack meanwhile.
            scratch.keyed.written[place].lease = look;
            // Before the claim: whoever gives the entry away sees that it owes, or this CPU sees that it was given away.
            if !leases.stamp(&entry.control, now) || !Concurrent::claim(&entry.slots, look) {
                return Ok(Charge::LostRace);
            }
            if !entry.control.bound() {
                Concurrent::refund(&entry.slots, look);
                return Ok(Charge::LostRace);
            }
        }
    }
    Ok(Charge::Made)
}

/// Finds out whether the packet leaves the limit at a place near, whose state is this and was just charged.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn near_wide(state: *mut WideState, place: u32) -> u32 {
    let (Some(scratch), Some(slots)) = (PacketScratch::get(), Search::of(state)) else { return 0 };
    let place = place as usize & (KEYED - 1);
    let Some(meter) = meter(scratch, place) else { return 0 };
    let written = &scratch.keyed.written[place];
    let is_near = match WideKind::of(meter.kind) {
        WideKind::SlidingLog => meter.sliding_log().is_near(&slots, Event(written.event)),
        WideKind::Concurrent => meter.concurrent().is_near(&slots, written.lease, scratch.time.now),
    };
    if is_near {
        scratch.bill.near |= scratch.keyed.bits[place];
    }
    0
}

/// Takes back what was charged to the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_wide_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
    if scratch.keyed.bits[place] & scratch.bill.charged == 0 {
        return 0;
    }
    let (Some(meter), Some(entry)) = (meter(scratch, place), Wide::of(scratch, place)) else {
        return 0;
    };
    let written = &scratch.keyed.written[place];
    match WideKind::of(meter.kind) {
        WideKind::SlidingLog => {
            SlidingLog::refund(&entry.control, &entry.slots, Event(written.event));
        }
        WideKind::Concurrent => Concurrent::refund(&entry.slots, written.lease),
    }
    0
}
