//! Wide states (logs and lists of open connections), as a packet would find them. No state is ever
//! written.

use limiter_common::{
    abi::state::WideState,
    algorithm::{
        concurrent::{Concurrent, Signal, Table},
        kind::WideKind,
        meter::Meter,
        policer::Refusal,
        sliding_log::Log,
    },
    base::{seed::Seed, slots::Slots, word::Word},
    packet::headers::Packet,
    policy::limit::BucketKey,
};

use super::{fill::Fill, tables::Tables};
use crate::{datapath::buckets::WideBucket, error::Result};

/// A wide state that was read. A store to it has no effect.
pub(super) struct Copy {
    control: u64,
    state: WideState,
    seed: Seed,
}

impl Copy {
    /// Wraps a wide state that was read.
    pub(super) const fn of(tables: &Tables<'_>, WideBucket { bucket, state }: WideBucket) -> Self {
        Self { control: bucket.word, state, seed: tables.settings.seed }
    }

    /// Reads the wide state of a key; an empty one if the key has none yet.
    pub(super) fn read(tables: &Tables<'_>, key: &BucketKey) -> Result<Self> {
        Ok(Self::of(tables, tables.maps.wide_bucket(key)?.unwrap_or_default()))
    }

    /// Checks a packet against the limit with this meter. Returns why it is refused, if it is.
    pub(super) fn look(
        &self,
        meter: &Meter,
        packet: &Packet,
        now: u64,
    ) -> std::result::Result<(), Refusal> {
        match WideKind::of(meter.kind) {
            WideKind::SlidingLog => {
                return meter.sliding_log().look(&Control(self.control), self, now).map(drop);
            }
            WideKind::Concurrent => {}
        }
        if !packet.has_connection() {
            return Ok(());
        }
        let (tag, signal) = (Concurrent::tag(packet.hash(self.seed, 0)), Signal::of(packet));
        let leases = meter.concurrent();
        let looked = leases.look(self, tag, signal, now).map(drop);
        // When no slot is free, the program looks up the sockets of connections that seem closed.
        // It may then free a slot, so such a packet counts as admitted.
        let may_be_over = |slot: &u64| leases.is_due(*slot, now);
        looked.or_else(
            |refusal| {
                if self.state.slots.iter().any(may_be_over) { Ok(()) } else { Err(refusal) }
            },
        )
    }

    /// How much of the limit with this meter is used.
    pub(super) fn fill(&self, meter: &Meter, now: u64) -> Fill {
        match WideKind::of(meter.kind) {
            WideKind::SlidingLog => {
                Fill::of_log(meter.sliding_log(), &Control(self.control), self, now)
            }
            WideKind::Concurrent => {
                let leases = meter.concurrent();
                let (wait, rest) = (leases.wait(self, now), leases.rest(self, now));
                Fill::of_count(leases.limit, leases.fill(self, now), wait, rest)
            }
        }
    }
}

impl Slots for Copy {
    fn load(&self, place: usize) -> u64 {
        self.state.slots.get(place).copied().unwrap_or(0)
    }

    fn store(&self, _: usize, _: u64) {}

    fn compare_exchange(&self, place: usize, _: u64, _: u64) -> u64 {
        self.load(place)
    }
}

impl Log for Copy {}

impl Table for Copy {}

/// The control word of a log.
struct Control(u64);

impl Word for Control {
    fn load(&self) -> u64 {
        self.0
    }

    fn load_acquire(&self) -> u64 {
        self.0
    }

    fn compare_exchange(&self, _: u64, _: u64) -> u64 {
        self.0
    }
}
