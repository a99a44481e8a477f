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
    /// When the last look ended.
    looked: Option<Instant>,
    /// Why metrics could not be served last.
    unserved: Option<String>,
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
            Event::Failed(error) => {
                numbers.failed += 1;
                // The document waits for the trial of another policy to end.
                numbers.successful &= !matches!(error, Error::Unconfirmed { .. });
            }
            Event::Attached { .. } => numbers.attached += 1,
            _ => {}
        }
    }

    /// Notes that a look ended: how many things fail now, and whether a change of set files is refused.
    pub(super) fn looked(&self, failing: u64, refused: bool) {
        let mut numbers = self.lock();
        (numbers.failing, numbers.refused) = (failing, refused);
        numbers.looked = Some(Instant::now());
    }

    /// Notes why the metrics cannot be served, or that they can.
    pub(super) fn served(&self, result: Result<(), String>) {
        self.lock().unserved = result.err();
    }

    /// Why the metrics could not be served when they were asked for last.
    pub(super) fn unserved(&self) -> Option<Error> {
        let reason = self.lock().unserved.clone()?;
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
            .with([], Whole(numbers.successful.into())),
            gauge(
                "limiter_policy_last_reload_success_timestamp_seconds",
                "When a document was put in force last, in Unix time; 0 if none was.",
            )
            .with([], Real(numbers.success)),
            gauge(
                "limiter_policy_change_refused",
                "1 while the document is not used for what its set files change.",
            )
            .with([], Whole(numbers.refused.into())),
            counter("limiter_agent_attachments_total", "Interfaces that the agent attached.")
                .with([], Whole(numbers.attached)),
            counter(
                "limiter_agent_failures_total",
                "What the agent could not do and tries again, once each.",
            )
            .with([], Whole(numbers.failed)),
            gauge(
                "limiter_agent_failing",
                "What the agent could not do at its last look, and tries again.",
            )
            .with([], Whole(numbers.failing)),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        // Numbers are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
