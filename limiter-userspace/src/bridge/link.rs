//! Whether the agent answers, for those who ask whether the bridge is whole.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::Sender;

use super::{client::ClientError, event::Event, kernel::is_of_requests};
use crate::{
    metrics::{Family, Kind, Value::Whole},
    policy::Policy,
};

/// Whether a policy has something that the agent is needed for: a penalty, or a limit on packets of concern to requests.
pub(super) fn is_needed(policy: &Policy) -> bool {
    policy.on_requests.iter().any(|limit| limit.penalty.is_some())
        || policy.limits.iter().any(is_of_requests)
}

/// How long the agent may take to begin: both are started at once, and it attaches first.
const BEGIN: Duration = Duration::from_secs(5);

/// What is known of the agent.
#[derive(Default)]
enum State {
    /// Nobody asked it.
    #[default]
    Unknown,
    /// It was asked first then, and did not answer yet.
    Awaited(Instant),
    There,
    /// Why it is of no use.
    Away(String),
}

/// Knows whether the agent answers, and tells of changes.
pub(super) struct Link {
    state: Mutex<State>,
    events: Sender<Event>,
}

impl Link {
    /// Nothing is known yet. `events` takes what there is to tell; what it has no room for is left out.
    pub(super) fn new(events: Sender<Event>) -> Self {
        Self { state: Mutex::default(), events }
    }

    /// Notes whether the agent answered. Tells of it if that changed.
    pub(super) fn note(&self, answered: Result<(), ClientError>) {
        self.note_at(answered, Instant::now());
    }

    fn note_at(&self, answered: Result<(), ClientError>, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let event = match (&*state, answered) {
            (State::Unknown, Err(_)) => {
                *state = State::Awaited(now);
                return;
            }
            (State::Awaited(begin), Err(_)) if now.duration_since(*begin) < BEGIN => return,
            (State::Awaited(_) | State::There, Err(error)) => {
                *state = State::Away(error.to_string());
                Event::AgentAway { message: error.to_string() }
            }
            (State::Away(_), Ok(())) => {
                *state = State::There;
                Event::AgentBack
            }
            (State::Unknown | State::Awaited(_), Ok(())) => {
                *state = State::There;
                return;
            }
            (State::There, Ok(())) | (State::Away(_), Err(_)) => return,
        };
        drop(state);
        self.tell(event);
    }

    /// Notes that no policy needs the agent any more.
    pub(super) fn unneeded(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Unknown;
    }

    /// Why the agent is of no use; `None` if it is there, or not needed.
    pub(super) fn fault(&self) -> Option<String> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Away(why) => Some(why.clone()),
            State::Unknown | State::Awaited(_) | State::There => None,
        }
    }

    /// The same, for monitoring systems.
    pub(super) fn family(&self) -> Family {
        Family::new(
            "limiter_bridge_agent_away",
            Kind::Gauge,
            "1 while the policy needs the agent and that does not answer: no peer is blocked then, and nothing is known of sources.",
        )
        .with([], Whole(u64::from(self.fault().is_some())))
    }

    /// Tells of something.
    pub(super) fn tell(&self, event: Event) {
        // What nobody reads fast enough is counted, and not told.
        let _: Result<(), _> = self.events.try_send(event);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;

    fn late() -> Result<(), ClientError> {
        Err(ClientError::Late(Duration::from_secs(2)))
    }

    #[test]
    fn an_agent_that_begins_after_the_bridge_is_not_told_to_be_away() {
        let (events, mut told) = channel(8);
        let link = Link::new(events);
        let begin = Instant::now();
        link.note_at(late(), begin);
        link.note_at(late(), begin + BEGIN / 2);
        assert_eq!(link.fault(), None);
        link.note_at(Ok(()), begin + BEGIN);
        told.try_recv().unwrap_err();
        link.note_at(late(), begin + 2 * BEGIN);
        assert!(matches!(told.try_recv().unwrap(), Event::AgentAway { .. }), "it was there");
        assert!(link.fault().is_some());
        link.note_at(Ok(()), begin + 2 * BEGIN);
        assert!(matches!(told.try_recv().unwrap(), Event::AgentBack));
    }

    #[test]
    fn an_agent_that_never_begins_is_told_to_be_away_once() {
        let (events, mut told) = channel(8);
        let link = Link::new(events);
        let begin = Instant::now();
        for time in [Duration::ZERO, BEGIN, 2 * BEGIN] {
            link.note_at(late(), begin + time);
        }
        assert!(matches!(told.try_recv().unwrap(), Event::AgentAway { .. }));
        told.try_recv().unwrap_err();
    }
}
