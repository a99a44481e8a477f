//! The policy and its edits.

use std::collections::BTreeMap;

use ipnet::IpNet;
use limiter_common::{
    gcra::Gcra,
    limit::{LIMITS, Limit},
    rate::{Rate, RateError},
};
use serde::{Deserialize, Serialize};

use super::{error::PolicyError, units::prefix::check_prefix};

/// What all limits admit to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What of an address makes a source.
    pub key_prefix: KeyPrefix,
    limits: [LimitPolicy; LIMITS],
}

/// The prefix lengths that make a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPrefix {
    /// Of IPv4, 0 to 32.
    pub ipv4: u8,
    /// Of IPv6, 0 to 128.
    pub ipv6: u8,
}

/// What one limit admits to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitPolicy {
    /// For sources without an override; `None` for no limit.
    pub default: Option<Bucket>,
    /// For the sources within a prefix; the longest that contains a source holds for it.
    pub overrides: BTreeMap<IpNet, Bucket>,
}

impl LimitPolicy {
    /// Whether no source is limited.
    pub fn is_off(&self) -> bool {
        self.default.is_none() && self.overrides.is_empty()
    }
}

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// What is admitted in the long run.
    pub rate: Rate,
    /// Packets admitted at once after a rest, at least 1.
    pub burst: u64,
}

impl Bucket {
    /// A bucket that the datapath can keep.
    ///
    /// # Errors
    /// [`PolicyError::RateOutOfBounds`], [`PolicyError::NoBurst`] or
    /// [`PolicyError::BurstTooLong`].
    pub fn new(rate: Rate, burst: u64) -> Result<Self, PolicyError> {
        let bucket = Self { rate, burst };
        bucket.gcra().map(|_| bucket)
    }

    /// The parameters that the datapath keeps it with.
    pub(super) fn gcra(self) -> Result<Gcra, PolicyError> {
        let Self { rate, burst } = self;
        rate.bucket(burst).map_err(|error| match error {
            RateError::Zero | RateError::TooFast | RateError::TooSlow => {
                PolicyError::RateOutOfBounds { packets: rate.packets, period: rate.period }
            }
            RateError::NoBurst => PolicyError::NoBurst,
            RateError::BurstTooLong => {
                let interval = rate.bucket(1).map_or(Gcra::MAX_DEPTH, |gcra| gcra.interval);
                PolicyError::BurstTooLong { rate, burst, largest: Gcra::MAX_DEPTH / interval }
            }
        })
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

impl KeyPrefix {
    /// The length that makes a source of the family of `prefix`.
    pub const fn length_for(self, prefix: &IpNet) -> u8 {
        match prefix {
            IpNet::V4(_) => self.ipv4,
            IpNet::V6(_) => self.ipv6,
        }
    }

    fn check(self) -> Result<(), PolicyError> {
        for (family, length, bits) in [("IPv4", self.ipv4, 32), ("IPv6", self.ipv6, 128)] {
            if length > bits {
                return Err(PolicyError::KeyPrefixTooLong { family, length, bits });
            }
        }
        Ok(())
    }

    fn check_override(self, prefix: IpNet) -> Result<(), PolicyError> {
        check_prefix(prefix)?;
        let length = self.length_for(&prefix);
        if prefix.prefix_len() > length {
            return Err(PolicyError::OverrideTooNarrow { prefix, length });
        }
        Ok(())
    }
}

impl Policy {
    /// The policy of one limit.
    pub const fn limit(&self, limit: Limit) -> &LimitPolicy {
        &self.limits[limit.index()]
    }

    /// The policy of one limit, to be changed unchecked; see [`check`](Self::check).
    pub const fn limit_mut(&mut self, limit: Limit) -> &mut LimitPolicy {
        &mut self.limits[limit.index()]
    }

    /// Checks all of it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.key_prefix.check()?;
        for limit in &self.limits {
            if let Some(bucket) = limit.default {
                bucket.gcra()?;
            }
            for (&prefix, bucket) in &limit.overrides {
                self.key_prefix.check_override(prefix)?;
                bucket.gcra()?;
            }
        }
        Ok(())
    }

    /// Sets what a limit admits to sources without an override.
    ///
    /// # Errors
    /// See [`Bucket::new`].
    pub fn set_default(&mut self, limit: Limit, bucket: Bucket) -> Result<(), PolicyError> {
        bucket.gcra()?;
        self.limit_mut(limit).default = Some(bucket);
        Ok(())
    }

    /// Sets what a limit admits to each source within `prefix`.
    ///
    /// # Errors
    /// See [`Bucket::new`]; and [`PolicyError::OverrideTooNarrow`], or [`PolicyError::Value`] for a
    /// prefix with host bits.
    pub fn set_override(
        &mut self,
        limit: Limit,
        prefix: IpNet,
        bucket: Bucket,
    ) -> Result<(), PolicyError> {
        self.key_prefix.check_override(prefix)?;
        bucket.gcra()?;
        self.limit_mut(limit).overrides.insert(prefix, bucket);
        Ok(())
    }

    /// Removes what a limit admits to sources without an override; its overrides stay.
    ///
    /// # Errors
    /// [`PolicyError::NotSet`].
    pub fn del_default(&mut self, limit: Limit) -> Result<Bucket, PolicyError> {
        let LimitPolicy { default, overrides } = self.limit_mut(limit);
        default.take().ok_or(PolicyError::NotSet { limit, overrides: overrides.len() })
    }

    /// Removes an override of a limit.
    ///
    /// # Errors
    /// [`PolicyError::NoOverride`], with the overrides that are nearest.
    pub fn del_override(&mut self, limit: Limit, prefix: IpNet) -> Result<Bucket, PolicyError> {
        let overrides = &mut self.limit_mut(limit).overrides;
        overrides.remove(&prefix).ok_or_else(|| {
            let mut nearest: Vec<_> = overrides.keys().copied().collect();
            let total = nearest.len();
            nearest.sort_by_key(|&other| std::cmp::Reverse(bits_in_common(prefix, other)));
            nearest.truncate(PolicyError::NEAREST);
            PolicyError::NoOverride { limit, prefix, nearest, total }
        })
    }

    /// Sets what of an address makes a source.
    ///
    /// # Errors
    /// [`PolicyError::KeyPrefixTooLong`], or [`PolicyError::KeyPrefixTooWide`] when an override
    /// would be within a source.
    pub fn set_key_prefix(&mut self, key_prefix: KeyPrefix) -> Result<(), PolicyError> {
        key_prefix.check()?;
        for limit in Limit::ALL {
            for &prefix in self.limit(limit).overrides.keys() {
                let length = key_prefix.length_for(&prefix);
                if prefix.prefix_len() > length {
                    return Err(PolicyError::KeyPrefixTooWide { limit, prefix, length });
                }
            }
        }
        self.key_prefix = key_prefix;
        Ok(())
    }
}

/// Leading bits that two prefixes share; `None` for those of different families.
fn bits_in_common(a: IpNet, b: IpNet) -> Option<u32> {
    let differing = match (a, b) {
        (IpNet::V4(a), IpNet::V4(b)) => (a.addr().to_bits() ^ b.addr().to_bits()).leading_zeros(),
        (IpNet::V6(a), IpNet::V6(b)) => (a.addr().to_bits() ^ b.addr().to_bits()).leading_zeros(),
        _ => return None,
    };
    Some(differing.min(a.prefix_len().into()).min(b.prefix_len().into()))
}

#[cfg(test)]
mod tests;
