//! Serving the metrics, to this host only: on a loopback address or a Unix socket.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt, fs, io,
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
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
    sync::{Mutex, Semaphore},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::counts::Counts;
use crate::{
    datapath::{bpffs::Pins, instance::exists, maps::Maps},
    error::Result,
    metrics::{self, Family, Kind, Metrics, SCHEMA, Value},
};

/// Connections that are answered at once; others wait.
const CONNECTIONS: usize = 16;
/// For how long one is listened to.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long an answer is as good as a new one.
const FRESH: Duration = Duration::from_secs(1);

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of a loopback address.
    Loopback(SocketAddr),
    /// A Unix socket of this path, for its owner and group.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err("the path of a socket begins with /".to_owned()),
            };
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| "give ADDRESS:PORT, as 127.0.0.1:9180, or unix:PATH".to_owned())?;
        match address.ip().is_loopback() {
            true => Ok(Self::Loopback(address)),
            false => Err("metrics are served on a loopback address or a Unix socket only; put a \
                          proxy in front of that"
                .to_owned()),
        }
    }
}

/// What metrics are made of.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) pins: Pins,
    pub(super) counts: Arc<Counts>,
    pub(super) unix: fn() -> u64,
    /// The interfaces that the agent attaches.
    pub(super) interfaces: Arc<[String]>,
    /// The last answer. It is held while another is made, so that one is at a time.
    pub(super) last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

/// A socket that was bound.
enum Listener {
    Loopback(TcpListener),
    Unix(UnixListener),
}

/// A connection by either.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Loopback(address) => Ok(Self::Loopback(TcpListener::bind(address).await?)),
            Address::Unix(path) => {
                remove_dead(path)?;
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                Ok(Self::Unix(listener))
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Loopback(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Removes the socket of an agent that was killed: one that nobody listens at.
fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Begins to serve at an address, and goes on as long as the process does.
///
/// # Errors
/// Why it cannot be bound.
pub(super) async fn serve(address: &Address, scrape: Scrape) -> io::Result<()> {
    let listener = Listener::bind(address).await?;
    tokio::spawn(async move {
        let seats = Arc::new(Semaphore::new(CONNECTIONS));
        while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
            let Ok(stream) = listener.accept().await else {
                // Of descriptors there may be more in a moment.
                sleep(FRESH).await;
                continue;
            };
            let scrape = scrape.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(scrape.clone(), request));
                let connection = http1::Builder::new()
                    .keep_alive(false)
                    .serve_connection(TokioIo::new(stream), service);
                // Whoever asks learns by itself that the connection broke.
                let _: Result<_, _> = timeout(PATIENCE, connection).await;
                drop(seat);
            });
        }
    });
    Ok(())
}

/// The answer to a request.
async fn answer(
    scrape: Scrape,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    } else {
        match scrape.text().await {
            Ok(text) => {
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                *response.body_mut() = Full::new(text);
            }
            Err(why) => {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                *response.body_mut() = Full::new(Bytes::from(format!("{why}\n")));
            }
        }
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
        match read.await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads everything. The instance is looked for anew: it may have been removed and made again.
    fn read(&self) -> Result<Metrics> {
        let mut metrics = if exists(&self.pins)? {
            metrics::read(&self.pins, &Maps::open(&self.pins)?, (self.unix)())?
        } else {
            Metrics { schema: SCHEMA, metrics: Vec::new() }
        };
        metrics.metrics.extend(self.counts.families());
        metrics.metrics.push(self.wanted());
        Ok(metrics)
    }

    fn wanted(&self) -> Family {
        let mut wanted = Family::new(
            "limiter_agent_interface",
            Kind::Gauge,
            "1 for each interface that the agent attaches whenever it is there.",
        );
        for name in self.interfaces.iter().collect::<BTreeSet<_>>() {
            wanted.push([("interface", name)], Value::Whole(1));
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_host() {
        let of = |text: &str| text.parse::<Address>();
        assert_eq!(of("127.0.0.1:9180"), Ok(Address::Loopback(([127, 0, 0, 1], 9180).into())));
        assert!(matches!(of("[::1]:9180"), Ok(Address::Loopback(_))));
        assert_eq!(of("unix:/run/a.sock"), Ok(Address::Unix("/run/a.sock".into())));
        for (text, why) in [
            ("0.0.0.0:9180", "loopback"),
            ("[::]:9180", "loopback"),
            ("192.0.2.1:1", "loopback"),
            ("9180", "ADDRESS:PORT"),
            ("unix:a.sock", "begins with /"),
            ("unix:", "begins with /"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
