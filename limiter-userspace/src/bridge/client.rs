//! A client of servers that answer by HTTP: of the agent or a bridge at a Unix socket, or of CrowdSec at a TCP port.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body as _, Bytes},
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// The longest answer that is read unless another length is set, in bytes.
const LONGEST: usize = 16 << 20;

/// Where a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// At a Unix socket of this path.
    Unix(PathBuf),
    /// At a TCP port of a host: an address, of IPv6 without brackets, or a name.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Why there is no answer that can be used.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// Nobody answers there.
    #[error("nobody answers at {endpoint}: {source}")]
    Away {
        /// Where it was asked.
        endpoint: Endpoint,
        /// The error of the system call.
        source: io::Error,
    },
    /// It took too long.
    #[error("the answer took longer than {} ms", .0.as_millis())]
    Late(Duration),
    /// The connection broke, or what came is not HTTP.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// The answer is longer than it may be, in bytes.
    #[error("the answer is longer than {} MiB", .0 >> 20)]
    Long(usize),
    /// It was not done what was asked for.
    #[error("the answer is {status}: {detail}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The body, or a part of it.
        detail: String,
    },
}

/// Asks a server, by a connection for each question: the agent ends it after its answer.
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: HeaderMap,
    longest: usize,
}

impl Client {
    /// A client of the socket with this path.
    pub(super) fn new(path: &Path) -> Self {
        let json = HeaderValue::from_static("application/json");
        Self::of(Endpoint::Unix(path.to_owned()), HeaderValue::from_static("limiter"))
            .with_header(CONTENT_TYPE, json)
    }

    /// A client of a server, with the value of the header `Host`.
    pub(crate) fn of(endpoint: Endpoint, host: HeaderValue) -> Self {
        let client = Self { endpoint, headers: HeaderMap::new(), longest: LONGEST };
        client.with_header(HOST, host)
    }

    /// The same with another header in each request.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The same for answers of at most so many bytes.
    pub(crate) fn with_longest(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Asks, and waits at most so long for the answer.
    ///
    /// # Errors
    /// Any [`ClientError`] but [`Refused`](ClientError::Refused).
    pub(crate) async fn ask(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response<Bytes>, ClientError> {
        let exchange = async {
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = method;
            *request.uri_mut() = target.parse().map_err(broken)?;
            request.headers_mut().clone_from(&self.headers);
            self.send(self.connect().await?, request).await
        };
        let asked = timeout(patience, exchange).await;
        asked.unwrap_or(Err(ClientError::Late(patience)))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let away = |source| ClientError::Away { endpoint: self.endpoint.clone(), source };
        match &self.endpoint {
            Endpoint::Unix(path) => begin(UnixStream::connect(path).await.map_err(away)?).await,
            Endpoint::Tcp { host, port } => {
                begin(TcpStream::connect((&**host, *port)).await.map_err(away)?).await
            }
        }
    }

    async fn send(
        &self,
        mut sender: SendRequest<Full<Bytes>>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, ClientError> {
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        // It is not begun with where its length is told.
        if body.size_hint().lower() > self.longest as u64 {
            return Err(ClientError::Long(self.longest));
        }
        let body = Limited::new(body, self.longest).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => ClientError::Long(self.longest),
            false => broken(error),
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// Speaks HTTP/1.1 by a connection.
async fn begin<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the sender, which learns of errors.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

fn broken(error: impl fmt::Display) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// The body of an answer that says that all went well.
///
/// # Errors
/// [`ClientError::Refused`] for any other.
pub(crate) fn accepted(answer: Response<Bytes>) -> Result<Bytes, ClientError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let detail = String::from_utf8_lossy(answer.body()).chars().take(200).collect();
    Err(ClientError::Refused { status, detail })
}
