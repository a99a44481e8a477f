//! What is known of a source, and the limits that apply to it.

use std::{net::IpAddr, time::Instant};

use ipnet::IpNet;
use limiter_common::{
    base::{address::Address, tally::Tally},
    packet::headers::Packet,
};

pub use super::keys::KeyedReport;
use super::{
    Fill, Inquiry, InquiryError,
    decide::source_key,
    entries::source_of,
    explain::ListReport,
    keys,
    limit::{Kept, LimitReport, OF_SOURCE, kept},
    lists::Lists,
    state::SourceState,
};
use crate::{
    datapath::{monitoring::Monitoring, statistics::Outstanding},
    error::Result,
    policy::model::Mode,
};

/// The most states of keyed limits in a report.
pub const STATES: usize = 20;

/// A source, with its counts, its lists and its limits.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// The source: an address, or the prefix that counts as one source.
    pub source: IpNet,
    /// Whether the source has an entry, counts or state.
    pub known: bool,
    /// Whether the instance is in monitor mode.
    pub monitoring: Monitoring,
    /// The tenant of the source.
    pub tenant: Option<String>,
    /// The packets and bytes that passed.
    pub passed: Tally,
    /// The packets and bytes that were dropped.
    pub dropped: Tally,
    /// When the two counts were read. Rates need it, as the rest of the report may take long.
    pub counted: Instant,
    /// The lists that the source is on.
    pub lists: Lists,
    /// The entries of these lists, in the order in which the lists are asked.
    pub listed: Vec<ListReport>,
    /// The limits that apply to it, in the order in which they are asked.
    pub limits: Vec<LimitReport>,
    /// The states of its limits whose key has more than the source, the fullest first; at most
    /// [`STATES`].
    pub states: Vec<KeyedReport>,
    /// The number of those states, also beyond [`STATES`].
    pub total: usize,
}

/// The lists and limits of a source, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The lists that the source is on.
    pub lists: Lists,
    /// The limits that apply to it, in the order in which they are asked.
    pub limits: Vec<BriefLimit>,
}

/// How much a source has used of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BriefLimit {
    /// The name of the limit.
    pub name: String,
    /// Whether the limit is enforced.
    pub enforced: bool,
    /// How much is used; `None` if the limit's key has more than the source.
    pub fill: Option<Fill>,
}

impl Inquiry<'_> {
    /// Returns the lists and limits of a source, without the parts that take long to find.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with [`InquiryError::Changing`] if the policy changed
    /// during every attempt.
    pub fn brief(&mut self, source: IpAddr, now: u64) -> Result<Brief> {
        self.steadily(now, |inquiry| {
            let Self { tables, entries, .. } = inquiry;
            let address = Address::from(source);
            let key = source_key(tables, address);
            let Some(state) = SourceState::find(tables, key, now)?.settled() else {
                return Ok(None);
            };
            let packet = Packet { source: address, ..Packet::UNREADABLE };
            let mut limits = Vec::new();
            for entry in entries.iter().filter(|entry| entry.bit & state.profile.limits != 0) {
                let limit = tables.limit(entry.bit)?;
                let kept = kept(tables, &state, &limit, (&packet, 0, OF_SOURCE), now)?;
                let fill = if let Kept::One(fill) = kept { fill } else { None };
                let enforced = entry.mode() == Mode::Enforce.name();
                limits.push(BriefLimit { name: entry.name.clone(), enforced, fill });
            }
            Ok(Some(Brief { lists: Lists::of(entries, &state, now), limits }))
        })
    }

    /// Reports on the source that an address, or the prefix of one source, belongs to.
    ///
    /// # Errors
    /// - [`InquiryError::ManySources`], if `asked` has more than one source.
    /// - [`InquiryError::Changing`], if the policy changed during every attempt.
    /// - A map cannot be read.
    pub fn source(&mut self, asked: IpNet, now: u64) -> Result<SourceReport> {
        self.steadily(now, |inquiry| inquiry.report(asked, now))
    }

    fn report(&self, asked: IpNet, now: u64) -> Result<Option<SourceReport>> {
        let Self { maps, tables, entries } = self;
        let prefix = entries.policy().key_prefix;
        let length = prefix.length_for(&asked);
        if asked.prefix_len() < length {
            return Err(InquiryError::ManySources { prefix: asked.to_string(), length }.into());
        }
        let address = Address::from(asked.addr());
        let key = source_key(tables, address);
        let Some(source) = source_of(prefix, &key) else { return Ok(None) };
        let Some(state) = SourceState::find(tables, key, now)?.settled() else { return Ok(None) };
        let tenant = entries.tenant(state.profile.tenant);

        // Packets move from the CPU caches into the entry. Read before the entry, they may be
        // counted twice; read after it, they might be missing from both.
        let (outstanding, counted) = (maps.outstanding_of(&key)?, Instant::now());
        let mut entry = state.known.unwrap_or_default();
        outstanding.add_to(&mut entry);
        let (passed, dropped) = (entry.passed, entry.dropped);
        let packet = Packet { source: address, ..Packet::UNREADABLE };
        let mut limits = Vec::new();
        for entry in entries.iter().filter(|entry| entry.bit & state.profile.limits != 0) {
            let limit = tables.limit(entry.bit)?;
            let kept = kept(tables, &state, &limit, (&packet, 0, OF_SOURCE), now)?;
            let setting = entry.set_for(source.addr(), tenant);
            limits.push(LimitReport { kept, ..LimitReport::new(&entry, setting, prefix) });
        }
        let lists = self.lists_of(&state, source, now);
        let (states, total) = keys::states(tables, entries, address, &state, (STATES, now))?;
        Ok(Some(SourceReport {
            source,
            known: state.known.is_some() || outstanding != Outstanding::default() || total != 0,
            monitoring: tables.monitoring,
            tenant: tenant.cloned(),
            passed,
            dropped,
            counted,
            listed: self.lists(&lists, source),
            lists,
            limits,
            states,
            total,
        }))
    }
}

impl SourceReport {
    /// The source, as an address if it is a single one, else as a prefix.
    pub fn name(&self) -> String {
        source_name(self.source)
    }
}

/// Writes a source as an address if it is a single one, else as a prefix.
pub fn source_name(source: IpNet) -> String {
    if source.prefix_len() == source.max_prefix_len() {
        source.addr().to_string()
    } else {
        source.to_string()
    }
}
