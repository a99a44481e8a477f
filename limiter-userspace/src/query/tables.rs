//! The tables of the policy in force, read from the maps as the program reads them.

use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use aya::Pod;
use limiter_common::{
    abi::{
        layout::map,
        policy::{Profile, Settings, flag, half},
        state::SynSet,
    },
    algorithm::meter::Meter,
    base::address::Address,
    memory::handshake::{self, Handshake},
    packet::headers::Packet,
    policy::{control::Budgets, limit::Limit, matching::Sets},
};

use crate::{
    datapath::{maps::Maps, monitoring::Monitoring, prefix_rules::PrefixRules},
    error::{Error, Result},
};

/// The tables of an epoch, read on demand and kept. They do not change while the epoch is in force,
/// nor during the next epoch.
pub(super) struct Tables<'a> {
    pub(super) maps: &'a Maps,
    pub(super) epoch: u32,
    pub(super) settings: Settings,
    /// The settings of the previous epoch.
    pub(super) before: Settings,
    /// Whether the instance is in monitor mode.
    pub(super) monitoring: Monitoring,
    limits: Column<Limit>,
    classes: Column<u64>,
    profiles: Column<Profile>,
    meters: Column<Meter>,
    control: Column<Budgets>,
    rules: RefCell<Option<Arc<PrefixRules>>>,
}

impl<'a> Tables<'a> {
    /// The tables that are in force at `now`, in nanoseconds.
    pub(super) fn at(maps: &'a Maps, now: u64) -> Result<Self> {
        let (epoch, monitoring) = maps.monitoring_at(now)?;
        let halves = maps.read_head()?.settings;
        let [settings, before] = [0, 1].map(|other| halves[(epoch as usize ^ other) & 1]);
        Ok(Self {
            maps,
            epoch,
            settings,
            before,
            monitoring,
            limits: Column::new(map::LIMITS),
            classes: Column::new(map::MATCHING),
            profiles: Column::new(map::PROFILES),
            meters: Column::new(map::METERS),
            control: Column::new(map::CONTROL),
            rules: RefCell::default(),
        })
    }

    /// The limit that has this bit.
    pub(super) fn limit(&self, bit: u64) -> Result<Limit> {
        self.limits.get(self, Limit::row(bit))
    }

    /// A profile by its number.
    pub(super) fn profile(&self, number: u32) -> Result<Profile> {
        self.profiles.get(self, number)
    }

    /// A meter by its number.
    pub(super) fn meter(&self, number: u32) -> Result<Meter> {
        self.meters.get(self, number)
    }

    /// The budgets of control traffic on the interface in `slot`.
    pub(super) fn budgets(&self, slot: u32) -> Result<Budgets> {
        self.control.get(self, slot)
    }

    /// The number of a limit's meter for the sources of a profile.
    pub(super) fn meter_of(limit: &Limit, profile: &Profile) -> u32 {
        profile.meters.get(limit.override_column as usize).copied().unwrap_or(limit.meter)
    }

    /// The profile that the policy gives a source, by its key. `None` if another policy came into
    /// force meanwhile.
    pub(super) fn profile_of(&self, source: &Address) -> Result<Option<Profile>> {
        if self.settings.flags & flag::PREFIXES == 0 {
            return self.profile(0).map(Some);
        }
        Ok(self.rules()?.map(|rules| rules.profile(source)))
    }

    /// Bit set of the limits that match a destination.
    fn accepting(&self, destination: &Address) -> Result<u64> {
        // If the policy has changed, the fallback is never used: the caller asks again.
        let found = self.rules()?.and_then(|rules| rules.accepting(destination));
        Ok(found.unwrap_or(self.settings.default_destination_limits))
    }

    /// The policy's rules about prefixes; `None` if another policy came into force meanwhile.
    fn rules(&self) -> Result<Option<Arc<PrefixRules>>> {
        let mut known = self.rules.borrow_mut();
        if known.is_none() {
            let (epoch, rules) = self.maps.prefix_rules()?;
            *known = (epoch == self.epoch).then_some(rules);
        }
        Ok(known.clone())
    }

    /// Bit set of the limits on new connections that do not charge this packet, because it repeats
    /// a SYN that they charged.
    pub(super) fn charged_before(&self, packet: &Packet, now: u64) -> Result<u64> {
        let Some(key) = handshake::key(packet, self.settings.seed) else { return Ok(0) };
        let number = handshake::set(key, self.settings.handshake_sets);
        let set: SynSet = self.maps.entry(map::SYN_DEDUP, &number)?.unwrap_or_default();
        let Some(known) = set.get(handshake::find(|way| Handshake(set[way].handshake), key)) else {
            return Ok(0);
        };
        let handshake = Handshake(known.handshake);
        Ok(if handshake.repeated(now).is_none() {
            0
        } else if handshake.is_under(self.epoch) {
            known.charged
        } else {
            self.settings.connections
        })
    }

    /// Calls `ask` with the bit sets of limits that match each value of a packet's fields.
    ///
    /// # Errors
    /// The first error of reading a set. `ask` has then seen an empty set in its place.
    pub(super) fn with_sets<T>(&self, ask: impl FnOnce(&Read<'_>) -> T) -> Result<T> {
        let sets = Read { tables: self, failed: RefCell::default() };
        let answer = ask(&sets);
        match sets.failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }
}

/// The sets for [`classify`](limiter_common::policy::matching::classify), and the first error of
/// reading one.
pub(super) struct Read<'a> {
    tables: &'a Tables<'a>,
    failed: RefCell<Option<Error>>,
}

impl Read<'_> {
    fn found(&self, set: Result<u64>) -> u64 {
        set.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            0
        })
    }
}

impl Sets for Read<'_> {
    fn at(&self, place: u32) -> u64 {
        self.found(self.tables.classes.get(self.tables, place))
    }

    fn destination(&self, packet: &Packet) -> u64 {
        let address = Address { family: packet.source.family, words: packet.destination };
        self.found(self.tables.accepting(&address))
    }
}

/// The half of a policy map that belongs to the epoch, as far as it was read.
struct Column<V> {
    name: &'static str,
    read: RefCell<HashMap<u32, V>>,
}

impl<V: Pod> Column<V> {
    fn new(name: &'static str) -> Self {
        Self { name, read: RefCell::default() }
    }

    fn get(&self, tables: &Tables<'_>, number: u32) -> Result<V> {
        match self.read.borrow_mut().entry(number) {
            Entry::Occupied(read) => Ok(*read.get()),
            Entry::Vacant(place) => {
                let found = tables.maps.entry(self.name, &half(tables.epoch, number))?;
                let missing = || Error::Object {
                    action: format!("read the map {}", self.name),
                    reason: format!("it has no entry {number}"),
                };
                Ok(*place.insert(found.ok_or_else(missing)?))
            }
        }
    }
}
