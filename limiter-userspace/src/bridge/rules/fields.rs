//! The properties that a policy asks for, each looked up once in a request.

use std::{cell::Cell, collections::BTreeMap};

use super::super::{
    properties::{Properties, PropertyValue, attribute_value},
    request::Request,
};
use crate::policy::{
    PolicyError,
    model::{Attribute, Field, Pattern, Policy},
    units::quoted,
};

/// Properties whose value is kept while a request is decided about. Others are looked up each time.
const KEPT: usize = 8;

/// The properties that the limits of a policy ask for, numbered.
#[derive(Debug)]
pub(in crate::bridge) struct Fields {
    fields: Vec<(Field, Option<Attribute>)>,
    properties: Properties,
    seed: [u64; 2],
}

impl Fields {
    /// No properties yet. Digests of secrets are keyed by `seed`.
    pub(super) fn new(policy: &Policy, seed: [u64; 2]) -> Self {
        Self { fields: Vec::new(), properties: Properties::new(policy, seed), seed }
    }

    /// The number of a property, which is made if need be.
    pub(super) fn number(&mut self, policy: &Policy, field: &Field) -> Result<usize, PolicyError> {
        if let Some(at) = self.fields.iter().position(|(known, _)| known == field) {
            return Ok(at);
        }
        let attribute = match field {
            Field::Attribute(name) => {
                let found = policy.attributes.get(name);
                let undefined = || PolicyError::Undefined { what: "attribute", name: quoted(name) };
                Some(found.ok_or_else(undefined)?.clone())
            }
            Field::Method | Field::Host | Field::Path | Field::Domain => None,
        };
        self.fields.push((field.clone(), attribute));
        Ok(self.fields.len() - 1)
    }

    /// Conditions on properties, by their numbers. One without patterns is none.
    pub(super) fn conditions(
        &mut self,
        policy: &Policy,
        fields: &BTreeMap<Field, Vec<Pattern>>,
    ) -> Result<Vec<Condition>, PolicyError> {
        let asked = fields.iter().filter(|(_, patterns)| !patterns.is_empty());
        asked
            .map(|(field, patterns)| {
                let field = self.number(policy, field)?;
                Ok(Condition { field, patterns: patterns.clone() })
            })
            .collect()
    }
}

/// A condition on a property.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) field: usize,
    /// One must accept the value.
    pub(super) patterns: Vec<Pattern>,
}

impl Condition {
    /// Whether a request meets it.
    pub(super) fn is_met(&self, values: &Values<'_>) -> bool {
        let accepts = |value: PropertyValue<'_>| self.patterns.iter().any(|it| it.accepts(&value));
        values.get(self.field).is_some_and(accepts)
    }

    /// The values that meet it, if they are listed.
    pub(super) fn exact(&self) -> Option<impl Iterator<Item = &String>> {
        let exact = |pattern: &Pattern| matches!(pattern, Pattern::Exact(_));
        self.patterns.iter().all(exact).then(|| {
            self.patterns.iter().filter_map(|pattern| match pattern {
                Pattern::Exact(text) => Some(text),
                Pattern::Prefix(_) => None,
            })
        })
    }
}

/// What a request has of the properties.
pub(in crate::bridge) struct Values<'v> {
    fields: &'v Fields,
    request: &'v Request<'v>,
    /// `None`: not looked up yet.
    kept: [Cell<Option<Option<PropertyValue<'v>>>>; KEPT],
}

impl<'v> Values<'v> {
    pub(in crate::bridge) fn new(fields: &'v Fields, request: &'v Request<'v>) -> Self {
        Self { fields, request, kept: [const { Cell::new(None) }; KEPT] }
    }

    /// The value of the property with this number; `None` if the request lacks it.
    pub(super) fn get(&self, number: usize) -> Option<PropertyValue<'v>> {
        let Some(kept) = self.kept.get(number) else { return self.look_up(number) };
        if let Some(value) = kept.get() {
            return value;
        }
        let value = self.look_up(number);
        kept.set(Some(value));
        value
    }

    /// The limit that the asker told.
    pub(super) fn told(&self) -> Option<(u64, u64)> {
        self.request.told.limit()
    }

    /// Whether a limit of this name is asked.
    pub(super) fn asks(&self, limit: &str) -> bool {
        self.request.told.asks(limit)
    }

    fn look_up(&self, number: usize) -> Option<PropertyValue<'v>> {
        let Self { fields, request, .. } = *self;
        match fields.fields.get(number)? {
            (Field::Attribute(name), Some(attribute)) => {
                attribute_value(name, attribute, request, fields.seed)
            }
            (field, _) => fields.properties.value(field, request),
        }
    }
}
