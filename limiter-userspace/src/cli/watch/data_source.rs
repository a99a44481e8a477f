//! A running instance, as the data source of a watch.

use std::{path::Path, time::SystemTime};

use ipnet::IpNet;
use limiter_common::memory::sample::Sampling;

use crate::{
    bridge::lookup::requests_of,
    cli::{
        change::change, drops::names, keep_ssh::KeepSsh, limit::rows, list::Asked, maps as open,
        no_instance, statistics::tables, unix,
    },
    datapath::{
        bpffs::Pins,
        instance::attached,
        maps::Maps,
        samples::{Sampler, Wishes},
        survey::{Findings, Search, Survey},
    },
    error::{Error, Result},
    query::{Inquiry, InquiryError, dropped::Dropped, explain::Question, now},
    watch::{
        action::Action,
        controls::READ_ONLY,
        data_source::DataSource,
        opened::Details,
        standing::Standing,
        view::{Reading, Scan},
    },
};

/// The most dropped packets that are shown a second.
const DROPS: u32 = 200;

/// A running instance that is watched.
pub(super) struct Watched<'a> {
    pins: &'a Pins,
    maps: Maps,
    survey: Survey,
    /// What takes dropped packets, while they are shown.
    sampler: Option<Sampler>,
    /// How the SSH session is kept when a key changes the policy; `None` if keys change nothing.
    keep: Option<&'a KeepSsh>,
    /// The socket of the bridge.
    bridge: &'a Path,
}

impl<'a> Watched<'a> {
    pub(super) fn new(pins: &'a Pins, keep: Option<&'a KeepSsh>, bridge: &'a Path) -> Result<Self> {
        let (maps, survey) = (open(pins)?, Survey::default());
        Ok(Self { pins, maps, survey, sampler: None, keep, bridge })
    }

    /// Changes the policy as the command for it does. Returns the message of that command.
    fn change(&self, action: &Action, keep: &KeepSsh) -> Result<String> {
        let (session, warning) = keep.found()?;
        let (said, besides) = match action {
            Action::Put { list, source, time } => {
                let asked = Asked::for_time(*list, *source, *time, session);
                let (changed, said) = asked.put(self.pins)?;
                (said, changed.besides())
            }
            Action::Switch { limit, mode } => {
                let changed = change(self.pins, session, |layers| {
                    Ok(layers.policy.set_mode(limit, *mode)?)
                })?;
                (format!("{limit} limit: {}", mode.name()), changed.besides())
            }
        };
        let parts = [said].into_iter().chain(warning).chain(besides);
        Ok(parts.collect::<Vec<_>>().join("; "))
    }
}

impl Watched<'_> {
    /// Takes the packets that were dropped since the last time.
    fn take_drops(&mut self) -> Result<Vec<Dropped>> {
        let Self { pins, maps, sampler, .. } = self;
        let wishes = Wishes {
            reasons: u64::MAX,
            slots: u64::MAX,
            tallies: Sampling::ANY_LIMIT,
            source: None,
            rate: DROPS,
        };
        let sampler = match sampler {
            Some(sampler) => {
                sampler.renew(wishes)?;
                sampler
            }
            none => none.insert(Sampler::begin(maps, wishes)?),
        };
        let names = names(maps, &attached(pins, maps)?)?;
        let (time, clock) = (SystemTime::now(), now());
        Ok(sampler.map(|sample| Dropped::of(&sample, &names, time, clock)).collect())
    }
}

impl DataSource for Watched<'_> {
    type Error = Error;

    fn passes(error: &Error) -> bool {
        matches!(error.failure(), Some(InquiryError::Changing))
    }

    fn read(&mut self, search: Option<&Search>) -> Result<Reading> {
        let Self { pins, maps, survey, sampler, .. } = self;
        // The instance may have been removed and made anew since the last reading.
        if !maps.are_pinned(pins)? {
            *maps = open(pins)?;
            *survey = Survey::default();
            *sampler = None;
        }
        let attached = attached(pins, maps)?;
        if attached.is_empty() {
            return Err(no_instance(pins));
        }
        let scan = |search| -> Result<Scan> {
            let Findings { sources, matching, occupancy } = survey.look(maps, search)?;
            Ok(Scan { found: sources, matching, tables: tables(maps, occupancy)? })
        };
        let now = now();
        let shared = Inquiry::new(maps, now)?.shared(now)?;
        let mut limits = rows(maps.in_force()?.layered(), unix());
        for row in &mut limits.rows {
            let fill = shared.iter().find(|(name, _)| *name == row.name);
            row.used = fill.map(|(_, fill)| fill.percent());
        }
        Ok(Reading {
            snapshot: maps.snapshot(&attached)?,
            limits,
            scan: search.map(scan).transpose()?,
        })
    }

    fn standings(&mut self, sources: &[IpNet]) -> Result<Vec<Standing>, String> {
        let now = now();
        let ask = || -> Result<Vec<Standing>> {
            let mut inquiry = Inquiry::new(&self.maps, now)?;
            let brief = |source: &IpNet| Ok(Standing::from(&inquiry.brief(source.addr(), now)?));
            sources.iter().map(brief).collect()
        };
        ask().map_err(|error| in_a_line(&error))
    }

    fn details(&mut self, source: IpNet) -> Result<Details, String> {
        let now = now();
        let ask = || -> Result<Details> {
            let slot = match &attached(self.pins, &self.maps)?[..] {
                [only] => Some(only.slot),
                _ => None,
            };
            let mut inquiry = Inquiry::new(&self.maps, now)?;
            let report = inquiry.source(source, now)?;
            let question = Question { slot, ..Question::of(source.addr()) };
            let requests = requests_of(self.bridge, source.addr()).unwrap_or_default();
            Ok(Details { report, explanation: inquiry.explain(&question, now)?, requests })
        };
        ask().map_err(|error| in_a_line(&error))
    }

    fn drops(&mut self, wanted: bool) -> Result<Vec<Dropped>, String> {
        if !wanted {
            self.sampler = None;
            return Ok(Vec::new());
        }
        self.take_drops().map_err(|error| in_a_line(&error))
    }

    fn act(&mut self, action: &Action) -> Result<String, String> {
        match self.keep {
            Some(keep) => self.change(action, keep).map_err(|error| in_a_line(&error)),
            None => Err(READ_ONLY.to_owned()),
        }
    }
}

/// An error and its remedy, on one line.
fn in_a_line(error: &Error) -> String {
    match error.remedy() {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}
