//! A client of a Unix socket that answers by HTTP: that of the agent, or of a bridge.

use std::{fmt, io, path::Path, path::PathBuf, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{net::UnixStream, time::timeout};

/// The longest answer that is read, in bytes.
const LONGEST: usize = 16 << 20;

/// Why there is no answer that can be used.
#[derive(Debug, Error)]
pub(super) enum ClientError {
    /// Nobody answers at the socket.
    #[error("nobody answers at unix:{}: {source}", path.display())]
    Away {
        /// The socket.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// It took too long.
    #[error("the answer took longer than {} ms", .0.as_millis())]
    Late(Duration),
    /// The connection broke, or what came is not HTTP.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// It was not done what was asked for.
    #[error("the answer is {status}: {detail}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The body, or a part of it.
        detail: String,
    },
}

/// Asks at a socket, by a connection for each question: the agent ends it after its answer.
pub(super) struct Client {
    path: PathBuf,
}

impl Client {
    /// A client of the socket with this path.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Asks, and waits at most so long for the answer.
    ///
    /// # Errors
    /// Any [`ClientError`] but [`Refused`](ClientError::Refused).
    pub(super) async fn ask(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Response<Bytes>, ClientError> {
        let exchange = async {
            let request = Request::builder().method(method).uri(target);
            let request = request.header(HOST, "limiter").header(CONTENT_TYPE, "application/json");
            let request = request.body(Full::new(body)).map_err(broken)?;
            send(self.connect().await?, request).await
        };
        let asked = timeout(patience, exchange).await;
        asked.unwrap_or(Err(ClientError::Late(patience)))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let away = |source| ClientError::Away { path: self.path.clone(), source };
        let stream = UnixStream::connect(&self.path).await.map_err(away)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // It ends with the sender, which learns of errors.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

async fn send(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, ClientError> {
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = Limited::new(body, LONGEST).collect().await.map_err(broken)?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

fn broken(error: impl fmt::Display) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// The body of an answer that says that all went well.
///
/// # Errors
/// [`ClientError::Refused`] for any other.
pub(super) fn accepted(answer: Response<Bytes>) -> Result<Bytes, ClientError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let detail = String::from_utf8_lossy(answer.body()).chars().take(200).collect();
    Err(ClientError::Refused { status, detail })
}
