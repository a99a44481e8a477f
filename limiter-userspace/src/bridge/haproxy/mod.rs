//! The map of HAProxy: the sources that a limit holds, each of whose requests it refuses for a while.
//!
//! HAProxy answers these itself, by rules that `limiter bridge config haproxy` prints. The bridge writes the map by HAProxy's
//! runtime socket. Nothing depends on it: a source that is missing in the map is asked about. Each entry has the time when it
//! ends, which HAProxy compares with its clock, so none outlives its end whatever becomes of the bridge.
//!
//! What is asked about although it was written was lost by HAProxy, as by a restart, and is written again. After an error, and
//! when another policy is in force, the map is cleared.

mod entries;
mod socket;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use self::{
    entries::{Changes, Entries, Held, IN_FLIGHT, Text},
    socket::{MapError, RuntimeSocket},
};
use super::{
    answer::Answer,
    event::Event,
    fields::{of_held, random},
    in_force::InForce,
    link::Link,
    rules::Named,
};
use crate::{
    metrics::{Family, Kind, Value::Whole},
    policy::{KeyPrefix, Policy},
    query,
};

/// How often the map is written.
const PAUSE: Duration = Duration::from_millis(100);
/// How long is waited after an error.
const AWAY: Duration = Duration::from_secs(1);
/// So many errors one after the other are told of: both processes may begin at once.
const ERRORS: u32 = 5;
/// Changes that wait to be written.
const QUEUE: usize = 4_096;

/// Where the map is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of HAProxy's runtime socket.
    pub socket: PathBuf,
    /// The name of the map in the configuration of HAProxy.
    pub map: String,
}

/// What is to be written.
enum Change {
    /// A source is held.
    Hold(Held),
    /// Something was given back to a source.
    Release(IpNet),
}

/// Notes which sources are held.
pub(super) struct Holder {
    queue: mpsc::Sender<Change>,
    counts: Arc<Counts>,
}

/// Writes the map.
pub(super) struct Writer {
    queue: mpsc::Receiver<Change>,
    counts: Arc<Counts>,
    socket: RuntimeSocket,
    in_force: Arc<InForce>,
    link: Arc<Link>,
    /// The policy that the entries are of.
    policy: Arc<Policy>,
    /// The prefixes that it says something of; `None` if that is not known.
    named: Option<Named>,
    /// What got something back, and when, in ns. Answers from before may come after it.
    released: BTreeMap<IpNet, u64>,
    /// When some that is not known got something back, in ns.
    stale: u64,
    /// What the map has; `None` if that is not known.
    entries: Option<Entries>,
    /// Errors one after the other.
    errors: u32,
}

/// What became of entries.
#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    written: AtomicU64,
    failed: AtomicU64,
    full: AtomicU64,
    queue_full: AtomicU64,
    /// Whether the map may hold a source that got something back.
    is_stale: AtomicBool,
}

/// What notes sources, and what writes them into a map.
pub(super) fn new(
    options: &Options,
    in_force: &Arc<InForce>,
    link: &Arc<Link>,
) -> (Holder, Writer) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let counts = Arc::new(Counts::default());
    let writer = Writer {
        queue,
        counts: Arc::clone(&counts),
        socket: RuntimeSocket::new(options),
        named: Named::new(&in_force.policy()).ok(),
        policy: in_force.policy(),
        released: BTreeMap::new(),
        stale: 0,
        in_force: Arc::clone(in_force),
        link: Arc::clone(link),
        entries: None,
        errors: 0,
    };
    (Holder { queue: sender, counts }, writer)
}

impl Holder {
    /// Notes what was answered about a request of a source, which was decided about at `now` or shortly after, in ns.
    pub(super) fn answered(&self, source: IpAddr, answer: &Answer, policy: &Arc<Policy>, now: u64) {
        let Some((held, holds)) = answer.held().and_then(|it| Some((it, it.holds?))) else {
            return;
        };
        let until = now.saturating_add(held.wait);
        let policy = Arc::clone(policy);
        let held = Held { key: key(source, holds), until, standing: *held, policy };
        if self.queue.try_send(Change::Hold(held)).is_err() {
            self.counts.queue_full.fetch_add(1, Relaxed);
        }
    }

    /// Notes that something was given back to a source. The answer is what is left then.
    pub(super) fn given_back(&self, source: Option<IpAddr>, answer: &Answer) {
        let Some(source) = source else { return };
        let holds = answer.standings.iter().filter_map(|it| it.holds);
        for holds in holds {
            if self.queue.try_send(Change::Release(key(source, holds))).is_err() {
                self.counts.is_stale.store(true, Relaxed);
            }
        }
    }

    pub(super) fn families(&self) -> [Family; 2] {
        let of = |count: &AtomicU64| Whole(count.load(Relaxed));
        let pushed = Family::new(
            "limiter_bridge_haproxy_pushed_total",
            Kind::Counter,
            "Entries for the map of HAProxy: it took them (written), did not take or remove them (failed), or the map or the \
             queue had no room (full, queue_full).",
        );
        let Counts { entries, written, failed, full, queue_full, .. } = &*self.counts;
        let results =
            [("written", written), ("failed", failed), ("full", full), ("queue_full", queue_full)];
        let pushed = results
            .into_iter()
            .fold(pushed, |family, (result, count)| family.with([("result", result)], of(count)));
        let entries = Family::new(
            "limiter_bridge_haproxy_entries",
            Kind::Gauge,
            "Entries of the map of HAProxy: sources that it answers itself, and those whose end is past for a moment.",
        )
        .with([], of(entries));
        [entries, pushed]
    }
}

/// The prefix of a source that is held as one.
fn key(source: IpAddr, holds: KeyPrefix) -> IpNet {
    let source = IpNet::from(source.to_canonical());
    IpNet::new(source.addr(), holds.length_for(&source)).map_or(source, |wide| wide.trunc())
}

impl Writer {
    /// Writes the map until the process ends.
    pub(super) async fn write(mut self) {
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.update().await {
                Ok(()) => self.note_success(),
                Err(error) => {
                    self.note_error(&error);
                    sleep(AWAY).await;
                }
            }
            let entries = self.entries.as_ref().map_or(0, Entries::len);
            self.counts.entries.store(entries as u64, Relaxed);
        }
    }

    /// Brings the map to what is known.
    async fn update(&mut self) -> Result<(), MapError> {
        let policy = self.in_force.policy();
        if !Arc::ptr_eq(&policy, &self.policy) {
            // Another one may let sources pass.
            (self.policy, self.entries) = (Arc::clone(&policy), None);
            // Elsewhere, as a policy may have a million prefixes.
            let named = spawn_blocking(move || Named::new(&policy).ok()).await;
            self.named = named.ok().flatten();
        }
        let is_stale = self.counts.is_stale.swap(false, Relaxed);
        let (mut held, mut released) = (Vec::new(), Vec::new());
        for _ in 0..QUEUE {
            match self.queue.try_recv() {
                Ok(Change::Hold(it))
                    if Arc::ptr_eq(&it.policy, &self.policy)
                        && self.named.as_ref().is_some_and(|named| named.is_one(&it.key)) =>
                {
                    held.push(it);
                }
                Ok(Change::Hold(_)) => {}
                Ok(Change::Release(key)) => released.push(key),
                Err(_) => break,
            }
        }
        let now = query::now();
        if is_stale {
            (self.stale, self.entries) = (now, None);
        }
        self.released.retain(|_, at| now < at.saturating_add(IN_FLIGHT));
        self.released.extend(released.iter().map(|key| (*key, now)));
        held.retain(|it| {
            it.decided() > *self.released.get(&it.key).unwrap_or(&self.stale).max(&self.stale)
        });
        // It is not known as long as something is not written.
        let mut entries = match self.entries.take() {
            Some(entries) => entries,
            None => {
                self.failing(held.len(), self.socket.clear().await)?;
                Entries::default()
            }
        };
        // HAProxy may have taken its time.
        let now = query::now();
        let Some(Changes { removed, added, full }) = entries.change(held, &released, now) else {
            // To clear it takes HAProxy less.
            return Ok(());
        };
        self.counts.full.fetch_add(full, Relaxed);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Time { now, unix: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX) };
        let texts: Vec<Text> = added.iter().filter_map(|it| time.text(it)).collect();
        let written = async {
            self.socket.remove(&removed).await?;
            self.socket.add(&texts).await
        };
        let written = written.await;
        self.failing(texts.len() + removed.len(), written)?;
        self.counts.written.fetch_add(texts.len() as u64, Relaxed);
        self.entries = Some(entries);
        Ok(())
    }

    /// Counts entries that were not written or removed.
    fn failing(&self, count: usize, written: Result<(), MapError>) -> Result<(), MapError> {
        written.inspect_err(|_| {
            self.counts.failed.fetch_add(count as u64, Relaxed);
        })
    }

    fn note_error(&mut self, error: &MapError) {
        self.errors = self.errors.saturating_add(1);
        if self.errors == ERRORS {
            let (message, hint) = (error.to_string(), error.remedy());
            self.link.tell(Event::HaproxyAway { message, hint });
        }
    }

    fn note_success(&mut self) {
        if self.errors >= ERRORS {
            self.link.tell(Event::HaproxyBack);
        }
        self.errors = 0;
    }
}

/// A moment.
#[derive(Clone, Copy)]
struct Time {
    /// In ns of `CLOCK_MONOTONIC`.
    now: u64,
    /// In ms of Unix time.
    unix: u64,
}

impl Time {
    /// The entry of a source.
    fn text(self, held: &Held) -> Option<Text> {
        // Rounded down, as nobody is refused for longer than by the limit.
        let at = |time: u64| self.unix.saturating_add(time.saturating_sub(self.now) / 1_000_000);
        let begin = held.decided();
        let fields = of_held(&held.policy, &held.standing, random())?;
        let retry = fields.retry_after.map(|wait| at(begin.saturating_add(wait)).to_string());
        let quota = fields.quota.map(|quota| quota.to_string());
        let value = [
            at(held.until).to_string(),
            retry.unwrap_or_default(),
            fields.limit,
            fields.policy,
            fields.remaining,
            quota.unwrap_or_default(),
            fields.body,
        ];
        Some(Text { key: held.key, value: value.join("|") })
    }
}

#[cfg(test)]
mod tests;
