//! What a policy says of requests, compiled to what decides fast.

use std::collections::HashMap;

use limiter_common::{abi::table::WAYS, algorithm::kind::Kind, base::address::Address};

pub(super) use self::{
    fields::Values,
    numbers::Numbers,
    rows::Row,
    sources::Named,
    sources::{Listed, SourceProfile},
};
use self::{
    fields::{Condition, Fields},
    hash::KeyHash,
    index::{Index, LimitSet, most_at_once},
    numbers::Interner,
    overrides::Overrides,
    rows::{Draft, KeyOf, kind_of},
    sources::Sources,
};
use super::{
    request::Request,
    table::{Area, Key, MOST_SHARED, Table},
};
use crate::policy::{
    PolicyError,
    model::{
        Allowance, GlobalMode, Idempotency, Missing, Mode, OverrideWhom, Policy, RequestCost,
        RequestLimit, RequestOverride,
    },
    tables::Context,
};

mod fields;
mod hash;
mod index;
mod numbers;
mod overrides;
mod rows;
mod sources;

/// Rows that can be about one request: the bits of a [`Bill`](limiter_common::policy::charge::Bill).
pub(super) const MOST_AT_ONCE: usize = 64;

/// The limits on requests of a policy.
#[derive(Debug)]
pub(super) struct Rules {
    /// Whether nothing is refused.
    pub(super) is_monitored: bool,
    /// By their index in the policy.
    limits: Vec<LimitRules>,
    /// In the order in which they are asked.
    pub(super) rows: Vec<Row>,
    pub(super) numbers: Vec<Numbers>,
    fields: Fields,
    index: Index<LimitSet>,
    sources: Sources,
    /// The hashes of the names of the tenants.
    tenants: Vec<u64>,
    hash: KeyHash,
}

/// A limit.
#[derive(Debug)]
struct LimitRules {
    name: String,
    mode: Mode,
    refuses_missing: bool,
    takes_told: bool,
    cost: Cost,
    /// What it asks of properties, but for what the index found it by.
    conditions: Vec<Condition>,
    overrides: Overrides,
    /// Its rows, in their order.
    rows: Vec<usize>,
}

/// What a request costs.
#[derive(Debug)]
struct Cost {
    default: u64,
    by: Option<usize>,
    values: HashMap<String, u64>,
}

/// What a row is to a request that its limit is about.
pub(super) enum About<'n> {
    /// It counts the request under this key, at this cost, by the numbers at this place.
    Counts {
        /// The place of the row.
        row: usize,
        /// The key of the request.
        key: Key,
        /// What the request costs.
        cost: u64,
        /// The numbers.
        numbers: Counted<'n>,
    },
    /// The request lacks a part of its key. The place of the row, and whether that refuses the request.
    Misses(usize, bool),
    /// The limit with this index refuses everything.
    Refuses(usize),
}

/// What the numbers of a row are for a request.
pub(super) enum Counted<'n> {
    /// Those at this place.
    At(usize),
    /// Those that the asker told.
    Told(&'n Numbers),
}

/// Rules that have no state yet.
#[derive(Debug)]
pub struct Compiled {
    rules: Rules,
    /// The keys of the shared states of the rows.
    shared: Vec<Key>,
}

impl Compiled {
    /// The rules, with the states of a table that keys of the rows share. Rows that stay keep theirs.
    pub(super) fn claim(self, table: &Table) -> Rules {
        let Self { mut rules, shared } = self;
        for (row, shared) in rules.rows.iter_mut().zip(table.claim_shared(&shared)) {
            row.shared = shared;
        }
        rules
    }
}

impl Rules {
    /// Compiles a policy for requests that are decided about with a table of this seed. It takes long where lists are long.
    ///
    /// # Errors
    /// Any [`PolicyError`] of limits on requests that cannot be compiled.
    pub(super) fn compile(
        policy: &Policy,
        context: &Context,
        seed: [u64; 2],
    ) -> Result<Compiled, PolicyError> {
        let needed = policy.on_requests.len();
        if needed > Policy::MOST_ON_REQUESTS {
            let most = Policy::MOST_ON_REQUESTS;
            return Err(PolicyError::TooManyOnRequests { needed, most });
        }
        policy.key_prefix.check()?;
        let hash = KeyHash::new(seed);
        let digests = ["digest", "of secrets"].map(|text| hash.text(text).number());
        let mut fields = Fields::new(policy, digests);
        let mut numbers = Interner::default();
        let (mut limits, mut drafts) = (Vec::new(), Vec::new());
        for (index, limit) in policy.on_requests.iter().enumerate() {
            let (compiled, mut rows) =
                LimitRules::new(policy, (index, limit), &mut fields, &mut numbers)?;
            limits.push(compiled);
            drafts.append(&mut rows);
        }
        let most = MOST_SHARED;
        if drafts.len() > most {
            return Err(PolicyError::TooManyRows { needed: drafts.len(), most });
        }
        let number_of = |index| drafts.iter().filter(|draft| draft.index == index).count();
        let counted = limits.iter().enumerate();
        let counted = counted.map(|(index, limit)| (&*limit.conditions, number_of(index)));
        let needed = most_at_once(&counted.collect::<Vec<_>>());
        if needed > MOST_AT_ONCE {
            return Err(PolicyError::TooManyOfRequest { needed, most: MOST_AT_ONCE });
        }
        let mut index = Index::<LimitSet>::default();
        for (at, limit) in limits.iter_mut().enumerate().filter(|(_, it)| it.mode != Mode::Off) {
            let conditions = std::mem::take(&mut limit.conditions);
            limit.conditions = index.add(conditions, |set| set.insert(at));
        }
        drafts.sort_by_key(|draft| draft.order(policy));
        let sources = Sources::new(policy, context)?;
        let shared: Vec<Key> = drafts.iter().map(|draft| draft.shared_key(hash)).collect();
        let parts = drafts.iter().map(|draft| draft.parts(policy, &mut fields));
        let parts = parts.collect::<Result<Vec<_>, PolicyError>>()?;
        let wide = drafts.iter().filter(|draft| draft.area() == Area::Wide).count();
        let of_words = drafts.len() - wide;
        let mut rows = Vec::with_capacity(drafts.len());
        for (draft, parts) in drafts.into_iter().zip(parts) {
            limits[draft.index].rows.push(rows.len());
            let others = if draft.area() == Area::Wide { wide } else { of_words };
            rows.push(draft.finish(policy, parts, hash, others == 1));
        }
        let rules = Self {
            is_monitored: policy.mode == GlobalMode::Monitor,
            limits,
            rows,
            numbers: numbers.into_numbers(),
            fields,
            index,
            sources,
            tenants: policy.tenants.keys().map(|name| hash.text(name).number()).collect(),
            hash,
        };
        Ok(Compiled { rules, shared })
    }

    /// What a request has of the properties.
    #[inline]
    pub(super) fn values<'v>(&'v self, request: &'v Request<'v>) -> Values<'v> {
        Values::new(&self.fields, request)
    }

    /// What holds for a source.
    #[inline]
    pub(super) fn profile(&self, source: Option<&Address>) -> &SourceProfile {
        self.sources.profile(source)
    }

    /// What repeats of a request have in common to the row and the key that it is charged to; `None` if it has no
    /// [`HEADER`](Idempotency::HEADER) for it.
    pub(super) fn repeat_key(&self, request: &Request<'_>, key: Key, cost: u64) -> Option<Key> {
        let token = request.told.header(Idempotency::HEADER).filter(|it| !it.is_empty())?;
        let hash = key.words().into_iter().fold(self.hash.text("repeat"), KeyHash::word);
        let [method, path] = [request.method, request.path].map(Option::unwrap_or_default);
        Some(hash.word(cost).text(method).text(path).text(token).key())
    }

    /// Tells what each limit is to a request, in any order. `hits` is what the caller says that it costs.
    #[inline]
    pub(super) fn find(
        &self,
        source: Option<&Address>,
        profile: &SourceProfile,
        values: &Values<'_>,
        hits: u64,
        mut tell: impl FnMut(About<'_>),
    ) {
        let found = self.index.find(values).fold(LimitSet::default(), LimitSet::with);
        for at in found.within(&profile.limits).iter() {
            let limit = &self.limits[at];
            if !values.asks(&limit.name)
                || !limit.conditions.iter().all(|condition| condition.is_met(values))
            {
                continue;
            }
            let by = match limit.overrides.is_empty() {
                true => None,
                false => limit.overrides.find(at, profile, values),
            };
            let is_exempt = by.is_some_and(|by| !by.limits());
            if limit.mode == Mode::Drop {
                if !is_exempt {
                    tell(About::Refuses(at));
                }
                continue;
            }
            let cost = limit.cost.of(values).saturating_mul(hits.max(1));
            let told = if limit.takes_told { values.told() } else { None };
            for place in &limit.rows {
                let row = &self.rows[*place];
                let numbers = match by {
                    // An override is in place of the layers alone.
                    Some(by) if !row.is_candidate => by.layer(row.layer),
                    _ => row.numbers,
                };
                let own = told.filter(|_| !row.is_candidate).and_then(|told| {
                    let sharers = sharers(row.parts.len());
                    let numbers = Numbers::told(row.kind, told, limit.cost.dearest(), sharers)?;
                    Some((told, numbers))
                });
                let (told, numbers) = match (&own, numbers) {
                    (Some((told, numbers)), _) => (Some(*told), Counted::Told(numbers)),
                    (None, Some(numbers)) => (None, Counted::At(numbers)),
                    (None, None) => continue,
                };
                match row.key(told, source, profile, &self.tenants, values) {
                    KeyOf::Known(key) => tell(About::Counts { row: *place, key, cost, numbers }),
                    KeyOf::Missing => {
                        tell(About::Misses(*place, limit.refuses_missing && row.is_enforced));
                    }
                    KeyOf::Nobodys => {}
                }
            }
        }
    }
}

/// The keys of so many parts that may share a state.
const fn sharers(parts: usize) -> u32 {
    if parts == 0 { 1 } else { WAYS as u32 }
}

impl Rules {
    /// Tells the rows that count by the source alone, of limits that are about this one, whatever it asks for. Candidates are
    /// left out.
    pub(super) fn of_source(
        &self,
        source: &Address,
        profile: &SourceProfile,
        values: &Values<'_>,
        mut tell: impl FnMut(About<'_>),
    ) {
        for at in profile.limits.iter() {
            let Some(limit) = self.limits.get(at) else { continue };
            let by = limit.overrides.find(at, profile, values);
            if by.is_some_and(|by| !by.limits()) {
                continue;
            }
            for place in &limit.rows {
                let row = &self.rows[*place];
                let numbers = by.map_or(row.numbers, |by| by.layer(row.layer));
                let Some(numbers) = numbers.filter(|_| row.is_of_source()) else { continue };
                let key = row.key(None, Some(source), profile, &self.tenants, values);
                if let KeyOf::Known(key) = key {
                    let (cost, numbers) = (limit.cost.default, Counted::At(numbers));
                    tell(About::Counts { row: *place, key, cost, numbers });
                }
            }
        }
    }
}

impl LimitRules {
    /// Compiles a limit at an index, with its rows.
    fn new<'p>(
        policy: &Policy,
        (index, limit): (usize, &'p RequestLimit),
        fields: &mut Fields,
        numbers: &mut Interner,
    ) -> Result<(Self, Vec<Draft<'p>>), PolicyError> {
        let cost = Cost::new(policy, &limit.cost, fields)?;
        let dearest = cost.dearest();
        let own = |layer: usize| limit.layers.get(layer);
        let key = |layer| own(layer).and_then(|it| it.key.as_ref()).unwrap_or(&limit.key);
        let shape = limit.overrides.iter().find_map(|it| Some(it.layers.as_ref()?.len()));
        let layers = limit.layers.len().max(shape.unwrap_or(0));
        let mut kinds = Vec::with_capacity(layers);
        for layer in 0..layers {
            let others = limit.overrides.iter().filter_map(|it| it.layers.as_ref()?.get(layer));
            let allowances = own(layer).map(|own| own.allowance).into_iter().chain(others.copied());
            let misfit = limit.overrides.iter().find(|entry| {
                let fits = |own: &Vec<Allowance>| {
                    let all = allowances.clone().chain(own.get(layer).copied());
                    own.len() == layers && kind_of(all).is_some()
                };
                !entry.layers.as_ref().is_none_or(fits)
            });
            if let Some(entry) = misfit {
                let (limit, whom) = (limit.name.clone(), whom(entry));
                return Err(PolicyError::OverrideShape { limit, whom });
            }
            kinds.push(kind_of(allowances).unwrap_or(Kind::Bucket));
        }
        let mut place =
            |allowance, layer| numbers.place(allowance, dearest, sharers(key(layer).parts.len()));
        let overrides = Overrides::new(policy, limit, layers, fields, &mut place)?;
        let mut rows = Vec::new();
        let goes_by_rates = matches!(limit.mode, Mode::Enforce | Mode::Monitor);
        for (layer, kind) in kinds.into_iter().enumerate().filter(|_| goes_by_rates) {
            let own = own(layer).map(|own| place(own.allowance, layer)).transpose()?;
            rows.push(Draft { index, limit, layer, is_candidate: false, numbers: own, kind });
        }
        if let Some(candidate) = limit.candidate.filter(|_| goes_by_rates) {
            let own = Some(numbers.place(candidate, dearest, sharers(limit.key.parts.len()))?);
            let kind = candidate.kind();
            rows.push(Draft { index, limit, layer: 0, is_candidate: true, numbers: own, kind });
        }
        let limit = Self {
            name: limit.name.clone(),
            mode: limit.mode,
            refuses_missing: limit.missing == Missing::Refuse,
            takes_told: limit.takes_told,
            cost,
            conditions: fields.conditions(policy, &limit.matching.fields)?,
            overrides,
            rows: Vec::new(),
        };
        Ok((limit, rows))
    }
}

/// The requests of an override, in words.
fn whom(entry: &RequestOverride) -> String {
    let whom = entry.whom.iter().map(OverrideWhom::to_string);
    let fields = entry.fields.iter();
    let fields = fields.map(|(field, pattern)| format!("{} {pattern}", overrides::word(field)));
    whom.chain(fields).collect::<Vec<_>>().join(", ")
}

impl Cost {
    fn new(policy: &Policy, cost: &RequestCost, fields: &mut Fields) -> Result<Self, PolicyError> {
        let weight = |weight: u16| u64::from(weight).max(1);
        let by = cost.by.as_ref().map(|field| fields.number(policy, field)).transpose()?;
        let values = cost.values.iter().map(|(value, own)| (value.clone(), weight(*own)));
        Ok(Self { default: weight(cost.default), by, values: values.collect() })
    }

    /// What a request costs.
    #[inline]
    fn of(&self, values: &Values<'_>) -> u64 {
        let value = self.by.and_then(|field| values.get(field));
        value.and_then(|value| self.values.get(&*value).copied()).unwrap_or(self.default)
    }

    fn dearest(&self) -> u64 {
        self.values.values().copied().fold(self.default, u64::max)
    }
}
