//! A policy as lists that are looked through from end to end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limiter_common::limit::{LIMITS, Limit};
use limiter_userspace::policy::{Bucket, KeyPrefix, Policy};

use super::set_override;

/// The first `length` bits of an address.
pub(super) fn truncated(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Naive {
    pub(super) key_prefix: KeyPrefix,
    limits: [NaiveLimit; LIMITS],
}

#[derive(Clone, Debug, Default)]
struct NaiveLimit {
    default: Option<Bucket>,
    overrides: Vec<(IpAddr, u8, Bucket)>,
}

impl Naive {
    pub(super) fn set_default(&mut self, limit: Limit, bucket: Bucket) {
        self.limits[limit.index()].default = Some(bucket);
    }

    /// Sets the bucket of sources that have the first `length` bits of an address.
    pub(super) fn set_override(
        &mut self,
        limit: Limit,
        address: IpAddr,
        length: u8,
        bucket: Bucket,
    ) {
        let prefix = truncated(address, length);
        let overrides = &mut self.limits[limit.index()].overrides;
        overrides.retain(|(other, others, _)| (*other, *others) != (prefix, length));
        overrides.push((prefix, length, bucket));
    }

    /// What makes a source of an address.
    pub(super) fn key(&self, source: IpAddr) -> IpAddr {
        let KeyPrefix { ipv4, ipv6 } = self.key_prefix;
        truncated(source, if source.is_ipv4() { ipv4 } else { ipv6 })
    }

    /// What a limit admits to a source; `None` is the one of those that cannot be read.
    pub(super) fn bucket(&self, limit: Limit, source: Option<IpAddr>) -> Option<Bucket> {
        let NaiveLimit { default, overrides } = &self.limits[limit.index()];
        let longest = source.and_then(|source| {
            let holds = |(prefix, length, _): &&(IpAddr, u8, Bucket)| {
                prefix.is_ipv4() == source.is_ipv4() && truncated(source, *length) == *prefix
            };
            overrides.iter().filter(holds).max_by_key(|(_, length, _)| *length)
        });
        longest.map_or(*default, |(_, _, bucket)| Some(*bucket))
    }

    /// The same for the program.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        policy.set_key_prefix(self.key_prefix).unwrap();
        for limit in Limit::ALL {
            let NaiveLimit { default, overrides } = &self.limits[limit.index()];
            if let Some(bucket) = default {
                policy.set_default(limit, *bucket).unwrap();
            }
            for (prefix, length, bucket) in overrides {
                set_override(&mut policy, limit, &format!("{prefix}/{length}"), *bucket);
            }
        }
        policy
    }
}
