//! The bridge as a process: it answers, and follows its document, until it is asked to end.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use sd_notify::NotifyState;
use tokio::{
    runtime, select,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    client::Client,
    event::Event,
    grpc, handover, haproxy,
    http::{self, Service, Tallies, serve},
    in_force::InForce,
    kernel::Kernel,
    link::Link,
    listener::{Bound, Protocol},
    push::Pusher,
    spop,
    table::Table,
    tls::{self, Files, Loaded, Tls, TlsError},
    users::{Users, group},
};
use crate::{
    agent::{
        address::Address,
        document::{Document, Read},
        manager,
    },
    datapath::privilege,
    error::{Error, Result},
};

/// How often the document is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long requests that are answered at the end may take.
const END: Duration = Duration::from_secs(2);
/// Events that wait to be told.
const EVENTS: usize = 64;

/// What a bridge is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The document whose policy is in force.
    pub policy: PathBuf,
    /// Where it answers, and by which protocol.
    pub listen: Vec<(Protocol, Address)>,
    /// By which proxies on other hosts are known.
    pub tls: Option<tls::Options>,
    /// The number of keys whose state is kept.
    pub keys: usize,
    /// A file that keeps the state over a restart of the process; without one, it is lost.
    pub state: Option<PathBuf>,
    /// Users whose processes are answered; the usual proxies without any.
    pub trusted: Vec<String>,
    /// The group of Unix sockets; without one, that of the process.
    pub group: Option<String>,
    /// The socket of the agent, which blocks peers.
    pub agent: PathBuf,
    /// The map of HAProxy that it writes; `None`: HAProxy asks about each request.
    pub haproxy: Option<haproxy::Options>,
}

/// Answers until the process is asked to end by SIGTERM or SIGINT; SIGHUP has it read the document and certificates anew. `unix` gives the time
/// in seconds, `tell` tells what there is to tell.
///
/// It gives up all capabilities once its sockets are bound.
///
/// # Errors
/// A wrong document, user, address, certificate or state file, or what the system says.
pub fn run(options: &Options, unix: fn() -> u64, mut tell: impl FnMut(Event)) -> Result<()> {
    let failed = |error| Error::system("start the bridge", error);
    let users = Users::named(&options.trusted, getuid().as_raw())?;
    let group = options.group.as_deref().map(group).transpose()?;
    check_tls(options)?;
    let bind = |(protocol, address): &(Protocol, Address)| {
        Bound::bind(address, group).map(|bound| (*protocol, bound))
    };
    let bound = options.listen.iter().map(bind).collect::<Result<Vec<_>>>()?;
    // Before there is any other thread, which would keep what it has, and before anything of others is read.
    privilege::give_up()?;
    raise_descriptors();
    let mut document = Document::new(options.policy.clone());
    let (policy, warnings, _) = document.first(unix)?;
    let mut files = options.tls.clone().map(Files::new);
    let loaded = files.as_mut().map(Files::first).transpose()?;
    let tls = loaded.as_ref().map(Tls::new);
    let table = match &options.state {
        Some(path) => Table::open(path, options.keys)?,
        None => Table::in_memory(options.keys),
    };
    let began = table.began();
    let limits = policy.on_requests.len();
    let in_force = Arc::new(InForce::new(policy, table)?);
    let (events, mut waiting) = mpsc::channel(EVENTS);
    let link = Arc::new(Link::new(events));
    let (pusher, queue) = Pusher::new(in_force.seed());
    let pusher = Arc::new(pusher);
    let map = options.haproxy.as_ref().map(|map| haproxy::new(map, &in_force, &link));
    let (holder, map) = map.unzip();
    let state = options.state.as_deref();
    let taken = state.map_or(Ok(()), |state| handover::take(state, &in_force, &pusher));
    let mut writer = state.map(|state| handover::Writer::new(state, &in_force, &pusher));
    let service = Arc::new(Service {
        in_force: Arc::clone(&in_force),
        users,
        tallies: Tallies::default(),
        pusher: Arc::clone(&pusher),
        holder,
        kernel: Kernel::new(&options.agent),
        agent: Client::new(&options.agent),
        link: Arc::clone(&link),
        connections: Default::default(),
        held: Arc::default(),
        scrape: Default::default(),
    });
    service.tallies.applied(unix());
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let result = runtime.block_on(async {
        let (ending, end) = watch::channel(false);
        let mut waker = Waker::new().map_err(failed)?;
        let mut servers = Vec::new();
        for (protocol, bound) in bound {
            let address = bound.address().clone();
            // A loopback address is asked without TLS.
            let tls = match (address.is_local(), &tls) {
                (true, _) => None,
                (false, Some(tls)) => Some(tls.acceptor(protocol)),
                (false, None) => return Err(TlsError::needed(&address).into()),
            };
            let listener = bound.listen()?;
            let (service, end) = (Arc::clone(&service), end.clone());
            servers.push(match protocol {
                Protocol::Http => tokio::spawn(serve(listener, tls, service, end, http::converse)),
                Protocol::Grpc => tokio::spawn(serve(listener, tls, service, end, grpc::converse)),
                Protocol::Spop => tokio::spawn(serve(listener, tls, service, end, spop::converse)),
            });
            tell(Event::Listening { address });
        }
        if let Some(loaded) = &loaded {
            certified(&service, loaded, options, unix, &mut tell);
        }
        if let Some(file) = &options.state {
            tell(Event::State { file: file.clone(), began });
        }
        if let Err(error) = taken {
            tell(Event::Forgot(error));
        }
        if !warnings.list().is_empty() {
            tell(Event::Warned(warnings));
        }
        tell(Event::Applied { document: options.policy.clone(), limits });
        tokio::spawn(queue.hand_on(Client::new(&options.agent), pusher, in_force, link));
        if let Some(map) = map {
            tokio::spawn(map.write());
        }
        loop {
            manager(&[NotifyState::Ready, NotifyState::Watchdog]);
            let wake = select! {
                biased;
                wake = waker.next() => wake,
                Some(event) = waiting.recv() => {
                    tell(event);
                    continue;
                }
            };
            let reload = match wake {
                Wake::Look => false,
                Wake::Reload => true,
                Wake::End => break,
            };
            if reload {
                // In one message, or the manager takes it for a reload that failed.
                let now = NotifyState::monotonic_usec_now().map_err(failed)?;
                manager(&[NotifyState::Reloading, now]);
            }
            // Elsewhere, as it may wait for a file system.
            let look = spawn_blocking(move || {
                let read = document.look(unix(), reload);
                let loaded = files.as_mut().and_then(|files| files.look(reload));
                let kept = writer.as_mut().map_or(Ok(()), handover::Writer::keep);
                (document, read, files, loaded, writer, kept)
            });
            let (read, loaded, kept);
            (document, read, files, loaded, writer, kept) =
                look.await.map_err(|error| failed(error.into()))?;
            // Before the policy, which is told when all is done.
            if let (Some(loaded), Some(tls)) = (loaded, &tls) {
                match loaded {
                    Ok(loaded) => {
                        tls.adopt(&loaded);
                        certified(&service, &loaded, options, unix, &mut tell);
                    }
                    Err(error) => {
                        service.tallies.certificate_rejected();
                        tell(Event::CertificateRejected(error));
                    }
                }
            }
            if let Err(error) = kept {
                tell(Event::Forgot(error));
            }
            if let Some(read) = read {
                adopt(&service, read, options, unix, &mut tell);
            }
        }
        manager(&[NotifyState::Stopping]);
        // Whoever is told of it may have gone already.
        let _: Result<(), _> = ending.send(true);
        if let Some(tls) = &tls {
            tls.end();
        }
        for server in servers {
            let _: Result<(), _> = server.await;
        }
        let ended = async {
            while Arc::strong_count(&service) > 1 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // Requests that are held back have their turn.
        let delay = Duration::from_nanos(service.in_force.policy().longest_delay());
        select! { () = ended => {}, () = sleep(END + delay) => {} }
        if let Some(Err(error)) = writer.map(|writer| writer.write()) {
            tell(Event::Forgot(error));
        }
        tell(Event::Stopped);
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Checks that there are certificates where other hosts may ask, and only there.
fn check_tls(options: &Options) -> Result<(), TlsError> {
    let remote = options.listen.iter().find(|(_, address)| !address.is_local());
    match (remote, &options.tls) {
        (Some((_, address)), None) => Err(TlsError::needed(address)),
        (None, Some(_)) => Err(TlsError::Unneeded),
        _ => Ok(()),
    }
}

/// Notes and tells which certificate is in use.
fn certified(
    service: &Service,
    loaded: &Loaded,
    options: &Options,
    unix: fn() -> u64,
    tell: &mut impl FnMut(Event),
) {
    service.tallies.certified(loaded);
    if let Some(tls) = &options.tls {
        let (file, expires) = (tls.certificate.clone(), loaded.expires);
        tell(Event::Certificate { file, expires, is_expired: expires <= unix() });
    }
}

/// Puts what was read in force, or tells why it is not.
fn adopt(
    service: &Service,
    read: Result<Read>,
    options: &Options,
    unix: fn() -> u64,
    tell: &mut impl FnMut(Event),
) {
    let applied = read.and_then(|(policy, warnings, _)| {
        let limits = policy.on_requests.len();
        service.in_force.apply(policy)?;
        Ok((warnings, limits))
    });
    match applied {
        Ok((warnings, limits)) => {
            service.tallies.applied(unix());
            if !warnings.list().is_empty() {
                tell(Event::Warned(warnings));
            }
            tell(Event::Applied { document: options.policy.clone(), limits });
        }
        Err(error) => {
            service.tallies.rejected();
            tell(Event::Rejected(error));
        }
    }
}

/// Lets this process have as many descriptors as it may, for its connections.
fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, fewer connections are accepted.
    let _: Result<(), _> = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Why it goes on.
enum Wake {
    /// The document is looked at.
    Look,
    /// The document is read anew.
    Reload,
    /// It ends.
    End,
}

/// The clock and the signals.
struct Waker {
    ticks: tokio::time::Interval,
    reload: Signal,
    end: [Signal; 2],
}

impl Waker {
    fn new() -> io::Result<Self> {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            ticks,
            reload: signal(SignalKind::hangup())?,
            end: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
        })
    }

    async fn next(&mut self) -> Wake {
        let Self { ticks, reload, end: [terminate, interrupt] } = self;
        select! {
            biased;
            _ = terminate.recv() => Wake::End,
            _ = interrupt.recv() => Wake::End,
            _ = reload.recv() => Wake::Reload,
            _ = ticks.tick() => Wake::Look,
        }
    }
}
