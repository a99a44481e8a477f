//! The limits of a packet whose state is a ledger: logs of events and leases of connections.
//!
//! As for the other limits that are kept by keys of their own, each step is verified by itself.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use aya_ebpf::bindings::{BPF_NOEXIST, xdp_md};
use limiter_common::{
    contract::{Ledger, SLOTS, Seed, half},
    lease::{Leases, Signal, Socket, Table},
    limit::KEYED,
    log::{Event, Log},
    meter::Meter,
    packet::Packet,
    plan::Charge,
    policer::Refusal,
    slots::Slots,
};

use crate::{
    barrier::opaque,
    cell::Plain,
    datapath::settings,
    keyed::{AGAIN, CHARGED, DONE, FULL},
    maps::{LEDGERS, METERS},
    socket,
    subject::Subject,
};

static NEW: Ledger = Ledger::NEW;

/// The slots of a ledger.
#[derive(Clone, Copy)]
struct Row(*mut Ledger);

impl Row {
    #[inline(always)]
    fn at(&self, place: usize) -> Option<*mut u64> {
        let place = opaque(place);
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
    fn find(&self, leases: &Leases, tag: u32, tick: u32) -> usize {
        find_lease(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn twin(&self, leases: &Leases, mine: usize, tag: u32, tick: u32) -> usize {
        twin_lease(self.0, mine as u32, tag, tick, leases.idle) as usize
    }

    #[inline(always)]
    fn vacancy(&self, leases: &Leases, tag: u32, tick: u32) -> usize {
        lease_vacancy(self.0, tag, tick, leases.limit, leases.idle) as usize
    }

    #[inline(always)]
    fn open(&self, expire: u64, tick: u32) -> u64 {
        open_leases(self.0, tick, expire)
    }

    #[inline(always)]
    fn due(&self, leases: &Leases, now: u64, start: usize) -> usize {
        due_lease(self.0, now, leases.idle, start as u32) as usize
    }
}

/// The searches themselves, with the loops that [`Table`] has of them.
struct Search(Row);

impl Search {
    /// A ledger that a part of the program is given; the verifier wants to see that it is there.
    #[inline(always)]
    fn of(ledger: *mut Ledger) -> Option<Self> {
        if ledger.is_null() { None } else { Some(Self(Row(ledger))) }
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
extern "C" fn find_lease(ledger: *mut Ledger, tag: u32, tick: u32, limit: u64, idle: u64) -> u64 {
    let found = Search::of(ledger).map(|table| table.find(&Leases { limit, idle }, tag, tick));
    found.unwrap_or(Leases::MOST) as u64
}

/// See [`Table::twin`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn twin_lease(ledger: *mut Ledger, mine: u32, tag: u32, tick: u32, idle: u64) -> u64 {
    let leases = Leases { limit: 0, idle };
    let found = Search::of(ledger).map(|table| table.twin(&leases, mine as usize, tag, tick));
    found.unwrap_or(Leases::MOST) as u64
}

/// See [`Table::vacancy`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease_vacancy(
    ledger: *mut Ledger,
    tag: u32,
    tick: u32,
    limit: u64,
    idle: u64,
) -> u64 {
    let found = Search::of(ledger).map(|table| table.vacancy(&Leases { limit, idle }, tag, tick));
    found.unwrap_or(Leases::MOST) as u64
}

/// See [`Table::open`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn open_leases(ledger: *mut Ledger, tick: u32, expire: u64) -> u64 {
    Search::of(ledger).map_or(0, |table| table.open(expire, tick))
}

/// See [`Table::due`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn due_lease(ledger: *mut Ledger, now: u64, idle: u64, start: u32) -> u64 {
    let leases = Leases { limit: 0, idle };
    let found = Search::of(ledger).map(|table| table.due(&leases, now, start as usize));
    found.unwrap_or(Leases::MOST) as u64
}

/// A ledger.
#[derive(Clone, Copy)]
struct Entry {
    control: Plain,
    slots: Row,
}

impl Entry {
    #[inline(always)]
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "a value would be copied to the stack"
    )]
    fn find(subject: &Subject, place: usize) -> Option<Self> {
        let ledger = LEDGERS.get_ptr_mut(&subject.keyed.keys[place])?;
        // SAFETY: a map value that was just looked up; its fields are aligned words.
        unsafe {
            let control = Plain::new(&raw mut (*ledger).control);
            Some(Self { control, slots: Row(ledger) })
        }
    }

    #[inline(always)]
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "a value would be copied to the stack"
    )]
    fn find_or_create(subject: &Subject, place: usize) -> Option<Self> {
        Self::find(subject, place).or_else(|| {
            let key = &subject.keyed.keys[place];
            // Another CPU may have made it first, which is as good.
            let _: Result<(), i32> = LEDGERS.insert(key, &NEW, u64::from(BPF_NOEXIST));
            Self::find(subject, place)
        })
    }
}

/// What tells the connection of the packet from others, hashed once: the seed is that of the instance.
#[inline(always)]
fn tag(subject: &mut Subject) -> u32 {
    if subject.tag == 0 {
        let seed =
            settings(subject.binding.epoch()).map_or(Seed::default(), |settings| settings.seed);
        subject.tag = Leases::tag(subject.packet.hash(seed, 0));
    }
    subject.tag
}

/// The meter of the limit at a place.
#[inline(always)]
fn meter(subject: &Subject, place: usize) -> Option<&'static Meter> {
    METERS.get(half(subject.binding.epoch(), subject.keyed.meters[place]))
}

/// Whether leases are about the packet: a later fragment tells nothing of its connection. What has
/// ports that could not be read is one connection with all like it.
#[inline(always)]
const fn has_connection(packet: &Packet) -> bool {
    packet.port().is_some() || packet.may_have_ports()
}

/// Looks at the limit at a place; `last` says that one without a free place refuses.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn look_ledger_at(place: u32, last: u32) -> u32 {
    let Some(subject) = Subject::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bit = subject.keyed.bits[place] & subject.bill.asked();
    if bit == 0 {
        return DONE;
    }
    let Some(meter) = meter(subject, place) else { return DONE };
    // One that is not there yet has room.
    let Some(entry) = Entry::find(subject, place) else { return DONE };
    let looked = if meter.kind == Meter::LOG {
        meter.log().look(&entry.control, &entry.slots, subject.time.now).map(|_| ())
    } else if has_connection(&subject.packet) {
        let (tag, signal) = (tag(subject), Signal::of(&subject.packet));
        meter.leases().look(&entry.slots, tag, signal, subject.time.now).map(|_| ())
    } else {
        Ok(())
    };
    match looked {
        Err(Refusal::Exceed) if last == 0 && meter.kind != Meter::LOG => return FULL,
        Err(refusal) => subject.bill.refuse(bit, refusal),
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
    let Some(subject) = Subject::get() else { return DONE };
    let at = place as usize & (KEYED - 1);
    if let (Some(meter), Some(entry)) = (meter(subject, at), Entry::find(subject, at)) {
        let (leases, slots, now) = (meter.leases(), entry.slots, subject.time.now);
        subject.in_vain = 0;
        // Each packet begins elsewhere, so that those that are found in vain hide no other.
        let mut lease = slots.due(&leases, now, (now >> 10) as usize);
        if lease < Leases::MOST {
            for _ in 0..Leases::MOST {
                look_lease_up(ctx, slots.0, place, lease as u32);
                if Subject::anew(subject).in_vain >= IN_VAIN {
                    break;
                }
                lease = slots.due(&leases, now, lease + 1);
                if lease >= Leases::MOST {
                    break;
                }
            }
            return AGAIN;
        }
    }
    subject.bill.refuse(subject.keyed.bits[at], Refusal::Exceed);
    DONE
}

/// Looks up the socket of the connection that has this lease of the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_lease_up(ctx: *mut xdp_md, ledger: *mut Ledger, place: u32, lease: u32) -> u32 {
    let (Some(subject), Some(slots)) = (Subject::get(), Search::of(ledger)) else { return 0 };
    let Some(meter) = meter(subject, place as usize & (KEYED - 1)) else { return 0 };
    let (leases, now, lease) = (meter.leases(), subject.time.now, lease as usize);
    let slot = slots.load(lease);
    if leases.is_due(slot, now) {
        let socket = socket::recall(ctx, Leases::tag_of(slot));
        if leases.answer(&slots, lease, slot, socket, now) {
            subject.in_vain += 1;
        }
    }
    0
}

/// Writes down the connection of the subject, if it was charged to the limit at a place and says that
/// it is done.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn write_lease_down(ctx: *mut xdp_md, place: u32) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
    let is_charged = subject.keyed.bits[place] & subject.bill.charged != 0;
    if !is_charged
        || subject.keyed.kinds[place] != Meter::LEASES as u32
        || !has_connection(&subject.packet)
        || !subject.keyed.written[place].lease.closes()
    {
        return 0;
    }
    if socket::write_down(ctx, subject) != Socket::None
        && let Some(entry) = Entry::find(subject, place)
    {
        Leases::keep_socket(&entry.slots, subject.keyed.written[place].lease);
    }
    0
}

/// Charges the limit at a place; `last` says that a lost race refuses. What is charged is to be
/// [settled](settle_ledger_at).
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn charge_ledger_at(place: u32, last: u32) -> u32 {
    let Some(subject) = Subject::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    let bill = &subject.bill;
    let bit = subject.keyed.bits[place] & if bill.refused == 0 { bill.due() } else { 0 };
    if bit == 0 {
        return DONE;
    }
    match charge(subject, place) {
        Ok(Charge::Made) => return CHARGED,
        Ok(Charge::LostRace) if last == 0 => return AGAIN,
        Ok(Charge::LostRace) => subject.bill.refuse(bit, Refusal::Contended),
        Err(refusal) => subject.bill.refuse(bit, refusal),
    }
    DONE
}

/// Settles what was just charged to the limit at a place; `last` says that a lost race refuses. It is
/// not part of [`charge_ledger_at`] because both do not have room on the stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn settle_ledger_at(place: u32, last: u32) -> u32 {
    let Some(subject) = Subject::get() else { return DONE };
    let at = place as usize & (KEYED - 1);
    let (bit, now) = (subject.keyed.bits[at], subject.time.now);
    let (Some(meter), Some(entry)) = (meter(subject, at), Entry::find(subject, at)) else {
        // Others needed the room meanwhile.
        subject.bill.charged |= bit;
        return DONE;
    };
    let is_lease = meter.kind != Meter::LOG && has_connection(&subject.packet);
    if is_lease && !meter.leases().settled(&entry.slots, subject.keyed.written[at].lease, now) {
        if last == 0 {
            return AGAIN;
        }
        subject.bill.refuse(bit, Refusal::Contended);
        return DONE;
    }
    subject.bill.charged |= bit;
    near_ledger(entry.slots.0, place);
    DONE
}

#[inline(always)]
fn charge(subject: &mut Subject, place: usize) -> Result<Charge, Refusal> {
    let now = subject.time.now;
    let (Some(meter), Some(entry)) = (meter(subject, place), Entry::find_or_create(subject, place))
    else {
        return Err(Refusal::Contended);
    };
    if meter.kind == Meter::LOG {
        let log = meter.log();
        let look = log.look(&entry.control, &entry.slots, now)?;
        let Some(event) = log.attempt(&entry.control, &entry.slots, look, now) else {
            return Ok(Charge::LostRace);
        };
        subject.keyed.written[place].event = event.0;
    } else if has_connection(&subject.packet) {
        let (tag, signal) = (tag(subject), Signal::of(&subject.packet));
        let leases = meter.leases();
        let look = leases.look(&entry.slots, tag, signal, now)?;
        // Written before, it is not kept on the stack meanwhile.
        subject.keyed.written[place].lease = look;
        if !Leases::claim(&entry.slots, look) {
            return Ok(Charge::LostRace);
        }
    }
    Ok(Charge::Made)
}

/// Finds out whether the subject leaves the limit at a place near, whose state is this and was just charged.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn near_ledger(ledger: *mut Ledger, place: u32) -> u32 {
    let (Some(subject), Some(slots)) = (Subject::get(), Search::of(ledger)) else { return 0 };
    let place = place as usize & (KEYED - 1);
    let Some(meter) = meter(subject, place) else { return 0 };
    let written = &subject.keyed.written[place];
    let is_near = if meter.kind == Meter::LOG {
        meter.log().is_near(&slots, Event(written.event))
    } else {
        has_connection(&subject.packet)
            && meter.leases().is_near(&slots, written.lease, subject.time.now)
    };
    if is_near {
        subject.near |= subject.keyed.bits[place];
    }
    0
}

/// Takes back what was charged to the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_ledger_at(place: u32) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
    if subject.keyed.bits[place] & subject.bill.charged == 0 {
        return 0;
    }
    let (Some(meter), Some(entry)) = (meter(subject, place), Entry::find(subject, place)) else {
        return 0;
    };
    let written = &subject.keyed.written[place];
    if meter.kind == Meter::LOG {
        Log::refund(&entry.control, &entry.slots, Event(written.event));
    } else if has_connection(&subject.packet) {
        Leases::refund(&entry.slots, written.lease);
    }
    0
}
