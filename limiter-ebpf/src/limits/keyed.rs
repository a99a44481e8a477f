//! The limits of a packet that are kept by keys of their own.
//!
//! The functions here are verified by themselves, once each; what they know and find out is in the
//! [`PacketScratch`].

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::{policy::half, state::Bucket},
    algorithm::{
        binding::{Binding, Measured, bind},
        policer::{Look, Refusal},
    },
    base::word::{RACES, TRIES},
    memory::cache::Cached,
    policy::{
        charge::{self, Bill, Charge, Group},
        limit::{KEYED, Limit, WIDE},
    },
};

use crate::{
    kernel::{
        atomics::{BoundWord, MapWord, load_acquire},
        barrier::black_box,
        clock,
        maps::{BUCKETS, LIMITS, MEASURES, METERS, PROFILES, packet_slot},
        scratch::{Keyed, PacketScratch, lose_race, wait_to_refund},
    },
    limits::{
        step::{AGAIN, ANEW, ASKED, DONE, FULL, STALE},
        wide::{
            is_log, look_list_at, look_wide_at, make_room_at, refund_wide_at, try_charge_wide_at,
            write_lease_down,
        },
    },
    policy::{active::settings, keyed_meter::KeyedMeter},
    table::{
        buckets::{self, find_wide_at, make_bucket_at, seek_bucket_at},
        lookup::EntryId,
    },
};

/// Looks at the limits in a set, but for those that are asked after one that refuses. The last is charged,
/// if all conform, of these and of those that were looked at before: its state is at hand then. `WIDE` says that there may
/// be wide states among them, which need the context.
#[inline(always)]
pub(crate) fn look<const WIDE: bool>(ctx: *mut xdp_md, keyed: u64) {
    prepare_keyed(keyed);
    for place in 0..KEYED as u32 {
        let Some(scratch) = PacketScratch::get() else { break };
        let at = place as usize;
        if scratch.keyed.bits[at] == 0 {
            break;
        }
        if WIDE && scratch.keyed.is_wide(at) {
            if find_wide_at(place) != 0 {
                // Also for a packet that is refused: what the key was bound to last tells until when it owes.
                refresh_keyed_at(place);
                if look_wide_at(place, 0) == FULL && make_room_at(ctx, place) == AGAIN {
                    look_wide_at(place, ASKED);
                }
            }
        } else if look_bucket_at(place, 0) == STALE {
            refresh_keyed_at(place);
            look_bucket_at(place, 1);
        }
    }
}

/// Charges those that are not charged yet; `WIDE` says as above. If one refuses after all, what was charged before is to be
/// [taken back](refund_keyed).
#[inline(always)]
pub(crate) fn charge<const WIDE: bool>(ctx: *mut xdp_md) {
    for place in 0..KEYED as u32 {
        let Some(scratch) = PacketScratch::get() else { break };
        let (at, bill) = (place as usize, &scratch.bill);
        let bit = scratch.keyed.bits[at];
        // Once a limit has refused, no other one is charged, nor given an entry.
        if bit == 0 || bill.refused != 0 {
            break;
        }
        if bit & bill.due() & !bill.charged == 0 {
            continue;
        }
        let is_missing = scratch.keyed.entries[at] == buckets::NONE;
        // When it was looked at.
        let was_tried = scratch.keyed.is_last(at) && scratch.leased() == 0;
        if WIDE && scratch.keyed.is_wide(at) {
            // What a key without an entry is charged to is known only then: perhaps to the list that keys share.
            if (is_missing || try_charge_wide_at(place) != DONE)
                && charge_wide_again(place, 0) == FULL
                && make_room_at(ctx, place) == AGAIN
            {
                charge_wide_again(place, ASKED);
            }
            write_lease_down(ctx, place);
        } else if is_missing {
            take_no_slot();
            if make_bucket_at(place, 1) == 0 {
                charge_again(place);
            }
        } else if was_tried || charge_keyed_at(place, 0) != DONE {
            charge_again(place);
        }
    }
}

/// Charges the bucket of the limit at a place, which was not there, or stale, or moved by another CPU. It is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_again(place: u32) -> u32 {
    let place = place & (KEYED as u32 - 1);
    for _ in 0..=RACES {
        bring_up(place);
        if charge_keyed_at(place, ANEW) == DONE {
            return DONE;
        }
        if lose_race_at(place) == 0 {
            break;
        }
    }
    DONE
}

/// The same of a wide state. Returns [`FULL`] for a list without a free place, unless [`ASKED`] says that sockets were looked up.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_wide_again(place: u32, asked: u32) -> u32 {
    let place = place & (KEYED as u32 - 1);
    for _ in 0..=RACES {
        bring_up(place);
        if !is_log(place) && look_list_at(place, asked) == FULL {
            return FULL;
        }
        if try_charge_wide_at(place) == DONE {
            return DONE;
        }
        if lose_race_at(place) == 0 {
            break;
        }
    }
    DONE
}

/// Notes that another CPU was first at the state at a place, and waits. Returns 0 if other CPUs move it all the time: its limit
/// refuses the packet then, or is left out if it is only counted.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lose_race_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let bit = scratch.keyed.bits[place as usize & (KEYED - 1)];
    let goes_on = lose_race(scratch.bill.most_races(bit));
    if goes_on == 0 {
        scratch.reread().bill.refuse(bit, Refusal::Contended);
    }
    goes_on
}

/// Seeks the state at a place anew, and makes it if it was not there.
#[inline(always)]
fn bring_up(place: u32) {
    if is_missing(place) {
        make_bucket_at(place, 0);
    }
    // It may have been given away since it was sought.
    seek_bucket_at(place);
    refresh_keyed_at(place);
}

/// Whether the state at a place was sought and is not there.
#[inline(always)]
fn is_missing(place: u32) -> bool {
    PacketScratch::get()
        .is_some_and(|scratch| scratch.keyed.entries[place as usize & (KEYED - 1)] == buckets::NONE)
}

/// Has the packet take no slot of the cache: it is the first one of a key. Otherwise a flood of new connections would take
/// all slots of its source.
#[inline(always)]
fn take_no_slot() {
    if let Some(scratch) = PacketScratch::get()
        && scratch.leased() == 0
    {
        scratch.may_lease = 0;
    }
}

/// Takes back what was charged to them.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_keyed() -> u32 {
    for place in 0..KEYED as u32 {
        let Some(scratch) = PacketScratch::get() else { break };
        let at = place as usize;
        let bit = scratch.keyed.bits[at];
        if bit == 0 {
            break;
        }
        if bit & scratch.bill.charged == 0 {
            continue;
        }
        if scratch.keyed.is_wide(at) {
            refund_wide_at(place);
        } else {
            refund_keyed_at(place);
        }
    }
    DONE
}

/// Takes back what was charged to the bucket of the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn refund_keyed_at(place: u32) -> u32 {
    for _ in 0..TRIES {
        if try_refund_keyed_at(place) == DONE {
            break;
        }
        wait_to_refund();
    }
    DONE
}

/// Writes down the limits in a set, with their keys.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn prepare_keyed(keyed: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let Some(settings) = settings(scratch.binding.epoch()) else { return DONE };
    // A policy has at most two limits with wide state about one packet, unless it hides its ports or its protocol.
    let wide = keyed & !settings.buckets_by_key;
    let first = wide & wide.wrapping_neg();
    let second = (wide ^ first) & (wide ^ first).wrapping_neg();
    let keyed = keyed & settings.buckets_by_key | first | second;
    const { assert!(WIDE == 2) };
    if !write_down(scratch, keyed & scratch.bill.asked()) {
        // There is a limit for every bit and a profile for every source, so this cannot happen.
        scratch.bill.give_up();
        scratch.keyed.bits[0] = 0;
    }
    DONE
}

/// Seeks the bucket of the limit at a place and looks at it. Charges it if it is the last and all conform; `last` says that stale
/// state refuses.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_bucket_at(place: u32, last: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let place = place as usize & (KEYED - 1);
    buckets::place(scratch, place, false);
    let scratch = scratch.reread();
    buckets::seek(scratch, place);
    let scratch = scratch.reread();
    let now = scratch.time.now;
    let mut places = Places::of(scratch, place);
    if last == 0 && places.is_stale(place) {
        return STALE;
    }
    charge::look_at(&mut places, place, now);
    if places.keyed.is_last(place) && places.bucket.is_some() && !places.leases {
        // If another CPU was first, it is tried again when all are charged.
        let _: Charge = charge::charge_at(&mut places, place, false, now);
    }
    DONE
}

/// Charges the bucket of the limit at a place, as it was looked at, or [`ANEW`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn charge_keyed_at(place: u32, anew: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let now = scratch.time.now;
    let place = place as usize & (KEYED - 1);
    let mut places = Places::of(scratch, place);
    if places.bucket.is_none() || places.is_stale(place) {
        return STALE;
    }
    match charge::charge_at(&mut places, place, anew != 0, now) {
        Charge::Made => DONE,
        Charge::LostRace => AGAIN,
    }
}

/// The same, unless another CPU moves the word at that moment.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn try_refund_keyed_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let now = scratch.time.now;
    let place = place as usize & (KEYED - 1);
    match charge::refund_at(&mut Places::of(scratch, place), place, now) {
        Charge::Made => DONE,
        Charge::LostRace => AGAIN,
    }
}

/// Brings the state at a place up to date, which was sought, at the time that its packet is decided for: a later one would
/// charge the packet for what passed since.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refresh_keyed_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let (keyed, at) = (&scratch.keyed, place as usize & (KEYED - 1));
    let (target, entry) = (Binding(keyed.bindings[at]), keyed.entries[at]);
    let (Some(bucket), Some(measure), Some(meter)) = (
        BUCKETS.get_ptr_mut(entry),
        MEASURES.get_ptr_mut(entry),
        METERS.get(half(target.epoch(), keyed.meters[at])),
    ) else {
        return DONE;
    };
    if target.0 == 0 {
        return DONE;
    }
    // SAFETY: map values that were just looked up. They are written under the lock of the entry, so no binding is asked
    // for.
    let [binding, word, scale, span] = unsafe {
        [
            &raw mut (*bucket).binding,
            &raw mut (*bucket).word,
            &raw mut (*measure).scale,
            &raw mut (*measure).span,
        ]
        .map(|word| MapWord::new(word))
    };
    let state = Measured { word, scale, span };
    let _: Option<Binding> = bind(&binding, target, || {
        state.rescale(meter.measure(), |word, _| carry_bucket_at(place, word));
    });
    DONE
}

/// The word of the state at a place, carried over from what it is measured in. It is verified by itself: who calls it tries
/// several times.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn carry_bucket_at(place: u32, word: u64) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return word };
    let (keyed, at) = (&scratch.keyed, place as usize & (KEYED - 1));
    let number = half(scratch.binding.epoch(), keyed.meters[at]);
    match (METERS.get(number), MEASURES.get(keyed.entries[at])) {
        (Some(meter), Some(from)) => meter.carry(word, *from, scratch.time.now),
        _ => word,
    }
}

/// Notes for how long the limit with a key of its own that refused the packet refuses others of its slot in the cache, if
/// that tells the key.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_wait_keyed(limits: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, bit) = (scratch.binding.epoch(), scratch.refusing.bit);
    let Some(settings) = settings(epoch) else { return 0 };
    if settings.leasable & bit == 0 {
        return 0;
    }
    let Some(place) = scratch.keyed.bits.iter().position(|other| *other == bit) else { return 0 };
    let place = scratch.unknown(place) & (KEYED - 1);
    let (Some(limit), Some(meter), Some(bucket)) = (
        LIMITS.get(half(epoch, Limit::row(bit))),
        METERS.get(half(epoch, scratch.keyed.meters[place])),
        BUCKETS.get_ptr(scratch.keyed.entries[place]),
    ) else {
        return 0;
    };
    let takes_clock = meter.gcra.takes_clock(clock::tick_length());
    let since = if takes_clock { scratch.time.now } else { scratch.by_tick() };
    // SAFETY: a map value that was just looked up; aligned words.
    let (word, binding) = unsafe {
        (load_acquire(&raw const (*bucket).word), (&raw const (*bucket).binding).read_volatile())
    };
    // Otherwise it was given away since, and says nothing of this key.
    if binding == scratch.keyed.bindings[place] {
        let refusing = &mut scratch.refusing;
        refusing.since = since;
        // Others may have something given back there.
        refusing.wait = meter.gcra.wait(word, since, 1).min(Cached::MOMENT);
        (refusing.precise, refusing.tally) = (takes_clock.into(), limit.tally);
        refusing.limits = limits;
    }
    0
}

/// Writes down the limits in a set, with their keys.
#[inline(always)]
fn write_down(scratch: &mut PacketScratch, mut left: u64) -> bool {
    // An overflow entry is bound to a profile of its own, not to that of the source.
    let is_overflow = EntryId(scratch.entry_id).is_overflow();
    let number = if is_overflow { scratch.number } else { scratch.binding.profile() };
    let Some(profile) = PROFILES.get(half(scratch.binding.epoch(), number)) else { return false };
    scratch.classify_cost();
    let class = scratch.cost_class();
    let slot = packet_slot();
    for place in 0..KEYED {
        let bit = left & left.wrapping_neg();
        scratch.keyed.bits[place] = bit;
        if bit == 0 {
            return true;
        }
        left ^= bit;
        let Some(limit) = LIMITS.get(half(scratch.binding.epoch(), Limit::row(bit))) else {
            return false;
        };
        let own = profile.meters.get(black_box(limit.override_column as usize));
        scratch.keyed.meters[place] = own.copied().unwrap_or(limit.meter);
        scratch.keyed.kinds[place] = limit.kind;
        scratch.keyed.entries[place] = buckets::NONE;
        scratch.keyed.costs[place] = limit.cost(class, scratch.bytes) * (1 + scratch.leased());
        scratch.keyed.keys[place].fill(limit, &scratch.packet, scratch.tenant, slot);
    }
    // A policy has no more about one packet; only one whose headers hide what it is, and so could be
    // anything, can be about more. Of it, the first ones are asked.
    true
}

/// The limits as a group, with the state of the one at hand.
struct Places<'a> {
    keyed: &'a mut Keyed,
    bill: &'a mut Bill,
    epoch: u32,
    bucket: Option<*mut Bucket>,
    /// Whether it is charged for several packets, which all limits are to be asked for first.
    leases: bool,
}

impl<'a> Places<'a> {
    #[inline(always)]
    fn of(scratch: &'a mut PacketScratch, place: usize) -> Self {
        let leases = scratch.leased() != 0;
        let PacketScratch { keyed, bill, binding, .. } = scratch;
        let epoch = binding.epoch();
        let bucket = BUCKETS.get_ptr_mut(keyed.entries[place]);
        Self { keyed, bill, epoch, bucket, leases }
    }

    /// What the state at a place is to be bound to.
    #[inline(always)]
    fn target(&self, place: usize) -> Binding {
        Binding(self.keyed.bindings[place])
    }

    #[inline(always)]
    fn is_stale(&self, place: usize) -> bool {
        self.bucket.is_some_and(|bucket| {
            // SAFETY: an aligned word of a map value that was looked up in this run.
            unsafe { (&raw const (*bucket).binding).read_volatile() != self.target(place).0 }
        })
    }
}

impl Group for Places<'_> {
    type Word = BoundWord;
    type Policer = KeyedMeter;

    #[inline(always)]
    fn bill(&mut self) -> &mut Bill {
        PacketScratch::hide_provenance(self.bill)
    }

    #[inline(always)]
    fn look(&mut self, place: usize) -> &mut Look {
        PacketScratch::hide_provenance(&mut self.keyed.looks[place])
    }

    #[inline(always)]
    fn bit(&self, place: usize) -> u64 {
        self.keyed.bits[place]
    }

    #[inline(always)]
    fn policer(&self, place: usize) -> Option<(&KeyedMeter, u64)> {
        let meter = METERS.get(half(self.epoch, self.keyed.meters[place]))?;
        Some((KeyedMeter::of(meter), self.keyed.costs[place]))
    }

    #[inline(always)]
    fn find(&mut self, place: usize) -> Option<BoundWord> {
        let target = self.target(place);
        // SAFETY: a map value that was looked up in this run; its fields are aligned words. If it is
        // not bound now, the cell itself finds out.
        self.bucket.map(|bucket| unsafe {
            BoundWord::new(&raw mut (*bucket).word, &raw const (*bucket).binding, target)
        })
    }
}
