//! A policy as lists that are searched linearly.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limiter_userspace::policy::{
    Bucket, Builtin, KeyPrefix, Policy,
    model::{GlobalMode, Listed, Whom},
    units::prefix::parse_prefix,
};

use super::{BUILTINS, set_override};

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

fn contains((prefix, length): (IpAddr, u8), source: IpAddr) -> bool {
    prefix.is_ipv4() == source.is_ipv4() && truncated(source, length) == prefix
}

#[derive(Clone, Debug, Default)]
pub(super) struct Naive {
    pub(super) key_prefix: KeyPrefix,
    /// Whether frames that would be dropped pass.
    pub(super) monitor: bool,
    /// The entries of `allow`, `deny` and `penalty`, in the order of precedence.
    lists: [Vec<(IpAddr, u8)>; List::ALL.len()],
    limits: [NaiveLimit; BUILTINS],
}

/// The lists of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Allow,
    Deny,
    Block,
}

impl List {
    pub(super) const ALL: [Self; 3] = [Self::Allow, Self::Deny, Self::Block];
}

#[derive(Clone, Debug, Default)]
struct NaiveLimit {
    default: Option<Bucket>,
    overrides: Vec<(IpAddr, u8, Bucket)>,
}

impl Naive {
    pub(super) fn set_default(&mut self, limit: Builtin, bucket: Bucket) {
        self.limits[limit as usize].default = Some(bucket);
    }

    /// Sets the bucket of sources within a prefix.
    pub(super) fn set_override(
        &mut self,
        limit: Builtin,
        address: IpAddr,
        length: u8,
        bucket: Bucket,
    ) {
        let prefix = truncated(address, length);
        let overrides = &mut self.limits[limit as usize].overrides;
        overrides.retain(|(other, others, _)| (*other, *others) != (prefix, length));
        overrides.push((prefix, length, bucket));
    }

    /// Lists the sources within a prefix.
    pub(super) fn list(&mut self, list: List, address: IpAddr, length: u8) {
        self.lists[list as usize].push((truncated(address, length), length));
    }

    /// The first list that contains a source.
    pub(super) fn listed(&self, source: IpAddr) -> Option<List> {
        List::ALL
            .into_iter()
            .find(|list| self.lists[*list as usize].iter().any(|of| contains(*of, source)))
    }

    /// The source that an address belongs to.
    pub(super) fn key(&self, source: IpAddr) -> IpAddr {
        let KeyPrefix { ipv4, ipv6 } = self.key_prefix;
        truncated(source, if source.is_ipv4() { ipv4 } else { ipv6 })
    }

    /// The bucket of a source under a limit; `source` is `None` for frames that cannot be read.
    pub(super) fn bucket(&self, limit: Builtin, source: Option<IpAddr>) -> Option<Bucket> {
        let NaiveLimit { default, overrides } = &self.limits[limit as usize];
        let longest = source.and_then(|source| {
            let holds = |(prefix, length, _): &&(_, _, _)| contains((*prefix, *length), source);
            overrides.iter().filter(holds).max_by_key(|(_, length, _)| *length)
        });
        longest.map_or(*default, |(_, _, bucket)| Some(*bucket))
    }

    /// The same policy for the program.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        policy.set_key_prefix(self.key_prefix).unwrap();
        policy.mode = if self.monitor { GlobalMode::Monitor } else { GlobalMode::Enforce };
        for list in List::ALL {
            let entries = match list {
                List::Allow => &mut policy.allow,
                List::Deny => &mut policy.deny,
                List::Block => &mut policy.penalties,
            };
            for (prefix, length) in &self.lists[list as usize] {
                let prefix = parse_prefix(&format!("{prefix}/{length}")).unwrap();
                entries.push(Listed { whom: Whom::Prefix(prefix), until: None });
            }
        }
        for limit in Builtin::ALL {
            let NaiveLimit { default, overrides } = &self.limits[limit as usize];
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
