//! The limit that an event of the datapath names, for the source of the event.

use limiter_common::{base::address::Address, packet::headers::Packet};

use super::{
    Inquiry,
    entries::source_of,
    limit::{LimitReport, OF_SOURCE, kept},
    source::source_name,
    state::SourceState,
};
use crate::error::Result;

impl Inquiry<'_> {
    /// The name of a source under the policy in force, from its key.
    pub fn name_of(&self, key: &Address) -> Option<String> {
        source_of(self.entries.policy().key_prefix, key).map(source_name)
    }

    /// The name of the limit, layer or candidate that is counted in slot `tally`.
    pub fn limit_of_tally(&self, tally: u32) -> Option<String> {
        self.entries.iter().find(|entry| entry.tally == tally).map(|entry| entry.name.clone())
    }

    /// Returns the limit that is counted in slot `tally`, for the source of a key; `None` if it
    /// does not apply to the source any more.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with
    /// [`InquiryError::Changing`](crate::query::InquiryError::Changing) if the policy changed
    /// during every attempt.
    pub fn standing(&mut self, key: Address, tally: u32, now: u64) -> Result<Option<LimitReport>> {
        self.steadily(now, |inquiry| inquiry.limit_of(key, tally, now))
    }

    fn limit_of(&self, key: Address, tally: u32, now: u64) -> Result<Option<Option<LimitReport>>> {
        let Self { tables, entries, .. } = self;
        let prefix = entries.policy().key_prefix;
        let Some(source) = source_of(prefix, &key) else { return Ok(Some(None)) };
        let Some(state) = SourceState::find(tables, key, now)?.settled() else { return Ok(None) };
        let about = |bit: u64| bit & state.profile.limits != 0;
        let entry = entries.iter().find(|entry| entry.tally == tally && about(entry.bit));
        let Some(entry) = entry else { return Ok(Some(None)) };
        let packet = Packet { source: key, ..Packet::UNREADABLE };
        let limit = tables.limit(entry.bit)?;
        let kept = kept(tables, &state, &limit, (&packet, 0, OF_SOURCE), now)?;
        let setting = entry.set_for(source.addr(), entries.tenant(state.profile.tenant));
        Ok(Some(Some(LimitReport { kept, ..LimitReport::new(&entry, setting, prefix) })))
    }
}
