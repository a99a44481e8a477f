//! The limits of a packet whose state is a wide state: logs of events and leases of connections.
//!
//! As for the other limits that are kept by keys of their own, each step is verified by itself.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use aya_ebpf::bindings::{BPF_NOEXIST, xdp_md};
use limiter_common::{
    abi::{
        policy::half,
        state::{SLOTS, WideState},
    },
    algorithm::{
        concurrent::{Concurrent, Signal, Socket, Table},
        meter::Meter,
        policer::Refusal,
        sliding_log::{Event, SlidingLog},
    },
    base::{seed::Seed, slots::Slots},
    policy::{charge::Charge, limit::KEYED},
};

use crate::{
    history::sockets,
    kernel::{
        atomics::MapWord,
        barrier::black_box,
        maps::{METERS, WIDE_STATE_REF},
        scratch::PacketScratch,
    },
    limits::step::{AGAIN, CHARGED, DONE, FULL},
    policy::active::settings,
};

static NEW: WideState = WideState::NEW;

/// The slots of a wide state.
#[derive(Clone, Copy)]
struct Row(*mut WideState);

impl Row {
    #[inline(always)]
    fn at(&self, place: usize) -> Option<*mut u64> {
        let place = black_box(place);
        if place >= SLOTS {
            return None;
        }
        // SAFETY: the place is within the array, which is in a map value that was looked up in this
        // run of the program.
        Some(unsafe { (&raw mut (*self.0).slots).cast::<u64>().add(place) })
    }
}

impl Slots for Row {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        // SAFETY: see `at`; an aligned word.
        self.at(place).map_or(0, |word| unsafe { word.read_volatile() })
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        if let Some(slot) = self.at(place) {
            // SAFETY: see `at`; an aligned word.
            unsafe { slot.write_volatile(word) };
        }
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.at(place).map_or(0, |word| {
            // SAFETY: see `at`; an aligned word.
            unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, current, new).0 }
        })
    }
}

impl Table for Row {
    #[inline(always)]
    fn find(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        find_lease(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn twin(&self, leases: &Concurrent, mine: usize, tag: u32, tick: u32) -> usize {
        twin_lease(self.0, mine as u32, tag, tick, leases.idle) as usize
    }

    #[inline(always)]
    fn vacancy(&self, leases: &Concurrent, tag: u32, tick: u32) -> usize {
        lease_vacancy(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        open_leases(self.0, tick, expire)
    }

    #[inline(always)]
    fn due(&self, leases: &Concurrent, now: u64, start: usize) -> usize {
        due_lease(self.0, now, leases.idle, start as u32) as usize
    }
}

/// The searches themselves, with the loops that [`Table`] has of them.
struct Search(Row);

impl Search {
    /// A wide state that a part of the program is given; the verifier wants to see that it is there.
    #[inline(always)]
    fn of(state: *mut WideState) -> Option<Self> {
        if state.is_null() { None } else { Some(Self(Row(state))) }
    }
}

impl Slots for Search {
    #[inline(always)]
    fn load(&self, place: usize) -> u64 {
        self.0.load(place)
    }

    #[inline(always)]
    fn store(&self, place: usize, word: u64) {
        self.0.store(place, word);
    }

    #[inline(always)]
    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        self.0.compare_exchange(place, current, new)
    }
}

impl Table for Search {}

/// See [`Table::find`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_lease(state: *mut WideState, tag: u32, tick: u32, limit: u64, idle: u64) -> u64 {
    let found = Search::of(state).map(|table| table.find(&Concurrent { limit, idle }, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::twin`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn twin_lease(state: *mut WideState, mine: u32, tag: u32, tick: u32, idle: u64) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = Search::of(state).map(|table| table.twin(&leases, mine as usize, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::vacancy`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease_vacancy(
    state: *mut WideState,
    tag: u32,
    tick: u32,
    limit: u64,
    idle: u64,
) -> u64 {
    let found =
        Search::of(state).map(|table| table.vacancy(&Concurrent { limit, idle }, tag, tick));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// See [`Table::open`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_leases(state: *mut WideState, tick: u32, expire: u64) -> u64 {
    Search::of(state).map_or(0, |table| table.open(expire, tick))
}

/// See [`Table::due`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn due_lease(state: *mut WideState, now: u64, idle: u64, start: u32) -> u64 {
    let leases = Concurrent { limit: 0, idle };
    let found = Search::of(state).map(|table| table.due(&leases, now, start as usize));
    found.unwrap_or(Concurrent::MOST) as u64
}

/// A wide state.
#[derive(Clone, Copy)]
struct Entry {
    control: MapWord,
    slots: Row,
}

impl Entry {
    #[inline(always)]
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "a value would be copied to the stack"
    )]
    fn find(scratch: &PacketScratch, place: usize) -> Option<Self> {
        let state = WIDE_STATE_REF.get(0)?.get_ptr_mut(&scratch.keyed.keys[place])?;
        // SAFETY: a map value that was just looked up; its fields are aligned words.
        unsafe {
            let control = MapWord::new(&raw mut (*state).control);
            Some(Self { control, slots: Row(state) })
        }
    }

    #[inline(always)]
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "a value would be copied to the stack"
    )]
    fn find_or_create(scratch: &PacketScratch, place: usize) -> Option<Self> {
        Self::find(scratch, place).or_else(|| {
            let key = &scratch.keyed.keys[place];
            // Another CPU may have made it first, which is as good.
            let made = WIDE_STATE_REF.get(0)?;
            let _: Result<(), i32> = made.insert(key, &NEW, u64::from(BPF_NOEXIST));
            Self::find(scratch, place)
        })
    }
}

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
    // One that is not there yet has room.
    let Some(entry) = Entry::find(scratch, place) else { return DONE };
    let looked = if meter.kind == Meter::SLIDING_LOG {
        meter.sliding_log().look(&entry.control, &entry.slots, scratch.time.now).map(|_| ())
    } else if scratch.packet.has_connection() {
        let (tag, signal) = (tag(scratch), Signal::of(&scratch.packet));
        meter.concurrent().look(&entry.slots, tag, signal, scratch.time.now).map(|_| ())
    } else {
        Ok(())
    };
    match looked {
        Err(Refusal::Exceed) if last == 0 && meter.kind != Meter::SLIDING_LOG => return FULL,
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
    if let (Some(meter), Some(entry)) = (meter(scratch, at), Entry::find(scratch, at)) {
        let (leases, slots, now) = (meter.concurrent(), entry.slots, scratch.time.now);
        scratch.in_vain = 0;
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
        || scratch.keyed.kinds[place] != Meter::CONCURRENT as u32
        || !scratch.packet.has_connection()
        || !scratch.keyed.written[place].lease.closes()
    {
        return 0;
    }
    if sockets::write_down(ctx, scratch) != Socket::None
        && let Some(entry) = Entry::find(scratch, place)
    {
        Concurrent::keep_socket(&entry.slots, scratch.keyed.written[place].lease);
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
    let (Some(meter), Some(entry)) = (meter(scratch, at), Entry::find(scratch, at)) else {
        // Others needed the room meanwhile.
        scratch.bill.charged |= bit;
        return DONE;
    };
    let is_lease = meter.kind != Meter::SLIDING_LOG && scratch.packet.has_connection();
    if is_lease && !meter.concurrent().settled(&entry.slots, scratch.keyed.written[at].lease, now) {
        if last == 0 {
            return AGAIN;
        }
        scratch.bill.refuse(bit, Refusal::Contended);
        return DONE;
    }
    scratch.bill.charged |= bit;
    near_wide(entry.slots.0, place);
    DONE
}

#[inline(always)]
fn charge(scratch: &mut PacketScratch, place: usize) -> Result<Charge, Refusal> {
    let now = scratch.time.now;
    let (Some(meter), Some(entry)) = (meter(scratch, place), Entry::find_or_create(scratch, place))
    else {
        return Err(Refusal::Contended);
    };
    if meter.kind == Meter::SLIDING_LOG {
        let log = meter.sliding_log();
        let look = log.look(&entry.control, &entry.slots, now)?;
        let Some(event) = log.attempt(&entry.control, &entry.slots, look, now) else {
            return Ok(Charge::LostRace);
        };
        scratch.keyed.written[place].event = event.0;
    } else if scratch.packet.has_connection() {
        let (tag, signal) = (tag(scratch), Signal::of(&scratch.packet));
        let leases = meter.concurrent();
        let look = leases.look(&entry.slots, tag, signal, now)?;
        // Written before, it is not kept on the stack meanwhile.
        scratch.keyed.written[place].lease = look;
        if !Concurrent::claim(&entry.slots, look) {
            return Ok(Charge::LostRace);
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
    let is_near = if meter.kind == Meter::SLIDING_LOG {
        meter.sliding_log().is_near(&slots, Event(written.event))
    } else {
        scratch.packet.has_connection()
            && meter.concurrent().is_near(&slots, written.lease, scratch.time.now)
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
    let (Some(meter), Some(entry)) = (meter(scratch, place), Entry::find(scratch, place)) else {
        return 0;
    };
    let written = &scratch.keyed.written[place];
    if meter.kind == Meter::SLIDING_LOG {
        SlidingLog::refund(&entry.control, &entry.slots, Event(written.event));
    } else if scratch.packet.has_connection() {
        Concurrent::refund(&entry.slots, written.lease);
    }
    0
}
