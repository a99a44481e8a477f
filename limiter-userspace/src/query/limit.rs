//! A limit as it stands for a source.

use limiter_common::{
    algorithm::meter::Meter,
    packet::headers::Packet,
    policy::limit::{BucketKey, CostClass, Key, Limit},
};

pub use super::entries::Origin;
use super::{
    Inquiry,
    entries::Entry,
    fill::Fill,
    state::{SourceState, State},
    tables::Tables,
};
use crate::{
    error::Result,
    policy::{
        KeyPrefix,
        document::key_name,
        model::{Allowance, Count, Limit as Configured},
    },
    query::wide,
};

/// Bytes of a full frame: what a packet costs of bytes, where one is needed as an example.
const FRAME: u64 = 1514;

/// A limit, as it stands for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReport {
    /// Its name, or that of a layer of it, or of its candidate.
    pub name: String,
    /// What it is kept by.
    pub key: String,
    /// What it counts.
    pub count: Count,
    /// Whether it drops: a word of the policy, or `candidate`.
    pub mode: &'static str,
    /// What it admits; nothing for everything.
    pub allowance: Option<Allowance>,
    /// Whom that is set for.
    pub origin: Origin,
    /// What is used of it.
    pub kept: Kept,
}

/// What is known of the state of a limit for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// There is one, and so full it is; nothing for an algorithm that does not tell.
    One(Option<Fill>),
    /// There is one for each of other things that the source does not tell.
    Many,
    /// It is not about the source.
    None,
}

impl LimitReport {
    /// A limit, with no state yet.
    pub(super) fn new(
        entry: &Entry<'_>,
        setting: (Option<Allowance>, Origin),
        lengths: KeyPrefix,
    ) -> Self {
        let (allowance, origin) = setting;
        Self {
            name: entry.name.clone(),
            key: key_name(entry.key(), lengths),
            count: entry.limit.count.clone(),
            mode: entry.mode(),
            allowance,
            origin,
            kept: Kept::None,
        }
    }

    /// A limit that is off.
    pub(super) fn off(limit: &Configured, lengths: KeyPrefix) -> Self {
        Self {
            name: limit.name.clone(),
            key: key_name(&limit.key, lengths),
            count: limit.count.clone(),
            mode: "off",
            allowance: limit.layers.first().map(|layer| layer.allowance),
            origin: Origin::Default,
            kept: Kept::None,
        }
    }

    /// How full its state is, if there is one.
    pub const fn fill(&self) -> Option<&Fill> {
        match &self.kept {
            Kept::One(fill) => fill.as_ref(),
            Kept::Many | Kept::None => None,
        }
    }
}

/// What a packet costs by a limit, as an example: a full frame of no particular kind.
pub(super) fn usual_cost(limit: &Limit) -> u64 {
    limit.cost(CostClass(CostClass::OTHER), FRAME)
}

/// What is used of a limit by a source, as far as these parts of the key of its state are known; the
/// others are taken from `packet`.
pub(super) fn kept(
    tables: &Tables<'_>,
    source: &SourceState,
    limit: &Limit,
    (packet, slot, known): (&Packet, u32, u32),
    now: u64,
) -> Result<Kept> {
    let state = match SourceState::place_of(tables, limit) {
        Some(place) => source.inline(tables, place)?,
        None if limit.key.0 & !known != 0 => return Ok(Kept::Many),
        None => {
            let mut key = BucketKey::default();
            key.fill(limit, packet, source.profile.tenant, slot);
            let number = Tables::meter_of(limit, &source.profile);
            return Ok(Kept::One(keyed(tables, limit, (&key, number), now)?));
        }
    };
    Ok(Kept::One(Fill::of(&state, now, usual_cost(limit))))
}

/// How full the state of a limit by a key of its own is, under the meter of this number.
fn keyed(
    tables: &Tables<'_>,
    limit: &Limit,
    (key, number): (&BucketKey, u32),
    now: u64,
) -> Result<Option<Fill>> {
    let meter = tables.meter(number)?;
    if meter.kind >= Meter::SLIDING_LOG {
        return Ok(Some(wide::Copy::read(tables, key)?.fill(&meter, now)));
    }
    let state = State::keyed(tables, key, number, now)?;
    let state = state.unwrap_or_else(|| State::fresh(meter, now));
    Ok(Fill::of(&state, now, usual_cost(limit)))
}

impl Inquiry<'_> {
    /// How full the limits are that have one state for all packets, by their names.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`](crate::query::InquiryError::Changing).
    pub fn shared(&mut self, now: u64) -> Result<Vec<(String, Fill)>> {
        self.steadily(now, |inquiry| {
            let Inquiry { tables, entries, .. } = inquiry;
            let mut fills = Vec::new();
            for entry in entries.iter() {
                let fill = fill_of_all(tables, &tables.limit(entry.bit)?, now)?;
                fills.extend(fill.map(|fill| (entry.name.clone(), fill)));
            }
            Ok(Some(fills))
        })
    }
}

/// How full the state of a limit is that has one for all packets; nothing of another one.
pub(super) fn fill_of_all(tables: &Tables<'_>, limit: &Limit, now: u64) -> Result<Option<Fill>> {
    if limit.key != Key::ALL || SourceState::place_of(tables, limit).is_some() {
        return Ok(None);
    }
    let mut key = BucketKey::default();
    key.fill(limit, &Packet::UNREADABLE, 0, 0);
    keyed(tables, limit, (&key, limit.meter), now)
}

/// The parts of keys that a source tells by itself.
pub(super) const OF_SOURCE: u32 = Key::SOURCE | Key::TENANT;
