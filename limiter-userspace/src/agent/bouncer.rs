//! Has the decisions of CrowdSec in force: as a set of the run-time list `deny`.
//!
//! As with all that the agent sees to, it compares what is in force with what is to be, and does what is missing. So it does not matter
//! who changed the lists, the policy or the addresses of this host meanwhile.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ipnet::IpNet;
use limiter_common::algorithm::rate::SECOND;
use tokio::sync::mpsc::Receiver;

use super::{
    backoff::Backoff,
    event::{Event, bans},
};
use crate::{
    crowdsec::{
        SET,
        answer::{Ignored, Origin},
        decisions::{Decisions, Plan},
        lapi::{LapiError, Pulled},
    },
    datapath::{bpffs::Pins, host, instance::Instance, link::exists, maps::Maps},
    error::{Error, Result},
    metrics::{
        Family, Kind,
        Value::{Real, Whole},
    },
    policy::{List, guard::Host},
    query,
};

/// Seconds by which the clock has to be set for that to be noticed; both clocks are read a moment apart.
const STEP: i64 = 3;

/// How decisions are kept in force.
pub(super) struct Bouncer {
    pins: Pins,
    pulled: Receiver<Result<Pulled, LapiError>>,
    counts: Arc<BouncerCounts>,
    decisions: Decisions,
    /// Where `decisions` are from.
    known: Known,
    /// Why LAPI could not be asked last.
    fault: Option<LapiError>,
    /// Whether LAPI answers for the first time, or again, and that was not told.
    is_news: bool,
    /// The prefixes that were left out, when that was told last.
    harmful: Vec<IpNet>,
    /// By which instance and epoch what is in force was compared last; `None` if something changed since.
    compared: Option<(u32, u32)>,
    /// By how many seconds Unix time was ahead of the monotonic clock, when it was looked at last.
    ahead: Option<i64>,
    /// Why the entries could not be put in force when that was tried last.
    refused: Option<Arc<Error>>,
    tries: Backoff,
    status: String,
}

/// Where the decisions are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// From the entries in force of the instance with this number.
    Restored(u32),
    /// From LAPI.
    Pulled,
}

impl Bouncer {
    pub(super) fn new(
        pins: Pins,
        pulled: Receiver<Result<Pulled, LapiError>>,
        counts: Arc<BouncerCounts>,
    ) -> Self {
        Self {
            pins,
            pulled,
            counts,
            decisions: Decisions::default(),
            known: Known::Nothing,
            fault: None,
            is_news: false,
            harmful: Vec::new(),
            compared: None,
            ahead: None,
            refused: None,
            tries: Backoff::default(),
            status: String::new(),
        }
    }

    /// Takes in what LAPI answered, and puts in force what is missing, at a time of Unix in seconds. Returns what is to be told, and
    /// what fails.
    pub(super) fn look(&mut self, now: u64) -> (Vec<Event>, Vec<Error>) {
        let (mut events, mut errors) = (Vec::new(), Vec::new());
        self.follow_clock(now);
        while let Ok(result) = self.pulled.try_recv() {
            self.take(result, now);
        }
        errors.extend(self.fault.clone().map(Error::from));
        match self.enforce(now) {
            Ok(event) => events.extend(event),
            Err(error) => errors.push(error),
        }
        self.status = self.counts.summary();
        (events, errors)
    }

    /// How things were at the last look, in a line.
    pub(super) fn status(&self) -> &str {
        &self.status
    }

    /// Takes in the result of a question.
    fn take(&mut self, result: Result<Pulled, LapiError>, now: u64) {
        // The addresses of this host, and the ends of what `allow` has, are looked at anew with each.
        self.compared = None;
        self.counts.pulled(&result, now);
        match result {
            Ok(Pulled { answer, is_whole, at }) => {
                self.is_news |= self.fault.take().is_some() || self.known != Known::Pulled;
                self.known = Known::Pulled;
                self.decisions.apply(&answer, is_whole, now.saturating_sub(at.elapsed().as_secs()));
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Moves the ends of bans if the clock was set: what is left of them stays the same.
    fn follow_clock(&mut self, now: u64) {
        let ahead = now.cast_signed() - (query::now() / SECOND).cast_signed();
        let seconds = ahead - *self.ahead.get_or_insert(ahead);
        if seconds.abs() >= STEP {
            self.decisions.shift(seconds);
            (self.ahead, self.compared) = (Some(ahead), None);
        }
    }

    /// Puts in force what is missing, and tells what that was.
    fn enforce(&mut self, now: u64) -> Result<Option<Event>> {
        if !exists(&self.pins)? {
            self.compared = None;
            return Ok(None);
        }
        let maps = Maps::open(&self.pins)?;
        let number = maps.number()?;
        let place = (number, maps.epoch()?);
        if self.compared == Some(place) {
            return Ok(None);
        }
        let is_restored = match self.known {
            Known::Pulled => true,
            Known::Restored(before) => before == number,
            Known::Nothing => false,
        };
        if !is_restored {
            self.decisions = Decisions::default();
            self.decisions.restore(maps.in_force()?.run_time.entries().iter());
            self.known = Known::Restored(number);
        }
        self.decisions.drop_over(now);
        let host = host::read()?;
        let plan = self.decisions.plan(maps.in_force()?.layered(), &host, now);
        self.counts.planned(&self.decisions, &plan);
        if !plan.is_change() {
            (self.compared, self.refused) = (Some(place), None);
            // What runs on is told if LAPI answers for the first time, or again.
            return Ok(self.told(&plan));
        }
        if let Some(refused) = &self.refused
            && !self.tries.is_due(Instant::now())
        {
            return Err(not_put(refused));
        }
        match self.put(&host, now) {
            Ok(plan) => {
                self.refused = None;
                Ok(plan.and_then(|plan| self.told(&plan)))
            }
            // Others are about to change the policy.
            Err(error @ (Error::Unconfirmed { .. } | Error::Busy { .. })) => Err(error),
            // A long list takes a while to compile.
            Err(error) => {
                self.tries.tried(Instant::now());
                Err(not_put(self.refused.insert(Arc::new(error))))
            }
        }
    }

    /// Puts the entries in force, as they are to be beside the lists that are in force then. `None` if there is no instance any more.
    fn put(&mut self, host: &Host, now: u64) -> Result<Option<Plan>> {
        let Some(mut instance) = Instance::open(&self.pins)? else { return Ok(None) };
        let mut layers = instance.maps().settled()?;
        let mut plan = self.decisions.plan(layers.view(), host, now);
        let entries = mem::take(&mut plan.entries);
        layers.run_time.replace(&layers.policy, (List::Deny, SET), entries, now)?;
        let put = instance.maps_mut().put_in_force(layers, None, None);
        if let Err(refused) = &put {
            // Making room takes the lock to attach, which comes before this one.
            drop(instance);
            if Instance::make_room(&self.pins, refused)?.is_some() {
                return self.put(host, now);
            }
            return put.map(|()| None);
        }
        // They are in force, also where the file cannot be written. The reconciler tells that.
        Ok(Some(plan))
    }

    /// What is to be told of a plan that is in force.
    fn told(&mut self, plan: &Plan) -> Option<Event> {
        let harmful: Vec<IpNet> = plan.harmful.iter().map(|(prefix, _)| *prefix).collect();
        let is_harm = self.harmful != harmful;
        self.harmful = harmful;
        let is_news = mem::take(&mut self.is_news) || is_harm || plan.is_change();
        is_news.then(|| Event::Decisions {
            total: plan.total,
            added: plan.added,
            ended: plan.ended,
            allowed: plan.allowed,
            harmful: plan.harmful.len(),
            harm: plan.harmful.first().map(|(prefix, harm)| format!("{prefix} {harm}")),
        })
    }
}

/// The error where the entries could not be put in force.
fn not_put(cause: &Arc<Error>) -> Error {
    Error::Object {
        action: "put the decisions of CrowdSec in force".to_owned(),
        reason: cause.to_string(),
    }
}

/// What became of decisions so far. It is shared by the bouncer and what serves its metrics.
#[derive(Debug, Default)]
pub(super) struct BouncerCounts(Mutex<Numbers>);

#[derive(Clone, Debug, Default)]
struct Numbers {
    by_origin: [u64; Origin::ALL.len()],
    /// Entries that are to be in force.
    total: u64,
    allowed: u64,
    harmful: u64,
    ignored: Ignored,
    /// Answers that were used, and questions without one.
    pulls: [u64; 2],
    /// When LAPI answered last, in seconds of Unix time.
    last: u64,
}

impl BouncerCounts {
    fn pulled(&self, result: &Result<Pulled, LapiError>, now: u64) {
        let mut numbers = self.lock();
        match result {
            Ok(pulled) => {
                let Ignored { remediation, scope, invalid } = pulled.answer.ignored;
                numbers.ignored.remediation += remediation;
                numbers.ignored.scope += scope;
                numbers.ignored.invalid += invalid;
                numbers.pulls[0] += 1;
                numbers.last = now;
            }
            Err(_) => numbers.pulls[1] += 1,
        }
    }

    fn planned(&self, decisions: &Decisions, plan: &Plan) {
        let mut numbers = self.lock();
        numbers.by_origin = decisions.by_origin();
        numbers.total = plan.total as u64;
        numbers.allowed = plan.allowed as u64;
        numbers.harmful = plan.harmful.len() as u64;
    }

    /// How many bans there are, in words.
    fn summary(&self) -> String {
        format!("CrowdSec: {}", bans(self.lock().total))
    }

    /// The same for monitoring systems.
    pub(super) fn families(&self) -> [Family; 5] {
        let numbers = self.lock().clone();
        let counter = |name, help| Family::new(name, Kind::Counter, help);
        let gauge = |name, help| Family::new(name, Kind::Gauge, help);
        let mut decisions = gauge(
            "limiter_crowdsec_decisions",
            "Bans of CrowdSec that run, by where CrowdSec has them from; other are also those from before the agent, until it has an answer.",
        );
        for (origin, count) in Origin::ALL.into_iter().zip(numbers.by_origin) {
            decisions.push([("origin", origin.name())], Whole(count));
        }
        let Ignored { remediation, scope, invalid } = numbers.ignored;
        let [ok, failed] = numbers.pulls;
        [
            decisions,
            counter(
                "limiter_crowdsec_ignored_total",
                "Decisions of CrowdSec that were not used: they ban nobody (remediation), are not about addresses (scope), or cannot be read (invalid).",
            )
            .with([("reason", "remediation")], Whole(remediation))
            .with([("reason", "scope")], Whole(scope))
            .with([("reason", "invalid")], Whole(invalid)),
            gauge(
                "limiter_crowdsec_last_pull_timestamp_seconds",
                "When CrowdSec answered last, in Unix time; 0 if it did not.",
            )
            .with([], Real(numbers.last as f64)),
            gauge(
                "limiter_crowdsec_left_out",
                "Prefixes that CrowdSec bans and that are not denied: allow has them, or they would cut this host off (harm).",
            )
            .with([("reason", "allow")], Whole(numbers.allowed))
            .with([("reason", "harm")], Whole(numbers.harmful)),
            counter(
                "limiter_crowdsec_pulls_total",
                "How often CrowdSec was asked for decisions: with an answer that was used (ok), or without (failed).",
            )
            .with([("result", "ok")], Whole(ok))
            .with([("result", "failed")], Whole(failed)),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
