//! What is known of sources that were over limits with penalties.

use std::{collections::BTreeSet, net::IpAddr, os::fd::AsFd as _};

use aya::maps::MapError;
use ipnet::IpNet;
use limiter_common::{
    address::Address,
    contract::{Offence, OffenceKey, map},
};

use super::{
    maps::{Maps, object},
    sys,
};
use crate::error::{Error, Result};

impl Maps {
    /// Whether some limit, of any policy, blocked a source until later than `now`, in nanoseconds of
    /// the clock of the datapath.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_blocked(&self, source: IpNet, now: u64) -> Result<bool> {
        let (mut blocked, source) = (false, Address::from(source.addr()));
        let map = self.raw(map::OFFENCES)?.fd().as_fd();
        sys::for_each::<OffenceKey, Offence>(map, |key, offence| {
            blocked |= key.source == source && offence.blocked > now;
        })
        .map_err(|error| Error::system("read who was over limits", error))?;
        Ok(blocked)
    }

    /// Forgets what the sources in a prefix did to be blocked, and tells how many of them were at
    /// `now`, in nanoseconds of the clock of the datapath. Their packets find that out when the
    /// next policy is applied, which may be the same one. The caller holds the lock.
    ///
    /// # Errors
    /// What the system says; some may be forgotten then.
    pub fn forgive(&mut self, prefix: IpNet, now: u64) -> Result<usize> {
        let (mut keys, mut blocked) = (Vec::new(), BTreeSet::new());
        let map = self.raw(map::OFFENCES)?.fd().as_fd();
        sys::for_each::<OffenceKey, Offence>(map, |key, offence| {
            if let Ok(address) = IpAddr::try_from(key.source)
                && prefix.contains(&address)
            {
                keys.push(*key);
                if offence.blocked > now {
                    blocked.insert(address);
                }
            }
        })
        .map_err(|error| Error::system("read who was over limits", error))?;
        for key in keys {
            match self.offences.remove(&key) {
                // Another one made room.
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(object("forget who was over limits", &error)),
            }
        }
        Ok(blocked.len())
    }
}
