//! Looking over all sources, again and again, for those that are wanted.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fmt,
    net::IpAddr,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use limiter_common::base::{address::Address, tally::Tally};

use super::{maps::Maps, snapshot::Talker};
use crate::{error::Result, output::status::Occupancy};

/// Over less time than this no rate is measured.
const SHORTEST: Duration = Duration::from_millis(1);

/// Which sources are wanted, by their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Those in a prefix, or the one that has a narrower one.
    Prefix(IpNet),
    /// Those whose address, as it is printed, has this text in it. The text is of lower case.
    Part(String),
}

impl Filter {
    /// Whether a source is wanted.
    pub fn includes(&self, source: IpNet) -> bool {
        match self {
            Self::Prefix(prefix) => prefix.contains(&source) || source.contains(prefix),
            Self::Part(part) => source.addr().to_string().contains(part),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Part(part) => f.write_str(part),
        }
    }
}

/// Which sources are wanted, and which of them first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Only these.
    pub within: Option<Filter>,
    /// Which come first.
    pub order: Order,
    /// How many.
    pub most: usize,
    /// A look sooner than this after another has the rates of that.
    pub apart: Duration,
}

/// Which sources come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those with the most packets dropped per second.
    #[default]
    DropRate,
    /// Those with the most packets passed per second.
    PassRate,
    /// Those with the most bytes, passed and dropped.
    Bytes,
    /// Those with the most packets, passed and dropped.
    Packets,
    /// Those with the lowest address.
    Address,
    /// Those with the most packets dropped.
    Dropped,
    /// Those with the most packets passed.
    Passed,
    /// Those with the most packets per second, passed and dropped.
    Rate,
}

impl Order {
    /// Those of the live screen.
    pub const LIVE: [Self; 5] =
        [Self::DropRate, Self::PassRate, Self::Bytes, Self::Packets, Self::Address];
}

/// A source that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// The source and its counts.
    pub talker: Talker,
    /// Packets per second since the look before, passed and dropped; nothing at the first look.
    pub rates: Option<[f32; 2]>,
}

/// What a look over all sources found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Those that were wanted, in that order.
    pub sources: Vec<Sighting>,
    /// How many there are of those that were wanted, shown or not.
    pub matching: u64,
    /// How many there are at all.
    pub occupancy: Occupancy,
}

/// What is remembered of a look over all sources, to tell at the next how fast each has been since: 48 bytes
/// of each, so that one counts too that was far from the first before.
#[derive(Debug, Default)]
pub struct Survey {
    taken: Option<Instant>,
    seen: Vec<Seen>,
    times: Times,
}

/// Entries that count as read at the same time: to look at the clock for each would take as long again.
const AT_ONCE: usize = 1 << 12;

/// When entries were read at the last look: one takes so long that those at its end are read at other
/// distances from its beginning each time.
#[derive(Debug, Default)]
struct Times(Vec<Option<Instant>>);

/// An entry of the table at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    address: Address,
    passed: u64,
    dropped: u64,
    rates: Option<[f32; 2]>,
}

/// What makes a source come before others, then its counts and rates, the bits of those.
type Candidate = (([u64; 3], Reverse<Address>), [Tally; 2], Option<[u32; 2]>);

impl Survey {
    /// Looks over all sources.
    ///
    /// # Errors
    /// What the system says, or why the policy cannot be read.
    pub fn look(&mut self, maps: &Maps, search: &Search) -> Result<Findings> {
        let capacity = u64::from(maps.source_capacity()?);
        let policy = &maps.in_force()?.policy;
        let lengths = policy.key_prefix;
        let within = search.within.clone().map(|filter| match filter {
            Filter::Prefix(prefix) => Filter::Prefix(policy.widened(prefix)),
            part @ Filter::Part(_) => part,
        });
        let now = Instant::now();
        let since = self.taken.map(|taken| now.saturating_duration_since(taken));
        let measuring = since.is_none_or(|since| since >= search.apart.max(SHORTEST));
        let mut found = Findings::default();
        // The least of the best so far is on top.
        let mut best: BinaryHeap<Reverse<Candidate>> =
            BinaryHeap::with_capacity(search.most.min(1 << 16) + 1);
        let outstanding = maps.outstanding()?;
        let Self { seen: all, times, taken } = self;
        // The entries that are being read, and for how long they count.
        let mut part = (usize::MAX, since);
        maps.each_source(|entry, source| {
            found.occupancy.tracked += 1;
            let mut source = *source;
            if let Some(outstanding) = outstanding.get(&source.address) {
                outstanding.add_to(&mut source);
            }
            if all.len() <= entry {
                all.resize(entry + 1, Seen::default());
            }
            let seen = &mut all[entry];
            if measuring {
                if part.0 != entry / AT_ONCE {
                    part = (entry / AT_ONCE, times.again(entry, Instant::now(), *taken));
                }
                let counts = [source.passed.packets, source.dropped.packets];
                *seen = seen.again(source.address, counts, part.1);
            }
            let rates = seen.rates.filter(|_| seen.address == source.address);
            if let Some(within) = &within
                && !IpAddr::try_from(source.address).is_ok_and(|it| within.includes(it.into()))
            {
                return;
            }
            found.matching += 1;
            let counts = [source.passed, source.dropped];
            let rank = (rank(search.order, source.address, counts, rates), Reverse(source.address));
            if best.len() < search.most
                || best.peek().is_some_and(|Reverse((least, ..))| *least < rank)
            {
                best.push(Reverse((rank, counts, rates.map(|it| it.map(f32::to_bits)))));
                if best.len() > search.most {
                    best.pop();
                }
            }
        })?;
        if measuring {
            self.taken = Some(now);
        }
        let sources = best.into_sorted_vec().into_iter().filter_map(|Reverse(it)| {
            let ((_, Reverse(address)), [passed, dropped], rates) = it;
            let address = IpAddr::try_from(address).ok()?;
            let prefix = if address.is_ipv4() { lengths.ipv4 } else { lengths.ipv6 };
            let talker = Talker { address, prefix, passed, dropped };
            Some(Sighting { talker, rates: rates.map(|it| it.map(f32::from_bits)) })
        });
        found.sources = sources.collect();
        found.occupancy.capacity = capacity;
        Ok(found)
    }
}

impl Times {
    /// How long ago these were read, as an entry is now; the whole look was `taken` before.
    fn again(&mut self, entry: usize, now: Instant, taken: Option<Instant>) -> Option<Duration> {
        let part = entry / AT_ONCE;
        if self.0.len() <= part {
            self.0.resize(part + 1, None);
        }
        // Where there was none at that look, what is there now came since.
        let before = self.0[part].replace(now).max(taken)?;
        Some(now.saturating_duration_since(before).max(SHORTEST))
    }
}

impl Seen {
    /// The entry as it is now, `since` the look before.
    fn again(&self, address: Address, counts: [u64; 2], since: Option<Duration>) -> Self {
        let [passed, dropped] = counts;
        // Whoever had the entry before, what is counted in it now happened since.
        let before = if self.address == address { [self.passed, self.dropped] } else { [0, 0] };
        let rates = since
            .map(|since| [0, 1].map(|side| rate(counts[side].saturating_sub(before[side]), since)));
        Self { address, passed, dropped, rates }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display, and to compare")]
fn rate(packets: u64, time: Duration) -> f32 {
    packets as f32 / time.as_secs_f32()
}

/// What makes a source come before those with less of it.
pub(crate) fn rank(
    order: Order,
    address: Address,
    [passed, dropped]: [Tally; 2],
    rates: Option<[f32; 2]>,
) -> [u64; 3] {
    // Those of numbers that are not negative are in their order.
    let [pass_rate, drop_rate] = rates.unwrap_or_default().map(|rate| u64::from(rate.to_bits()));
    match order {
        Order::DropRate => [drop_rate, dropped.packets, passed.packets],
        Order::PassRate => [pass_rate, passed.packets, dropped.packets],
        Order::Dropped => [dropped.packets, passed.packets, 0],
        Order::Passed => [passed.packets, dropped.packets, 0],
        Order::Rate => {
            let sum = rates.map_or(0.0, |[passed, dropped]| passed + dropped);
            [u64::from(sum.to_bits()), drop_rate, dropped.packets]
        }
        Order::Bytes => [passed.bytes.saturating_add(dropped.bytes), dropped.bytes, 0],
        Order::Packets => [passed.packets.saturating_add(dropped.packets), dropped.packets, 0],
        Order::Address => {
            let [high, low] = match IpAddr::try_from(address) {
                Ok(IpAddr::V4(it)) => [0, u64::from(it.to_bits())],
                Ok(IpAddr::V6(it)) => {
                    let bits = it.to_bits();
                    [(bits >> 64) as u64, bits as u64]
                }
                Err(_) => [u64::MAX; 2],
            };
            [u64::from(address.family != Address::IPV6), !high, !low]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(text: &str) -> Address {
        Address::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn rates_are_of_the_same_source_and_never_negative() {
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(address);
        let first = Seen::default().again(one, [1_000, 10], None);
        assert_eq!(first.rates, None);
        let then = first.again(one, [1_500, 10], Some(SECOND / 2));
        assert_eq!(then.rates, Some([1_000.0, 0.0]));
        // The entry changed hands: what the newcomer did, it did since.
        let new = then.again(other, [20, 40], Some(SECOND * 2));
        assert_eq!(new.rates, Some([10.0, 20.0]));
        assert_eq!(new.again(other, [20, 39], Some(SECOND)).rates, Some([0.0, 0.0]));
    }

    #[test]
    fn what_is_read_late_in_a_long_look_counts_from_when_it_was_read_before() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let since = |milliseconds| Some(Duration::from_millis(milliseconds));
        let mut times = Times::default();
        let (first, last) = (0, 250 * AT_ONCE);
        assert_eq!([times.again(first, at(0), None), times.again(last, at(600), None)], [None; 2]);
        let taken = Some(at(0));
        assert_eq!(times.again(first, at(2_000), taken), since(2_000));
        assert_eq!(times.again(last + AT_ONCE - 1, at(2_100), taken), since(1_500));
        // Nobody was there before.
        assert_eq!(times.again(last + AT_ONCE, at(2_100), taken), since(2_100));
    }

    #[test]
    fn each_order_has_another_first() {
        let tally = |packets, length| Tally { packets, bytes: packets * length };
        let sources = [
            ("203.0.113.1", tally(5, 60), tally(900, 60), [0.0, 1.0]),
            ("203.0.113.2", tally(2_000, 60), tally(0, 60), [0.0, 0.0]),
            ("203.0.113.3", tally(200, 1_500), tally(0, 60), [1.0, 0.0]),
            ("203.0.113.4", tally(1, 60), tally(3, 60), [0.5, 3.0]),
            ("10.0.0.9", tally(1, 60), tally(0, 60), [0.0, 0.0]),
        ];
        let first = |order| {
            let key = |&(it, passed, dropped, rates): &(&str, Tally, Tally, _)| {
                rank(order, address(it), [passed, dropped], Some(rates))
            };
            sources.iter().max_by_key(|it| key(it)).unwrap().0
        };
        assert_eq!(
            Order::LIVE.map(first),
            ["203.0.113.4", "203.0.113.3", "203.0.113.3", "203.0.113.2", "10.0.0.9"]
        );
        assert_eq!(
            [Order::Dropped, Order::Passed, Order::Rate].map(first),
            ["203.0.113.1", "203.0.113.2", "203.0.113.4"]
        );
        let six = rank(Order::Address, address("2001:db8::1"), [Tally::default(); 2], None);
        let four = rank(Order::Address, address("255.0.0.1"), [Tally::default(); 2], None);
        assert!(four > six);
    }
}
