//! The sources that limits block for a while.

use std::{collections::BTreeSet, net::IpAddr, os::fd::AsFd as _, time::Duration};

use ipnet::IpNet;
use limiter_common::contract::{Offence, OffenceKey, map};

use super::{
    Inquiry,
    entries::source_of,
    lists::{Lists, Until},
    source::found,
    state::SourceState,
};
use crate::{
    datapath::sys,
    error::{Error, Result},
};

/// A source that a limit blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The source: an address, or a prefix of that length that makes one.
    pub source: IpNet,
    /// The limit; `None` if that is not known any more.
    pub limit: Option<String>,
    /// For how long it is blocked still.
    pub left: Duration,
    /// How many blocks came without a rest between them.
    pub blocks: u64,
}

impl Inquiry<'_> {
    /// The sources that are blocked now because they stayed over a limit, those with most time left
    /// first.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`](super::InquiryError::Changing).
    pub fn blocked(&mut self, now: u64) -> Result<Vec<Blocked>> {
        self.steadily(now, |inquiry| inquiry.find_blocked(now))
    }

    fn find_blocked(&self, now: u64) -> Result<Option<Vec<Blocked>>> {
        let Self { maps, tables, entries } = self;
        if tables.settings.penalties == 0 {
            // Nobody's entry need be looked at for that.
            return Ok(Some(Vec::new()));
        }
        let mut offenders = BTreeSet::new();
        let map = maps.raw(map::OFFENCES)?.fd().as_fd();
        sys::for_each::<OffenceKey, Offence>(map, |key, offence| {
            if offence.blocked > now
                && let Ok(address) = IpAddr::try_from(key.source)
            {
                offenders.insert(address);
            }
        })
        .map_err(|error| Error::system("read who was over limits", error))?;
        // What they did may have had to make room for others.
        maps.blocked_sources(now, |address| {
            offenders.insert(address);
        })?;
        let mut blocked = Vec::new();
        for address in offenders {
            let key = address.into();
            let Some(source) = source_of(entries.policy().key_prefix, &key) else { continue };
            let Some(state) = found(SourceState::find(tables, key, now)?) else { return Ok(None) };
            let block = Lists::of(entries, &state, now).penalty;
            if let Some(block) = block
                && let Until::For(left) = block.until
            {
                blocked.push(Blocked { source, limit: block.limit, left, blocks: block.blocks });
            }
        }
        blocked.sort_by_key(|source| std::cmp::Reverse(source.left));
        Ok(Some(blocked))
    }
}
