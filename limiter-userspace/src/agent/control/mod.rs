//! The control socket of an agent: other processes push blocks of single sources, and ask about sources.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/penalties` | what became of each block that is asked for, see `request` |
//! | `DELETE /v1/penalties/ADDRESS` | whether a pushed block of the source was ended; 403 for one that another user pushed |
//! | `GET /v1/penalties` | what `limiter penalty list -j` prints |
//! | `GET /v1/source/ADDRESS` | what `limiter get ADDRESS -j` prints; 404 for a source without state |
//!
//! Whom a pushed block may be of is said in `rules`.

mod counts;
mod http;
pub(super) mod instance;
mod owners;
mod proof;
pub(crate) mod request;
pub(crate) mod results;
pub(super) mod rules;

use std::{
    collections::BTreeSet,
    mem,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use limiter_common::algorithm::rate::Rate;
use rustix::process::getuid;

pub(super) use self::http::serve;
use self::{
    counts::Counts,
    instance::Opened,
    request::Asked,
    results::LiftResult,
    rules::{Outcome, Rules},
};
use super::{backoff::Backoff, event::Event, faults::News, sources::Budget};
use crate::{
    bridge::{listener::Bound, users::Users},
    datapath::bpffs::Pins,
    error::{Error, Result},
    metrics::Family,
};

/// Users that are trusted unless others are named, as far as this machine has them.
const USUAL: [&str; 2] = ["root", "limiter-bridge"];
/// The most events that wait to be told.
const WAITING: usize = 1024;

/// How an agent is asked by other processes.
#[derive(Debug)]
pub struct Options {
    /// The Unix socket.
    pub bound: Bound,
    /// Users whose processes may ask; root and the bridge's without any.
    pub trusted: Vec<String>,
    /// How many blocks may be pushed in the long run; any number without it.
    pub rate: Option<Rate>,
}

/// What requests are answered by. Each kind of request has maps of its own, so that a question about a source, which others wait
/// for, does not wait for a list or a batch of blocks.
#[derive(Debug)]
pub(super) struct Control {
    users: Users,
    counts: Counts,
    sources: Mutex<Opened>,
    lists: Mutex<Opened>,
    pushes: Mutex<Opened>,
    rules: Mutex<Rules>,
    unprepared: Mutex<Unprepared>,
    told: Mutex<Told>,
}

/// Why the first push could not be prepared when that was tried last.
#[derive(Debug, Default)]
struct Unprepared {
    cause: Option<String>,
    tries: Backoff,
}

impl Unprepared {
    /// Prepares the first push at `now`, unless that failed just before: to load a program takes long.
    fn retry(&mut self, now: Instant, prepare: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.cause.is_none() || self.tries.is_due(now) {
            self.cause = match prepare() {
                // There is nothing to push to.
                Ok(()) | Err(Error::NoInstance { .. }) => None,
                Err(error) => {
                    self.tries.tried(now);
                    Some(error.to_string())
                }
            };
        }
        match &self.cause {
            None => Ok(()),
            Some(cause) => Err(Error::Object {
                action: "get ready to push blocks".to_owned(),
                reason: cause.clone(),
            }),
        }
    }
}

/// Events until they are told.
#[derive(Debug, Default)]
struct Told {
    events: Vec<Event>,
    left_out: u64,
    failures: News,
    /// How many are told; none without it.
    budget: Option<Budget>,
}

impl Control {
    /// Answers for the instance that is pinned there, and has so many events told.
    ///
    /// # Errors
    /// That there is no such user.
    pub(super) fn new(
        trusted: &[String],
        rate: Option<Rate>,
        pins: Pins,
        events: Option<Rate>,
    ) -> Result<Self> {
        let users = Users::named_or(trusted, &USUAL, getuid().as_raw())?;
        let told = Told { budget: events.and_then(Budget::new), ..Told::default() };
        Ok(Self {
            users,
            counts: Counts::default(),
            sources: Mutex::new(Opened::new(pins.clone())),
            lists: Mutex::new(Opened::new(pins.clone())),
            pushes: Mutex::new(Opened::new(pins)),
            rules: Mutex::new(Rules::new(rate)),
            unprepared: Mutex::default(),
            told: Mutex::new(told),
        })
    }

    /// Events that are to be told, and how many were left out, since that was asked last.
    pub(super) fn take_events(&self) -> (Vec<Event>, u64) {
        let mut told = lock(&self.told);
        (mem::take(&mut told.events), mem::take(&mut told.left_out))
    }

    /// What it did, for monitoring systems.
    pub(super) fn families(&self) -> [Family; 2] {
        self.counts.families()
    }

    /// Does all that the first push needs, where the policy in force has a row for pushes: so that one does not wait for it.
    ///
    /// # Errors
    /// Why that fails. It is tried again with the next calls, more and more rarely.
    pub(super) fn prepare(&self) -> Result<()> {
        lock(&self.unprepared).retry(Instant::now(), || {
            let (mut opened, mut rules) = (lock(&self.pushes), lock(&self.rules));
            match opened.lifter()? {
                Some(pusher) => rules.prepare(pusher.maps()),
                None => Ok(()),
            }
        })
    }

    /// Does what a process of a user asks for.
    fn push(&self, user: u32, asked: &[Asked]) -> Result<Vec<Outcome>> {
        let (mut opened, mut rules) = (lock(&self.pushes), lock(&self.rules));
        let pusher = opened.pusher()?;
        Ok(self.each(user, asked, |asked| rules.push(pusher, user, asked)))
    }

    /// Pushes each block. One that fails keeps none of the others back.
    fn each(
        &self,
        user: u32,
        asked: &[Asked],
        mut push: impl FnMut(&Asked) -> Result<Outcome>,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(asked.len());
        for asked in asked {
            let outcome = push(asked).unwrap_or_else(|error| {
                self.tell_failure(error);
                Outcome::failed(asked.subject)
            });
            self.counts.add(outcome.result);
            if outcome.is_new() {
                self.tell(|| Event::Pushed {
                    source: crate::query::source::source_name(outcome.source),
                    length: Duration::from_secs(outcome.seconds),
                    limit: asked.limit.clone(),
                    reason: asked.reason.clone(),
                    user,
                });
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Ends the block of a source for a process of a user.
    fn lift(&self, user: u32, address: IpAddr) -> Result<LiftResult> {
        let (mut opened, rules) = (lock(&self.pushes), lock(&self.rules));
        let result = match opened.lifter()? {
            Some(pusher) => rules.lift(pusher, user, address)?,
            None => LiftResult::NotBlocked,
        };
        self.counts.add_lift(result);
        if result == LiftResult::Lifted {
            self.tell(|| Event::Lifted { source: address.to_string(), user });
        }
        Ok(result)
    }

    /// Tells of a failure, unless it was told just before: what fails of one block may fail of each.
    fn tell_failure(&self, error: Error) {
        let what = BTreeSet::from([error.to_string()]);
        if !lock(&self.told).failures.of(&what, Instant::now()).is_empty() {
            self.tell(|| Event::Failed(error));
        }
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        let mut told = lock(&self.told);
        let is_told = told.events.len() < WAITING
            && told.budget.as_mut().is_some_and(|budget| budget.spend(crate::query::now()));
        if !is_told {
            // Without a budget, none was to be told.
            told.left_out += u64::from(told.budget.is_some());
            return;
        }
        told.events.push(event());
    }
}

fn lock<T>(locked: &Mutex<T>) -> MutexGuard<'_, T> {
    // They are whole, whoever panicked.
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{results::PushResult, *};

    #[test]
    fn what_a_push_needs_is_tried_again_more_and_more_rarely() {
        let (begin, mut unprepared) = (Instant::now(), Unprepared::default());
        let mut tried = Vec::new();
        for second in 0..40 {
            let retried = unprepared.retry(begin + Duration::from_secs(second), || {
                tried.push(second);
                if second < 30 { Err(Error::NoSlot) } else { Ok(()) }
            });
            let told = retried.err().map(|error| error.to_string());
            let is_told = told.as_ref().is_some_and(|it| it.contains(&Error::NoSlot.to_string()));
            assert_eq!(is_told, second < 35, "{second}: {told:?}");
        }
        assert_eq!(tried, [0, 5, 15, 35, 36, 37, 38, 39]);
        // Where there is no instance nothing fails.
        let pins = Pins::new(std::env::temp_dir().join("limiter-no-instance"));
        Control::new(&["0".to_owned()], None, pins, None).unwrap().prepare().unwrap();
    }

    #[test]
    fn a_push_that_fails_keeps_none_of_the_others_back() {
        let pins = Pins::new(std::env::temp_dir().join("limiter-no-instance"));
        let events = crate::policy::units::parse_rate("10/s").ok();
        let control = Control::new(&["0".to_owned()], None, pins, events).unwrap();
        let one = |last| format!(r#"{{"subject": "192.0.2.{last}", "for": 1}}"#);
        let body = format!("[{}, {}, {}]", one(1), one(2), one(3));
        let asked = request::Body::read(body.as_bytes()).unwrap().asked;
        let outcomes = control.each(0, &asked, |asked| {
            if asked.subject.to_string() == "192.0.2.2" {
                return Err(Error::system("look up a connection", io::ErrorKind::Other.into()));
            }
            Ok(Outcome { source: asked.subject.into(), result: PushResult::Full, seconds: 0 })
        });
        let results: Vec<PushResult> = outcomes.iter().map(|outcome| outcome.result).collect();
        assert_eq!(results, [PushResult::Full, PushResult::Failed, PushResult::Full]);
        assert!(matches!(*control.take_events().0, [Event::Failed(_)]));
        let asked = &asked[..2];
        let fails =
            |_: &Asked| Err(Error::system("look up a connection", io::ErrorKind::Other.into()));
        control.each(0, asked, fails);
        assert!(control.take_events().0.is_empty(), "the same is told once");
        control.each(0, asked, |_| Err(Error::NoSlot));
        assert_eq!(control.take_events().0.len(), 1);
    }
}
