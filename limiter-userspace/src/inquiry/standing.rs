//! How a source stands that the datapath told of.

use std::net::IpAddr;

use limiter_common::{address::Address, packet::Packet};

use super::{
    Inquiry,
    entries::source_of,
    limit::{LimitReport, OF_SOURCE, kept},
    source::{found, source_name},
    state::SourceState,
};
use crate::error::Result;

/// A source, and the limit that it was over.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The source: an address, or the prefix that makes one.
    pub source: String,
    /// The limit as it stands for it now; nothing if it is not about it any more.
    pub limit: Option<LimitReport>,
}

impl Inquiry<'_> {
    /// How the source of a key stands by the limit that is counted in a slot of the tallies. Nothing for
    /// what is no key of a source under the policy in force.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`](super::InquiryError::Changing).
    pub fn standing(&mut self, key: Address, tally: u32, now: u64) -> Result<Option<Standing>> {
        let prefix = self.entries.policy().key_prefix;
        let Some(source) = source_of(prefix, &key) else { return Ok(None) };
        let limit =
            self.steadily(now, |inquiry| inquiry.limit_of(key, source.addr(), tally, now))?;
        Ok(Some(Standing { source: source_name(source), limit }))
    }

    fn limit_of(
        &self,
        key: Address,
        address: IpAddr,
        tally: u32,
        now: u64,
    ) -> Result<Option<Option<LimitReport>>> {
        let Self { tables, entries, .. } = self;
        let Some(state) = found(SourceState::find(tables, key, now)?) else { return Ok(None) };
        let about = |bit: u64| bit & state.profile.limits != 0;
        let entry = entries.iter().find(|entry| entry.tally == tally && about(entry.bit));
        let Some(entry) = entry else { return Ok(Some(None)) };
        let packet = Packet { source: key, ..Packet::UNREADABLE };
        let limit = tables.limit(entry.bit)?;
        let kept = kept(tables, &state, &limit, (&packet, 0, OF_SOURCE), now)?;
        let setting = entry.set_for(address, entries.tenant(state.profile.tenant));
        let prefix = entries.policy().key_prefix;
        Ok(Some(Some(LimitReport { kept, ..LimitReport::new(&entry, setting, prefix) })))
    }
}
