//! What an agent did so far.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::event::Event;
use crate::{
    error::Error,
    metrics::{
        Family, Kind,
        Value::{Real, Whole},
    },
};

/// An agent that looked at nothing for so long hangs. It may wait a minute for a lock, some times over.
const LOST: Duration = Duration::from_secs(300);

/// Metrics that could not be served are told so long, unless they can be meanwhile.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// How often things happened. It is shared by the agent and what serves its metrics.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Numbers>);

#[derive(Clone, Debug, Default)]
struct Numbers {
    applied: u64,
    unchanged: u64,
    rejected: u64,
    failed: u64,
    failing: u64,
    refused: bool,
    waits: bool,
    /// When the last look ended.
    looked: Option<Instant>,
    /// Why metrics could not be served last, and when that was.
    unserved: Option<(String, Instant)>,
    attached: u64,
    /// Whether the document that was read last is used.
    successful: bool,
    /// When one was used last, in seconds of Unix time.
    success: f64,
}

impl Counts {
    /// Counts what happened at a time of Unix, in seconds.
    pub(super) fn add(&self, event: &Event, now: u64) {
        let mut numbers = self.lock();
        let used = match event {
            Event::Applied { .. } => Some(&mut numbers.applied),
            Event::Unchanged { .. } => Some(&mut numbers.unchanged),
            _ => None,
        };
        if let Some(used) = used {
            *used += 1;
            (numbers.successful, numbers.success) = (true, now as f64);
        }
        match event {
            Event::Rejected(_) | Event::Refused { again: false, .. } => {
                numbers.rejected += 1;
                numbers.successful = false;
            }
            Event::Failed(_) => numbers.failed += 1,
            Event::Attached { .. } => numbers.attached += 1,
            _ => {}
        }
    }

    /// Notes that a look ended: how many things fail now, whether a change of set files is refused, and whether the
    /// document waits for the trial of another policy to end.
    pub(super) fn looked(&self, failing: u64, refused: bool, waits: bool) {
        let mut numbers = self.lock();
        (numbers.failing, numbers.refused, numbers.waits) = (failing, refused, waits);
        numbers.looked = Some(Instant::now());
    }

    /// Notes why the metrics cannot be served, or that they can.
    pub(super) fn served(&self, result: Result<(), String>) {
        self.lock().unserved = result.err().map(|reason| (reason, Instant::now()));
    }

    /// Why the metrics could not be served when they were asked for last. It is forgotten after a while: they may not
    /// be asked for again.
    pub(super) fn unserved(&self) -> Option<Error> {
        let (reason, when) = self.lock().unserved.clone()?;
        if when.elapsed() >= FORGOTTEN {
            return None;
        }
        Some(Error::Object { action: "serve the metrics".to_owned(), reason })
    }

    /// Why it is not alive, which is when it looks at nothing any more.
    ///
    /// # Errors
    /// For how long it did not.
    pub(super) fn alive(&self) -> Result<(), String> {
        match self.lock().looked {
            Some(looked) if looked.elapsed() >= LOST => {
                Err(format!("the last look ended {} s ago", looked.elapsed().as_secs()))
            }
            _ => Ok(()),
        }
    }

    /// Whether it is ready: it looked, nothing fails, and a policy of its document, if it has one, is used.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn ready(&self, follows: bool) -> Result<(), String> {
        self.alive()?;
        let numbers = self.lock();
        match (numbers.looked, numbers.failing) {
            (None, _) => Err("the first look has not ended".to_owned()),
            (_, 0) if follows && numbers.success == 0.0 => {
                Err("no policy of the document is used".to_owned())
            }
            (_, 0) => Ok(()),
            (_, failing) => Err(format!("what fails, and is tried again: {failing}")),
        }
    }

    /// The same for monitoring systems.
    pub(super) fn families(&self) -> [Family; 7] {
        let numbers = self.lock().clone();
        let counter = |name, help| Family::new(name, Kind::Counter, help);
        let gauge = |name, help| Family::new(name, Kind::Gauge, help);
        [
            counter(
                "limiter_policy_reloads_total",
                "How often the document was read: applied, in force already, or rejected.",
            )
            .with([("result", "applied")], Whole(numbers.applied))
            .with([("result", "unchanged")], Whole(numbers.unchanged))
            .with([("result", "rejected")], Whole(numbers.rejected)),
            gauge(
                "limiter_policy_last_reload_successful",
                "1 where the document that was read last is used: it was applied then, or was in force already.",
            )
            .with([], Whole((numbers.successful && !numbers.waits).into())),
            gauge(
                "limiter_policy_last_reload_success_timestamp_seconds",
                "When a document was put in force last, in Unix time; 0 if none was.",
            )
            .with([], Real(numbers.success)),
            gauge(
                "limiter_policy_change_refused",
                "1 while the document is refused for a change of its set files.",
            )
            .with([], Whole(numbers.refused.into())),
            counter("limiter_agent_attachments_total", "Interfaces that the agent attached.")
                .with([], Whole(numbers.attached)),
            counter(
                "limiter_agent_failures_total",
                "Failures of the agent that it tries to mend, each counted once.",
            )
            .with([], Whole(numbers.failed)),
            gauge(
                "limiter_agent_failing",
                "Failures at the last look of the agent, which it tries to mend.",
            )
            .with([], Whole(numbers.failing)),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the document that was read last is told to be used.
    fn is_used(counts: &Counts) -> bool {
        let families = counts.families();
        let name = "limiter_policy_last_reload_successful";
        families.iter().find(|family| family.name == name).unwrap().series[0].value == Whole(1)
    }

    #[test]
    fn a_document_is_not_used_only_while_it_waits() {
        let counts = Counts::default();
        counts.add(&Event::Applied { document: "a".into(), changes: 1 }, 7);
        assert!(is_used(&counts));
        counts.looked(1, false, true);
        assert!(!is_used(&counts));
        // Another change had to wait for the trial, and the document had not.
        counts.add(&Event::Failed(Error::Unconfirmed { left: Duration::ZERO }), 8);
        counts.looked(1, false, false);
        assert!(is_used(&counts));
    }

    #[test]
    fn an_agent_that_looks_at_nothing_any_more_is_not_alive() {
        let counts = Counts::default();
        counts.looked(0, false, false);
        assert_eq!((counts.alive(), counts.ready(false)), (Ok(()), Ok(())));
        let ago = |time: Duration| Some(Instant::now().checked_sub(time).unwrap());
        counts.lock().looked = ago(LOST - Duration::from_secs(60));
        assert_eq!(counts.alive(), Ok(()), "it may wait for a lock");
        counts.lock().looked = ago(LOST);
        for said in [counts.alive(), counts.ready(false)] {
            assert!(said.unwrap_err().starts_with("the last look ended 3"));
        }
    }

    #[test]
    fn metrics_that_nobody_asks_for_again_do_not_fail_for_ever() {
        let counts = Counts::default();
        counts.looked(0, false, false);
        counts.served(Err("it was detached".to_owned()));
        assert!(counts.unserved().is_some());
        counts.lock().unserved =
            Instant::now().checked_sub(FORGOTTEN).map(|it| (String::new(), it));
        assert!(counts.unserved().is_none());
    }
}
