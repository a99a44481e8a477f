//! What a CPU holds of the packets of one source that the same limits are about: some that it leased from these, a limit
//! that refuses them, and what was counted of them and is not in the totals of the source yet.
//!
//! A limit may be kept by more than the source tells: the destination, ports, the protocol. Where one is about the packets,
//! they are of one [rest of the key](Rest) too, which is kept exactly. So a lease of one connection is spent by no other.
//!
//! A packet that is decided by this touches nothing that CPUs share, but for the first one in a tick, which agrees on the
//! time of that, and one of [many](Cached::UNTOLD) that are dropped, which tells the entry.
//!
//! * **Leased packets.** A CPU that gets many packets of a kind charges one of them to all of its limits for
//!   [several](Cached::demand). It uses them in the tick of the charge and in the next one; what is left then is lost.
//!   ARCHITECTURE.md tells how many these are (section 5), and what a limit admits by that (section 6). A lease of packets
//!   that no limit is about charges nothing. It has this CPU count them.
//! * **A refusal.** An over-limit source conforms again at a time that its bucket tells. Until then such packets are
//!   dropped. A clock that goes back ends it.
//!
//! Sources share the [slots](Cached::slot). One that was used in this tick or the last one is left as it is.

use crate::{
    algorithm::gcra::Gcra,
    base::{address::Address, tally::Tally},
    policy::rest::Rest,
};

/// What a CPU holds of some packets of one source; all zeros for nobody.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// The key of the source.
    pub source: Address,
    /// The epoch that the rest is of.
    pub epoch: u32,
    /// The limits that are about such packets, whatever their source, as bits.
    pub applicable: u64,
    /// Those of them that are about this source.
    pub limits: u64,
    /// The rest of the key, if one of them is kept by more than the source.
    pub rest: Rest,
    /// Leased packets that are left.
    pub left: u32,
    /// The tick in which they were charged.
    pub leased: u32,
    /// The tick in which the slot was used last.
    pub used: u32,
    /// Packets in that tick.
    pub packets: u16,
    /// Packets in the tick before that.
    pub before: u16,
    /// When they began to be refused by a limit, whatever their cost, in nanoseconds.
    pub since: u64,
    /// Until when they are refused, in nanoseconds; 0 if they are not.
    pub until: u64,
    /// The slot of the tally of that limit.
    pub tally: u16,
    /// 1 if the clock tells when that is, 0 if a tick does.
    pub precise: u16,
    /// The tick in which one of the limits had too little to spare last for packets to be leased.
    pub unleased: u32,
    /// What passed on this account and is not in the totals of the source yet.
    pub passed: Recent,
    /// What was dropped on this account and is not in the totals of the source yet.
    pub dropped: Recent,
}

/// Some packets and their bytes: at most [`Cached::UNTOLD`], of which none is longer than 2^17 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Packets.
    pub packets: u32,
    /// Bytes.
    pub bytes: u32,
}

const _: () = assert!(Cached::UNTOLD << 17 <= u32::MAX as u64);

impl Recent {
    /// Adds a packet.
    #[inline(always)]
    pub const fn add(&mut self, bytes: u64) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes as u32);
    }

    /// The same as a tally.
    #[inline(always)]
    pub const fn tally(&self) -> Tally {
        Tally { packets: self.packets as u64, bytes: self.bytes as u64 }
    }
}

impl Cached {
    /// Slots of a CPU; a power of two.
    pub const SLOTS: u32 = 1 << Self::SLOT_BITS;
    /// Binary digits of the number of a slot.
    pub const SLOT_BITS: u32 = 10;

    /// The longest time, in nanoseconds, for which a refusal is remembered.
    pub const LONGEST: u64 = 1_000_000_000;

    /// The same where refusals have to be told one by one, as there is a penalty, or where a later limit may have something
    /// given back. Where the limit goes by ticks, a refusal is remembered until the next tick at least.
    pub const MOMENT: u64 = 100_000;

    /// Packets after which the entry is told of those that were dropped; a power of two.
    pub const UNTOLD: u64 = 64;

    /// The most packets that are leased at once.
    pub const MOST_LEASED: u64 = 16;

    /// Slots that packets of one source without a rest of their key may be in; a power of two.
    pub const KINDS: u16 = 1 << Self::KIND_BITS;
    const KIND_BITS: u32 = 2;

    /// Slots that packets of one source may be in, also if their [rests of the key](Rest) differ; a power of two. The other
    /// slots of a CPU are out of its reach, whatever it sends. Where a policy has limits by such keys, 16 sources can hold
    /// all slots of a CPU, by an admitted packet of each of 64 keys in each tick. The packets of others are decided by their
    /// entries then.
    pub const SPREAD: u16 = 1 << 6;

    /// The spread of packets whose rest of the key has this [hash](Rest::hash): from [`KINDS`](Self::KINDS) on, as the first
    /// slots of a source are for packets without a rest.
    #[inline(always)]
    pub const fn spread(hash: u64) -> u16 {
        let others = (Self::SPREAD - Self::KINDS) as u64;
        Self::KINDS + (((hash >> 32) * others) >> 32) as u16
    }

    /// Where packets are, of a source with this [slot](crate::table::set::Place::slot), that these limits are about, with this
    /// [spread](Self::spread); 0 for packets without a rest.
    #[inline(always)]
    pub const fn slot(of_source: u16, applicable: u64, spread: u16) -> u16 {
        // 2^64 divided by the golden ratio: multiplicative hashing.
        let kind = applicable.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::KIND_BITS);
        of_source ^ kind as u16 ^ spread
    }

    /// Begins with packets of a source and a rest of the key under an epoch that some limits are about, and those of them that
    /// are about the source.
    #[inline(always)]
    pub const fn begin(
        &mut self,
        source: Address,
        rest: Rest,
        epoch: u32,
        applicable: u64,
        limits: u64,
    ) {
        (self.source, self.rest, self.epoch) = (source, rest, epoch);
        (self.applicable, self.limits) = (applicable, limits);
        (self.left, self.until) = (0, 0);
        (self.packets, self.before) = (0, 0);
    }

    /// Makes a refusal by a limit hold from one time to another, in nanoseconds, or for so [long](Self::LONGEST) at most.
    #[inline(always)]
    pub const fn refuse(&mut self, tally: u32, precise: bool, since: u64, until: u64) {
        let latest = since.saturating_add(Self::LONGEST);
        (self.tally, self.precise) = (tally as u16, precise as u16);
        self.since = since;
        self.until = if until < latest { until } else { latest };
    }

    /// Whether it is about this source.
    #[inline(always)]
    pub const fn is_of(&self, source: &Address) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.source.words, source.words);
        (self.source.family ^ source.family) | (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }

    /// Whether packets are still refused at `now` (nanoseconds).
    #[inline(always)]
    pub const fn holds(&self, now: u64) -> bool {
        // A clock that went back may find that the state of the source was lost meanwhile.
        self.since <= now && now < self.until
    }

    /// Takes one of the leased packets, if there are any in this tick.
    #[inline(always)]
    pub const fn spend(&mut self, tick: u32) -> bool {
        if self.left == 0 || tick.wrapping_sub(self.leased) > 1 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Has so many packets be leased in a tick.
    #[inline(always)]
    pub const fn lease(&mut self, packets: u64, tick: u32) {
        (self.left, self.leased) = (packets as u32, tick);
    }

    /// Notes that such a packet came in a tick.
    #[inline(always)]
    pub const fn meet(&mut self, tick: u32) {
        if self.used != tick {
            self.before = if tick.wrapping_sub(self.used) == 1 { self.packets } else { 0 };
            (self.used, self.packets) = (tick, 0);
        }
        self.packets = self.packets.saturating_add(1);
    }

    /// For how many packets to charge the one at hand, with that one; at most `most`.
    #[inline(always)]
    pub const fn demand(&self, most: u64) -> u64 {
        let packets = (self.packets as u64 + self.before as u64) / 4;
        if packets < most { packets } else { most }
    }

    /// Whether the slot is left as it is, in a tick under an epoch. One of packets that no limit is about is given away: it
    /// holds nothing but counts.
    #[inline(always)]
    pub const fn stays(&self, epoch: u32, tick: u32) -> bool {
        self.limits != 0 && self.epoch == epoch && tick.wrapping_sub(self.used) <= 1
    }

    /// Whether it is time to tell the entry what was dropped.
    #[inline(always)]
    pub const fn is_due(&self) -> bool {
        self.dropped.packets as u64 & (Self::UNTOLD - 1) == 0
    }

    /// Whether something was counted that the entry does not know.
    #[inline(always)]
    pub const fn is_untold(&self) -> bool {
        self.passed.packets | self.dropped.packets != 0
    }
}

impl Gcra {
    /// For how many packets one of them is charged at once at most, where there are so many CPUs and each packet costs 1;
    /// 0 where packets are not to be [leased](crate::memory::cache). A CPU leases a 64th of the burst at most of each kind of packets,
    /// and all of them together a quarter of one kind. Not for the packet path.
    pub fn lease(&self, cpus: u64) -> u64 {
        let units = self.units(1);
        if units != self.dearest {
            return 0;
        }
        let burst = self.left(0);
        match (burst / 64).min(burst / (4 * cpus.max(1))).min(Cached::MOST_LEASED) {
            0 | 1 => 0,
            packets => packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::seed::Seed, packet::headers::Ports, policy::limit::Key};

    const A: Address = Address::v4([203, 0, 113, 9]);

    /// With packets of a source.
    fn begun() -> Cached {
        let mut cached = Cached::default();
        cached.begin(A, Rest::NONE, 1, 6, 2);
        cached
    }

    #[test]
    fn a_refusal_holds_until_the_bucket_admits_or_for_so_long_at_most() {
        let holds = |wait, after| {
            let (now, mut cached) = (5_000_000_u64, begun());
            cached.refuse(0, false, now, now.saturating_add(wait));
            cached.holds(now.wrapping_add_signed(after))
        };
        assert!(holds(700, 0) && holds(700, 699));
        assert!(!holds(700, 700) && !holds(700, -1) && !holds(0, 0));
        let longest = Cached::LONGEST as i64;
        assert!(holds(u64::MAX, longest - 1) && !holds(u64::MAX, longest));
        assert!(!begun().holds(0), "nobody is refused at first");
    }

    #[test]
    fn leased_packets_are_spent_once_in_their_tick_and_the_next() {
        let mut cached = begun();
        assert!(!cached.spend(0), "nothing is leased");
        for tick in [0, 5, u32::MAX] {
            for after in 0..4 {
                cached.lease(3, tick);
                let spent = (0..9).filter(|_| cached.spend(tick.wrapping_add(after))).count();
                assert_eq!(spent, if after <= 1 { 3 } else { 0 }, "{after} ticks later");
            }
            assert!(!cached.spend(tick.wrapping_sub(1)), "a tick that was before it");
        }
    }

    #[test]
    fn a_quarter_of_what_came_in_two_ticks_is_asked_for() {
        let mut cached = begun();
        for (tick, packets, demand) in
            [(9, 3, 0), (10, 1, 1), (11, 40, 10), (12, 23, 15), (13, 100_000, 16), (15, 4, 1)]
        {
            (0..packets).for_each(|_| cached.meet(tick));
            assert_eq!(cached.demand(Cached::MOST_LEASED), demand, "tick {tick}");
        }
        cached.begin(A, Rest::NONE, 1, 6, 2);
        assert_eq!(cached.demand(Cached::MOST_LEASED), 0);
    }

    #[test]
    fn a_slot_is_left_to_who_used_it_in_this_tick_or_the_last() {
        let mut cached = Cached::default();
        assert!(!cached.stays(1, 0) && !cached.stays(1, 1), "it is nobody's");
        cached.begin(A, Rest::NONE, 1, 6, 2);
        cached.meet(u32::MAX);
        assert!(cached.stays(1, u32::MAX) && cached.stays(1, 0) && !cached.stays(1, 1));
        assert!(!cached.stays(2, u32::MAX), "another policy");
        cached.begin(A, Rest::NONE, 1, 6, 0);
        cached.meet(0);
        assert!(!cached.stays(1, 0), "it is about no limit");
    }

    #[test]
    fn packets_of_a_source_have_a_few_slots() {
        let mut slots = [false; Cached::KINDS as usize];
        for applicable in [u64::MAX, 0, 1, 2, 3, 4, 5, 6, 7, 1 << 63] {
            let slot = Cached::slot(12, applicable, 0);
            assert!(slot / Cached::KINDS == 3, "{slot}");
            slots[usize::from(slot % Cached::KINDS)] = true;
        }
        assert_eq!(slots, [true; Cached::KINDS as usize]);
        assert!(
            Cached::slot(Cached::SLOTS as u16 - 1, 5, Cached::SPREAD - 1) < Cached::SLOTS as u16
        );
        assert!(begun().is_of(&A) && !begun().is_of(&Address::v4([203, 0, 113, 8])));
        assert!(!begun().is_of(&Address { family: Address::IPV6, ..A }));
    }

    const SEED: Seed = Seed([0x1234_5678_9abc_def1, 0xfedc_ba98_7654_3210, 7 << 55, 1 << 60 | 77]);

    #[test]
    fn connections_are_spread_over_the_slots_of_their_source_but_the_first() {
        let mut slots = [0; Cached::SPREAD as usize];
        for port in 1..=100 * Cached::SPREAD {
            let ports = Ports { source: port, destination: 443 };
            let rest = Rest::new([7, 0, 0, 0], [9, 0, 0, 0], ports, 6, Key(Key::CONNECTION));
            let spread = Cached::spread(rest.hash(SEED));
            let slot = Cached::slot(3 * Cached::SPREAD + 5, 6, spread);
            assert_eq!(slot / Cached::SPREAD, 3);
            slots[usize::from(slot % Cached::SPREAD)] += 1;
        }
        // Those that packets without a rest may be in, whatever limits are about them.
        let first = |slot| slot / Cached::KINDS as usize == 5 / Cached::KINDS as usize;
        for (slot, connections) in slots.into_iter().enumerate() {
            let expected = if first(slot) { 0..1 } else { 50..200 };
            assert!(expected.contains(&connections), "{slot}: {slots:?}");
        }
        for hash in [0, u64::MAX] {
            assert!((Cached::KINDS..Cached::SPREAD).contains(&Cached::spread(hash)));
        }
    }
}
