//! What is decided about, and what was found out of it so far.

use core::mem::offset_of;

use limiter_common::{
    abi::{
        policy::{Profile, Settings},
        state::OffenceKey,
    },
    algorithm::{
        binding::Binding, concurrent, gcra::Gcra, kind::Kind, meter::Measure, policer::Look,
        time::Time,
    },
    base::{
        address::{Address, Mask},
        word::Word as _,
    },
    memory::{
        cache::Cached,
        ending::Ending,
        jiffy::{JiffyClock, lag},
        refused_syn::RefusedSyn,
    },
    packet::headers::Packet,
    policy::{
        charge::Bill,
        limit::{BucketKey, CostClass, INLINE, KEYED},
        rest::Rest,
    },
    table::{
        probation::{ProbationSlot, SetState},
        set::{Place, Room, Tags},
    },
};

use crate::kernel::{
    atomics::{MapWord, wait_before},
    barrier::{black_box, escape, read},
    clock,
    key::SourceKey,
    maps::{JIFFY_CLOCK, TICK_LAG},
};
use aya_ebpf::{macros::map, maps::PerCpuArray};

const _: () = assert!(offset_of!(PacketScratch, source) % 8 == 0);

/// What is decided about.
///
/// It is kept in a map value of the CPU, of which the verifier remembers nothing: on the stack, it
/// would follow each of the thousand ways through the parser to the end of the program. The parts of
/// the program that are verified by themselves find it there too.
#[repr(C)]
pub(crate) struct PacketScratch {
    /// The key of its source, by which it is compared: aligned to words of 64 bits.
    pub(crate) source: Address,
    pub(crate) packet: Packet,
    /// Bytes of the frame.
    pub(crate) bytes: u64,
    /// Always 0, which the verifier does not know.
    zero: u64,
    /// Not 0 when nothing is dropped, by the operator's word or by the policy's.
    pub(crate) monitor: u64,
    /// The place of the reason to pass it.
    pub(crate) conform: u64,
    /// The limits that a packet like this is about, whatever its source, as bits.
    pub(crate) applicable: u64,
    /// The epoch under which that was found.
    pub(crate) classified: u64,
    /// The rest of its key, if one of these limits is kept [by that](Settings::by_rest).
    pub(crate) rest: Rest,
    /// Where that has its slot in the cache of the CPU; 0 without one.
    pub(crate) spread: u64,
    /// By what the offence of its source is looked up, while it is.
    pub(crate) offence: OffenceKey,
    /// The head of the set of that, and the tag: see [`offences`](crate::history::offences).
    pub(crate) offence_head: u32,
    pub(crate) offence_tag: u32,
    /// The key of the connection that it opens, if a limit counts those; 0 if it opens none.
    pub(crate) handshake_key: u64,
    /// The way of the record of that connection in its set, see [`handshakes`](crate::history::handshakes).
    pub(crate) handshake_way: u64,
    /// The limits that it was charged to, as bits, if the packet repeats its SYN; otherwise 0.
    pub(crate) handshake_charged: u64,
    /// The epoch of these.
    pub(crate) handshake_epoch: u64,
    /// By what its socket is looked up, while it is.
    pub(crate) ending: Ending,
    /// By what a refused SYN of its connection is looked up, and what is written of it, while it is.
    pub(crate) connection: u64,
    pub(crate) refused_syn: RefusedSyn,
    /// How many sockets were found that keep their places, while they are looked up.
    pub(crate) in_vain: u64,
    /// 1 when all of its headers were read, otherwise 0.
    pub(crate) is_read: u64,
    /// How often it has waited for a word, see [`lose_race`].
    pub(crate) races: u64,
    /// The place of the inline limit that was looked at last, or that another CPU was first at; and the limits that it was not
    /// found to conform to, as bits.
    pub(crate) looked: u64,
    pub(crate) over: u64,
    /// When it is decided; until then, when its source's entry was bound.
    pub(crate) time: Time,
    /// The same by the tick, where the clock was read for it.
    by_tick: u64,
    /// What it is, see [`PacketScratch::cost_class`].
    cost_class: CostClass,
    pub(crate) tenant: u32,
    /// What tells its connection from others among leases; 0 until a limit asks for it.
    pub(crate) tag: u32,
    /// Where the entry of its source is, see [`EntryId`](crate::table::lookup::EntryId).
    pub(crate) entry_id: u32,
    /// The number of the profile of its source, where that has no entry of its own, and the epoch that
    /// it is of.
    pub(crate) number: u32,
    pub(crate) numbered: u32,
    /// The place of its source in the table.
    pub(crate) place: Place,
    /// What was seen of its set, when its source was not found at the way that it has if it may choose.
    pub(crate) state: SetState,
    pub(crate) tags: Tags,
    /// Until when its source will owe for it, in nanoseconds, if an entry is to be made for it because it is
    /// the first one and has no place, or owes too long for one; otherwise 0.
    pub(crate) owed: u64,
    /// 1 when its source is given an entry in a set that was full, where packets pass untracked; otherwise 0.
    pub(crate) was_full: u64,
    /// How many packets its source is charged with for that.
    pub(crate) credit: u64,
    /// For how many packets more it is charged, while these are [leased](crate::pipeline::lease); otherwise 0.
    pub(crate) leased: u64,
    /// 1 if its source may have packets leased, or the slot for them, and the tick that they would be of.
    pub(crate) may_lease: u64,
    pub(crate) lease_tick: u32,
    /// 1 if it is charged alone, as one of its limits had too little to spare, or another CPU was first.
    pub(crate) lease_lost: u32,
    /// What charging it comes to, if it is the first one of its source.
    pub(crate) first: FirstCharge,
    /// What its source was admitted with before it had an entry, while that is made.
    pub(crate) newcomer: ProbationSlot,
    /// The binding of its source's entry that it is decided under.
    pub(crate) binding: Binding,
    /// What tells the limit that it is over, see [`Blame`].
    pub(crate) blame: Blame,
    /// What the window that was asked last makes of its word.
    pub(crate) decided: u64,
    /// The limit that drops it, as a bit, and the epoch that it is under, where [`Blame::DROPPING`] says so.
    pub(crate) dropping: (u64, u32),
    /// The limit that it is over.
    pub(crate) refusing: Refusing,
    /// The enforced limit that refused it, as a bit; 0 if none did.
    pub(crate) refused: u64,
    /// 1 if it may [prove](crate::history::proofs) what its source did, should it pass; otherwise 0.
    pub(crate) may_prove: u64,
    /// A tick of the kernel, and the time that was first read in it; these stay from packet to packet.
    pub(crate) tick: u64,
    pub(crate) ticked: u64,
    pub(crate) bill: Bill,
    /// What was seen of the inline limits.
    pub(crate) looks: [Look; INLINE],
    /// The limits that are kept by keys of their own.
    pub(crate) keyed: Keyed,
}

/// Notes that a word that the packet is to be charged to could not be had, mostly as another CPU was first, and waits, each time for
/// longer. Returns 0, and does not wait, when the packet has waited for `most` times: it is to give the limit up. The races of a packet
/// are counted together, so that it waits for no longer where it has many limits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn lose_race(most: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if scratch.races >= most.into() {
        return 0;
    }
    scratch.races += 1;
    scratch.bill.late = 1;
    wait_before(scratch.races as u32);
    1
}

/// Waits before another try to take a charge back, for 0.6 us, whatever the packet has lost. Where all fail, a limit stays charged
/// for what it did not admit.
#[inline(always)]
pub(crate) fn wait_to_refund() {
    /// The try that is as long after the one before it.
    const FOURTH: u32 = 4;
    wait_before(FOURTH);
}

/// What charging the first packet of a source comes to, which has no entry.
#[derive(Clone, Copy)]
pub(crate) struct FirstCharge {
    /// Until when its source has to be remembered for it, in nanoseconds, if that is all that is known of it.
    pub(crate) until: u64,
    /// Until when an entry owes that is made for it.
    pub(crate) owed: u64,
    /// The places of the inline limits that it is charged to, as bits.
    pub(crate) places: u32,
    /// Those of them that it leaves near, by their own bits.
    pub(crate) near: u64,
    /// The limits of its source that admit it, as bits, if an entry is to be made for it.
    pub(crate) limits: u64,
    /// The limits of new connections that it is charged to, of whatever key, likewise.
    pub(crate) opens: u64,
}

/// The limits of a packet that are kept by keys of their own, in the order in which they are asked.
pub(crate) struct Keyed {
    /// Their bits; 0 from the first place on that is not needed.
    pub(crate) bits: [u64; KEYED],
    /// The numbers of their meters.
    pub(crate) meters: [u32; KEYED],
    /// The kinds of those.
    pub(crate) kinds: [u32; KEYED],
    /// What the packet costs.
    pub(crate) costs: [u64; KEYED],
    /// What was seen of them.
    pub(crate) looks: [Look; KEYED],
    /// What was written in their wide states.
    pub(crate) written: [Written; KEYED],
    /// The keys of their state, as aligned as words of 64 bits.
    pub(crate) keys: [BucketKey; KEYED],
    /// The numbers of their entries in the table of [buckets](crate::table::buckets), and what these were bound to.
    pub(crate) entries: [u32; KEYED],
    pub(crate) bindings: [u64; KEYED],
    /// Where these are.
    pub(crate) places: [Place; KEYED],
    /// The way that one may be given which has none, and the number of the entry of the first way of its set.
    pub(crate) room: Room,
    pub(crate) first: u32,
    /// Of the bucket of the way that was asked last whether it may be given away: its word, 1 if it has a wide state, and the
    /// number of its meter.
    pub(crate) idle: u64,
    pub(crate) usage_wide: u32,
    pub(crate) usage_meter: u32,
    /// What the old table knows of the key that is given an entry, while state is carried over from there.
    pub(crate) recalled: Recalled,
    /// The number of its wide state there, plus 1; 0 if it has none.
    pub(crate) recalled_wide: u32,
    /// The control word of the log that is copied from there, and one that its copy is numbered like.
    pub(crate) copied: [u64; 2],
}

const _: () = assert!(offset_of!(Keyed, keys) % 8 == 0 && align_of::<Keyed>() == 8);

/// The bucket of a key, from [the old table](crate::table::recall); all zero if nothing is known of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recalled {
    pub(crate) word: u64,
    pub(crate) measure: Measure,
}

/// What was written in a wide state, to be taken back if need be, or is to be written there.
pub(crate) struct Written {
    pub(crate) event: u64,
    pub(crate) lease: concurrent::Look,
    /// 1 if the lease was looked at, and is not charged yet; otherwise 0.
    pub(crate) looked: u64,
}

impl Keyed {
    /// Whether the limit at a place has a wide state.
    #[inline(always)]
    pub(crate) fn is_wide(&self, at: usize) -> bool {
        Kind::is_wide(self.kinds[at].into())
    }

    /// Whether the limit at a place is the last one.
    #[inline(always)]
    pub(crate) fn is_last(&self, at: usize) -> bool {
        self.bits.get(at + 1).copied().unwrap_or(0) == 0
    }
}

impl PacketScratch {
    #[inline(always)]
    pub(crate) fn get() -> Option<&'static mut Self> {
        let scratch = PACKET_SCRATCH.get_ptr_mut(0)?;
        // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
        // runs with bottom halves disabled. All zeros, which it is at first, is a valid value. A part
        // of the program that gets it anew is called with no other reference in use.
        Some(unsafe { &mut *scratch })
    }

    /// Whether nothing is dropped.
    #[inline(always)]
    pub(crate) fn monitors(&self) -> bool {
        read(&self.monitor) != 0
    }

    /// All limits where nothing is dropped, otherwise none.
    #[inline(always)]
    pub(crate) fn monitored(&self) -> u64 {
        let monitor = read(&self.monitor);
        // Without a branch: the sign is that of one or the other unless both are zero.
        (((monitor | monitor.wrapping_neg()) as i64) >> 63) as u64
    }

    /// How many packets in a tick its source may have sent [untracked](limiter_common::table::untracked), before it was given
    /// its entry.
    #[inline(always)]
    pub(crate) fn untracked(&self, profile: &Profile) -> u64 {
        profile.untracked * read(&self.was_full)
    }

    /// For how many packets more it is charged.
    #[inline(always)]
    pub(crate) fn leased(&self) -> u64 {
        read(&self.leased)
    }

    /// When it is decided.
    #[inline(always)]
    pub(crate) fn time(&self) -> Time {
        read(&self.time)
    }

    /// Has it decided by the clock, which is read when a limit needs it: what was found by the time of a tick
    /// holds by it too, but for the nanoseconds since it was read, if another tick has begun in them.
    #[inline(always)]
    pub(crate) fn read_clock(&mut self) -> u64 {
        let time = Time::exact(clock::now());
        *Self::hide_provenance(&mut self.time) = time;
        time.now
    }

    /// Has it decided at `now`, in nanoseconds, which the clock says.
    #[inline(always)]
    pub(crate) fn set_time(&mut self, now: u64) {
        self.note_tick();
        self.reread().time = Time::exact(now);
    }

    /// Has the tick known beside the [time](Self::time) of the packet.
    #[inline(always)]
    pub(crate) fn note_tick(&mut self) {
        let ticked = coarse_now(self.reread()).now;
        self.reread().by_tick = ticked;
    }

    /// Notes by how much the tick of the kernel is late, if none was later. The [time](Self::set_time) of the packet is that
    /// of the clock. Packets that look for an entry, or find it under another policy, tell of it: to ask each would take a branch
    /// in all that is verified after it.
    #[inline(always)]
    pub(crate) fn note_lag(&self) {
        let late = lag(self.time().now, self.by_tick(), clock::tick_length());
        if late != 0
            && let Some(longest) = TICK_LAG.get_ptr_mut(0)
        {
            // SAFETY: a map value that was just looked up; an aligned word.
            let longest = unsafe { MapWord::new(longest) };
            let seen = longest.load();
            // Another CPU that is first notes much the same.
            if late > seen {
                let _: u64 = longest.compare_exchange(seen, late);
            }
        }
    }

    /// When it is decided, by the tick, in nanoseconds.
    #[inline(always)]
    pub(crate) fn by_tick(&self) -> u64 {
        read(&self.by_tick)
    }

    /// The time that a bucket of its source goes by, in nanoseconds.
    #[inline(always)]
    pub(crate) fn time_of(&self, bucket: &Gcra) -> u64 {
        if bucket.takes_clock(clock::tick_length()) {
            return self.time().now;
        }
        self.by_tick()
    }

    /// The same number, which the verifier no longer knows: it would follow each of several known ones to the end.
    #[inline(always)]
    pub(crate) fn unknown(&self, number: usize) -> usize {
        number + read(&self.zero) as usize
    }

    /// Finds out which slot of the cache it has besides what its source tells; `rest` gives the rest of its key. The limits
    /// that it is about are known.
    #[inline(always)]
    pub(crate) fn find_rest(
        &mut self,
        settings: &Settings,
        rest: impl FnOnce(&Self) -> Option<Rest>,
    ) -> Option<()> {
        self.spread = 0;
        if self.applicable & settings.by_rest != 0 {
            let rest = rest(self)?;
            self.rest = rest;
            self.spread = Cached::spread(rest.hash(settings.seed)).into();
        }
        Some(())
    }

    /// Finds out the key of the packet's source.
    #[inline(always)]
    pub(crate) fn find_source(&mut self, mask: &Mask) {
        self.write_key(SourceKey::of(&self.packet.source.masked(mask)));
    }

    /// Has this as the key of its source.
    #[inline(always)]
    pub(crate) fn write_key(&mut self, key: SourceKey) {
        // SAFETY: a field of the value, which is borrowed, at a multiple of 8 bytes.
        unsafe { key.write(&raw mut self.source) };
    }

    /// The key of its source, as it was written.
    #[inline(always)]
    pub(crate) fn key(&self) -> SourceKey {
        // SAFETY: as in `write_key`.
        unsafe { SourceKey::read(&raw const self.source) }
    }

    /// Finds out what the packet is.
    #[inline(always)]
    pub(crate) fn classify_cost(&mut self) {
        self.cost_class = CostClass::of(&self.packet);
    }

    /// What the packet was [found](Self::classify_cost) to be.
    #[inline(always)]
    pub(crate) fn cost_class(&self) -> CostClass {
        read(&self.cost_class)
    }

    /// Begins a bill.
    #[inline(always)]
    pub(crate) fn open_bill(&mut self, applies: u64, enforced: u64) {
        self.bill = Bill { applies, enforced, ..Bill::default() };
    }

    /// The same as the compiler must take it to be: anything.
    #[inline(always)]
    pub(crate) fn hide_provenance<T>(part: &mut T) -> &mut T {
        // SAFETY: the pointer is that of `part`, which is given up for it.
        unsafe { &mut *(black_box(&raw mut *part as usize) as *mut T) }
    }

    /// The same, but the compiler has to read what was written.
    #[inline(always)]
    pub(crate) fn reread(&mut self) -> &mut Self {
        Self::hide_provenance(self)
    }
}

#[map]
pub(crate) static PACKET_SCRATCH: PerCpuArray<PacketScratch> = PerCpuArray::with_max_entries(1, 0);

/// The time of the tick of the kernel.
#[inline(always)]
pub(crate) fn coarse_now(scratch: &mut PacketScratch) -> Time {
    let Some(tick) = clock::tick() else { return Time::exact(clock::now()) };
    if scratch.tick != tick {
        escape(scratch);
        let time = sync_clock(tick);
        if scratch.reread().tick != tick {
            return Time::exact(time);
        }
    }
    Time { now: scratch.reread().ticked, tick: clock::tick_length() }
}

/// Finds out what the time of a tick is, and keeps it in the packet if all CPUs agree on it; if they do not, that
/// is the time now.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn sync_clock(tick: u64) -> u64 {
    let (Some(scratch), Some(ticked)) = (PacketScratch::get(), JIFFY_CLOCK.get_ptr_mut(0)) else {
        return clock::now();
    };
    // SAFETY: a map value that was just looked up; aligned words.
    let word = |at: usize| unsafe { MapWord::new((&raw mut (*ticked)[at]).cast()) };
    match (JiffyClock { number: word(0), time: word(1) }).sync(tick, clock::now) {
        Ok(time) => {
            (scratch.tick, scratch.ticked) = (tick, time);
            time
        }
        Err(now) => now,
    }
}

/// What tells the limit that a packet is over, where samples of dropped packets are asked for: a number, as all
/// packets begin with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blame(u64);

impl Blame {
    /// No limit.
    pub(crate) const NONE: Self = Self(0);
    /// [`PacketScratch::refusing`] does.
    pub(crate) const REFUSING: Self = Self(u64::MAX);

    /// [`PacketScratch::dropping`] does.
    pub(crate) const DROPPING: Self = Self(u64::MAX - 1);

    /// The limit with this tally.
    #[inline(always)]
    pub(crate) const fn tally(tally: u32) -> Self {
        Self(tally as u64 + 1)
    }

    /// The tally of the limit, if that is known.
    #[inline(always)]
    pub(crate) const fn of_tally(self) -> Option<u32> {
        if self.0 == 0 || self.0 >= Self::DROPPING.0 { None } else { Some(self.0 as u32 - 1) }
    }
}

/// The limit that a packet was over, and what comes of that for others of its source.
#[derive(Clone, Copy)]
pub(crate) struct Refusing {
    /// 0 if it was over none.
    pub(crate) bit: u64,
    /// The limits that are about the packet.
    pub(crate) limits: u64,
    /// When it was, in nanoseconds, by the time that the limit goes by.
    pub(crate) since: u64,
    /// For how long it will refuse them for sure, in nanoseconds; 0 if they have to be looked at.
    pub(crate) wait: u64,
    /// Until when the source is blocked from now on, in nanoseconds; 0 if it is not, or was before.
    pub(crate) until: u64,
    /// The limit that blocks it then.
    pub(crate) blocking: u64,
    pub(crate) tally: u32,
    /// 1 if the clock tells when that ends, 0 if a tick does.
    pub(crate) precise: u32,
}

impl Refusing {
    /// Begins with a limit, or none.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bit: u64) {
        (self.bit, self.wait, self.until, self.blocking) = (bit, 0, 0, 0);
    }
}
