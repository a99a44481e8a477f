//! The sources that limits block for a while.

use std::{net::IpAddr, os::fd::AsFd as _, time::Duration};

use limiter_common::{
    address::Address,
    contract::{Source, flag, map},
};

use super::{maps::Maps, sys};
use crate::error::{Error, Result};

/// A source that a limit blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The address of the source, or of its prefix.
    pub address: IpAddr,
    /// The prefix length that makes a source of its family.
    pub prefix: u8,
    /// For how long it is blocked still.
    pub left: Duration,
    /// How many blocks came without a rest between them.
    pub blocks: u64,
}

impl Maps {
    /// The sources that are blocked now because they stayed over a limit, those with most time left
    /// first.
    ///
    /// # Errors
    /// What the system says, or why the policy cannot be read.
    pub fn blocked(&self) -> Result<Vec<Blocked>> {
        let prefix = self.in_force()?.policy.key_prefix;
        let settings = self.read_head()?.settings;
        // Without a limit that has a penalty, packets do not look at it.
        if settings[self.epoch()? as usize & 1].flags & flag::PENALTIES == 0 {
            return Ok(Vec::new());
        }
        let now = sys::monotonic();
        let mut blocked = Vec::new();
        sys::for_each::<Address, Source>(
            self.raw(map::SOURCES)?.fd().as_fd(),
            |address, source| {
                let left = source.blocked.saturating_sub(now);
                if left == 0 {
                    return;
                }
                if let Ok(address) = IpAddr::try_from(*address) {
                    let prefix = if address.is_ipv4() { prefix.ipv4 } else { prefix.ipv6 };
                    let left = Duration::from_nanos(left);
                    blocked.push(Blocked { address, prefix, left, blocks: source.blocks });
                }
            },
        )
        .map_err(|error| Error::system("read the sources", error))?;
        // While entries come and go, one may be seen twice.
        blocked.sort_unstable_by_key(|source| source.address);
        blocked.dedup_by_key(|source| source.address);
        blocked.sort_by_key(|source| std::cmp::Reverse(source.left));
        Ok(blocked)
    }
}
