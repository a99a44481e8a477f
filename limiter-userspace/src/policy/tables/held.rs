//! Where the state of each limit is held, from one policy to the next.

use std::collections::BTreeMap;

use limiter_common::{
    contract::TALLIES,
    limit::{INLINE, LIMITS, TENANTS},
};
use serde::{Deserialize, Serialize};

use super::super::error::PolicyError;

/// What of the datapath belongs to which limit. It is stored with the policy, so that a limit that
/// stays keeps its state and its tally, and one that comes gets nobody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The stamp that was given last.
    last: u32,
    /// See [`Settings::seed`](limiter_common::contract::Settings::seed); 0 before the first policy.
    seed: u32,
    places: BTreeMap<String, Place>,
    /// The numbers of the tenants, from 1 on.
    tenants: BTreeMap<String, u32>,
    /// The number that was given to a tenant last.
    last_tenant: u32,
}

/// What belongs to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// See [`Limit::stamp`](limiter_common::limit::Limit::stamp).
    pub stamp: u32,
    /// See [`Limit::tally`](limiter_common::limit::Limit::tally).
    pub tally: u32,
    /// Which word of the entry of a source its state is in; `None` if it has a key of its own.
    pub word: Option<usize>,
}

/// What makes a limit the same limit under another policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// In words.
    pub name: String,
    /// Whether its state can be in the entry of a source.
    pub inline: bool,
}

impl Held {
    /// What belongs to a limit.
    pub fn get(&self, identity: &Identity) -> Option<&Place> {
        self.places.get(&identity.name)
    }

    /// The places of these limits, most important first: those that are there already keep theirs.
    pub fn next(&self, limits: impl Iterator<Item = Identity>) -> Self {
        let limits: Vec<Identity> = limits.collect();
        let mut next = Self { places: BTreeMap::new(), ..self.clone() };
        for identity in &limits {
            if let Some(place) = self.places.get(&identity.name) {
                next.places.insert(identity.name.clone(), *place);
            }
        }
        for identity in limits {
            if next.places.contains_key(&identity.name) {
                continue;
            }
            // A stamp that wraps would have to meet state that is four thousand million limits old.
            next.last = next.last.checked_add(1).unwrap_or(1);
            let place = Place {
                stamp: next.last,
                tally: next.tally(self),
                word: next.word(&identity, self),
            };
            next.places.insert(identity.name, place);
        }
        next
    }

    /// Gives out no stamp and no number that a policy which came after this one may have given out.
    pub fn skip(&mut self) {
        self.last = self.last.saturating_add(LIMITS);
        self.last_tenant = self.last_tenant.saturating_add(TENANTS as u32);
    }

    /// The same without state: every limit begins anew.
    pub fn without_places(&self) -> Self {
        Self { places: BTreeMap::new(), ..self.clone() }
    }

    /// By what connections are hashed.
    pub const fn seed(&self) -> u32 {
        self.seed
    }

    /// Has connections hashed by this, unless they are by something already.
    pub fn set_seed(&mut self, seed: u32) {
        if self.seed == 0 {
            self.seed = seed.max(1);
        }
    }

    /// The number of a tenant; 0 for one that the policy does not have.
    pub fn tenant(&self, name: &str) -> u32 {
        self.tenants.get(name).copied().unwrap_or(0)
    }

    /// Gives every tenant a number: those that have one keep it, and none gets that of another.
    ///
    /// # Errors
    /// [`PolicyError::TooManyTenants`].
    pub(super) fn number_tenants<'a>(
        &mut self,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<(), PolicyError> {
        let mut numbers = BTreeMap::new();
        for name in names {
            let number = match self.tenants.get(name) {
                Some(number) => *number,
                None => {
                    self.last_tenant = self.last_tenant.saturating_add(1);
                    self.last_tenant
                }
            };
            numbers.insert(name.clone(), number);
        }
        let needed = numbers.len();
        if needed > TENANTS {
            return Err(PolicyError::TooManyTenants { needed });
        }
        if self.last_tenant as usize > TENANTS {
            // The numbers are used up. They begin anew, and with them the budgets of all tenants.
            numbers = (1..).zip(numbers.into_keys()).map(|(number, name)| (name, number)).collect();
            self.last_tenant = needed as u32;
        }
        self.tenants = numbers;
        Ok(())
    }

    /// The tallies of limits that were not there before.
    pub fn new_tallies<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let was = |stamp| before.places.values().any(|place| place.stamp == stamp);
        self.places.values().filter(move |place| !was(place.stamp)).map(|place| place.tally)
    }

    /// A tally that is free: one that was not in use before either, if there is one, since packets
    /// still count under the policy before.
    fn tally(&self, before: &Self) -> u32 {
        let taken = |held: &Self, tally| held.places.values().any(|place| place.tally == tally);
        let free = |tally: &u32| !taken(self, *tally);
        (0..TALLIES)
            .filter(free)
            .find(|tally| !taken(before, *tally))
            .or_else(|| (0..TALLIES).find(free))
            .unwrap_or(0)
    }

    /// A word that is free, if the limit can have one: rather one that nobody had before, whose state
    /// is not lost should that policy be back.
    fn word(&self, identity: &Identity, before: &Self) -> Option<usize> {
        let taken = |held: &Self, word| held.places.values().any(|place| place.word == Some(word));
        let mut free = (0..INLINE).filter(|word| identity.inline && !taken(self, *word));
        free.clone().find(|word| !taken(before, *word)).or_else(|| free.next())
    }
}

#[cfg(test)]
mod tests;
