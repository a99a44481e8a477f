//! Openings: which SYN is the first of its connection.
//!
//! A client that hears nothing sends its SYN again, with the same ports and the same initial
//! sequence number (RFC 9293, section 3.8.1), a second after the first one (RFC 6298) and then
//! later and later: Linux after 1, 2, 3, 4, 5, 7, 11 s and so on, others after 1, 3, 7 s. Who counts
//! new connections does not count that, so the first SYN is remembered once it is admitted.
//!
//! Who forges sequence numbers can end a connection and open the next one by the same SYN, so that
//! what belongs to one is bounded: [`Handshake::REPEATS`] SYNs, none much sooner than a real client
//! sends it.
//!
//! **What happens before what.** CPUs write records without a lock: first what the SYN was charged to, then by a release
//! store the [`Handshake`]. A CPU that finds the handshake by an acquire load reads after that what was charged, and
//! then exchanges the handshake. So it has what was charged with that handshake or later. Where two CPUs write one record
//! at once, what is left may be the handshake of one with the charge of the other.

use crate::{
    base::{
        seed::Seed,
        word::{StoreWord, Word},
    },
    packet::headers::{Packet, TcpFlags},
};

/// What to look a connection up by that a packet opens: a hash of its addresses, ports and initial
/// sequence number, never 0; `None` for packets that open none, or of which that is not known, and for later fragments.
#[inline(always)]
pub const fn key(packet: &Packet, seed: Seed) -> Option<u64> {
    match packet.tcp_flags.get() {
        Some(flags) if TcpFlags::open(flags) && !packet.is_later() => {
            let key = packet.hash(seed, packet.sequence);
            Some(if key == 0 { 1 } else { key })
        }
        _ => None,
    }
}

/// Records in a set, which is one line of the cache.
pub const WAYS: usize = 4;

/// Sets of the table of SYNs for each set of buckets that an instance is asked for: there are as many records.
pub const SETS_PER_BUCKET_SET: u32 = 4;

/// Sets of the table of SYNs, of an instance that is asked for so many sets of buckets.
pub const fn sets(bucket_sets: u32) -> u32 {
    bucket_sets.saturating_mul(SETS_PER_BUCKET_SET)
}

/// The set of a connection with this [key], of so many [`sets`].
#[inline(always)]
pub const fn set(key: u64, sets: u32) -> u32 {
    ((key as u32 as u64 * sets as u64) >> 32) as u32
}

/// The way of the record of a connection in its set; [`WAYS`] if it has none.
#[inline(always)]
pub fn find(record: impl Fn(usize) -> Handshake, key: u64) -> usize {
    let mut found = WAYS;
    for way in 0..WAYS {
        if record(way).is_of(key) {
            found = way;
        }
    }
    found
}

/// The way that a new record takes in a set at `now` (nanoseconds): one that has none, or that of the oldest record.
///
/// A flood of new connections replaces the records of others, as it would in an LRU map. A client whose record is gone is
/// charged once more when it repeats its SYN. Whoever floods gains nothing: a record lets a sender pass for free, so its
/// own lost ones cost it, and which records share a set depends on the seed.
#[inline(always)]
pub fn oldest(record: impl Fn(usize) -> Handshake, now: u64) -> usize {
    let (mut oldest, mut most) = (0, 0);
    for way in 0..WAYS {
        // A CPU that read the clock a moment later than this one wrote a record that seems to be of the future.
        let known = record(way);
        let age = match known.0 {
            0 => u64::MAX,
            _ => known.age(now.wrapping_add(Handshake::SPAN)),
        };
        if age > most {
            (oldest, most) = (way, age);
        }
    }
    oldest
}

/// What is remembered of a connection: when its SYN was admitted and under which policy, and how often it was repeated.
///
/// From the lowest bit: repetitions 2 | time 30, in units of 4,096 ns | epoch 8 | hash of the connection 24. Where all four
/// records of a set are of the last seconds, one of four million SYNs passes for a repetition by chance. All bits are zero
/// where nothing was written yet.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake(pub u64);

impl Handshake {
    /// Repetitions that belong to a connection.
    pub const REPEATS: u64 = 3;
    /// For how long they do, in nanoseconds.
    pub const SPAN: u64 = 8_000_000_000;
    /// How long it takes until the next one, in nanoseconds: a second, less what the one before may
    /// have waited longer on its way, for an address to be resolved or in a full queue.
    pub const STEP: u64 = 500_000_000;
    /// The low bits, which are the number of repetitions.
    const NUMBER: u64 = 0b11;
    /// Bits of the number.
    const NUMBER_BITS: u32 = 2;
    /// Times are exact to 4,096 ns.
    const UNIT: u32 = 12;
    /// All bits of a time in nanoseconds that are kept; 73 minutes. A record that is so much older than another one seems as
    /// old as that.
    const TIMES: u64 = (1 << (Self::EPOCH - Self::NUMBER_BITS + Self::UNIT)) - 1;
    /// Where the epoch begins.
    const EPOCH: u32 = 32;
    /// Where the hash begins.
    const TAG: u32 = 40;

    /// A connection with this [key] whose SYN is admitted under an epoch at `now` (nanoseconds).
    #[inline(always)]
    pub const fn new(key: u64, epoch: u32, now: u64) -> Self {
        let time = (now & Self::TIMES) >> Self::UNIT << Self::NUMBER_BITS;
        let epoch = (epoch as u64 & 0xff) << Self::EPOCH;
        Self(key >> Self::TAG << Self::TAG | epoch | time)
    }

    /// Whether it is of the connection with this [key], which is of this set.
    #[inline(always)]
    pub const fn is_of(self, key: u64) -> bool {
        self.0 != 0 && (self.0 ^ key) >> Self::TAG == 0
    }

    /// Whether it was admitted under this epoch, or 256 epochs before or after.
    #[inline(always)]
    pub const fn is_under(self, epoch: u32) -> bool {
        (self.0 >> Self::EPOCH ^ epoch as u64) & 0xff == 0
    }

    /// How long before `now` its SYN was admitted, in nanoseconds; what seems to be of the future is very old.
    #[inline(always)]
    const fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 >> Self::NUMBER_BITS << Self::UNIT) & Self::TIMES
    }

    /// The same after a SYN that comes at `now`; `None` if that is a new connection.
    #[inline(always)]
    pub const fn repeated(self, now: u64) -> Option<Self> {
        let number = (self.0 & Self::NUMBER) + 1;
        let time = self.age(now);
        if number > Self::REPEATS || time > Self::SPAN || time < number * Self::STEP {
            return None;
        }
        Some(Self(self.0 + 1))
    }
}

/// The record of a connection, in two words; all zeros for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record<W = u64> {
    /// The [`Handshake`].
    pub handshake: W,
    /// The limits that its SYN was charged to, as bits under the epoch of the handshake.
    pub charged: W,
}

impl<W: Word> Record<W> {
    /// If a SYN of the connection that comes at `now` (nanoseconds) is a repetition: what the record was, and what its SYN was
    /// charged to. The repetition is used up. Of several at once one is, so that there are never more than there
    /// may be. If another connection takes the record at this moment, none is.
    #[inline(always)]
    pub fn repeat(&self, now: u64) -> Option<(Handshake, u64)> {
        let (seen, charged) = (Handshake(self.handshake.load_acquire()), self.charged.load());
        if let Some(next) = seen.repeated(now)
            && self.handshake.compare_exchange(seen.0, next.0) == seen.0
        {
            return Some((seen, charged));
        }
        None
    }
}

impl<W: StoreWord> Record<W> {
    /// Writes another record.
    #[inline(always)]
    pub fn write(&self, handshake: Handshake, charged: u64) {
        self.charged.store(charged);
        self.handshake.store_release(handshake.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;
    const KEY: u64 = 0x1234_5678_9abc_def0;
    const SECOND: u64 = 1_000_000_000;

    /// How many SYNs at these times, in seconds after the first, are of its connection.
    fn belong(times: &[u64]) -> usize {
        let mut opening = Handshake::new(KEY, 1, NOW + 255);
        let mut number = 0;
        for time in times {
            if let Some(next) = opening.repeated(NOW + 255 + time * SECOND) {
                opening = next;
                number += 1;
            }
        }
        number
    }

    #[test]
    fn the_first_repetitions_of_real_clients_belong_to_a_connection() {
        assert_eq!(belong(&[1, 2, 3, 4, 5, 7, 11]), 3);
        assert_eq!(belong(&[1, 3, 7, 15, 31]), 3);
        assert_eq!(belong(&[3, 9, 21]), 1);
    }

    #[test]
    fn those_that_come_too_soon_do_not() {
        assert_eq!(belong(&[0; 100]), 0);
        assert_eq!(belong(&[1, 1, 1]), 2);
        // Two that come at once, because the first one waited on its way.
        assert_eq!(belong(&[0, 2, 6]), 2);
    }

    #[test]
    fn they_do_from_a_step_after_the_first_one_on_and_for_a_span() {
        let opening = Handshake::new(KEY, 1, NOW);
        let belongs = |after: u64| opening.repeated(NOW + after).is_some();
        assert!(!belongs(Handshake::STEP - 1) && belongs(Handshake::STEP));
        assert!(belongs(Handshake::SPAN) && !belongs(Handshake::SPAN + 1));
        for seconds in 9..4_000 {
            assert!(!belongs(seconds * SECOND), "{seconds}");
        }
        assert_eq!(opening.repeated(NOW - SECOND), None, "it is of the future");
    }

    /// Records in a set, at these times after [`NOW`].
    fn records(times: [u64; WAYS]) -> [Handshake; WAYS] {
        let mut number = 0;
        times.map(|time| {
            number += 1;
            Handshake::new(number << 44, 7, NOW + time)
        })
    }

    #[test]
    fn a_record_is_found_by_its_connection_and_no_other() {
        let known = records([0, 1, 2, 3].map(|time| time * SECOND));
        for number in 1..=WAYS as u64 {
            let key = number << 44 | 0xff_0000_1234;
            assert_eq!(find(|way| known[way], key), number as usize - 1);
            assert!(
                known[number as usize - 1].is_under(7) && !known[number as usize - 1].is_under(8)
            );
        }
        assert_eq!(find(|way| known[way], 5 << 44), WAYS);
        assert_eq!(find(|_| Handshake(0), 0), WAYS, "nothing was written");
    }

    #[test]
    fn every_set_has_keys() {
        for sets in [4, 1_000, 1 << 16, u32::MAX] {
            assert_eq!((set(0, sets), set(u64::MAX, sets)), (0, sets - 1));
            assert_eq!(set(KEY, sets), set(KEY | 0xfff << 40, sets), "the rest is in the record");
        }
    }

    #[test]
    fn the_oldest_record_makes_room_and_one_of_the_future_does_not() {
        let replaced = |times, now| {
            let known = records(times);
            oldest(|way| known[way], NOW + now)
        };
        assert_eq!(replaced([3 * SECOND, SECOND, 2 * SECOND, 4 * SECOND], 5 * SECOND), 1);
        assert_eq!(replaced([SECOND, SECOND + 5_000, SECOND + 15_000, 10_000], SECOND + 100), 3);
        assert_eq!(
            replaced([SECOND + 15_000, SECOND, SECOND + 5_000, SECOND + 10_000], SECOND + 100),
            1
        );
        let some = |way| if way == 2 { Handshake(0) } else { records([0; WAYS])[way] };
        assert_eq!(oldest(some, NOW), 2, "nothing was written");
        // Times repeat after 73 minutes, and nothing was written at 0.
        for before in [SECOND, 5 * SECOND, Handshake::SPAN] {
            let now = (1 << 42) - before;
            let at = |way| match way {
                2 => Handshake(0),
                _ => Handshake::new(1 << 44, 7, now - way as u64 * SECOND),
            };
            assert_eq!(oldest(at, now), 2, "{before} ns before");
        }
    }
}
