//! What a limit admits to a source, and how much of it is used.

use limiter_common::{
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

/// Bytes of a full Ethernet frame without its checksum: the example packet where a limit counts
/// bytes.
const FRAME: u64 = 1514;

/// A limit, for one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReport {
    /// The name of the limit, of a layer, or of a candidate.
    pub name: String,
    /// The key, as a policy writes it.
    pub key: String,
    /// The unit that the limit counts.
    pub count: Count,
    /// The mode: a word of the policy, or `candidate`.
    pub mode: &'static str,
    /// What the limit admits; `None` for everything.
    pub allowance: Option<Allowance>,
    /// The sources that this setting is for.
    pub origin: Origin,
    /// How much is used.
    pub kept: Kept,
}

/// How much of a limit a source has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The limit has one state for the source. `None` if its algorithm has no fill.
    One(Option<Fill>),
    /// The limit has several states for the source, as its key has more than the source tells.
    Many,
    /// The limit does not apply to the source, or its state was not read.
    None,
}

impl LimitReport {
    /// A limit whose state was not read.
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

    /// A limit with `mode: off`.
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

    /// How much is used, if the limit has one state for the source.
    pub const fn fill(&self) -> Option<&Fill> {
        match &self.kept {
            Kept::One(fill) => fill.as_ref(),
            Kept::Many | Kept::None => None,
        }
    }
}

/// The cost of an example packet: a full frame without a cost class of its own.
pub(super) fn usual_cost(limit: &Limit) -> u64 {
    limit.cost(CostClass(CostClass::OTHER), FRAME)
}

/// Returns how much of a limit a source has used. `known` has the parts of keys whose values in
/// `packet` and `slot` are valid: constants of [`Key`], or-ed. A key with other parts gives
/// [`Kept::Many`].
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

/// The fill of a keyed limit for one key, under meter `number`. A key without state is full.
fn keyed(
    tables: &Tables<'_>,
    limit: &Limit,
    (key, number): (&BucketKey, u32),
    now: u64,
) -> Result<Option<Fill>> {
    let meter = tables.meter(number)?;
    if meter.is_wide() {
        return Ok(Some(wide::Copy::read(tables, key)?.fill(&meter, now)));
    }
    let state = State::keyed(tables, key, number, now)?;
    let state = state.unwrap_or_else(|| State::fresh(meter, now));
    Ok(Fill::of(&state, now, usual_cost(limit)))
}

impl Inquiry<'_> {
    /// Returns the fill of each limit that has one state for all packets, with its name.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with
    /// [`InquiryError::Changing`](crate::query::InquiryError::Changing) if the policy changed
    /// during every attempt.
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

/// The fill of a limit that has one state for all packets; `None` for any other limit.
pub(super) fn fill_of_all(tables: &Tables<'_>, limit: &Limit, now: u64) -> Result<Option<Fill>> {
    if limit.key != Key::ALL || SourceState::place_of(tables, limit).is_some() {
        return Ok(None);
    }
    let mut key = BucketKey::default();
    key.fill(limit, &Packet::UNREADABLE, 0, 0);
    keyed(tables, limit, (&key, limit.meter), now)
}

/// The parts of keys that follow from the source alone.
pub(super) const OF_SOURCE: u32 = Key::SOURCE | Key::TENANT;
