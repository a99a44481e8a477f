//! Whom a block that a process pushes may be of: nobody whose address another one could have forged.
//!
//! All of this holds:
//!
//! * A connection of the source to this host proves it: the kernel has a socket of exactly these two ends, whose handshake is
//!   completed. Root may push without a proof.
//! * The connection is of a service, and not of root's: a socket listens at the end of this host, and another user than root accepted
//!   it. Connections that this host opened, as to its database, and those to sshd prove nothing. Root may push by these too.
//! * What the source sends comes in here, past this program: it sent something on that connection in the last
//!   minute, and the source table knows it. Behind a CDN, packets are of that instead.
//! * The source is not this host, none of its gateways, and no address that many hosts have. `allow` does not have it.
//! * There were not too many pushes just now, and pushed blocks have less than a [tenth](SHARE) of the table of offences.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::IpAddr,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
};

use super::{
    owners::Owners,
    proof::{is_of_one_host, unproven},
    request::Asked,
    results::{LiftResult, PushResult},
};
use crate::{
    agent::sources::Budget,
    datapath::{
        host,
        maps::Maps,
        pushes::{Owner, Pushed, Pusher},
    },
    error::Result,
    policy::{
        Policy,
        guard::{Harm, Host},
    },
    query,
};

/// The pushed blocks of an owner have at most one of so many records.
pub(in crate::agent) const SHARE: u64 = 10;
/// How long what is known of this host's addresses is good, and a table that was found full.
const FRESH: Duration = Duration::from_secs(10);

/// What became of a push, and for how long the source is blocked, in seconds, rounded up; 0 if it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) source: IpNet,
    pub(super) result: PushResult,
    pub(super) seconds: u64,
}

impl Outcome {
    /// That of a push that failed.
    pub(super) fn failed(subject: IpAddr) -> Self {
        Self { source: subject.into(), result: PushResult::Failed, seconds: 0 }
    }

    /// Whether the source is blocked by this push.
    pub(super) fn is_new(&self) -> bool {
        self.result == PushResult::Blocked
    }
}

/// What the rules go by.
#[derive(Debug)]
pub(super) struct Rules {
    /// How many are pushed; any number without it.
    budget: Option<Budget>,
    host: Option<(Instant, Host)>,
    records: Option<Records>,
    owners: Owners,
}

/// The records of pushed blocks, as far as they were found in the table or made here.
#[derive(Debug)]
struct Records {
    /// When the table was searched, which takes milliseconds.
    read: Instant,
    /// When their blocks end, in nanoseconds.
    ends: BinaryHeap<Reverse<u64>>,
    /// How many there may be.
    most: usize,
}

impl Records {
    fn read(maps: &Maps, now: u64) -> Result<Self> {
        let ends =
            maps.pushed(Owner::Shared, now)?.into_iter().map(|(_, end)| Reverse(end)).collect();
        let most = usize::try_from(maps.offence_records()? / SHARE).unwrap_or(usize::MAX);
        Ok(Self { read: Instant::now(), ends, most })
    }

    /// Whether there may be one more at `now`, in nanoseconds.
    fn have_room(&mut self, now: u64) -> bool {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
        self.ends.len() < self.most
    }
}

impl Rules {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            budget: rate.and_then(|rate| Budget::with_burst(rate, 1)),
            host: None,
            records: None,
            owners: Owners::default(),
        }
    }

    /// Counts the pushed blocks, which takes milliseconds, unless that was done.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn prepare(&mut self, maps: &Maps) -> Result<()> {
        self.have_room(maps, query::now()).map(drop)
    }

    /// Blocks the source that a process of a user asks for, unless a rule is against it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn push(
        &mut self,
        pusher: &mut Pusher,
        user: u32,
        asked: &Asked,
    ) -> Result<Outcome> {
        let source = pusher.source_of(asked.subject)?;
        let outcome = |result, seconds| Outcome { source, result, seconds };
        if let Some(result) = self.refuses(pusher.maps(), source, user, asked)? {
            return Ok(outcome(result, 0));
        }
        let (now, mut length) = (query::now(), nanoseconds(asked.time));
        if user != 0 {
            let longest = longest(&pusher.maps().in_force()?.policy, asked.limit.as_deref());
            length = longest.map_or(length, |longest| length.min(longest));
        }
        let before = pusher.pushed_until(source.addr())?.filter(|until| *until > now);
        let pushed = pusher.push(source.addr(), now.saturating_add(length))?;
        Ok(match pushed {
            Pushed::Blocked => {
                if let Some(until) = pusher.pushed_until(source.addr())? {
                    self.owners.note(source, user, before, until, now);
                }
                if let Some(records) = &mut self.records {
                    records.ends.push(Reverse(now.saturating_add(length)));
                }
                outcome(PushResult::Blocked, length.div_ceil(SECOND))
            }
            Pushed::Longer(until) => {
                outcome(PushResult::Shorter, until.saturating_sub(now).div_ceil(SECOND))
            }
            Pushed::Allowed => outcome(PushResult::Allowed, 0),
            Pushed::Full => outcome(PushResult::Full, 0),
        })
    }

    /// Ends the pushed block of the source of an address for a user, who pushed it or is root. Also ended are those of smaller
    /// sources of it that were pushed here under an earlier policy: they would be back with that.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn lift(
        &self,
        pusher: &mut Pusher,
        user: u32,
        address: IpAddr,
    ) -> Result<LiftResult> {
        let now = query::now();
        let mut result = LiftResult::NotBlocked;
        for source in self.owners.sources_of(pusher.source_of(address)?, address) {
            let until = pusher.pushed_until(source.addr())?.filter(|until| *until > now);
            if user != 0 && until.is_some_and(|until| !self.owners.is_of(source, user, until)) {
                if result == LiftResult::NotBlocked {
                    result = LiftResult::NotYours;
                }
            } else if pusher.lift(source.addr())? {
                result = LiftResult::Lifted;
            }
        }
        Ok(result)
    }

    /// The rule that a push is against. That of the list `allow` is asked with the push.
    fn refuses(
        &mut self,
        maps: &Maps,
        source: IpNet,
        user: u32,
        asked: &Asked,
    ) -> Result<Option<PushResult>> {
        let host = self.host()?;
        if let Some(result) = bars(host, &source) {
            return Ok(Some(result));
        }
        match asked.proof {
            None if user == 0 => {}
            None => return Ok(Some(PushResult::Unproven)),
            Some(proof) => {
                if let Some(result) = unproven(source, user, proof)? {
                    return Ok(Some(result));
                }
                let key = Address::from(source.addr());
                if maps.source(&key)?.is_none() && maps.newcomer(&key)?.is_none() {
                    return Ok(Some(PushResult::NotAPeer));
                }
            }
        }
        let now = query::now();
        let is_within = self.have_room(maps, now)?
            && self.budget.as_mut().is_none_or(|budget| budget.spend(now));
        Ok((!is_within).then_some(PushResult::TooMany))
    }

    /// The addresses and gateways of this host.
    fn host(&mut self) -> Result<&Host> {
        self.host.take_if(|(read, _)| read.elapsed() >= FRESH);
        match &mut self.host {
            Some((_, host)) => Ok(host),
            none => Ok(&none.insert((Instant::now(), host::read()?)).1),
        }
    }

    /// Whether pushed blocks may have one more record. What ended before its time is found where there is no room otherwise.
    fn have_room(&mut self, maps: &Maps, now: u64) -> Result<bool> {
        let is_full =
            |records: &mut Records| !records.have_room(now) && records.read.elapsed() >= FRESH;
        self.records.take_if(is_full);
        match &mut self.records {
            Some(records) => Ok(records.have_room(now)),
            none => Ok(none.insert(Records::read(maps, now)?).have_room(now)),
        }
    }
}

/// The rule about its address that a source is against, whoever pushes.
pub(in crate::agent) fn bars(host: &Host, source: &IpNet) -> Option<PushResult> {
    match host.cut_off_by(source) {
        Some(Harm::Gateway(_)) => Some(PushResult::Gateway),
        Some(_) => Some(PushResult::Own),
        None if is_of_one_host(source.addr()) => None,
        None => Some(PushResult::NotAPeer),
    }
}

/// The longest block for a limit of a policy, in ns; `None` if it has no limit of this name with a penalty.
fn longest(policy: &Policy, limit: Option<&str>) -> Option<u64> {
    let limit = limit?;
    let on_packets = policy.limits.iter().map(|it| (&it.name, &it.penalty));
    let on_requests = policy.on_requests.iter().map(|it| (&it.name, &it.penalty));
    let mut all = on_packets.chain(on_requests);
    all.find(|(name, _)| *name == limit)?.1.map(|penalty| penalty.max.max(penalty.block))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use limiter_common::algorithm::rate::SECOND;

    use super::*;

    #[test]
    fn a_block_for_a_limit_is_no_longer_than_its_penalty_says() {
        let text = "version: 1
limits:
  - { name: packets, key: source, rate: 1/s, burst: 1, penalty: { after: 1s, block: 2s, max: 8s } }
  - { name: free, match: { protocol: udp }, key: source, rate: 1/s, burst: 1 }
  - { name: login, on: requests, key: source, rate: 1/s, burst: 1, penalty: { after: 1s, block: 2s, max: 4s } }
";
        let policy =
            crate::policy::document::parse("policy.yaml", text.as_bytes(), &mut |_| unreachable!())
                .unwrap();
        for (limit, longest_of_it) in [
            (Some("packets"), Some(8 * SECOND)),
            (Some("login"), Some(4 * SECOND)),
            (Some("free"), None),
            (Some("other"), None),
            (None, None),
        ] {
            assert_eq!(longest(&policy, limit), longest_of_it, "{limit:?}");
        }
    }

    #[test]
    fn pushed_blocks_have_room_again_when_others_end() {
        let ends = [5, 9].map(Reverse).into();
        let mut records = Records { read: Instant::now(), ends, most: 2 };
        assert!(!records.have_room(4));
        assert!(records.have_room(5));
        records.ends.push(Reverse(8));
        assert!(!records.have_room(7));
        assert!(records.have_room(8) && records.have_room(9));
        records.most = 0;
        assert!(!records.have_room(9));
    }
}
