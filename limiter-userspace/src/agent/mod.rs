//! The agent: a service that sees to an instance.
//!
//! Packets are decided about without it. It attaches interfaces when they come, follows a policy
//! document, and tells what it does; when it ends, or is killed, everything stays as it is.

pub mod address;
mod backoff;
mod bouncer;
pub mod control;
mod counts;
pub(crate) mod document;
pub mod event;
mod faults;
pub mod journal;
mod offer;
mod reconcile;
mod retries;
mod scrape;
mod sources;
mod wanted;
mod writer;

use std::{io, mem, path::PathBuf, sync::Arc, thread, time::Duration};

use limiter_common::algorithm::rate::Rate;
use sd_notify::{NotifyState, notify};
use tokio::{
    runtime, select,
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, mpsc},
    task::spawn_blocking,
    time::{Interval, MissedTickBehavior, interval},
};

use self::{
    address::Address,
    bouncer::Bouncer,
    control::Control,
    counts::Counts,
    event::{Dated, Event},
    scrape::{Scrape, serve},
    sources::Sources,
};
use crate::{
    agent::{reconcile::Reconciler, writer::EventWriter},
    crowdsec::lapi,
    datapath::{bpffs::Pins, linkwatch::LinkWatch},
    error::{Error, Result},
};

/// How often it looks, if nothing tells it to look at once.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long it waits for a lock: it tries again at its next look.
const PATIENCE: Duration = Duration::from_secs(15);

/// What an agent is to see to.
#[derive(Debug, Default)]
pub struct Options {
    /// Words that mean the interfaces which are to be attached whenever they are there.
    pub interfaces: Vec<String>,
    /// A document whose policy is to be in force.
    pub policy: Option<PathBuf>,
    /// Where metrics are served.
    pub listen: Vec<Address>,
    /// How many events about sources are told; none without it.
    pub events: Option<Rate>,
    /// Where other processes push blocks and ask about sources.
    pub control: Option<control::Options>,
    /// How CrowdSec is asked for decisions that are to be in force.
    pub crowdsec: Option<lapi::Options>,
    /// Whether its bans of single sources are pushed.
    pub crowdsec_push: bool,
}

/// Sees to an instance until it is asked to end by SIGTERM or SIGINT; SIGHUP has it read the document
/// anew. `unix` gives the time in seconds, `tell` tells what there is to tell, and whether it could.
///
/// # Errors
/// What the system says where it cannot even begin.
pub fn run(
    options: Options,
    pins: Pins,
    unix: fn() -> u64,
    tell: impl FnMut(&Dated) -> bool + Send + 'static,
) -> Result<()> {
    let failed = |error| Error::system("start the agent", error);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let counts = Arc::new(Counts::default());
    let pins = pins.with_patience(PATIENCE);
    let mut sources = Sources::new(pins.clone(), options.events);
    let (bound, control) = match options.control {
        Some(control::Options { bound, trusted, rate }) => {
            let control = Control::new(&trusted, rate, pins.clone(), options.events)?;
            (Some(bound), Some(Arc::new(control)))
        }
        None => (None, None),
    };
    let scrape = Scrape {
        pins: pins.clone(),
        counts: Arc::clone(&counts),
        unix,
        interfaces: options.interfaces.as_slice().into(),
        follows: options.policy.is_some(),
        last: Arc::default(),
        control: control.clone(),
        bouncer: options.crowdsec.as_ref().map(|_| Arc::default()),
    };
    // One result waits, so that LAPI is not asked again before what it said is in force.
    let (results, pulled) = mpsc::channel(1);
    let anew = Arc::new(Notify::new());
    let push = options.crowdsec_push;
    let bounce = |counts| Bouncer::new(pins.clone(), push, pulled, Arc::clone(&anew), counts);
    let mut bouncer = scrape.bouncer.clone().map(bounce);
    #[cfg(feature = "datapath-log")]
    crate::datapath::messages::follow(pins.clone()).map_err(failed)?;
    let mut reconciler = Reconciler::new(pins, options.interfaces, options.policy);
    let writer = EventWriter::new(unix, tell).map_err(failed)?;
    let first = reconciler.begin();
    let result = runtime.block_on(async {
        let mut waker = Waker::new().map_err(failed)?;
        writer.emit(Event::Started);
        if let Some((bound, control)) = bound.zip(control.clone()) {
            let address = bound.address().clone();
            control::serve(bound, control)?;
            writer.emit(Event::Answering { address });
        }
        if let Some(options) = options.crowdsec {
            tokio::spawn(lapi::follow(options, results, waker.notifier(), anew));
        }
        first.into_iter().for_each(|event| writer.emit(event));
        let (mut unserved, mut reload) = (options.listen, false);
        // What failed after all else. It is among what fails at the next look.
        let mut late = Vec::new();
        loop {
            if reload {
                // In one message, or the manager takes it for a reload that failed.
                let state =
                    [NotifyState::Reloading, NotifyState::monotonic_usec_now().map_err(failed)?];
                manager(&state);
            }
            // Elsewhere, as it may wait for a command that has the lock, or for a file system.
            let (pushed, unpushed) =
                control.as_ref().map(|it| it.take_events()).unwrap_or_default();
            let lost = writer.left_out() + unpushed;
            let mut errors: Vec<Error> = mem::take(&mut late);
            errors.extend(counts.unserved());
            let pusher = control.clone();
            let work = spawn_blocking(move || {
                let (heard, result) = sources.look(lost);
                errors.extend(result.err());
                let (decided, failed) =
                    bouncer.as_mut().map(|bouncer| bouncer.look(unix())).unwrap_or_default();
                errors.extend(failed);
                let mut events = reconciler.reconcile(unix(), reload, errors);
                events.extend(decided);
                events.extend(heard);
                let unprepared = pusher.and_then(|pusher| pusher.prepare().err());
                (reconciler, sources, bouncer, events, unprepared)
            });
            let (mut events, unprepared);
            pushed.into_iter().for_each(|event| writer.emit(event));
            (reconciler, sources, bouncer, events, unprepared) = select! {
                biased;
                () = waker.ended() => break,
                done = work => done.map_err(|error| failed(error.into()))?,
            };
            late.extend(unprepared);
            for address in mem::take(&mut unserved) {
                match serve(&address, scrape.clone()).await {
                    Ok(()) => events.push(Event::Listening { address }),
                    Err(error) => {
                        // Whoever has it may go.
                        let action = format!("serve metrics on {address}");
                        late.push(Error::system(action, error));
                        unserved.push(address);
                    }
                }
            }
            let refused = reconciler.refused();
            counts.looked(reconciler.failing(), refused.is_some(), reconciler.waits());
            for event in events {
                counts.add(&event, unix());
                writer.emit(event);
            }
            if let Err(error) = reconciler.check_loader() {
                manager(&[NotifyState::Stopping]);
                writer.emit(Event::Stopped);
                return Err(error);
            }
            // It does, whatever there was to do: what failed is tried again.
            let mut status = reconciler.status();
            if let Some(bouncer) = &bouncer {
                status = format!("{status}; {}", bouncer.status());
            }
            manager(&[NotifyState::Ready, NotifyState::Status(&status), NotifyState::Watchdog]);
            match waker.next().await {
                Wake::Look => reload = false,
                Wake::Reload => reload = true,
                Wake::End => {
                    if let Some(rest) = sources.rest() {
                        writer.emit(rest);
                    }
                    break;
                }
            }
        }
        manager(&[NotifyState::Stopping]);
        writer.emit(Event::Stopped);
        Ok(())
    });
    writer.end();
    // What it was about to do is left as it is, as if it had been killed.
    runtime.shutdown_background();
    result
}

/// Tells the service manager, if one waits to be told.
pub(crate) fn manager(state: &[NotifyState<'_>]) {
    // Whether it heard is its own business; it acts on what it does not hear.
    let _: io::Result<()> = notify(state);
}

/// Why it goes on.
enum Wake {
    /// It is time, an interface changed, or CrowdSec answered.
    Look,
    /// The document is to be read anew.
    Reload,
    /// It is to end.
    End,
}

/// The clock, the signals and the interfaces.
struct Waker {
    ticks: Interval,
    /// Told of by a thread that waits for interfaces and nothing else, and ends with the process; and by the task that asks CrowdSec.
    links: Arc<Notify>,
    reload: Signal,
    end: [Signal; 2],
}

impl Waker {
    fn new() -> io::Result<Self> {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (watch, links) = (LinkWatch::new()?, Arc::new(Notify::new()));
        let heard = Arc::clone(&links);
        thread::Builder::new().name("links".to_owned()).spawn(move || {
            while watch.wait().is_ok() {
                heard.notify_one();
            }
        })?;
        Ok(Self {
            ticks,
            links,
            reload: signal(SignalKind::hangup())?,
            end: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
        })
    }

    /// What has it look at once.
    fn notifier(&self) -> Arc<Notify> {
        Arc::clone(&self.links)
    }

    /// Waits until it is to end.
    async fn ended(&mut self) {
        let [terminate, interrupt] = &mut self.end;
        select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    async fn next(&mut self) -> Wake {
        let Self { ticks, links, reload, end: [terminate, interrupt] } = self;
        select! {
            biased;
            _ = terminate.recv() => Wake::End,
            _ = interrupt.recv() => Wake::End,
            _ = reload.recv() => Wake::Reload,
            () = links.notified() => Wake::Look,
            _ = ticks.tick() => Wake::Look,
        }
    }
}
