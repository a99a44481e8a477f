//! Questions of Envoy, by gRPC.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http2::{SendRequest, handshake},
    header,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

use super::{
    decisions::{known, random},
    load::Ask,
};

const METHOD: &str = "http://bridge/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// An answer begins with `overall_code: OK`.
const OK: [u8; 2] = [8, 1];

/// Calls on a connection that several may share, as Envoy does.
#[derive(Clone)]
pub(super) struct Call(SendRequest<Full<Bytes>>);

impl Call {
    /// Connects.
    pub(super) async fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).await.context("cannot connect by gRPC")?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Whoever calls learns that the connection broke.
        tokio::spawn(connection);
        Ok(Self(sender))
    }
}

impl Ask for Call {
    async fn ask(&mut self, number: u64) -> Result<u64> {
        let message = question(&known(random(number)).to_string());
        let request = Request::post(METHOD)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .body(Full::from(message))?;
        self.0.ready().await?;
        let response = self.0.send_request(request).await.context("cannot call")?;
        let body =
            response.into_body().collect().await.context("cannot read the answer")?.to_bytes();
        ensure!(body.get(PREFIX..PREFIX + 2) == Some(&OK), "the request did not pass: {body:?}");
        Ok(1)
    }
}

/// A `RateLimitRequest` with a descriptor of three entries.
fn question(source: &str) -> Vec<u8> {
    let entries = [("remote_address", source), ("method", "GET"), ("path", "/search?q=1")];
    let descriptor: Vec<u8> = entries
        .iter()
        .flat_map(|(key, value)| {
            field(1, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
        })
        .collect();
    let message = [field(1, b"www"), field(2, &descriptor)].concat();
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// A field of a message, of less than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}
