//! The rows of a policy: each layer and each candidate of a limit, in the order in which they are asked.

use std::collections::BTreeMap;

use limiter_common::{
    abi::table::WAYS,
    algorithm::{gcra::Gcra, kind::Kind, meter::Meter, rate::Rate},
    base::address::Mask,
    policy::{
        limit::{COLUMNS, CostClass, INLINE, Key as Parts, LIMITS, Limit as Compiled},
        penalty::Penalty,
    },
};

use super::{
    super::{
        error::PolicyError,
        model::{
            self, Allowance, Costs, Count, Key, KeyPart, KeyPrefix, Limit, Mode, Override,
            OverrideWhom, PacketKind, Policy,
        },
    },
    meters::Meters,
};
use crate::policy::tables::assignment::{Assignment, Identity};

/// The rows of a policy, in the order of their bits.
pub(super) struct Rows<'a> {
    rows: Vec<Row<'a>>,
}

/// A layer or the candidate of a limit.
pub(super) struct Row<'a> {
    pub(super) limit: &'a Limit,
    /// The index of the layer; 0 for a candidate.
    pub(super) layer: usize,
    pub(super) candidate: bool,
    pub(super) key: &'a Key,
    /// The allowance for sources without an override; `None` for everything.
    pub(super) allowance: Option<Allowance>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(policy: &'a Policy) -> Result<Self, PolicyError> {
        let mut rows = Vec::new();
        for limit in policy.limits.iter().filter(|limit| limit.mode != Mode::Off) {
            if limit.mode == Mode::Drop {
                let key = &limit.key;
                rows.push(Row { limit, layer: 0, candidate: false, key, allowance: None });
                continue;
            }
            let shape = limit.overrides.iter().find_map(|it| Some(it.layers.as_ref()?.len()));
            let layers = limit.layers.len().max(shape.unwrap_or(0));
            for layer in 0..layers {
                let own = limit.layers.get(layer);
                let key = own.and_then(|own| own.key.as_ref()).unwrap_or(&limit.key);
                let allowance = own.map(|own| own.allowance);
                rows.push(Row { limit, layer, candidate: false, key, allowance });
            }
            if limit.candidate.is_some() {
                let (key, allowance) = (&limit.key, limit.candidate);
                rows.push(Row { limit, layer: 0, candidate: true, key, allowance });
            }
            for entry in &limit.overrides {
                let fits = entry.layers.as_ref().is_none_or(|own| own.len() == layers);
                if !fits {
                    let (limit, whom) = (limit.name.clone(), entry.whom.to_string());
                    return Err(PolicyError::OverrideShape { limit, whom });
                }
            }
        }
        if rows.len() > LIMITS as usize {
            return Err(PolicyError::TooManyLimits { needed: rows.len() });
        }
        // Limits of the source come before narrower ones where all only refuse: the entry of the source alone tells then that a
        // packet is dropped.
        let of_source = width_of_prefix(policy.key_prefix);
        let is_plain = rows
            .iter()
            .map(|row| (row, width(row.key, policy.key_prefix)))
            .filter(|(row, width)| !row.drops() && *width <= of_source)
            .all(|(row, width)| row.only_refuses() && (width < of_source || row.identity().inline));
        // A candidate is evaluated before its limit, and so counts packets that the limit refuses. What drops everything is
        // evaluated before all others, as it takes no state.
        rows.sort_by_key(|row| {
            let conditions = std::cmp::Reverse(row.limit.conditions());
            let width = width(row.key, policy.key_prefix);
            let is_later = is_plain && width < of_source;
            let asked = if is_later { of_source } else { width };
            (!row.drops(), asked, is_later, width, conditions, !row.candidate)
        });
        Ok(Self { rows })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Row<'a>> {
        self.rows.iter()
    }

    pub(super) fn identity(&self, at: usize) -> Identity {
        self.rows[at].identity()
    }

    pub(super) fn is_enforced(&self, at: usize) -> bool {
        let row = &self.rows[at];
        row.limit.mode.drops() && !row.candidate
    }

    /// Whether the row drops all that it is about, and blocks nobody for that.
    pub(super) fn drops_at_once(&self, at: usize) -> bool {
        self.rows[at].drops_at_once()
    }

    /// The penalty of a limit, which all of its layers share.
    fn penalty(limit: &Limit, held: &Assignment) -> Penalty {
        let compiled = |penalty: &model::Penalty| penalty.compiled(held.penalty(&limit.name));
        limit.penalty.as_ref().map(compiled).unwrap_or_default()
    }

    /// The limits with the limit ids of their layers.
    pub(super) fn limit_ids(&self, held: &Assignment) -> BTreeMap<&'a String, Vec<u32>> {
        let mut limits = BTreeMap::<_, Vec<u32>>::new();
        for row in self.rows.iter().filter(|row| !row.candidate) {
            let limit_id = held.get(&row.identity()).map(|place| place.limit_id);
            limits.entry(&row.limit.name).or_default().extend(limit_id);
        }
        limits
    }

    /// Whether the row counts new connections.
    pub(super) fn counts_connections(&self, at: usize) -> bool {
        self.rows[at].counts_connections()
    }

    /// The rows as the datapath reads them.
    pub(super) fn compile(
        &self,
        policy: &Policy,
        held: &Assignment,
        meters: &mut Meters,
    ) -> Result<Vec<Compiled>, PolicyError> {
        let mut columns = INLINE..COLUMNS;
        let mut compiled = Vec::with_capacity(self.rows.len());
        for (at, row) in self.rows.iter().enumerate() {
            let Some(place) = held.get(&row.identity()) else { continue };
            let override_column = match place.word {
                Some(word) => word,
                None if row.drops() || row.overrides().next().is_none() => COLUMNS,
                None => columns
                    .next()
                    .ok_or_else(|| PolicyError::TooManyColumns { limit: row.limit.name.clone() })?,
            };
            let meter = match row.allowance {
                _ if row.drops() => meters.number(CLOSED)?,
                Some(allowance) => meters.number(row.meter(allowance)?)?,
                None => 0,
            };
            let shared_meter = match row.allowance.or_else(|| row.least_override()) {
                _ if row.drops() => meter,
                Some(allowance) => meters.number(row.shared_meter(allowance)?)?,
                None => 0,
            };
            let (key, mask) = parts(row.key, policy.key_prefix);
            compiled.push(Compiled {
                bit: 1 << at,
                costs: if row.drops() { [1; CostClass::COUNT] } else { costs(&row.limit.count) },
                mask,
                key,
                limit_id: place.limit_id,
                tally: place.tally,
                meter,
                shared_meter,
                unused: 0,
                override_column: override_column as u32,
                bytes: u32::from(row.limit.count == Count::Bytes && !row.drops()),
                kind: row.kind().number() as u32,
                penalty: if row.candidate {
                    Penalty::default()
                } else {
                    Self::penalty(row.limit, held)
                },
            });
        }
        Ok(compiled)
    }
}

/// The meter of a row that drops everything.
const CLOSED: Meter = Meter::bucket(Gcra::CLOSED);

impl<'a> Row<'a> {
    /// Whether it drops what it refuses, and nothing else comes of that.
    fn only_refuses(&self) -> bool {
        let limit = self.limit;
        limit.mode.drops() && limit.penalty.is_none() && limit.candidate.is_none()
    }

    /// Whether the row drops all that it is about.
    pub(super) fn drops(&self) -> bool {
        self.limit.mode == Mode::Drop
    }

    /// Whether it does, and blocks nobody for that: it needs no state then.
    pub(super) fn drops_at_once(&self) -> bool {
        self.drops() && self.limit.penalty.is_none()
    }

    /// The identity of the row over policies. A row with another key, kind of algorithm or unit is another
    /// one, and begins anew.
    pub(super) fn identity(&self) -> Identity {
        let Limit { name, count, .. } = self.limit;
        let what = if self.candidate { "/candidate" } else { "" };
        let algorithm = match self.example() {
            // It has no state that another mode of the limit could go on with.
            _ if self.drops() => "drop",
            Some(allowance) if allowance.is_bucket() => "bucket",
            Some(allowance) => allowance.algorithm(),
            None => "bucket",
        };
        let count = match count {
            Count::Bytes => "bytes",
            Count::Packets | Count::Connections | Count::Syns | Count::Weighted(_) => "packets",
        };
        let key: Vec<String> = self.key.parts.iter().map(|part| format!("{part:?}")).collect();
        Identity {
            name: format!("{name}{what}/{}/{algorithm}/{count}", key.join("+")),
            layer: self.layer,
            allowance: self.allowance,
            by_tenant: self.key.parts.contains(&KeyPart::Tenant),
            conditions: self.limit.conditions(),
            inline: self.key.parts == [KeyPart::Source] && algorithm == "bucket",
        }
    }

    /// The meter of an allowance of this row.
    pub(super) fn meter(&self, allowance: Allowance) -> Result<Meter, PolicyError> {
        if self.drops() {
            return Ok(CLOSED);
        }
        let bytes = self.limit.count == Count::Bytes;
        let meter = allowance.meter(self.dearest()).map_err(|error| error.counting_bytes(bytes))?;
        Ok(if self.limit.precise { meter.precise() } else { meter })
    }

    /// The meter of the row's shared bucket, which admits [`shared`](Limit::shared) [times](Allowance::times)
    /// as much; by default as what shares it may be that many keys.
    fn shared_meter(&self, allowance: Allowance) -> Result<Meter, PolicyError> {
        let keys = if self.key.parts.is_empty() { 1 } else { WAYS as u32 };
        allowance.shared_meter(self.limit.shared.unwrap_or(keys), |allowance| self.meter(allowance))
    }

    /// The kind of the row's meters.
    fn kind(&self) -> Kind {
        self.example().map_or(Kind::Bucket, Allowance::kind)
    }

    /// The allowance of the slowest override; `None` if no override has one.
    fn least_override(&self) -> Option<Allowance> {
        let rate = |allowance: &Allowance| {
            let Rate { packets, period } = allowance.bucket().rate;
            packets as f64 / period as f64
        };
        let allowances = self.overrides().filter_map(|(_, allowance)| allowance);
        allowances.min_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    /// Whether the row counts new connections.
    pub(super) fn counts_connections(&self) -> bool {
        self.limit.count == Count::Connections && !self.is_of_connections() && !self.drops()
    }

    /// Whether a sender can use only few keys: it cannot make up tenants or interfaces.
    pub(super) fn has_few_keys(&self) -> bool {
        self.key.parts.iter().all(|part| matches!(part, KeyPart::Tenant | KeyPart::Interface))
    }

    /// Whether the state is wider than a word.
    pub(super) fn is_wide(&self) -> bool {
        Kind::is_wide(self.kind().number())
    }

    /// Whether the row counts open connections, so that only TCP is matched.
    pub(super) fn is_of_connections(&self) -> bool {
        matches!(self.example(), Some(Allowance::Concurrent { .. }))
    }

    /// Any allowance of the row: all have the same algorithm. `None` for one that drops everything.
    fn example(&self) -> Option<Allowance> {
        if self.drops() {
            return None;
        }
        self.allowance.or_else(|| self.overrides().find_map(|(_, allowance)| allowance))
    }

    /// The overrides with their allowances in this layer; `None` for unlimited. A candidate has none.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&'a OverrideWhom, Option<Allowance>)> {
        let (layer, none) = (self.layer, self.candidate);
        let of = move |entry: &'a Override| {
            let allowance = entry.layers.as_ref().and_then(|layers| layers.get(layer).copied());
            (&entry.whom, allowance)
        };
        self.limit.overrides.iter().filter(move |_| !none).map(of)
    }

    /// The largest cost of a packet.
    pub(super) fn dearest(&self) -> u64 {
        match &self.limit.count {
            Count::Bytes => Compiled::LONGEST,
            count => u64::from(costs(count).into_iter().max().unwrap_or(1)),
        }
    }

    /// The display name of the row.
    pub(super) fn name(&self) -> String {
        if self.candidate {
            self.limit.name_of_candidate()
        } else {
            self.limit.name_of_layer(self.layer)
        }
    }
}

/// The width of a key.
fn width(key: &Key, prefix: KeyPrefix) -> u32 {
    let wide = |part: &KeyPart| match part {
        KeyPart::Connection => 0,
        KeyPart::Source => width_of_prefix(prefix),
        KeyPart::SourcePrefix { ipv4, ipv6 } => {
            width_of_prefix(KeyPrefix { ipv4: *ipv4, ipv6: *ipv6 })
        }
        KeyPart::Tenant => WIDTH_OF_TENANT,
        KeyPart::Destination => 400,
        KeyPart::DestinationPort => 500,
        KeyPart::Interface => 600,
    };
    width_of_parts(key.parts.iter().map(wide))
}

/// The width of a key with these parts. A pair is somewhat narrower than its narrowest part.
pub(crate) fn width_of_parts(parts: impl ExactSizeIterator<Item = u32>) -> u32 {
    let is_single = parts.len() == 1;
    match parts.min() {
        Some(narrowest) if is_single => narrowest,
        Some(narrowest) => narrowest.saturating_sub(50),
        None => 1000,
    }
}

/// The width of sources with these prefix lengths: /128 is narrower than /64, which is narrower than /0.
pub(crate) fn width_of_prefix(prefix: KeyPrefix) -> u32 {
    let [ipv4, ipv6] = [prefix.ipv4, prefix.ipv6].map(u32::from);
    100 + (32 - ipv4.min(32)) + (128 - ipv6.min(128))
}

/// The width of tenants.
pub(crate) const WIDTH_OF_TENANT: u32 = 300;

fn parts(key: &Key, prefix: KeyPrefix) -> (Parts, Mask) {
    let mut bits = 0;
    let mut mask = Mask::new(prefix.ipv4, prefix.ipv6);
    for part in &key.parts {
        bits |= match part {
            KeyPart::Source => Parts::SOURCE,
            KeyPart::SourcePrefix { ipv4, ipv6 } => {
                mask = Mask::new(*ipv4, *ipv6);
                Parts::SOURCE
            }
            KeyPart::Destination => Parts::DESTINATION,
            KeyPart::DestinationPort => Parts::PORT,
            KeyPart::Connection => {
                mask = Mask::new(32, 128);
                Parts::CONNECTION
            }
            KeyPart::Tenant => Parts::TENANT,
            KeyPart::Interface => Parts::INTERFACE,
        };
    }
    (Parts(bits), mask)
}

/// The cost of a packet of each [`CostClass`].
fn costs(count: &Count) -> [u32; CostClass::COUNT] {
    let Count::Weighted(Costs { default, by_kind }) = count else { return [1; CostClass::COUNT] };
    std::array::from_fn(|sort| {
        let fits = |kind: &PacketKind| {
            let transport = sort as u32 & !CostClass::FRAGMENT;
            match kind {
                PacketKind::Fragment => sort as u32 & CostClass::FRAGMENT != 0,
                PacketKind::Syn => transport == CostClass::SYN,
                PacketKind::Icmp => transport == CostClass::ICMP,
                PacketKind::Tcp => transport == CostClass::TCP || transport == CostClass::SYN,
                PacketKind::Udp => transport == CostClass::UDP,
            }
        };
        let cost = by_kind.iter().find(|(kind, _)| fits(kind)).map_or(*default, |(_, cost)| *cost);
        u32::from(cost).max(1)
    })
}

#[cfg(test)]
mod tests;
