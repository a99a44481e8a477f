//! The blocks that are pushed for bans of single sources.

use std::{collections::BTreeMap, net::IpAddr};

use limiter_common::algorithm::rate::SECOND;

use crate::{
    agent::control::{
        instance::Opened,
        rules::{SHARE, bars},
    },
    crowdsec::decisions::Pushed,
    datapath::{
        bpffs::Pins,
        maps::Maps,
        pushes::{Owner, Pushed as Outcome, Pusher},
    },
    error::{Error, Result},
    policy::guard::Host,
    query,
};

/// How blocks are pushed.
pub(super) struct Pushes {
    opened: Opened,
    /// Whether any are to be.
    is_on: bool,
    /// Why that failed last, unless it did not fail since.
    fault: Option<String>,
}

impl Pushes {
    pub(super) const fn new(pins: Pins, is_on: bool) -> Self {
        Self { opened: Opened::new(pins), is_on, fault: None }
    }

    /// Why bans could not be pushed, or their blocks not be ended, when that was tried last.
    pub(super) fn fault(&self) -> Option<Error> {
        let reason = self.fault.clone()?;
        Some(Error::Object { action: "push the decisions of CrowdSec".to_owned(), reason })
    }

    /// The blocks that were pushed and run at `now`, in seconds of Unix time. The kernel has them, so they are known after a restart.
    /// The first time, the policy is put in force again, with a row for them.
    pub(super) fn held(&mut self, maps: &Maps, now: u64) -> Result<Pushed> {
        let opened = if self.is_on { self.opened.pusher().map(drop) } else { Ok(()) };
        let can_push = self.is_on && opened.is_ok();
        self.fault = opened.err().map(|error| error.to_string());
        let at = query::now();
        let end = |end: u64| now.saturating_add(end.saturating_sub(at).div_ceil(SECOND));
        let held = maps.pushed(Owner::CrowdSec, at)?.into_iter();
        let ends: BTreeMap<IpAddr, u64> =
            held.map(|(source, until)| (source, end(until))).collect();
        let most = if can_push { maps.offence_records()? / SHARE } else { 0 };
        let room = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(ends.len());
        Ok(Pushed { ends, room })
    }

    /// What a plan may keep of them: nothing, if blocks are no longer to be pushed.
    pub(super) fn kept(&self, held: &Pushed) -> Pushed {
        if self.is_on { held.clone() } else { Pushed::default() }
    }

    /// Pushes what is missing, and notes it in `held`, which has no more room then: what is not there could not be pushed. Returns how
    /// many sources are blocked that were not.
    pub(super) fn push(
        &mut self,
        wanted: &BTreeMap<IpAddr, u64>,
        held: &mut Pushed,
        host: &Host,
        now: u64,
    ) -> usize {
        held.room = 0;
        let missing = wanted.iter().filter(|(source, until)| !held.is_until(**source, **until));
        let missing: Vec<(IpAddr, u64)> =
            missing.map(|(source, until)| (*source, *until)).collect();
        if missing.is_empty() {
            return 0;
        }
        let mut added = 0;
        for (source, until) in missing {
            let pusher = self.opened.pusher();
            match pusher.and_then(|it| push(it, host, source, until.saturating_sub(now))) {
                Ok(true) => added += usize::from(held.ends.insert(source, until).is_none()),
                Ok(false) => {}
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        added
    }

    /// Ends blocks. Returns how many it ended.
    pub(super) fn lift(&mut self, sources: &[IpAddr]) -> usize {
        let mut lifted = 0;
        for source in sources {
            let lift = |pusher: &mut Pusher| pusher.lift_for(Owner::CrowdSec, *source);
            match self.opened.lifter().and_then(|it| it.map_or(Ok(false), lift)) {
                Ok(is_lifted) => lifted += usize::from(is_lifted),
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        lifted
    }
}

/// Blocks a source for so many seconds, unless a rule is against it or there is no room. Returns whether it is blocked.
fn push(pusher: &mut Pusher, host: &Host, source: IpAddr, seconds: u64) -> Result<bool> {
    if bars(host, &pusher.source_of(source)?).is_some() {
        return Ok(false);
    }
    let until = query::now().saturating_add(seconds.saturating_mul(SECOND));
    Ok(pusher.push_for(Owner::CrowdSec, source, until)? == Outcome::Blocked)
}
