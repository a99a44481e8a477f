//! Assigns state to limits, and keeps it assigned from one policy to the next.

use std::collections::BTreeMap;

use limiter_common::{
    abi::{layout::TALLIES, table::ENTRY_PLACES},
    base::seed::Seed,
    policy::limit::{INLINE, LIMITS, TENANTS},
};
use serde::{Deserialize, Serialize};

use super::super::{error::PolicyError, model::Allowance};

/// The state of the datapath that belongs to each limit, over all policies of an instance. It is stored with
/// the policy, so that a limit that stays keeps its state and its tally, and a new limit never gets the state
/// of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// See [`Settings::seed`](limiter_common::abi::policy::Settings::seed); 0 before the first policy.
    seed: [u64; 4],
    /// See [`Settings::table_seed`](limiter_common::abi::policy::Settings::table_seed); 0 as long as it is `seed`.
    #[serde(default, skip_serializing_if = "is_none")]
    table_seed: [u64; 4],
    /// The places of layers and candidates, by [`Identity::name`] and the index of the layer.
    places: BTreeMap<String, BTreeMap<usize, Place>>,
    /// The identifiers of penalties, by the name of the limit; see
    /// [`Penalty::limit`](limiter_common::policy::penalty::Penalty::limit).
    penalties: BTreeMap<String, u32>,
    /// The numbers of the tenants, from 1.
    tenants: BTreeMap<String, u32>,
    /// The number that was given to a tenant last.
    last_tenant: u32,
    /// The slots that limits and budgets name, as of the compilation: for each, the words that stand for its
    /// interface, separated by spaces.
    pub(super) slots: BTreeMap<u32, String>,
    /// See [`stale`](Self::stale).
    #[serde(default)]
    pub(super) stale: Option<u64>,
    /// The time of the compilation, in seconds of Unix time and in nanoseconds of the monotonic clock. The
    /// tables have the ends of list entries as times of the monotonic clock.
    #[serde(default)]
    pub(super) compiled: Option<(u64, u64)>,
    /// Whether the tables have the row of [pushed blocks](super::pushes). It stays for the life of the instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) takes_pushes: bool,
}

/// Whether a seed is that of none.
fn is_none(seed: &[u64; 4]) -> bool {
    *seed == [0; 4]
}

/// The state that is assigned to a layer or candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// See [`Limit::limit_id`](limiter_common::policy::limit::Limit::limit_id).
    #[serde(rename = "stamp")]
    pub limit_id: u32,
    /// See [`Limit::tally`](limiter_common::policy::limit::Limit::tally).
    pub tally: u32,
    /// The word of a source's entry that holds the state; `None` for a keyed limit.
    pub word: Option<usize>,
    /// The allowance for sources without an override. It identifies the layer among those of its limit.
    allowance: Option<Allowance>,
}

/// What identifies a layer or candidate from one policy to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The limit, key, kind of algorithm and unit, in words. Layers of a limit that agree in those have the
    /// same name.
    pub name: String,
    /// The index of the layer.
    pub layer: usize,
    /// The allowance for sources without an override; `None` for everything.
    pub allowance: Option<Allowance>,
    /// Whether the state can be in the entry of a source.
    pub inline: bool,
    /// The number of conditions on a packet.
    pub conditions: usize,
    /// Whether the key has the number of a tenant.
    pub by_tenant: bool,
}

/// Which limits keep their places from one policy to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// All that stay.
    All,
    /// All but limits that could be inline and are keyed. Those begin anew, and may get a word that is free
    /// now.
    ButKeyed,
}

impl Assignment {
    /// The place of a layer or candidate.
    pub fn get(&self, identity: &Identity) -> Option<&Place> {
        self.places.get(&identity.name)?.get(&identity.layer)
    }

    /// The assignment for `limits`, in the order of their bits, under a policy of this epoch, where the entry of a source has
    /// room for the inline limits at so many places. Limits that stay keep their places.
    pub fn next(
        &self,
        limits: impl Iterator<Item = Identity>,
        keeping: Keeping,
        epoch: u32,
        places: usize,
    ) -> Self {
        let limits: Vec<Identity> = limits.collect();
        let mut next = Self { places: BTreeMap::new(), ..self.clone() };
        let mut left = self.places.clone();
        // A layer is recognised by its allowance, then by its index.
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
        // Each epoch is used once, even if its policy is taken back, and so is each limit id.
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
        // The limits with the fewest conditions get the words: most packets need their state, and it takes no
        // look-up there.
        new.sort_by_key(|identity| identity.conditions);
        for identity in new {
            let word = next.word(identity, self, places);
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

    /// Skips the tenant numbers that `taken_back` gave out, a later policy that was taken back.
    pub fn skip(&mut self, taken_back: &Self) {
        self.last_tenant = self.last_tenant.max(taken_back.last_tenant);
    }

    /// Skips all numbers of tenants, as nobody knows which ones a policy gave out that was taken back.
    pub const fn skip_all(&mut self) {
        self.last_tenant = TENANTS as u32;
    }

    /// When the policy has to be compiled again, in seconds of Unix time: see
    /// [`Listing::stale`](crate::policy::run_time::Listing::stale).
    pub const fn stale(&self) -> Option<u64> {
        self.stale
    }

    /// The seed of the hashes of connections. It stays the same for the life of the instance.
    pub const fn seed(&self) -> Seed {
        Seed(self.seed)
    }

    /// The seed of the hashes that tell the places of sources and keys in the table.
    pub fn table_seed(&self) -> Seed {
        Seed(if is_none(&self.table_seed) { self.seed } else { self.table_seed })
    }

    /// Sets the seed of the hashes that tell the places of sources and keys in the table.
    pub const fn set_table_seed(&mut self, seed: [u64; 4]) {
        self.table_seed = seed;
    }

    /// Sets both seeds.
    pub const fn set_seed(&mut self, seed: [u64; 4]) {
        self.seed = seed;
    }

    /// The identifier of a limit's penalty; 0 if the limit is unknown.
    pub(super) fn penalty(&self, limit: &str) -> u32 {
        self.penalties.get(limit).copied().unwrap_or(0)
    }

    /// Assigns identifiers to penalties. `limits` are the names of limits with the limit ids of their layers.
    /// A new identifier is the lowest of those ids; it is kept as long as one of the layers stays.
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

    /// The number of a tenant; 0 if the policy does not have it.
    pub fn tenant(&self, name: &str) -> u32 {
        self.tenants.get(name).copied().unwrap_or(0)
    }

    /// The tenant with a number.
    pub fn tenant_of(&self, number: u32) -> Option<&String> {
        self.tenants.iter().find(|(_, own)| **own == number).map(|(name, _)| name)
    }

    /// Numbers the tenants. Those that have a number keep it, and no number is used for another tenant.
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
            // The numbers are used up. All tenants get new ones, and their state begins anew.
            numbers = (1..).zip(numbers.into_keys()).map(|(number, name)| (name, number)).collect();
            self.last_tenant = needed as u32;
            for identity in limits.filter(|identity| identity.by_tenant) {
                self.places.remove(&identity.name);
            }
        }
        self.tenants = numbers;
        Ok(())
    }

    /// The tallies of limits that `before` does not have. They have to be reset.
    pub fn new_tallies<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> + 'a {
        let was = |limit_id| before.places().any(|place| place.limit_id == limit_id);
        self.places().filter(move |place| !was(place.limit_id)).map(|place| place.tally)
    }

    /// A free tally. One that `before` does not use either is preferred, since packets still count under that
    /// policy.
    fn tally(&self, before: &Self) -> u32 {
        let taken = |held: &Self, tally| held.places().any(|place| place.tally == tally);
        let free = |tally: &u32| !taken(self, *tally);
        (0..TALLIES)
            .filter(free)
            .find(|tally| !taken(before, *tally))
            .or_else(|| (0..TALLIES).find(free))
            .unwrap_or(0)
    }

    /// Whether a limit has a word that an entry has no room for.
    pub fn has_further(&self) -> bool {
        self.places().any(|place| place.word.is_some_and(|word| word >= ENTRY_PLACES))
    }

    /// A free word, if the limit can be inline: one of so many that entries have room for, if there is such a one. One that
    /// `before` does not use either is preferred, so that its state is not lost if that policy comes back.
    fn word(&self, identity: &Identity, before: &Self, places: usize) -> Option<usize> {
        let taken = |held: &Self, word| held.places().any(|place| place.word == Some(word));
        let free = (0..INLINE).filter(|word| identity.inline && !taken(self, *word));
        free.min_by_key(|word| (*word >= places, taken(before, *word), *word))
    }
}

#[cfg(test)]
mod tests;
