//! Serving the metrics, and whether the agent is alive and ready, by plain HTTP: on addresses or Unix
//! sockets.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    pin::pin,
    sync::{Arc, Mutex as Locked, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    select,
    sync::{Mutex, Notify},
    task::{AbortHandle, spawn_blocking},
    time::{sleep, timeout},
};

use super::{
    address::{Address, bind_abstract, remove_dead},
    bouncer::BouncerCounts,
    control::Control,
    counts::Counts,
    wanted::Wanted,
};
use crate::{
    datapath::{bpffs::Pins, instance::attached, interface, link::exists, maps::Maps},
    error::Result,
    metrics::{self, Family, Kind, Metrics, Value},
};

/// Connections of a listener that wait for their request, and as many that are answered. With one more,
/// the oldest of these goes: who connects and says nothing keeps nobody else out.
const CONNECTIONS: usize = 64;
/// For how long a request is waited for.
const REQUEST: Duration = Duration::from_secs(5);
/// For how long a request is answered.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of a request that are kept.
const REQUEST_BYTES: usize = 16 << 10;
/// For how long an answer is as good as a new one.
const FRESH: Duration = Duration::from_secs(1);

/// What metrics are made of.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) pins: Pins,
    pub(super) counts: Arc<Counts>,
    pub(super) unix: fn() -> u64,
    /// The words for the interfaces that the agent attaches.
    pub(super) interfaces: Arc<[String]>,
    /// Whether it follows a document.
    pub(super) follows: bool,
    /// The last answer. It is held while another is made, so that one is at a time.
    pub(super) last: Arc<Mutex<Option<(Instant, Bytes)>>>,
    /// What other processes are answered by, if they may ask.
    pub(super) control: Option<Arc<Control>>,
    /// What became of decisions of CrowdSec, if they are followed.
    pub(super) bouncer: Option<Arc<BouncerCounts>>,
}

/// A socket that was bound.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection by either.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Address::Unix(path) => {
                remove_dead(path)?;
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                Ok(Self::Unix(listener))
            }
            Address::Abstract(name) => {
                let listener = bind_abstract(name)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(UnixListener::from_std(listener)?))
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Begins to serve at an address, and goes on as long as the process does.
///
/// # Errors
/// Why it cannot be bound.
pub(super) async fn serve(address: &Address, scrape: Scrape) -> io::Result<()> {
    let listener = Listener::bind(address).await?;
    tokio::spawn(async move {
        let crowd = Arc::<Crowd>::default();
        for number in 0.. {
            let stream = loop {
                match listener.accept().await {
                    Ok(stream) => break stream,
                    // Of descriptors there may be more in a moment.
                    Err(_) => sleep(FRESH).await,
                }
            };
            let member = Member { number, crowd: Arc::clone(&crowd) };
            let task = tokio::spawn(converse(stream, scrape.clone(), member));
            crowd.come(number, task.abort_handle());
        }
    });
    Ok(())
}

/// Answers the one request of a connection.
async fn converse(stream: Box<dyn Stream>, scrape: Scrape, member: Member) {
    let asked = Notify::new();
    let service = service_fn(|request| {
        member.crowd.ask(member.number);
        asked.notify_one();
        answer(scrape.clone(), request)
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Whoever asks learns by itself that the connection broke.
    select! {
        biased;
        _ = &mut connection => return,
        () = asked.notified() => {}
        () = sleep(REQUEST) => return,
    }
    let _: Result<_, _> = timeout(ANSWER, connection).await;
}

/// The connections of a listener, the oldest first.
#[derive(Default)]
struct Crowd(Locked<Lists>);

#[derive(Default)]
struct Lists {
    /// Those that wait for their request.
    silent: VecDeque<(u64, AbortHandle)>,
    /// Those that are answered.
    asked: VecDeque<(u64, AbortHandle)>,
}

impl Crowd {
    fn come(&self, number: u64, task: AbortHandle) {
        let mut lists = self.lists();
        // It may have ended already.
        if !task.is_finished() {
            push(&mut lists.silent, (number, task));
        }
    }

    /// A request has come.
    fn ask(&self, number: u64) {
        let mut lists = self.lists();
        let Lists { silent, asked } = &mut *lists;
        if let Some(task) = take(silent, number) {
            push(asked, task);
        }
    }

    fn go(&self, number: u64) {
        let mut lists = self.lists();
        let Lists { silent, asked } = &mut *lists;
        for list in [silent, asked] {
            let _: Option<_> = take(list, number);
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // They are whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(list: &mut VecDeque<(u64, AbortHandle)>, task: (u64, AbortHandle)) {
    list.push_back(task);
    if list.len() > CONNECTIONS
        && let Some((_, oldest)) = list.pop_front()
    {
        oldest.abort();
    }
}

fn take(list: &mut VecDeque<(u64, AbortHandle)>, number: u64) -> Option<(u64, AbortHandle)> {
    let at = list.iter().position(|(it, _)| *it == number)?;
    list.remove(at)
}

/// A connection among others, until it ends.
struct Member {
    number: u64,
    crowd: Arc<Crowd>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.go(self.number);
    }
}

/// The answer to a request.
async fn answer(
    scrape: Scrape,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |result: Result<Bytes, String>| match result {
        Ok(text) => (StatusCode::OK, text),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, Bytes::from(format!("{why}\n"))),
    };
    let fine = |()| Bytes::from_static(b"ok\n");
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut kind = "text/plain; charset=utf-8";
    let (status, body) = match request.uri().path() {
        "/metrics" | "/healthz" | "/readyz" if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, Bytes::new())
        }
        "/metrics" => match scrape.text().await {
            Ok(text) => {
                kind = "text/plain; version=0.0.4; charset=utf-8";
                (StatusCode::OK, text)
            }
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from(format!("{why}\n"))),
        },
        "/healthz" => plain(scrape.counts.alive().map(fine)),
        "/readyz" => plain(scrape.counts.ready(scrape.follows).map(fine)),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

impl Scrape {
    /// The metrics as text, or why they cannot be read.
    async fn text(&self) -> Result<Bytes, String> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let scrape = self.clone();
        let read = spawn_blocking(move || {
            let text = scrape.read().map(|metrics| Bytes::from(metrics.to_string()))?;
            *last = Some((Instant::now(), text.clone()));
            Ok::<_, crate::error::Error>(text)
        });
        let result = match read.await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        // Whoever asked may keep the answer to itself: the agent tells of it too.
        self.counts.served(result.as_ref().map(drop).map_err(Clone::clone));
        result
    }

    /// Reads everything. The instance is looked for anew: it may have been removed and made again.
    fn read(&self) -> Result<Metrics> {
        let mut metrics = metrics::read(&self.pins, (self.unix)())?;
        metrics.metrics.extend(self.counts.families());
        metrics.metrics.extend(self.control.iter().flat_map(|control| control.families()));
        metrics.metrics.extend(self.bouncer.iter().flat_map(|bouncer| bouncer.families()));
        metrics.metrics.extend(self.wanted()?);
        Ok(metrics)
    }

    /// The interfaces that the agent attaches.
    fn wanted(&self) -> Result<[Family; 2]> {
        let attached = match exists(&self.pins)? {
            true => attached(&self.pins, &Maps::open(&self.pins)?)?,
            false => Vec::new(),
        };
        let found = Wanted::of(&self.interfaces, &interface::list()?, &attached);
        let mut wanted = Family::new(
            "limiter_agent_interface",
            Kind::Gauge,
            "1 for each interface that the agent attaches whenever it is there.",
        );
        for name in found.names() {
            wanted.push([("interface", name)], Value::Whole(1));
        }
        let waiting = Family::new(
            "limiter_agent_interfaces_waiting",
            Kind::Gauge,
            "Names and patterns of interfaces for the agent that no interface has.",
        );
        Ok([wanted, waiting.with([], Value::Whole(found.waiting.len() as u64))])
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
        thread,
    };

    use tokio::runtime;

    use super::*;
    use crate::agent::event::Event;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// An agent without an instance, which serves at a port that is free.
    fn served(counts: Arc<Counts>) -> SocketAddr {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let scrape = Scrape {
            pins: Pins::new("/nonexistent/limiter"),
            counts,
            unix: || 7,
            interfaces: Arc::new([]),
            follows: true,
            last: Arc::default(),
            control: None,
            bouncer: None,
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                serve(&Address::Tcp(address), scrape).await.unwrap();
                ready.send(()).unwrap();
                // As long as the test runs.
                sleep(6 * PATIENCE).await;
            });
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        address
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn ask(address: SocketAddr, what: &str) -> String {
        let mut stream = connect(address);
        stream.write_all(format!("{what} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn who_says_nothing_keeps_nobody_out() {
        let address = served(Arc::default());
        let slow = || {
            let mut stream = connect(address);
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
            stream
        };
        // Sixteen were enough once, and now not even five times what is kept.
        let mut all: Vec<TcpStream> = (0..16).map(|_| slow()).collect();
        assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
        for _ in 0..5 {
            all.extend((0..CONNECTIONS).map(|_| slow()));
            assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
        }
        // The oldest went, and the others go when their time is over.
        let begin = Instant::now();
        for stream in &mut all {
            let mut rest = Vec::new();
            // It may be reset, as there is something unread.
            let _: io::Result<usize> = stream.read_to_end(&mut rest);
        }
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
        assert!(ask(address, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
    }

    #[test]
    fn it_says_whether_it_is_alive_and_ready() {
        let counts = Arc::<Counts>::default();
        let address = served(Arc::clone(&counts));
        let of = |path: &str| {
            let answer = ask(address, &format!("GET {path}"));
            let status = answer.split(' ').nth(1).unwrap().to_owned();
            (status, answer.lines().last().unwrap().to_owned())
        };
        let [unavailable, fine] = ["503", "200"].map(str::to_owned);
        assert_eq!(of("/healthz"), (fine.clone(), "ok".to_owned()));
        assert_eq!(of("/readyz"), (unavailable.clone(), "the first look has not ended".to_owned()));
        counts.looked(0, false, false);
        let why = "no policy of the document is used";
        assert_eq!(of("/readyz"), (unavailable.clone(), why.to_owned()));
        counts.add(&Event::Unchanged { document: "p".into() }, 7);
        assert_eq!(of("/readyz"), (fine.clone(), "ok".to_owned()));
        counts.looked(2, false, false);
        assert_eq!(of("/readyz"), (unavailable, "what fails, and is tried again: 2".to_owned()));
        assert_eq!(of("/healthz").0, fine);
        for (request, status) in
            [("POST /readyz", "405"), ("DELETE /metrics", "405"), ("GET /", "404")]
        {
            assert_eq!(ask(address, request).split(' ').nth(1), Some(status), "{request}");
        }
        assert!(ask(address, "GET /metrics").contains("\nlimiter_policy_change_refused 0\n"));
    }
}
