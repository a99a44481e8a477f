//! Looking at single entries of the maps, as packets do, without a trace of it.

use std::os::fd::AsFd as _;

use aya::{
    Pod,
    maps::{MapData, MapError, lpm_trie::Key},
};
use limiter_common::{
    address::Address,
    contract::{Interface, map},
    refused::Refused,
};

use super::{
    interface,
    maps::{Maps, object},
    sys,
};
use crate::error::{Error, Result};

/// Nanoseconds of the clock that packets go by.
pub(crate) fn now() -> u64 {
    sys::monotonic()
}

/// A trie of prefixes; none when no prefix is in it.
pub(crate) struct Trie(Option<MapData>);

impl Trie {
    /// What is said of the longest prefix that has an address.
    pub(crate) fn find<V: Pod>(&self, address: &Address) -> Result<Option<V>> {
        let Some(trie) = &self.0 else { return Ok(None) };
        sys::lookup(trie.fd().as_fd(), &Key::new(Address::BITS, *address))
            .map_err(|error| Error::system("read a table of prefixes", error))
    }
}

impl Maps {
    /// The entry of a key, in a map that is not per CPU.
    pub(crate) fn entry<K: Pod, V: Pod>(&self, name: &'static str, key: &K) -> Result<Option<V>> {
        sys::lookup(self.raw(name)?.fd().as_fd(), key)
            .map_err(|error| Error::system(format!("read the map {name}"), error))
    }

    /// Calls `visit` with the entries of a hash map.
    pub(crate) fn each<K: Pod + Default, V: Pod + Default>(
        &self,
        name: &'static str,
        visit: impl FnMut(&K, &V),
    ) -> Result<()> {
        sys::for_each(self.raw(name)?.fd().as_fd(), visit)
            .map_err(|error| Error::system(format!("read the map {name}"), error))
    }

    /// The prefixes of sources under an epoch.
    pub(crate) fn prefixes_of(&self, epoch: u32) -> Result<Trie> {
        opened(map::PREFIXES, self.prefixes.get(&(epoch & 1), 0))
    }

    /// The prefixes of destinations under an epoch.
    pub(crate) fn destinations_of(&self, epoch: u32) -> Result<Trie> {
        opened(map::DESTINATIONS, self.destinations.get(&(epoch & 1), 0))
    }

    /// What the CPUs remember in the place of a source that they refuse for a while.
    pub(crate) fn remembered(&self, source: &Address) -> Result<Vec<Refused>> {
        let per_cpu = self
            .refused
            .get(&Refused::slot(source), 0)
            .map_err(|error| object("read the refused sources", &error))?;
        Ok(per_cpu.iter().copied().collect())
    }

    /// The slots that interfaces are in, with the names that they had when they were attached.
    pub(crate) fn slots(&self) -> Result<Vec<(u32, String)>> {
        let mut slots = Vec::new();
        for (slot, interface) in (0..).zip(self.interfaces.iter()) {
            let interface: Interface =
                interface.map_err(|error| object("read the interfaces", &error))?;
            if interface.namespace != 0 {
                slots.push((slot, interface::recorded(&interface.name)));
            }
        }
        Ok(slots)
    }
}

fn opened(name: &str, trie: Result<MapData, MapError>) -> Result<Trie> {
    match trie {
        Ok(trie) => Ok(Trie(Some(trie))),
        Err(MapError::KeyNotFound) => Ok(Trie(None)),
        // The kernel gives a map by its number only to the administrator.
        Err(error) => {
            let action = format!("open a table in the map {name}, which takes CAP_SYS_ADMIN");
            Err(object(action, &error))
        }
    }
}
