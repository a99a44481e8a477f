//! Has the decisions of CrowdSec in force: as a set of the run-time list `deny`, and as pushed blocks if those are asked for.
//!
//! As with all that the agent sees to, it compares what is in force with what is to be, and does what is missing. So it does not matter
//! who changed the lists, the policy or the addresses of this host meanwhile.

mod pushes;

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ipnet::IpNet;
use limiter_common::algorithm::rate::SECOND;
use tokio::sync::{Notify, mpsc::Receiver};

use self::pushes::{Pushes, over};
use super::{
    backoff::Backoff,
    event::{Event, bans},
};
use crate::{
    crowdsec::{
        SET,
        answer::{Ignored, Origin},
        decisions::{Decisions, Plan, Pushed},
        lapi::{LapiError, Pulled},
    },
    datapath::{bpffs::Pins, host, instance::Instance, link::exists, maps::Maps},
    error::{Error, Result},
    metrics::{
        Family, Kind,
        Value::{Real, Whole},
    },
    policy::{Layered, List, guard::Host},
    query,
};

/// Seconds by which the clock has to be set for that to be noticed; both clocks are read a moment apart.
const STEP: i64 = 3;

/// How decisions are kept in force.
pub(super) struct Bouncer {
    pins: Pins,
    pushes: Pushes,
    pulled: Receiver<Result<Pulled, LapiError>>,
    /// Has LAPI asked for all decisions again.
    anew: Arc<Notify>,
    counts: Arc<BouncerCounts>,
    decisions: Decisions,
    /// Where `decisions` are from.
    known: Known,
    /// Why LAPI could not be asked last.
    fault: Option<LapiError>,
    /// Whether LAPI answers for the first time, or again, and that was not told.
    is_news: bool,
    /// Whether it answered since the last look.
    has_answer: bool,
    /// The prefixes that were left out, when that was told last.
    harmful: Vec<IpNet>,
    /// By which instance and epoch what is in force was compared last; `None` if something changed since.
    compared: Option<(u32, u32)>,
    /// By how many seconds Unix time was ahead of the monotonic clock, when it was looked at last.
    ahead: Option<i64>,
    /// Why the entries could not be put in force when that was tried last.
    refused: Option<Error>,
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
    /// `pushes`: whether bans of single sources are pushed.
    pub(super) fn new(
        pins: Pins,
        pushes: bool,
        pulled: Receiver<Result<Pulled, LapiError>>,
        anew: Arc<Notify>,
        counts: Arc<BouncerCounts>,
    ) -> Self {
        Self {
            pushes: Pushes::new(pins.clone(), pushes),
            pins,
            pulled,
            anew,
            counts,
            decisions: Decisions::default(),
            known: Known::Nothing,
            fault: None,
            is_news: false,
            has_answer: false,
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
        errors.extend(self.pushes.fault());
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
                (self.known, self.has_answer) = (Known::Pulled, true);
                self.decisions.apply(&answer, is_whole, now.saturating_sub(at.elapsed().as_secs()));
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Moves the ends of bans if the clock was set: what is left of them stays the same. LAPI tells changes since a time of a clock that
    /// may have been set with this one, so all decisions are asked for again.
    fn follow_clock(&mut self, now: u64) {
        let ahead = now.cast_signed() - (query::now() / SECOND).cast_signed();
        let seconds = ahead - *self.ahead.get_or_insert(ahead);
        if seconds.abs() >= STEP {
            self.decisions.shift(seconds);
            (self.ahead, self.compared) = (Some(ahead), None);
            self.anew.notify_one();
        }
    }

    /// Puts in force what is missing, and returns what is to be told.
    fn enforce(&mut self, now: u64) -> Result<Option<Event>> {
        let waits = self.refused.is_some() && !self.tries.is_due(Instant::now());
        let has_answer = mem::take(&mut self.has_answer);
        // Before the maps are opened and a long list is compared, which takes a while.
        if let Some(refused) = self.refused.as_ref().filter(|_| waits && !has_answer) {
            return Err(not_put(refused));
        }
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
        self.pushes.open();
        let in_force = maps.in_force()?;
        let key_prefix = in_force.policy.key_prefix;
        let mut held = self.pushes.held(&maps, now)?;
        if !is_restored {
            self.decisions = Decisions::default();
            self.decisions.restore(in_force.run_time.entries().iter(), &held);
            self.known = Known::Restored(number);
        }
        self.decisions.drop_over(now);
        let host = host::read()?;
        // A ban is in force before it ends elsewhere: as a pushed block first, then in the set, and then others end.
        let mut planned = self.plan(in_force.layered(), &host, &held, now);
        let pushed = self.pushes.push(&planned.pushed, &mut held, key_prefix, &host, now);
        if planned.pushed.keys().any(|source| !held.ends.contains_key(source)) {
            // The set has what could not be pushed.
            planned = self.plan(in_force.layered(), &host, &held, now);
        }
        let put = match &self.refused {
            _ if !planned.is_change() => Ok(None),
            Some(refused) if waits => Err(not_put(refused)),
            _ => self.put(&host, &held, now).map_err(|error| self.put_off(error, Instant::now())),
        };
        let lifted = self.pushes.lift(&over(&held, &planned, put.is_ok()));
        self.counts.planned(&self.decisions, &planned);
        self.refused = self.refused.take().filter(|_| put.is_err());
        if !planned.is_change() {
            self.compared = Some(place);
        }
        // What runs on is told if LAPI answers for the first time, or again.
        Ok(self.told(&put?.unwrap_or(planned), pushed, lifted))
    }

    fn plan(&self, layered: Layered<'_>, host: &Host, held: &Pushed, now: u64) -> Plan {
        self.decisions.plan(layered, host, &self.pushes.kept(held), now)
    }

    /// Notes that the entries could not be put in force at `now`, and returns what is to be told of that.
    fn put_off(&mut self, error: Error, now: Instant) -> Error {
        if matches!(error, Error::Unconfirmed { .. } | Error::Busy { .. }) {
            // Others are about to change the policy, which is over soon. What is refused for another reason stays so.
            self.tries = Backoff::default();
        }
        self.tries.tried(now);
        not_put(self.refused.insert(error))
    }

    /// Puts the entries in force, as they are to be beside the lists that are in force then. Makes room for them where it takes that.
    /// `None` if there is no instance any more.
    fn put(&self, host: &Host, held: &Pushed, now: u64) -> Result<Option<Plan>> {
        let put = || {
            let Some(mut instance) = Instance::open(&self.pins)? else { return Ok(None) };
            let mut layers = instance.maps().settled()?;
            let mut plan = self.plan(layers.view(), host, held, now);
            let entries = mem::take(&mut plan.entries);
            layers.run_time.replace(&layers.policy, (List::Deny, SET), entries, now)?;
            instance.maps_mut().put_in_force(layers, None, None)?;
            // They are in force, also where the file cannot be written. The reconciler tells that.
            Ok(Some(plan))
        };
        Ok(Instance::with_room(&self.pins, put)?.0)
    }

    /// What is to be told of a plan that is in force, after so many blocks were pushed and ended.
    fn told(&mut self, plan: &Plan, pushed: usize, lifted: usize) -> Option<Event> {
        let harmful: Vec<IpNet> = plan.harmful.iter().map(|(prefix, _)| *prefix).collect();
        let is_harm = self.harmful != harmful;
        self.harmful = harmful;
        let is_change = plan.is_change() || pushed + lifted > 0;
        let is_news = mem::take(&mut self.is_news) || is_harm || is_change;
        is_news.then(|| Event::Decisions {
            total: plan.total + plan.pushed.len(),
            added: plan.added + pushed,
            ended: plan.ended + lifted,
            allowed: plan.allowed,
            harmful: plan.harmful.len(),
            harm: plan.harmful.first().map(|(prefix, harm)| format!("{prefix} {harm}")),
        })
    }
}

/// The error where the entries could not be put in force.
fn not_put(cause: &Error) -> Error {
    match cause {
        Error::Unconfirmed { left } => Error::Unconfirmed { left: *left },
        Error::Busy { directory, holder } => {
            Error::Busy { directory: directory.clone(), holder: holder.clone() }
        }
        cause => Error::Object {
            action: "put the decisions of CrowdSec in force".to_owned(),
            reason: cause.to_string(),
        },
    }
}

/// What became of decisions so far. It is shared by the bouncer and what serves its metrics.
#[derive(Debug, Default)]
pub(super) struct BouncerCounts(Mutex<Numbers>);

#[derive(Clone, Debug, Default)]
struct Numbers {
    by_origin: [u64; Origin::ALL.len()],
    /// Entries and pushed blocks that are to be in force.
    total: u64,
    pushed: u64,
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
        numbers.pushed = plan.pushed.len() as u64;
        numbers.total = plan.total as u64 + numbers.pushed;
        numbers.allowed = plan.allowed as u64;
        numbers.harmful = plan.harmful.len() as u64;
    }

    /// How many bans there are, in words.
    fn summary(&self) -> String {
        format!("CrowdSec: {}", bans(self.lock().total))
    }

    /// The same for monitoring systems.
    pub(super) fn families(&self) -> [Family; 6] {
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
            gauge(
                "limiter_crowdsec_pushed",
                "Sources that CrowdSec bans and that are blocked by a push; the others are in the set `crowdsec` of the list `deny`.",
            )
            .with([], Whole(numbers.pushed)),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        runtime,
        sync::mpsc::{Sender, channel},
        time::timeout,
    };

    use super::*;
    use crate::{
        crowdsec::answer::Answer,
        policy::{Layers, run_time::Entry},
    };

    const NOW: u64 = 1_800_000_000;

    type Results = Sender<Result<Pulled, LapiError>>;

    /// A bouncer without an instance, and what it hears from.
    fn bouncer() -> (Bouncer, Results) {
        let (results, pulled) = channel(1);
        let pins = Pins::new(std::env::temp_dir().join("limiter-no-instance"));
        (Bouncer::new(pins, true, pulled, Arc::default(), Arc::default()), results)
    }

    /// Whether all decisions are to be asked for again.
    fn is_anew(bouncer: &Bouncer) -> bool {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let anew = async { timeout(Duration::ZERO, bouncer.anew.notified()).await };
        runtime.block_on(anew).is_ok()
    }

    impl Bouncer {
        /// When the only ban ends, in seconds of Unix time.
        fn end(&self) -> Option<u64> {
            let layers = Layers::default();
            let plan = self.decisions.plan(layers.view(), &Host::default(), &Pushed::default(), 0);
            plan.entries[0].until
        }
    }

    #[test]
    fn after_the_clock_was_set_all_decisions_are_asked_for_and_what_was_in_force_ends_as_it_says() {
        let (mut bouncer, results) = bouncer();
        let entry = Entry {
            set: Some(SET.into()),
            until: Some(NOW + 60),
            ..Entry::new(List::Deny, "192.0.2.5/32".parse().unwrap())
        };
        bouncer.decisions.restore([entry].iter(), &Pushed::default());
        bouncer.known = Known::Restored(1);
        bouncer.follow_clock(NOW);
        assert!(!is_anew(&bouncer));
        bouncer.follow_clock(NOW - 600);
        assert_eq!(bouncer.end(), Some(NOW + 60));
        assert!(is_anew(&bouncer) && !is_anew(&bouncer), "once");
        let text = br#"{"new": [{"type": "ban", "scope": "Ip", "value": "192.0.2.5", "duration": "60s"}], "deleted": null}"#;
        let answer = Answer::read(text).unwrap();
        results.try_send(Ok(Pulled { answer, is_whole: true, at: Instant::now() })).unwrap();
        assert!(bouncer.look(NOW - 600).1.is_empty());
        let end = bouncer.end().unwrap();
        bouncer.follow_clock(NOW);
        assert_eq!((bouncer.end(), is_anew(&bouncer)), (Some(end + 600), true));
    }

    #[test]
    fn a_restored_block_moves_with_the_clock() {
        let mut bouncer = bouncer().0;
        let ends = [("192.0.2.5".parse().unwrap(), NOW + 60)].into();
        bouncer.decisions.restore([].iter(), &Pushed { ends, room: 0 });
        bouncer.known = Known::Restored(1);
        bouncer.follow_clock(NOW);
        bouncer.follow_clock(NOW - 600);
        assert_eq!(bouncer.end(), Some(NOW - 540));
    }

    #[test]
    fn while_entries_are_put_off_nothing_is_opened_and_the_same_is_told() {
        let trial = || Error::Unconfirmed { left: Duration::from_secs(9) };
        let lock = || Error::Busy { directory: "/".into(), holder: None };
        let far = Instant::now() + Duration::from_secs(3600);
        for error in [trial(), lock(), Error::NoSlot] {
            let mut bouncer = bouncer().0;
            bouncer.enforce(NOW).unwrap();
            let told = bouncer.put_off(error, far).to_string();
            assert_eq!(bouncer.enforce(NOW).unwrap_err().to_string(), told);
        }
        let is_due =
            |bouncer: &Bouncer, seconds| bouncer.tries.is_due(far + Duration::from_secs(seconds));
        let mut bouncer = bouncer().0;
        bouncer.put_off(Error::NoSlot, far);
        bouncer.put_off(Error::NoSlot, far);
        assert!(!is_due(&bouncer, 9) && is_due(&bouncer, 10), "what is refused again waits longer");
        bouncer.put_off(trial(), far);
        bouncer.put_off(trial(), far);
        assert!(!is_due(&bouncer, 4) && is_due(&bouncer, 5), "a trial is over soon");
    }
}
