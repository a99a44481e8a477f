//! The blocks that are pushed for bans of single sources.

use std::{collections::BTreeMap, net::IpAddr};

use limiter_common::algorithm::rate::SECOND;

use crate::{
    agent::control::{
        instance::Opened,
        rules::{SHARE, bars},
    },
    crowdsec::decisions::{Plan, Pushed},
    datapath::{
        bpffs::Pins,
        maps::Maps,
        offences::Disjoint,
        pushes::{Owner, Pushed as Outcome, Pusher},
    },
    error::{Error, Result},
    policy::{guard::Host, model::KeyPrefix},
    query,
};

/// How blocks are pushed.
pub(super) struct Pushes {
    opened: Opened,
    /// Whether any are to be.
    is_on: bool,
    /// Whether the kernel may have some.
    may_hold: bool,
    /// Why that failed last, unless it did not fail since.
    fault: Option<String>,
}

impl Pushes {
    pub(super) const fn new(pins: Pins, is_on: bool) -> Self {
        Self { opened: Opened::new(pins), is_on, may_hold: true, fault: None }
    }

    /// Why bans could not be pushed, or their blocks not be ended, when that was tried last.
    pub(super) fn fault(&self) -> Option<Error> {
        let reason = self.fault.clone()?;
        Some(Error::Object { action: "push the decisions of CrowdSec".to_owned(), reason })
    }

    /// Opens the instance to push, if blocks are to be. The first time, the policy is put in force again, with a row for them.
    pub(super) fn open(&mut self) {
        let opened = if self.is_on { self.opened.pusher().map(drop) } else { Ok(()) };
        self.fault = opened.err().map(|error| error.to_string());
    }

    /// The blocks that were pushed and run at `now`, in seconds of Unix time. The kernel has them, so they are known after a restart.
    /// Some may be of sources as an earlier policy had them.
    pub(super) fn held(&mut self, maps: &Maps, now: u64) -> Result<Pushed> {
        let at = query::now();
        let records = self.records(|| maps.pushed(Owner::CrowdSec, at))?;
        let can_push = self.is_on && self.fault.is_none();
        let most = if can_push { maps.offence_records()? / SHARE } else { 0 };
        let room = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(records.len());
        let end = |end: u64| now.saturating_add(end.saturating_sub(at).div_ceil(SECOND));
        let ends = records.into_iter().map(|(source, until)| (source, end(until)));
        Ok(Pushed { ends: ends.collect(), room })
    }

    /// The records of pushed blocks. They are not read again, which takes milliseconds, where none is left and none is to be pushed.
    fn records(
        &mut self,
        read: impl FnOnce() -> Result<Vec<(IpAddr, u64)>>,
    ) -> Result<Vec<(IpAddr, u64)>> {
        let records = if self.may_hold { read()? } else { Vec::new() };
        self.may_hold = self.is_on || !records.is_empty();
        Ok(records)
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
        key_prefix: KeyPrefix,
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
        let pusher = match self.opened.pusher() {
            Ok(pusher) => pusher,
            Err(error) => {
                self.fault = Some(error.to_string());
                return 0;
            }
        };
        let mut added = 0;
        for (source, until) in missing {
            if bars(host, &key_prefix.widened(source.into())).is_some() {
                continue;
            }
            match push(pusher, source, until.saturating_sub(now)) {
                Ok(true) => added += usize::from(held.ends.insert(source, until).is_none()),
                Ok(false) => {}
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        added
    }

    /// Ends blocks. Returns how many it ended.
    pub(super) fn lift(&mut self, sources: &[IpAddr]) -> usize {
        if sources.is_empty() {
            return 0;
        }
        let pusher = match self.opened.lifter() {
            Ok(Some(pusher)) => pusher,
            Ok(None) => return 0,
            Err(error) => {
                self.fault = Some(error.to_string());
                return 0;
            }
        };
        let mut lifted = 0;
        for source in sources {
            match pusher.lift_for(Owner::CrowdSec, *source) {
                Ok(is_lifted) => lifted += usize::from(is_lifted),
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
        lifted
    }
}

/// The blocks that a plan ends. Where its set is not in force, a source that the set has stays blocked.
pub(super) fn over(held: &Pushed, planned: &Plan, is_put: bool) -> Vec<IpAddr> {
    let waiting = planned.entries.iter().filter(|_| !is_put).map(|it| it.prefix);
    let cover = Disjoint::of(&waiting.collect::<Vec<_>>());
    let over = held.ends.keys().filter(|source| !planned.pushed.contains_key(source));
    over.filter(|source| !cover.has(**source)).copied().collect()
}

/// Blocks a source for so many seconds, unless there is no room. Returns whether it is blocked.
fn push(pusher: &mut Pusher, source: IpAddr, seconds: u64) -> Result<bool> {
    let until = query::now().saturating_add(seconds.saturating_mul(SECOND));
    Ok(pusher.push_for(Owner::CrowdSec, source, until)? == Outcome::Blocked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        crowdsec::{answer::Answer, decisions::Decisions},
        policy::Layers,
    };

    const NOW: u64 = 1_800_000_000;

    /// The decisions after a ban by LAPI.
    fn banned(scope: &str, value: &str) -> Decisions {
        let text = format!(
            r#"{{"new": [{{"type": "ban", "scope": "{scope}", "value": "{value}", "duration": "60s"}}], "deleted": null}}"#
        );
        let mut decisions = Decisions::default();
        decisions.apply(&Answer::read(text.as_bytes()).unwrap(), true, NOW);
        decisions
    }

    fn plan(decisions: &Decisions, layers: &Layers, held: &Pushed) -> Plan {
        decisions.plan(layers.view(), &Host::default(), held, NOW)
    }

    #[test]
    fn a_ban_is_pushed_anew_after_sources_became_larger_and_its_smaller_block_ends() {
        for is_restarted in [false, true] {
            let mut decisions = banned("Ip", "2001:db8:0:1::7");
            let mut layers = Layers::default();
            let mut kernel = BTreeMap::new();
            for length in [64, 48, 48] {
                layers.policy.key_prefix.ipv6 = length;
                let held = Pushed { ends: kernel.clone(), room: 9 };
                if is_restarted && length != 64 {
                    decisions = Decisions::default();
                    decisions.restore([].iter(), &held);
                }
                let planned = plan(&decisions, &layers, &held);
                kernel.extend(&planned.pushed);
                for source in over(&held, &planned, true) {
                    kernel.remove(&source);
                }
                let source: IpAddr = "2001:db8:0:1::7".parse().unwrap();
                let source = layers.policy.key_prefix.widened(source.into()).addr();
                assert_eq!(kernel.keys().collect::<Vec<_>>(), [&source], "/{length}");
            }
        }
    }

    #[test]
    fn a_block_ends_after_the_wider_ban_of_its_source_is_in_force() {
        let layers = Layers::default();
        let ends = ["192.0.2.5", "198.51.100.1"].map(|source| (source.parse().unwrap(), NOW + 60));
        let held = Pushed { ends: ends.into(), room: 9 };
        let planned = plan(&banned("Range", "192.0.2.0/24"), &layers, &held);
        assert_eq!(over(&held, &planned, false), [ends[1].0]);
        assert_eq!(over(&held, &planned, true), ends.map(|(source, _)| source));
    }

    #[test]
    fn records_are_not_read_again_where_none_is_left_and_none_is_pushed() {
        let one = vec![("192.0.2.5".parse().unwrap(), NOW)];
        for (is_on, expected) in [(false, 3), (true, 5)] {
            let mut pushes = Pushes::new(Pins::new(std::env::temp_dir()), is_on);
            let mut reads = 0;
            for found in [one.clone(), one.clone(), vec![], vec![], vec![]] {
                let read = || {
                    reads += 1;
                    Ok(found.clone())
                };
                assert_eq!(pushes.records(read).unwrap(), found);
            }
            assert_eq!(reads, expected, "{is_on}");
        }
    }
}
