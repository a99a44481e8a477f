//! What is known of a source, and which limits apply to it.

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
    state::{Found, SourceState},
};
use crate::{
    datapath::{monitoring::Monitoring, statistics::Outstanding},
    error::Result,
    policy::model::Mode,
};

/// States by other keys that are told.
pub const STATES: usize = 20;

/// A source, and what holds for it.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// The source: an address, or a prefix of that length that makes one.
    pub source: IpNet,
    /// Whether anything is known of it.
    pub known: bool,
    /// Whether anything is dropped.
    pub monitoring: Monitoring,
    /// The tenant that it is of.
    pub tenant: Option<String>,
    /// What passed.
    pub passed: Tally,
    /// What was dropped.
    pub dropped: Tally,
    /// When these two were read: to look at all else may take long.
    pub counted: Instant,
    /// What the lists say of it.
    pub lists: Lists,
    /// The entries that say so, in the order in which the lists are asked.
    pub listed: Vec<ListReport>,
    /// The limits that apply to it, narrow before wide.
    pub limits: Vec<LimitReport>,
    /// State of those that are kept by more than the source, the fullest first; [`STATES`] at most.
    pub states: Vec<KeyedReport>,
    /// How many of those states there are.
    pub total: usize,
}

/// How a source stands, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// What the lists say of it.
    pub lists: Lists,
    /// The limits that apply to it, narrow before wide.
    pub limits: Vec<BriefLimit>,
}

/// How full a limit is for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BriefLimit {
    /// Its name.
    pub name: String,
    /// Whether it drops.
    pub enforced: bool,
    /// How full it is; nothing if the source alone does not tell.
    pub fill: Option<Fill>,
}

impl Inquiry<'_> {
    /// How a source stands, in short: without what takes long to find.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`].
    pub fn brief(&mut self, source: IpAddr, now: u64) -> Result<Brief> {
        self.steadily(now, |inquiry| {
            let Self { tables, entries, .. } = inquiry;
            let address = Address::from(source);
            let key = source_key(tables, address);
            let Some(state) = found(SourceState::find(tables, key, now)?) else { return Ok(None) };
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

    /// What is known of the source that an address is of, and what applies to it.
    ///
    /// # Errors
    /// What the system says; [`InquiryError::ManySources`], or [`InquiryError::Changing`].
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
        let Some(state) = found(SourceState::find(tables, key, now)?) else { return Ok(None) };
        let tenant = entries.tenant(state.profile.tenant);

        // Before the entry, it may be in both; after it, in neither for a moment.
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
        let lists = Lists::of(entries, &state, now);
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
    /// The source, as an address if it is a single one.
    pub fn name(&self) -> String {
        source_name(self.source)
    }
}

/// A source as an address if it is a single one.
pub fn source_name(source: IpNet) -> String {
    if source.prefix_len() == source.max_prefix_len() {
        source.addr().to_string()
    } else {
        source.to_string()
    }
}

/// A source that can be told of. One that others keep from being bound is one that changes.
pub(super) fn found(found: Found) -> Option<Box<SourceState>> {
    match found {
        Found::Source(source) => Some(source),
        Found::Newer | Found::Locked => None,
    }
}
