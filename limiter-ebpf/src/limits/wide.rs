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
    base::{slots::Slots as _, word::Word as _},
    policy::{charge::Charge, limit::KEYED},
};

use crate::{
    history::sockets,
    kernel::{maps::METERS, scratch::PacketScratch},
    limits::step::{AGAIN, ASKED, CHARGED, DONE, FULL},
    table::{search::given, wide::Wide},
};

/// The meter of the limit at a place.
#[inline(always)]
fn meter(scratch: &PacketScratch, place: usize) -> Option<&'static Meter> {
    METERS.get(half(scratch.binding.epoch(), scratch.keyed.meters[place]))
}

/// Looks at the wide state of the limit at a place; `what` as in [`look_list_at`].
#[inline(always)]
pub(super) fn look_wide_at(place: u32, what: u32) -> u32 {
    // As in `try_charge_wide_at`.
    if is_log(place) { look_log_at(place) } else { look_list_at(place, what) }
}

/// Looks at the log of the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_log_at(place: u32) -> u32 {
    look(place, 0, |scratch, meter, entry, _| {
        // Events are counted by any numbers, so that the state need not be bound to these.
        let control = entry.control.unbound();
        meter.sliding_log().look(&control, &entry.slots, scratch.time.now).map(drop)
    })
}

/// Looks at the list of the limit at a place, and notes what was seen, to be [charged](charge_list_at). Returns [`FULL`] if it has
/// no free place, unless [`ASKED`] in `what` says that sockets were looked up.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn look_list_at(place: u32, what: u32) -> u32 {
    look(place, what ^ ASKED, |scratch, meter, entry, place| {
        let (tag, signal) = (scratch.tag, Signal::of(&scratch.packet));
        let look = meter.concurrent().look(&entry.slots, tag, signal, scratch.time.now)?;
        let written = &mut scratch.keyed.written[place];
        (written.lease, written.looked) = (look, 1);
        Ok(())
    })
}

/// Looks at the state of the limit at a place in one of both ways. Returns [`FULL`] if it exceeds and `asks` is not 0.
#[inline(always)]
fn look(
    place: u32,
    asks: u32,
    look: impl FnOnce(&mut PacketScratch, &Meter, Wide, usize) -> Result<(), Refusal>,
) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bit = scratch.keyed.bits[place] & scratch.bill.asked();
    if bit == 0 {
        return DONE;
    }
    let Some(meter) = meter(scratch, place) else { return DONE };
    let Some(entry) = Wide::of(scratch, place) else { return DONE };
    match look(scratch, meter, entry, place) {
        // What was looked at may be of another key by now. If so, this one has room.
        Err(_) if !entry.is_kept(scratch, place) => {}
        Err(Refusal::Exceed) if asks != 0 => return FULL,
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
    /// Sockets that are looked up at all: one that is gone makes room for the packet.
    const LOOK_UPS: usize = 16;
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
            for _ in 0..LOOK_UPS {
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
    let (Some(scratch), Some(slots)) = (PacketScratch::get(), given(state)) else { return 0 };
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

/// Charges the wide state of the limit at a place, if it is a list as it was [looked at](look_wide_at). Returns [`AGAIN`] if
/// another CPU was first.
#[inline(always)]
pub(super) fn try_charge_wide_at(place: u32) -> u32 {
    let step = if is_log(place) { charge_log_at(place) } else { charge_list_at(place) };
    if step != CHARGED {
        return step;
    }
    match settle_wide_at(place) {
        CHARGED => near_wide_at(place),
        step => step,
    }
}

/// Whether the limit at a place keeps a log.
#[inline(always)]
pub(super) fn is_log(place: u32) -> bool {
    PacketScratch::get().is_some_and(|scratch| {
        let number = scratch.keyed.kinds[place as usize & (KEYED - 1)].into();
        match WideKind::of(number) {
            WideKind::SlidingLog => true,
            WideKind::Concurrent => false,
        }
    })
}

/// Charges the log of the limit at a place. What is charged is to be [settled](settle_wide_at).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_log_at(place: u32) -> u32 {
    charge(place, |scratch, meter, entry, place| {
        let (log, now) = (meter.sliding_log(), scratch.time.now);
        let look = log.look(&entry.control, &entry.slots, now)?;
        let Some(event) = log.attempt(&entry.control, &entry.slots, look, now) else {
            return Ok(Charge::LostRace);
        };
        scratch.keyed.written[place].event = event.0;
        Ok(Charge::Made)
    })
}

/// Charges the list of the limit at a place, as it was looked at. What is charged is to be [settled](settle_wide_at), which finds
/// out whether others were first.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_list_at(place: u32) -> u32 {
    charge(place, |scratch, meter, entry, place| {
        let written = &mut scratch.keyed.written[place];
        let (look, looked) = (written.lease, written.looked);
        written.looked = 0;
        // Before the claim: whoever gives the entry away sees that it owes, or this CPU sees that it was given away.
        if looked == 0
            || !meter.concurrent().stamp(&entry.control, scratch.time.now)
            || !Concurrent::claim(&entry.slots, look)
        {
            return Ok(Charge::LostRace);
        }
        if !entry.control.bound() {
            Concurrent::refund(&entry.slots, look);
            return Ok(Charge::LostRace);
        }
        Ok(Charge::Made)
    })
}

/// Charges the state of the limit at a place in one of both ways.
#[inline(always)]
fn charge(
    place: u32,
    charge: impl FnOnce(&mut PacketScratch, &Meter, Wide, usize) -> Result<Charge, Refusal>,
) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bill = &scratch.bill;
    let bit = scratch.keyed.bits[place] & if bill.refused == 0 { bill.due() } else { 0 };
    if bit == 0 {
        return DONE;
    }
    let charged = match (meter(scratch, place), Wide::of(scratch, place)) {
        (Some(meter), Some(entry)) if entry.control.bound() => charge(scratch, meter, entry, place),
        _ => Ok(Charge::LostRace),
    };
    match charged {
        Ok(Charge::Made) => return CHARGED,
        Ok(Charge::LostRace) => return AGAIN,
        Err(refusal) => scratch.bill.refuse(bit, refusal),
    }
    DONE
}

/// Settles what was just charged to the limit at a place. Returns [`CHARGED`] for what stays charged, and [`AGAIN`] if another CPU
/// was first.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle_wide_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let (bit, now) = (scratch.keyed.bits[place], scratch.time.now);
    let (Some(meter), Some(slots)) = (meter(scratch, place), Wide::slots_of(scratch, place)) else {
        // Others needed the room meanwhile.
        scratch.bill.charged |= bit;
        return DONE;
    };
    let is_lease = match WideKind::of(meter.kind) {
        WideKind::SlidingLog => false,
        WideKind::Concurrent => true,
    };
    if is_lease && !meter.concurrent().settled(&slots, scratch.keyed.written[place].lease, now) {
        return AGAIN;
    }
    scratch.bill.charged |= bit;
    CHARGED
}

/// Finds out whether the packet, which was just charged to the limit at a place, leaves it near.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn near_wide_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let (Some(meter), Some(slots)) = (meter(scratch, place), Wide::slots_of(scratch, place)) else {
        return DONE;
    };
    let written = &scratch.keyed.written[place];
    let is_near = match WideKind::of(meter.kind) {
        WideKind::SlidingLog => meter.sliding_log().is_near(&slots, Event(written.event)),
        WideKind::Concurrent => meter.concurrent().is_near(&slots, written.lease, scratch.time.now),
    };
    if is_near {
        scratch.bill.near |= scratch.keyed.bits[place];
    }
    DONE
}

/// Takes back what was charged to the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_wide_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
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
