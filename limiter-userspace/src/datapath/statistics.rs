//! Reading what the datapath did.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::IpAddr,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use limiter_common::{
    abi::{
        counters::{Counters, LimitTally, TableStats},
        layout::{map, table_stats},
        table::Source,
    },
    base::{address::Address, tally::Tally},
    memory::cache::Cached,
    packet::reason::Reason,
};

use super::{
    instance::Attached,
    main_program,
    maps::Maps,
    object::object,
    snapshot::{InterfaceStatistics, LimitStatistics, Snapshot, Talker},
    survey::{Order, rank},
    sys,
};
use crate::{
    error::{Error, Result},
    output::status::Occupancy,
    policy::tallies,
};

/// What was counted of a source by CPUs, and not in its entry yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// What passed.
    pub passed: Tally,
    /// What was dropped.
    pub dropped: Tally,
}

impl Outstanding {
    fn add(&mut self, cached: &Cached) {
        add(&mut self.passed, cached.passed.tally());
        add(&mut self.dropped, cached.dropped.tally());
    }

    /// Adds it to what the entry of the source says.
    pub fn add_to(&self, source: &mut Source) {
        add(&mut source.passed, self.passed);
        add(&mut source.dropped, self.dropped);
    }
}

impl Maps {
    /// The statistics of these interfaces.
    ///
    /// # Errors
    /// What the system says.
    pub fn snapshot(&self, attached: &[Attached]) -> Result<Snapshot> {
        let mut total = Counters::default();
        let mut interfaces = Vec::with_capacity(attached.len());
        for interface in attached {
            let counters = self.counters(interface.slot)?;
            let (mut passed, mut dropped) = (Tally::default(), Tally::default());
            for reason in Reason::ALL {
                let tally = counters.reasons[reason.index()];
                add(if reason.drops() { &mut dropped } else { &mut passed }, tally);
            }
            accumulate(&mut total, &counters);
            interfaces.push(InterfaceStatistics {
                link: interface.link,
                name: interface.name.clone(),
                mode: interface.mode,
                present: interface.present,
                exists: interface.exists,
                // One that is detached at this moment cannot be looked at. The counters tell of packets all the same.
                unloaded: interface.exists
                    && main_program::is_missing(&self.pins, interface.slot).unwrap_or(false),
                passed,
                dropped,
            });
        }
        Ok(Snapshot {
            taken: Instant::now(),
            monitoring: self.monitoring()?,
            interfaces,
            reasons: total.reasons,
            limits: self.limits()?,
        })
    }

    /// What each limit did, with the built-in ones that are not set.
    fn limits(&self) -> Result<Vec<LimitStatistics>> {
        let in_force = self.in_force()?;
        let tallied = tallies(&in_force.policy, &in_force.held)?;
        let mut limits = Vec::new();
        for name in in_force.policy.listed_names() {
            let before = limits.len();
            for tallied in tallied.iter().filter(|tallied| tallied.limit == name) {
                let tally = self.tally(tallied.place)?;
                limits.push(LimitStatistics { name: tallied.name.clone(), tally });
            }
            if limits.len() == before {
                limits.push(LimitStatistics { name, tally: LimitTally::default() });
            }
        }
        Ok(limits)
    }

    /// A tally, over all CPUs.
    pub(crate) fn tally(&self, place: u32) -> Result<LimitTally> {
        let per_cpu =
            self.tallies.get(&place, 0).map_err(|error| object("read the tallies", &error))?;
        let mut sum = LimitTally::default();
        for tally in per_cpu.iter() {
            add(&mut sum.conform, tally.conform);
            add(&mut sum.exceed, tally.exceed);
            add(&mut sum.monitored, tally.monitored);
            add(&mut sum.near, tally.near);
        }
        Ok(sum)
    }

    /// The counters of a slot, over all CPUs.
    pub(crate) fn counters(&self, slot: u32) -> Result<Counters> {
        let per_cpu =
            self.counters.get(&slot, 0).map_err(|error| object("read the counters", &error))?;
        let unloaded =
            self.unloaded.get(&slot, 0).map_err(|error| object("read the counters", &error))?;
        let mut sum = Counters::default();
        for (decided, unloaded) in per_cpu.iter().zip(unloaded.iter()) {
            sum.add(decided, *unloaded);
        }
        Ok(sum)
    }

    /// The `most` sources that had most dropped, or passed among those with none, and how many
    /// sources there are.
    ///
    /// # Errors
    /// What the system says, or why the policy cannot be read.
    pub fn talkers(&self, most: usize) -> Result<(Vec<Talker>, Occupancy)> {
        self.ranked(Order::Dropped, most)
    }

    /// The `most` sources that come first in an order, and how many sources there are. Nothing is
    /// known of rates.
    ///
    /// # Errors
    /// What the system says, or why the policy cannot be read.
    pub fn ranked(&self, order: Order, most: usize) -> Result<(Vec<Talker>, Occupancy)> {
        let capacity = u64::from(self.source_capacity()?);
        if most == 0 {
            return Ok((Vec::new(), Occupancy { tracked: self.tracked()?, capacity }));
        }
        let prefix = self.in_force()?.policy.key_prefix;
        let outstanding = self.outstanding()?;
        let mut tracked = 0;
        // The least of the best so far is on top.
        let mut best = BinaryHeap::with_capacity(most.min(1 << 16) + 1);
        self.each_source(|_, source| {
            tracked += 1;
            let mut source = *source;
            if let Some(outstanding) = outstanding.get(&source.address) {
                outstanding.add_to(&mut source);
            }
            let counts = [source.passed, source.dropped];
            let rank = (rank(order, source.address, counts, None), Reverse(source.address));
            if best.len() < most || best.peek().is_some_and(|Reverse((least, _))| *least < rank) {
                best.push(Reverse((rank, counts)));
                if best.len() > most {
                    best.pop();
                }
            }
        })?;
        let talkers =
            best.into_sorted_vec().into_iter().filter_map(|Reverse((rank, [passed, dropped]))| {
                let (_, Reverse(address)) = rank;
                let address = IpAddr::try_from(address).ok()?;
                let prefix = if address.is_ipv4() { prefix.ipv4 } else { prefix.ipv6 };
                Some(Talker { address, prefix, passed, dropped })
            });
        Ok((talkers.collect(), Occupancy { tracked, capacity }))
    }

    /// What passed and was dropped of sources and is not in the totals of their entries yet, because CPUs decide about
    /// them without looking for those.
    ///
    /// Read before the entries, it may be in both; after them, in neither, for the moment in between.
    ///
    /// # Errors
    /// What the system says.
    pub fn outstanding(&self) -> Result<HashMap<Address, Outstanding>> {
        let mut outstanding: HashMap<_, Outstanding> = HashMap::new();
        let some = u32::from(Cached::SPREAD);
        for first in (0..Cached::SLOTS).step_by(some as usize) {
            let cached = self.cache(first..first + some)?;
            for cached in cached.iter().filter(|cached| cached.is_untold()) {
                outstanding.entry(cached.source).or_default().add(cached);
            }
        }
        Ok(outstanding)
    }

    /// The same of one source.
    ///
    /// # Errors
    /// What the system says.
    pub fn outstanding_of(&self, source: &Address) -> Result<Outstanding> {
        let mut outstanding = Outstanding::default();
        for cached in self.cached(source)? {
            outstanding.add(&cached);
        }
        Ok(outstanding)
    }

    /// Who came into the table of sources and who had to go since the instance was made, over all CPUs.
    ///
    /// # Errors
    /// What the system says.
    pub fn table_stats(&self) -> Result<TableStats> {
        self.table_stats_of(table_stats::SOURCES)
    }

    /// The same of the table of buckets.
    ///
    /// # Errors
    /// What the system says.
    pub fn bucket_table_stats(&self) -> Result<TableStats> {
        self.table_stats_of(table_stats::BUCKETS)
    }

    /// The same of the table of offences. `untracked` are refusals that counted towards no block, as all records of their set
    /// were of sources that are blocked.
    ///
    /// # Errors
    /// What the system says.
    pub fn offence_table_stats(&self) -> Result<TableStats> {
        self.table_stats_of(table_stats::OFFENCES)
    }

    fn table_stats_of(&self, of: u32) -> Result<TableStats> {
        let per_cpu =
            self.table_stats.get(&of, 0).map_err(|error| object("read the turnover", &error))?;
        Ok(per_cpu.iter().fold(TableStats::default(), |sum, more| TableStats {
            inserted: sum.inserted.wrapping_add(more.inserted),
            untracked: sum.untracked.wrapping_add(more.untracked),
            evicted_idle: sum.evicted_idle.wrapping_add(more.evicted_idle),
            evicted_owing: sum.evicted_owing.wrapping_add(more.evicted_owing),
        }))
    }

    /// The longest time by which a tick of the kernel was late since the instance was made or its tables were exchanged, as far
    /// as packets tell. Limits that go by ticks admitted what their rates bring in that time besides.
    ///
    /// # Errors
    /// What the system says.
    pub fn tick_lag(&self) -> Result<Duration> {
        let lag = sys::lookup::<u32, u64>(self.raw(map::TICK_LAG)?.fd().as_fd(), &0)
            .map_err(|error| Error::system("read the lag of the ticks", error))?;
        Ok(Duration::from_nanos(lag.unwrap_or_default()))
    }

    /// How many states there are that are kept by other keys than the source.
    ///
    /// # Errors
    /// What the system says.
    pub fn buckets(&self) -> Result<Occupancy> {
        let mut tracked = 0;
        self.each_bucket(|_| tracked += 1)?;
        Ok(Occupancy { tracked, capacity: self.sizes()?.buckets.into() })
    }
}

pub(crate) fn accumulate(sum: &mut Counters, counters: &Counters) {
    for (sum, tally) in sum.reasons.iter_mut().zip(counters.reasons) {
        add(sum, tally);
    }
}

const fn add(sum: &mut Tally, tally: Tally) {
    *sum = sum.plus(tally);
}
