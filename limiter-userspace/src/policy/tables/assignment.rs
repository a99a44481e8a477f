//! Where the state of each limit is held, from one policy to the next.

use std::collections::BTreeMap;

use limiter_common::{
    abi::layout::TALLIES,
    base::seed::Seed,
    policy::limit::{INLINE, LIMITS, TENANTS},
};
use serde::{Deserialize, Serialize};

use super::super::{error::PolicyError, model::Allowance};

/// What of the datapath belongs to which limit. It is stored with the policy, so that a limit that
/// stays keeps its state and its tally, and one that comes gets nobody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// See [`Settings::seed`](limiter_common::abi::policy::Settings::seed); 0 before the first policy.
    seed: [u64; 4],
    /// By [`Identity::name`] and the number of the layer.
    places: BTreeMap<String, BTreeMap<usize, Place>>,
    /// By what offences against a limit are known, by its name.
    penalties: BTreeMap<String, u32>,
    /// The numbers of the tenants, from 1 on.
    tenants: BTreeMap<String, u32>,
    /// The number that was given to a tenant last.
    last_tenant: u32,
    /// The slots of the interfaces that limits ask for, as they were when it was compiled; each with the words
    /// of limits that mean the interface, with spaces between them.
    pub(super) slots: BTreeMap<u32, String>,
    /// See [`stale`](Self::stale).
    #[serde(default)]
    pub(super) stale: Option<u64>,
    /// When it was compiled, in seconds of Unix time and in nanoseconds of the monotonic clock. Ends of entries are
    /// times of the second one in the tables.
    #[serde(default)]
    pub(super) compiled: Option<(u64, u64)>,
}

/// What belongs to a layer of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// See [`Limit::limit_id`](limiter_common::policy::limit::Limit::limit_id).
    #[serde(rename = "stamp")]
    pub limit_id: u32,
    /// See [`Limit::tally`](limiter_common::policy::limit::Limit::tally).
    pub tally: u32,
    /// Which word of the entry of a source its state is in; `None` if it has a key of its own.
    pub word: Option<usize>,
    /// What it admits to everybody; by this, a layer is known again among those of its limit.
    allowance: Option<Allowance>,
}

/// What makes a limit the same limit under another policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// In words; the layers of a limit that are kept alike have one name.
    pub name: String,
    /// The number of the layer.
    pub layer: usize,
    /// What it admits to everybody.
    pub allowance: Option<Allowance>,
    /// Whether its state can be in the entry of a source.
    pub inline: bool,
    /// How many things a packet must be for the limit to be about it.
    pub conditions: usize,
    /// Whether its state is found by the number of a tenant.
    pub by_tenant: bool,
}

/// How the places of a policy follow from those of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Each limit stays where it is.
    All,
    /// Those begin anew that are kept by a key though they could be in the entry of a source, so
    /// that they come to a word of it that is free now.
    ButKeyed,
}

impl Assignment {
    /// What belongs to a limit.
    pub fn get(&self, identity: &Identity) -> Option<&Place> {
        self.places.get(&identity.name)?.get(&identity.layer)
    }

    /// The places of these limits, most important first, under a policy of this epoch: those that are
    /// there already keep theirs.
    pub fn next(
        &self,
        limits: impl Iterator<Item = Identity>,
        keeping: Keeping,
        epoch: u32,
    ) -> Self {
        let limits: Vec<Identity> = limits.collect();
        let mut next = Self { places: BTreeMap::new(), ..self.clone() };
        let mut left = self.places.clone();
        // What a layer admits tells it from others, and then its number.
        for same in [
            |_: &usize, place: &Place, wanted: &Identity| place.allowance == wanted.allowance,
            |layer: &usize, _: &Place, wanted: &Identity| *layer == wanted.layer,
            |_: &usize, _: &Place, _: &Identity| true,
        ] {
            for identity in &limits {
                if next.get(identity).is_some() {
                    continue;
                }
                let Some(layers) = left.get_mut(&identity.name) else { continue };
                let stays = |place: &Place| {
                    keeping == Keeping::All || !identity.inline || place.word.is_some()
                };
                let found = layers
                    .iter()
                    .find(|(layer, place)| same(layer, place, identity) && stays(place))
                    .map(|(layer, _)| *layer);
                if let Some(place) = found.and_then(|layer| layers.remove(&layer)) {
                    next.put(identity, place);
                }
            }
        }
        // An epoch is used once, also by a policy that is taken back, and so are its limit_ids.
        let last = epoch.wrapping_mul(LIMITS);
        let mut limit_ids = (1..=LIMITS).map(|number| last.wrapping_add(number).max(1));
        let mut new: Vec<&Identity> =
            limits.iter().filter(|identity| next.get(identity).is_none()).collect();
        for identity in &new {
            let place = Place {
                limit_id: limit_ids.next().unwrap_or(1),
                tally: next.tally(self),
                word: None,
                allowance: identity.allowance,
            };
            next.put(identity, place);
        }
        // Those that most packets are about need no look-up of their own.
        new.sort_by_key(|identity| identity.conditions);
        for identity in new {
            let word = next.word(identity, self);
            let layers = next.places.get_mut(&identity.name);
            if let Some(place) = layers.and_then(|layers| layers.get_mut(&identity.layer)) {
                place.word = word;
            }
        }
        next
    }

    fn put(&mut self, identity: &Identity, place: Place) {
        let place = Place { allowance: identity.allowance, ..place };
        self.places.entry(identity.name.clone()).or_default().insert(identity.layer, place);
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.values().flat_map(BTreeMap::values)
    }

    /// Gives no tenant a number that a policy gave out which came after this one and was taken back.
    pub fn skip(&mut self, taken_back: &Self) {
        self.last_tenant = self.last_tenant.max(taken_back.last_tenant);
    }

    /// When what was compiled says too little of some source, and has to be compiled anew, in seconds of Unix
    /// time: see [`Listing::stale`](crate::policy::run_time::Listing::stale).
    pub const fn stale(&self) -> Option<u64> {
        self.stale
    }

    /// By what sources and connections are hashed.
    pub const fn seed(&self) -> Seed {
        Seed(self.seed)
    }

    /// Has sources and connections hashed by this, for as long as the instance is there.
    pub const fn set_seed(&mut self, seed: [u64; 4]) {
        self.seed = seed;
    }

    /// By what offences against the limit of this name are known.
    pub(super) fn penalty(&self, limit: &str) -> u32 {
        self.penalties.get(limit).copied().unwrap_or(0)
    }

    /// Says by what offences against limits are known, which are given with the limit_ids of their
    /// layers: the lowest of these when the limit came. It stays as long as one of the layers does.
    pub(super) fn know_penalties<'a>(
        &mut self,
        before: &Self,
        limits: impl Iterator<Item = (&'a String, Vec<u32>)>,
    ) {
        let stays = |limit_id: &u32| before.places().any(|place| place.limit_id == *limit_id);
        let known = limits.filter_map(|(name, limit_ids)| {
            let same = before.penalties.get(name).filter(|_| limit_ids.iter().any(stays));
            Some((name.clone(), same.copied().or(limit_ids.iter().min().copied())?))
        });
        self.penalties = known.collect();
    }

    /// The number of a tenant; 0 for one that the policy does not have.
    pub fn tenant(&self, name: &str) -> u32 {
        self.tenants.get(name).copied().unwrap_or(0)
    }

    /// The tenant that has a number.
    pub fn tenant_of(&self, number: u32) -> Option<&String> {
        self.tenants.iter().find(|(_, own)| **own == number).map(|(name, _)| name)
    }

    /// Gives every tenant a number: those that have one keep it, and none gets that of another.
    ///
    /// # Errors
    /// [`PolicyError::TooManyTenants`].
    pub(super) fn number_tenants<'a>(
        &mut self,
        names: impl Iterator<Item = &'a String>,
        limits: impl Iterator<Item = Identity>,
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
            for identity in limits.filter(|identity| identity.by_tenant) {
                self.places.remove(&identity.name);
            }
        }
        self.tenants = numbers;
        Ok(())
    }

    /// The tallies of limits that were not there before.
    pub fn new_tallies<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let was = |limit_id| before.places().any(|place| place.limit_id == limit_id);
        self.places().filter(move |place| !was(place.limit_id)).map(|place| place.tally)
    }

    /// A tally that is free: one that was not in use before either, if there is one, since packets
    /// still count under the policy before.
    fn tally(&self, before: &Self) -> u32 {
        let taken = |held: &Self, tally| held.places().any(|place| place.tally == tally);
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
        let taken = |held: &Self, word| held.places().any(|place| place.word == Some(word));
        let mut free = (0..INLINE).filter(|word| identity.inline && !taken(self, *word));
        free.clone().find(|word| !taken(before, *word)).or_else(|| free.next())
    }
}

#[cfg(test)]
mod tests;
