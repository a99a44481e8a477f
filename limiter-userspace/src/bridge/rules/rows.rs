//! The rows of a policy: each layer and each candidate of a limit on requests, narrow keys before wide ones.

use limiter_common::{
    abi::table::WAYS,
    algorithm::kind::Kind,
    base::address::{Address, Mask},
};

use super::{
    super::table::{Area, Entry, Key},
    fields::{Fields, Values},
    hash::KeyHash,
    overrides::word,
    sources::SourceProfile,
};
use crate::policy::{
    KeyPrefix, PolicyError,
    model::{
        Allowance, Field, Mode, Policy, RequestKey, RequestKeyPart, RequestLimit, name_of_layer,
    },
    tables::{WIDTH_OF_TENANT, width_of_parts, width_of_prefix},
};

/// A layer or the candidate of a limit.
#[derive(Debug)]
pub(in crate::bridge) struct Row {
    /// The index of the limit.
    pub(in crate::bridge) limit: usize,
    /// The index of the layer; 0 for a candidate.
    pub(in crate::bridge) layer: usize,
    pub(in crate::bridge) is_candidate: bool,
    /// Whether it refuses requests.
    pub(in crate::bridge) is_enforced: bool,
    /// Its display name.
    pub(in crate::bridge) name: String,
    pub(in crate::bridge) area: Area,
    /// The most entries of a set that its keys take.
    pub(in crate::bridge) share: usize,
    pub(in crate::bridge) class: u16,
    /// Whether requests are held back until their turn.
    pub(in crate::bridge) delays: bool,
    /// How long a request is known for its repeats, in ns; `None`: they are charged.
    pub(in crate::bridge) idempotency: Option<u64>,
    /// See [`Standing::holds`](super::super::answer::Standing::holds).
    pub(in crate::bridge) holds: Option<KeyPrefix>,
    /// The place of the numbers for requests without an override; `None`: they are not limited.
    pub(super) numbers: Option<usize>,
    /// The state that keys without an entry share.
    pub(in crate::bridge) shared: Entry,
    pub(in crate::bridge) kind: Kind,
    pub(super) parts: Vec<Part>,
    hash: KeyHash,
}

/// A part of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Source(Mask),
    Tenant,
    Field(usize),
}

/// What a request has of the key of a row.
pub(super) enum KeyOf {
    Known(Key),
    /// It lacks a part.
    Missing,
    /// Its source has no tenant.
    Nobodys,
}

/// A row in the making.
pub(super) struct Draft<'p> {
    pub(super) index: usize,
    pub(super) limit: &'p RequestLimit,
    pub(super) layer: usize,
    pub(super) is_candidate: bool,
    pub(super) numbers: Option<usize>,
    pub(super) kind: Kind,
}

impl Draft<'_> {
    fn key(&self) -> &RequestKey {
        let own = self.limit.layers.get(self.layer).and_then(|layer| layer.key.as_ref());
        own.filter(|_| !self.is_candidate).unwrap_or(&self.limit.key)
    }

    /// The order in which rows are asked. A candidate is asked before its limit, and so counts requests that the limit refuses.
    pub(super) fn order(&self, policy: &Policy) -> impl Ord + use<> {
        let matching = &self.limit.matching;
        let conditions = matching.fields.len()
            + usize::from(!matching.sources.is_empty())
            + usize::from(!matching.except_sources.is_empty());
        (width(self.key(), policy.key_prefix), std::cmp::Reverse(conditions), !self.is_candidate)
    }

    /// The hash of what identifies the row over policies. A row of another key or another kind of algorithm is another one.
    fn identity(&self, hash: KeyHash) -> KeyHash {
        let layer = if self.is_candidate { u64::MAX } else { self.layer as u64 };
        let hash = hash.text(&self.limit.name).word(layer).word(self.kind.number());
        self.key().parts.iter().fold(hash, |hash, part| match part {
            RequestKeyPart::Source => hash.word(1),
            RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
                hash.word(2).word(u64::from(*ipv4)).word(u64::from(*ipv6))
            }
            RequestKeyPart::Tenant => hash.word(3),
            RequestKeyPart::Field(Field::Attribute(name)) => hash.word(4).text(name),
            RequestKeyPart::Field(field) => hash.word(5).text(word(field)),
        })
    }

    /// The key of the state that keys of the row without an entry share.
    pub(super) fn shared_key(&self, hash: KeyHash) -> Key {
        self.identity(hash).key()
    }

    /// The parts of its key.
    pub(super) fn parts(
        &self,
        policy: &Policy,
        fields: &mut Fields,
    ) -> Result<Vec<Part>, PolicyError> {
        let part = |part: &RequestKeyPart| {
            Ok(match part {
                RequestKeyPart::Source => {
                    Part::Source(Mask::new(policy.key_prefix.ipv4, policy.key_prefix.ipv6))
                }
                RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
                    Part::Source(Mask::new(*ipv4, *ipv6))
                }
                RequestKeyPart::Tenant => Part::Tenant,
                RequestKeyPart::Field(field) => Part::Field(fields.number(policy, field)?),
            })
        };
        self.key().parts.iter().map(part).collect()
    }

    /// The prefixes whose requests the row refuses as one.
    fn holds(&self, policy: &Policy) -> Option<KeyPrefix> {
        let of = match self.key().parts[..] {
            [RequestKeyPart::Source] => policy.key_prefix,
            [RequestKeyPart::SourcePrefix { ipv4, ipv6 }] => KeyPrefix { ipv4, ipv6 },
            _ => return None,
        };
        let holds =
            self.is_enforced() && self.kind != Kind::Concurrent && self.limit.holds_sources();
        holds.then_some(of)
    }

    /// Whether it refuses requests.
    fn is_enforced(&self) -> bool {
        self.limit.mode == Mode::Enforce && !self.is_candidate
    }

    /// The row, with these parts of its key. It is the only one in its area, or shares that with others.
    pub(super) fn finish(
        self,
        policy: &Policy,
        parts: Vec<Part>,
        hash: KeyHash,
        is_alone: bool,
    ) -> Row {
        let identity = self.identity(hash);
        // The word tells the keys of the row from its shared state.
        let hash = identity.word(0);
        let (area, is_enforced, holds) = (self.area(), self.is_enforced(), self.holds(policy));
        let Self { index, limit, layer, is_candidate, numbers, kind } = self;
        Row {
            limit: index,
            layer,
            is_candidate,
            is_enforced,
            share: match (is_alone, is_enforced) {
                (true, _) => WAYS,
                (false, true) => WAYS / 2,
                // What refuses nobody has others refused by nothing that it counts.
                (false, false) => WAYS / 4,
            },
            class: identity.number() as u16,
            delays: limit.delays() && !is_candidate,
            idempotency: limit.idempotency.map(|it| it.window),
            name: if is_candidate {
                format!("{} (candidate)", limit.name)
            } else {
                name_of_layer(&limit.name, layer)
            },
            area,
            holds,
            numbers,
            shared: Entry::default(),
            kind,
            parts,
            hash,
        }
    }

    /// Where the state of its keys is.
    pub(super) const fn area(&self) -> Area {
        if Kind::is_wide(self.kind.number()) { Area::Wide } else { Area::Keys }
    }
}

impl Row {
    /// Whether it counts by the source alone, and is no candidate.
    pub(super) fn is_of_source(&self) -> bool {
        !self.is_candidate && matches!(self.parts[..], [Part::Source(_)])
    }

    /// The key of a request of this source, with the limit that was told in place of that of the policy, if it is.
    #[inline]
    pub(super) fn key(
        &self,
        told: Option<(u64, u64)>,
        source: Option<&Address>,
        profile: &SourceProfile,
        tenants: &[u64],
        values: &Values<'_>,
    ) -> KeyOf {
        let mut hash = match told {
            Some((number, period)) => self.hash.word(number).word(period),
            None => self.hash,
        };
        for part in &self.parts {
            hash = match part {
                Part::Source(mask) => {
                    let Some(source) = source else { return KeyOf::Missing };
                    let Address { family, words: [a, b, c, d] } = source.masked(mask);
                    let [family, a, b, c, d] = [family, a, b, c, d].map(u64::from);
                    let first = hash.word(family << 32 | a);
                    if family == u64::from(Address::IPV4) {
                        first
                    } else {
                        first.word(b << 32 | c).word(d)
                    }
                }
                Part::Tenant => {
                    match profile.tenant.checked_sub(1).and_then(|at| tenants.get(at)) {
                        Some(tenant) => hash.word(*tenant),
                        None => return KeyOf::Nobodys,
                    }
                }
                Part::Field(field) => match values.get(*field) {
                    Some(value) => hash.text(&value),
                    None => return KeyOf::Missing,
                },
            };
        }
        KeyOf::Known(hash.key().of_class(self.class))
    }
}

/// The width of a key. Rows with narrow keys are asked before those with wide ones.
fn width(key: &RequestKey, prefix: KeyPrefix) -> u32 {
    width_of_parts(key.parts.iter().map(|part| match part {
        RequestKeyPart::Source => width_of_prefix(prefix),
        RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
            width_of_prefix(KeyPrefix { ipv4: *ipv4, ipv6: *ipv6 })
        }
        RequestKeyPart::Tenant => WIDTH_OF_TENANT,
        // A user has few sources, and a tenant has many users.
        RequestKeyPart::Field(Field::Attribute(_)) => 290,
        RequestKeyPart::Field(Field::Path) => 400,
        RequestKeyPart::Field(Field::Host) => 500,
        RequestKeyPart::Field(Field::Method | Field::Domain) => 600,
    }))
}

/// The kind of the meters of a layer, of which all allowances have the same; `None` where they have not.
pub(super) fn kind_of(allowances: impl Iterator<Item = Allowance>) -> Option<Kind> {
    let mut kinds = allowances.map(Allowance::kind);
    let first = kinds.next().unwrap_or(Kind::Bucket);
    kinds.all(|kind| kind == first).then_some(first)
}
