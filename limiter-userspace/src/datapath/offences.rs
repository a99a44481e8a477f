//! What is known of sources that were over limits with penalties.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::{
    abi::{
        layout::map,
        state::{Offence, OffenceKey},
    },
    algorithm::binding::Binding,
    base::address::Address,
    policy::penalty::Block,
};

use super::{maps::Maps, policy::in_force, sys};
use crate::error::Result;

impl Maps {
    /// Whether some limit, of any policy, blocked a source until later than `now`, in nanoseconds of
    /// the clock of the datapath. The penalty in force may have cut that, but the next one may not.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_blocked(&self, source: IpNet, now: u64) -> Result<bool> {
        let (mut blocked, source) = (false, Address::from(source.addr()));
        self.each(map::OFFENCES, |key: &OffenceKey, offence: &Offence| {
            blocked |= key.source == source && offence.blocked > now;
        })?;
        Ok(blocked)
    }

    /// Forgets what the sources in a prefix did to be blocked, now or under another policy, and tells
    /// whether there was something. Their packets find that out when the next policy is applied, which
    /// may be the same one; so do those of a source that is blocked still though what it did had to
    /// make room for others. The caller holds the lock.
    ///
    /// # Errors
    /// What the system says; some may be forgotten then.
    pub fn forgive(&mut self, prefix: IpNet) -> Result<bool> {
        let mut keys = Vec::new();
        self.each(map::OFFENCES, |key: &OffenceKey, _: &Offence| {
            if IpAddr::try_from(key.source).is_ok_and(|address| prefix.contains(&address)) {
                keys.push(*key);
            }
        })?;
        // Those that made room for others meanwhile are gone.
        self.with_map(map::OFFENCES, |map| keys.iter().try_for_each(|key| sys::remove(map, key)))?;
        Ok(!keys.is_empty())
    }

    /// Calls `visit` with the sources whose entries say that a limit blocked them until later than
    /// `now`, in nanoseconds of the clock of the datapath. Their packets go by that, not by what is
    /// known of their offences, until they are bound to the next policy.
    pub(crate) fn blocked_sources(&self, now: u64, mut visit: impl FnMut(IpAddr)) -> Result<()> {
        let epoch = in_force(&self.read_head()?, now);
        self.each_source(|_, source| {
            let binding = Binding(source.binding);
            if Block(source.blocked).until(binding) > now
                && binding.is_under(epoch)
                && let Ok(address) = IpAddr::try_from(source.address)
            {
                visit(address);
            }
        })
    }
}
