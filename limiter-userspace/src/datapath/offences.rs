//! What is known of sources that were over limits with penalties.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::{
    abi::{
        layout::map,
        state::{OffenceHead, OffenceKey, OffenceRecord},
    },
    algorithm::binding::Binding,
    base::address::Address,
    memory::offence::{self, LINES, Place},
    policy::penalty::{Block, Offence},
};

use super::{maps::Maps, object::object, policy::in_force, sys};
use crate::error::Result;

impl Maps {
    /// Sets of offences; 0 if there is no such table.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn offence_sets(&self) -> Result<u32> {
        let Some(map) = self.find(map::OFFENCES)? else { return Ok(0) };
        let info = map.info().map_err(|error| object("look at the map OFFENCES", &error))?;
        Ok(offence::sets(info.max_entries()))
    }

    /// Returns what is known of an offence.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn offence(&self, key: &OffenceKey) -> Result<Option<Offence>> {
        let place = Place::of(&key.source, self.settings_in_force()?.seed, self.offence_sets()?);
        let Some(head) = self.entry::<u32, OffenceHead>(map::OFFENCES, &place.head)? else {
            return Ok(None);
        };
        for (line, tag) in (place.head..).zip(head.tags).skip(1) {
            if tag == place.tag
                && let Some(record) = self.entry::<u32, OffenceRecord>(map::OFFENCES, &line)?
                && record.key == *key
            {
                return Ok(Some(record.offence));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with the records of offences, and the numbers of their lines.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn each_offence(&self, mut visit: impl FnMut(u32, &OffenceRecord)) -> Result<()> {
        self.each(map::OFFENCES, |line: &u32, record: &OffenceRecord| {
            if !line.is_multiple_of(LINES) && record.key.source != Address::NONE {
                visit(*line, record);
            }
        })
    }

    /// Whether some limit, of any policy, blocked a source until later than `now`, in nanoseconds of
    /// the clock of the datapath. The penalty in force may have cut that, but the next one may not.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_blocked(&self, source: IpNet, now: u64) -> Result<bool> {
        let source = Address::from(source.addr());
        let sets = self.offence_sets()?;
        if sets == 0 {
            return Ok(false);
        }
        let head = Place::of(&source, self.settings_in_force()?.seed, sets).head;
        for line in head + 1..head + LINES {
            if let Some(record) = self.entry::<u32, OffenceRecord>(map::OFFENCES, &line)?
                && record.key.source == source
                && record.offence.blocked > now
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets what the sources in some prefixes did to be blocked, now or under another policy, and tells
    /// whether there was something. Their packets find that out when the next policy is applied, which
    /// may be the same one; so do those of a source that is blocked still though what it did had to
    /// make room for others. The caller holds the lock.
    ///
    /// # Errors
    /// What the system says; some may be forgotten then.
    pub fn forgive(&mut self, prefixes: &[IpNet]) -> Result<bool> {
        // One pass over the records, however many prefixes there are.
        let cover = Disjoint::of(prefixes);
        let mut found = Vec::new();
        self.each_offence(|line, record| {
            if IpAddr::try_from(record.key.source).is_ok_and(|address| cover.has(address)) {
                found.push((line, record.key));
            }
        })?;
        self.with_map(map::OFFENCES, |map| {
            found.iter().try_for_each(|(line, key)| {
                // One that made room for another meanwhile is gone.
                match sys::lookup::<u32, OffenceRecord>(map, line)? {
                    Some(record) if record.key == *key => {
                        sys::update(map, &[*line], &[OffenceRecord::default()])
                    }
                    _ => Ok(()),
                }
            })
        })?;
        Ok(!found.is_empty())
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

/// Prefixes that do not overlap, in order.
pub(crate) struct Disjoint(Vec<IpNet>);

impl Disjoint {
    /// The fewest prefixes that have the addresses of these, and no others.
    pub(crate) fn of(prefixes: &[IpNet]) -> Self {
        Self(IpNet::aggregate(&prefixes.to_vec()))
    }

    /// Whether one of them has an address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let Self(prefixes) = self;
        let before = prefixes.partition_point(|prefix| prefix.broadcast() < address);
        prefixes.get(before).is_some_and(|prefix| prefix.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_among_prefixes_of_both_families() {
        let prefixes =
            ["2001:db8::/48", "10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "192.0.2.6/32"];
        let disjoint = Disjoint::of(&prefixes.map(|prefix| prefix.parse().unwrap()));
        let has = |address: &str| disjoint.has(address.parse().unwrap());
        for address in ["10.0.0.0", "10.255.255.255", "192.0.2.6", "192.0.2.7", "2001:db8:0:1::"] {
            assert!(has(address), "{address}");
        }
        for address in ["9.255.255.255", "11.0.0.0", "192.0.2.5", "192.0.2.8", "2001:db8:1::", "::"]
        {
            assert!(!has(address), "{address}");
        }
        assert!(!Disjoint::of(&[]).has("10.0.0.1".parse().unwrap()));
    }
}
