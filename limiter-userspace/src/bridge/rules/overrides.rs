//! The overrides of a limit: other allowances for some of its requests.

use super::{
    fields::{Condition, Fields, Values},
    index::Index,
    sources::SourceProfile,
};
use crate::policy::{
    PolicyError,
    model::{
        Allowance, Field, KeyPrefix, Mode, OverrideWhom, Policy, RequestKey, RequestKeyPart,
        RequestLimit, RequestOverride,
    },
};

/// The overrides of a limit. Of several that are about a request, the first applies.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    overrides: Vec<Override>,
    /// The places of those for any source, in order.
    of_fields: Index<Vec<usize>>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Override {
    /// What it asks of properties, but for what the index found it by.
    conditions: Vec<Condition>,
    /// The places of the numbers for each layer; `None`: not limited.
    layers: Option<Vec<usize>>,
}

impl Overrides {
    /// Compiles the overrides of a limit that has so many layers.
    pub(super) fn new(
        policy: &Policy,
        limit: &RequestLimit,
        layers: usize,
        fields: &mut Fields,
        mut place: impl FnMut(Allowance, usize) -> Result<usize, PolicyError>,
    ) -> Result<Self, PolicyError> {
        let mut overrides = Self::default();
        for (at, entry) in limit.overrides.iter().enumerate() {
            // What is not limited has no state, and neither has what is refused.
            if limit.mode != Mode::Drop && entry.layers.is_some() {
                check_key(policy, limit, entry, layers)?;
            }
            let asked = entry.fields.iter();
            let asked = asked.map(|(field, pattern)| (field.clone(), vec![pattern.clone()]));
            let mut conditions = fields.conditions(policy, &asked.collect())?;
            if entry.whom.is_none() {
                conditions = overrides.of_fields.add(conditions, |places| places.push(at));
            }
            let numbered = |own: &Vec<Allowance>| -> Result<Vec<usize>, PolicyError> {
                own.iter().enumerate().map(|(layer, allowance)| place(*allowance, layer)).collect()
            };
            let layers = entry.layers.as_ref().map(numbered).transpose()?;
            overrides.overrides.push(Override { conditions, layers });
        }
        Ok(overrides)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.overrides.is_empty()
    }

    /// The override that applies to a request, of the limit at this index; `None` if none does.
    pub(super) fn find(
        &self,
        limit: usize,
        profile: &SourceProfile,
        values: &Values<'_>,
    ) -> Option<&Override> {
        let applies = |at: &usize| {
            let conditions = self.overrides.get(*at).map_or(&[][..], |it| &it.conditions);
            conditions.iter().all(|condition| condition.is_met(values))
        };
        let of_source = profile.overrides(limit).find(applies);
        let of_fields = self.of_fields.find(values).map(|places| places.iter().copied());
        let of_fields = of_fields.filter_map(|mut places| places.find(applies));
        let first = of_source.into_iter().chain(of_fields).min()?;
        self.overrides.get(first)
    }
}

impl Override {
    /// The place of the numbers for a layer; `None` if the override limits nothing.
    pub(super) fn layer(&self, layer: usize) -> Option<usize> {
        self.layers.as_ref()?.get(layer).copied()
    }

    /// Whether it limits anything.
    pub(super) const fn limits(&self) -> bool {
        self.layers.is_some()
    }
}

/// Checks that no request of an override shares state with one that has other numbers.
fn check_key(
    policy: &Policy,
    limit: &RequestLimit,
    entry: &RequestOverride,
    layers: usize,
) -> Result<(), PolicyError> {
    let own = |layer: usize| limit.layers.get(layer).and_then(|layer| layer.key.as_ref());
    for RequestKey { parts } in (0..layers).map(|layer| own(layer).unwrap_or(&limit.key)) {
        let lengths = parts.iter().find_map(|part| match part {
            RequestKeyPart::Source => Some(policy.key_prefix),
            RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
                Some(KeyPrefix { ipv4: *ipv4, ipv6: *ipv6 })
            }
            RequestKeyPart::Tenant | RequestKeyPart::Field(_) => None,
        });
        let is_told = match &entry.whom {
            None => true,
            Some(OverrideWhom::Tenant(_)) => {
                lengths.is_some() || parts.contains(&RequestKeyPart::Tenant)
            }
            Some(OverrideWhom::Prefix(prefix)) => match lengths.map(|it| it.length_for(prefix)) {
                Some(length) if prefix.prefix_len() > length => {
                    return Err(PolicyError::OverrideTooNarrow { prefix: *prefix, length });
                }
                length => length.is_some(),
            },
        };
        if !is_told {
            let whom = entry.whom.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(PolicyError::OverrideOfKey { limit: limit.name.clone(), whom });
        }
        let is_told = |field: &&Field| parts.contains(&RequestKeyPart::Field((*field).clone()));
        if let Some(field) = entry.fields.keys().find(|field| !is_told(field)) {
            let (limit, field) = (limit.name.clone(), word(field).to_owned());
            return Err(PolicyError::OverrideOfField { limit, field });
        }
    }
    Ok(())
}

/// A property in the words of a document.
pub(super) fn word(field: &Field) -> &str {
    match field {
        Field::Method => "method",
        Field::Host => "host",
        Field::Path => "path",
        Field::Domain => "domain",
        Field::Attribute(name) => name,
    }
}
