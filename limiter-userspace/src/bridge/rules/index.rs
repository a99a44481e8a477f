//! Which limits a request may be about, without a comparison with each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::fields::{Condition, Values};
use crate::policy::Policy;

/// A set of limits, by their index in the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::bridge) struct LimitSet([u64; Policy::MOST_ON_REQUESTS / 64]);

impl LimitSet {
    pub(super) fn insert(&mut self, limit: usize) {
        self.0[limit / 64] |= 1 << (limit % 64);
    }

    /// Those of either set.
    #[must_use]
    pub(super) fn with(self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Those that are not in the other set.
    #[must_use]
    pub(super) fn without(self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Those of both sets.
    #[must_use]
    pub(super) fn within(self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(at, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

/// Things with conditions, found by the values of a request. Of the conditions of each, one that lists its values is looked up.
#[derive(Debug, Default)]
pub(super) struct Index<T> {
    /// By property and value.
    by_value: Vec<(usize, HashMap<String, T>)>,
    /// Those without a condition that lists its values.
    others: T,
}

impl<T: Default> Index<T> {
    /// Adds something that needs these conditions, by `add`. Returns the conditions that are still to be asked of what the
    /// index finds.
    pub(super) fn add(
        &mut self,
        mut conditions: Vec<Condition>,
        add: impl Fn(&mut T),
    ) -> Vec<Condition> {
        // The property that tells the most values is best at telling things apart.
        let known = |condition: &Condition| {
            let of_field = self.by_value.iter().find(|(field, _)| *field == condition.field);
            of_field.map_or(0, |(_, values)| values.len())
        };
        let exact = conditions.iter().enumerate().filter(|(_, it)| it.exact().is_some());
        let Some((at, _)) = exact.max_by_key(|(_, condition)| known(condition)) else {
            add(&mut self.others);
            return conditions;
        };
        let condition = conditions.swap_remove(at);
        let of_field = match self.by_value.iter().position(|(field, _)| *field == condition.field) {
            Some(at) => at,
            None => {
                self.by_value.push((condition.field, HashMap::new()));
                self.by_value.len() - 1
            }
        };
        for value in condition.exact().into_iter().flatten() {
            add(self.by_value[of_field].1.entry(value.clone()).or_default());
        }
        conditions
    }

    /// What a request may be about.
    pub(super) fn find<'i>(&'i self, values: &Values<'_>) -> impl Iterator<Item = &'i T> {
        let found = self.by_value.iter().filter_map(|(field, of_field)| {
            let value = values.get(*field)?;
            of_field.get(&*value)
        });
        std::iter::once(&self.others).chain(found)
    }
}

/// The largest number of rows that a request can be about, as far as listed values of one property tell. `limits` are the
/// conditions and the number of rows of each.
pub(super) fn most_at_once(limits: &[(&[Condition], usize)]) -> usize {
    let all: usize = limits.iter().map(|(_, rows)| rows).sum();
    let fields: BTreeSet<usize> =
        limits.iter().flat_map(|(conditions, _)| *conditions).map(|it| it.field).collect();
    let by_field = fields.into_iter().map(|field| {
        let mut any = 0;
        let mut by_value: BTreeMap<&String, usize> = BTreeMap::new();
        for (conditions, rows) in limits {
            let condition = conditions.iter().find(|condition| condition.field == field);
            let Some(values) = condition.and_then(Condition::exact) else {
                any += rows;
                continue;
            };
            for value in values.collect::<BTreeSet<_>>() {
                *by_value.entry(value).or_default() += rows;
            }
        }
        any + by_value.into_values().max().unwrap_or(0)
    });
    by_field.chain([all]).min().unwrap_or(0)
}
