//! The sources that limits block because they stayed over them, or that were pushed.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use super::{
    Inquiry,
    entries::source_of,
    lists::{Lists, Until},
    sample::MOST,
    state::SourceState,
    thinned::Thinned,
};
use crate::error::Result;
use ipnet::IpNet;

/// A source that a limit or a push blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The source: an address, or the prefix that counts as one source.
    pub source: IpNet,
    /// Whether the block was pushed.
    pub pushed: bool,
    /// The limit; `None` if there is no record of the offence.
    pub limit: Option<String>,
    /// The time left of the block.
    pub left: Duration,
    /// How many blocks, this one included, came without a rest between them.
    pub blocks: u64,
}

impl Inquiry<'_> {
    /// Returns the sources that a limit blocks now, those with the most time left first.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with
    /// [`InquiryError::Changing`](crate::query::InquiryError::Changing) if the policy changed
    /// during every attempt.
    pub fn blocked(&mut self, now: u64) -> Result<Vec<Blocked>> {
        self.steadily(now, |inquiry| inquiry.find_blocked(now))
    }

    /// Returns the number of sources that a limit blocks now. It is an estimate from a sample if
    /// more than [`MOST`] sources may be blocked.
    ///
    /// # Errors
    /// As [`blocked`](Self::blocked).
    pub fn blocked_number(&mut self, now: u64) -> Result<u64> {
        self.steadily(now, |inquiry| {
            let mut sample = Thinned::new(MOST, now);
            inquiry.offenders(now)?.into_iter().for_each(|address| sample.offer(|| address));
            let (mut looked, mut blocked) = (0, 0);
            for address in sample.kept() {
                match inquiry.block_of(*address, now)? {
                    Asked::Changing => continue,
                    Asked::Free => {}
                    Asked::Blocked(_) => blocked += 1,
                }
                looked += 1;
            }
            Ok(Some(sample.seen() * blocked / looked.max(1)))
        })
    }

    fn find_blocked(&self, now: u64) -> Result<Option<Vec<Blocked>>> {
        let mut blocked = Vec::new();
        for address in self.offenders(now)? {
            match self.block_of(address, now)? {
                Asked::Changing => return Ok(None),
                Asked::Free => {}
                Asked::Blocked(source) => blocked.push(source),
            }
        }
        blocked.sort_by_key(|source| std::cmp::Reverse(source.left));
        Ok(Some(blocked))
    }

    /// The sources that a limit may block: those with a record of a block, and those whose entry
    /// has one.
    fn offenders(&self, now: u64) -> Result<BTreeSet<IpAddr>> {
        let Self { maps, tables, .. } = self;
        let mut offenders = BTreeSet::new();
        if tables.settings.penalties == 0 {
            // Without penalties no source can be blocked, so no entry needs to be read.
            return Ok(offenders);
        }
        maps.each_offence(|_, record| {
            if record.offence.blocked > now
                && let Ok(address) = IpAddr::try_from(record.key.source)
            {
                offenders.insert(address);
            }
        })?;
        // A command may have blanked the record of an offence while the block in the entry lasts.
        maps.blocked_sources(now, |address| {
            offenders.insert(address);
        })?;
        Ok(offenders)
    }

    /// Looks up whether a limit blocks a source.
    fn block_of(&self, address: IpAddr, now: u64) -> Result<Asked> {
        let Self { tables, entries, .. } = self;
        let key = address.into();
        // Under an earlier policy it may have been a smaller source. No packet finds its block.
        let is_first = |source: &IpNet| source.network() == source.addr();
        let Some(source) = source_of(entries.policy().key_prefix, &key).filter(is_first) else {
            return Ok(Asked::Free);
        };
        let Some(state) = SourceState::find(tables, key, now)?.settled() else {
            return Ok(Asked::Changing);
        };
        let block = Lists::of(entries, &state, now).penalty;
        if let Some(block) = block
            && let Until::For(left) = block.until
        {
            return Ok(Asked::Blocked(Blocked {
                source,
                pushed: block.pushed,
                limit: block.limit,
                left,
                blocks: block.blocks,
            }));
        }
        Ok(Asked::Free)
    }
}

/// The result of looking up a source.
enum Asked {
    /// A limit blocks it.
    Blocked(Blocked),
    /// No limit blocks it.
    Free,
    /// It is changing, and is to be looked up again.
    Changing,
}
