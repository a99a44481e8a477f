//! What an agent did so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::event::Event;
use crate::{
    error::Error,
    metrics::{
        Family, Kind,
        Value::{Real, Whole},
    },
};

/// How often things happened. It is shared by the agent and what serves its metrics.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Numbers>);

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    applied: u64,
    unchanged: u64,
    rejected: u64,
    failed: u64,
    failing: u64,
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
            Event::Rejected(_) => {
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

    /// Notes how many things fail now.
    pub(super) fn failing(&self, failing: u64) {
        self.lock().failing = failing;
    }

    /// The same for monitoring systems.
    pub(super) fn families(&self) -> [Family; 6] {
        let numbers = *self.lock();
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
