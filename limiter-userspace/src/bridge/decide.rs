//! The decision about a request.
//!
//! First the lists of the source, then all limits that are about the request, narrow keys before wide ones, then all of them
//! are charged or none. The arithmetic, and what is asked in which order, is that of the kernel half: see
//! [`charge`](limiter_common::policy::charge).

use std::time::{SystemTime, UNIX_EPOCH};

use limiter_common::{base::address::Address, policy::charge::Bill};

pub use self::counts::{Counts, RowCounts};
use self::{
    counts::Tally,
    places::{Limited, Place},
};
use super::{
    answer::{Answer, Verdict},
    request::Request,
    rules::{About, Compiled, Listed, MOST_AT_ONCE, Rules},
    table::Table,
};
use crate::{
    datapath::sys,
    policy::{Context, Policy, PolicyError},
};

mod counts;
mod places;
mod standing;

/// Decides about requests, by the limits of a policy and the state of a table.
///
/// It decides about one request at a time. Whoever answers several clients at once puts it into a mutex: a decision takes
/// well below a microsecond.
#[derive(Debug)]
pub struct Decider {
    rules: Rules,
    table: Table,
    /// By the place of the row.
    tallies: Vec<Tally>,
    /// What happened to requests, without the counts of rows.
    counted: Counts,
    /// The rows that are about the request.
    places: Vec<Place>,
}

/// Whether a request is charged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charging {
    /// It is charged, and counted.
    On,
    /// It is neither.
    Off,
}

impl Decider {
    /// Decides by this policy, and by the state of this table.
    ///
    /// # Errors
    /// Any [`PolicyError`] of limits on requests that cannot be compiled.
    pub fn new(policy: &Policy, table: Table) -> Result<Self, PolicyError> {
        let rules = Rules::compile(policy, &clock(), table.seed())?.claim(&table);
        let tallies = vec![Tally::default(); rules.rows.len()];
        let places = Vec::with_capacity(MOST_AT_ONCE);
        Ok(Self { rules, table, tallies, counted: Counts::default(), places })
    }

    /// Decides by another policy from now on. Keys keep what they are charged by limits that stay. Where the numbers of one are
    /// others, each key keeps the share that it has used, and of a debt at most that of one request.
    ///
    /// # Errors
    /// As [`new`](Self::new). The policy before stays in force then.
    pub fn apply(&mut self, policy: &Policy) -> Result<(), PolicyError> {
        let compiled = compile(policy, self.table.seed())?;
        drop(self.adopt(compiled));
        Ok(())
    }

    /// What policies are [compiled](compile) for.
    pub const fn seed(&self) -> [u64; 4] {
        self.table.seed()
    }

    /// Decides by another policy from now on, as [`apply`](Self::apply) does, which was compiled for this [`seed`](Self::seed).
    /// Returns the rules before, which take time to free where lists are long.
    pub fn adopt(&mut self, compiled: Compiled) -> impl Sized + use<> {
        let rules = compiled.claim(&self.table);
        let before = self.rules.rows.iter().zip(&self.tallies);
        let same = |name: &str| before.clone().find(|(row, _)| row.name == name);
        let kept = |name: &str| same(name).map(|(_, tally)| *tally).unwrap_or_default();
        self.tallies = rules.rows.iter().map(|row| kept(&row.name)).collect();
        std::mem::replace(&mut self.rules, rules)
    }

    /// Decides about a request that the caller says to cost `hits` times what it costs by the policy, at least 1. `now` is in
    /// nanoseconds of `CLOCK_MONOTONIC`. It is charged to all limits that are about it, or to none.
    pub fn decide(&mut self, request: &Request<'_>, hits: u64, now: u64, answer: &mut Answer) {
        self.answer(request, hits, now, Charging::On, answer);
    }

    /// What [`decide`](Self::decide) would answer. Nothing is charged, and nothing is counted.
    pub fn peek(&mut self, request: &Request<'_>, hits: u64, now: u64, answer: &mut Answer) {
        self.answer(request, hits, now, Charging::Off, answer);
    }

    /// What was counted since this was made. What limits counted that are gone is not among it.
    pub fn counts(&self) -> Counts {
        let row = |(row, tally): (&super::rules::Row, &Tally)| RowCounts {
            limit: row.limit,
            layer: row.layer,
            is_candidate: row.is_candidate,
            name: row.name.clone(),
            conform: tally.conform,
            exceed: tally.exceed,
            exceed_monitor: tally.exceed_monitor,
            near: tally.near,
            missing: tally.missing,
        };
        Counts {
            rows: self.rules.rows.iter().zip(&self.tallies).map(row).collect(),
            keys: self.table.keys(),
            ..self.counted.clone()
        }
    }

    /// The table.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    fn answer(
        &mut self,
        request: &Request<'_>,
        hits: u64,
        now: u64,
        charging: Charging,
        answer: &mut Answer,
    ) {
        answer.standings.clear();
        let refused = self.refused(request, hits, now, charging, answer);
        answer.verdict = match refused {
            Some(_) if self.rules.is_monitored => Verdict::Pass,
            Some(verdict) => verdict,
            None => Verdict::Pass,
        };
    }

    /// Why a request is refused, if it is and as far as the policy refuses anything.
    fn refused(
        &mut self,
        request: &Request<'_>,
        hits: u64,
        now: u64,
        charging: Charging,
        answer: &mut Answer,
    ) -> Option<Verdict> {
        let Self { rules, table, tallies, counted, places } = self;
        let counts = u64::from(charging == Charging::On);
        let source = request.source.map(|source| Address::from(source.to_canonical()));
        let profile = rules.profile(source.as_ref());
        match profile.listed(now) {
            Some(Listed::Allowed) => {
                counted.allowed += counts;
                return None;
            }
            Some(Listed::Denied) => {
                counted.denied += counts;
                return Some(Verdict::Denied);
            }
            None => {}
        }
        places.clear();
        let (mut is_refused, mut is_too_much) = (false, false);
        let values = rules.values(request);
        rules.find(source.as_ref(), profile, &values, hits, |about| match about {
            About::Counts { .. } if places.len() == MOST_AT_ONCE => is_too_much = true,
            About::Counts { row, key, cost, numbers } => {
                places.push(Place::new(row, key, cost, numbers, rules.rows[row].shared));
            }
            About::Misses(row, refuses) => {
                tallies[row].missing += counts;
                is_refused |= refuses;
            }
            About::Refuses => {
                counted.dropped += counts;
                is_refused = true;
            }
        });
        if is_too_much {
            counted.too_many += counts;
            return Some(Verdict::Denied);
        }
        if is_refused {
            return Some(Verdict::Denied);
        }
        places.sort_unstable_by_key(|place| place.row);
        let enforced = places.iter().enumerate().fold(0, |enforced, (at, place)| {
            enforced | u64::from(rules.rows[place.row].is_enforced) << at
        });
        let applies = u64::MAX.checked_shr((MOST_AT_ONCE - places.len()) as u32).unwrap_or(0);
        let bill = Bill { applies, enforced, ..Bill::default() };
        let mut limited = Limited { rules, table, places, bill, now };
        limited.find();
        limited.look();
        if charging == Charging::On {
            counted.shared += u64::from(limited.places.iter().any(Place::is_shared));
            if limited.bill.refused == 0 {
                limited.charge();
            }
            limited.count(tallies);
        }
        limited.tell(&mut answer.standings);
        (limited.bill.refused != 0).then_some(Verdict::Limited)
    }
}

/// Checks that a bridge could decide by a policy.
///
/// # Errors
/// As [`Decider::new`].
pub fn check(policy: &Policy) -> Result<(), PolicyError> {
    if policy.on_requests.is_empty() {
        return Ok(());
    }
    compile(policy, [0; 4]).map(drop)
}

/// Compiles a policy for a decider of this [`seed`](Decider::seed).
///
/// # Errors
/// As [`Decider::new`].
pub fn compile(policy: &Policy, seed: [u64; 4]) -> Result<Compiled, PolicyError> {
    Rules::compile(policy, &clock(), seed)
}

/// The clocks, for the ends of list entries.
fn clock() -> Context {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Context { unix, monotonic: sys::monotonic(), ..Context::default() }
}

#[cfg(test)]
mod tests;
