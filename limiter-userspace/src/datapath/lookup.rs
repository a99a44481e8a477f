//! Looking at single entries of the maps, as packets do, without a trace of it.

use std::{ops::Range, sync::Arc};

use aya::Pod;
use limiter_common::{abi::layout::map, base::address::Address, memory::cache::Cached};

use super::{maps::Maps, prefix_rules::PrefixRules, sys};
use crate::{
    error::Result,
    policy::{Layered, recompile},
};

/// Nanoseconds of the clock that packets go by.
pub(crate) fn now() -> u64 {
    sys::monotonic()
}

impl Maps {
    /// The entry of a key, in a map that is not per CPU. A map that was not made has none.
    pub(crate) fn entry<K: Pod, V: Pod>(&self, name: &'static str, key: &K) -> Result<Option<V>> {
        Ok(self.with_map(name, |map| sys::lookup(map, key))?.flatten())
    }

    /// Calls `visit` with the entries of a hash map. A map that was not made has none.
    pub(crate) fn each<K: Pod + Default, V: Pod + Default>(
        &self,
        name: &'static str,
        visit: impl FnMut(&K, &V),
    ) -> Result<()> {
        self.with_map(name, |map| sys::for_each(map, visit)).map(|_done| ())
    }

    /// What the policy in force says of prefixes, with its epoch.
    pub(crate) fn prefix_rules(&self) -> Result<(u32, Arc<PrefixRules>)> {
        let (epoch, in_force) = self.in_force_with_epoch()?;
        if let Some((read, rules)) = &*self.rules.borrow()
            && *read == epoch
        {
            return Ok((epoch, Arc::clone(rules)));
        }
        let layered = Layered { policy: &in_force.policy, run_time: &in_force.run_time };
        let tables = recompile(layered, &in_force.held, &self.context(epoch)?)?;
        let rules = Arc::new(PrefixRules::new(tables));
        *self.rules.borrow_mut() = Some((epoch, Arc::clone(&rules)));
        Ok((epoch, rules))
    }

    /// What the CPUs hold of a source.
    pub fn cached(&self, source: &Address) -> Result<Vec<Cached>> {
        let first = u32::from(self.place(source)?.slot & !(Cached::SPREAD - 1));
        self.cached_in(first..first + u32::from(Cached::SPREAD), source)
    }

    /// What the CPUs hold of a source in one of its slots.
    pub(crate) fn cached_at(&self, slot: u16, source: &Address) -> Result<Vec<Cached>> {
        self.cached_in(slot.into()..u32::from(slot) + 1, source)
    }

    fn cached_in(&self, slots: Range<u32>, source: &Address) -> Result<Vec<Cached>> {
        let mut cached = self.cache(slots)?;
        cached.retain(|cached| cached.is_of(source));
        Ok(cached)
    }

    /// The caches of all CPUs, of these slots.
    pub(super) fn cache(&self, slots: Range<u32>) -> Result<Vec<Cached>> {
        Ok(self.with_map(map::CACHE, |map| sys::per_cpu_values(map, slots))?.unwrap_or_default())
    }
}
