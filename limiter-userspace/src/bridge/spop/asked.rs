//! The request that HAProxy asks about.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use super::{
    super::{
        http::{self, Asked, Question},
        listener::Peer,
        push::Connection,
    },
    Fault,
    frame::Messages,
    value::{Reader, Value},
};

/// The message that asks about a request.
const REQUEST: &str = "limiter-request";
/// The message that gives the places of a request back.
const RELEASE: &str = "limiter-release";

/// What a frame says.
#[derive(Debug)]
pub(super) enum Message<'f> {
    /// It asks about a request.
    Request(Told),
    /// A request ended that took these places.
    Release(&'f str),
    /// Nothing that is known here.
    Other,
}

/// The arguments of the message. HAProxy makes them of the request itself; no client can set them.
#[derive(Debug, Default)]
pub(super) struct Told {
    source: Option<IpAddr>,
    /// The ends of the connection, each an address and a port: the peer is first. Rules may have set another source.
    ends: [(Option<IpAddr>, u16); 2],
    method: Option<String>,
    target: Option<String>,
    /// `None` if one is no header of HTTP.
    headers: Option<HeaderMap>,
}

/// Reads what a frame says.
///
/// # Errors
/// [`Fault`] for a frame that cannot be read.
pub(super) fn read(messages: Messages<'_>) -> Result<Message<'_>, Fault> {
    let (mut question, mut headers, mut lease) = (None, None, None);
    messages.each(|message, name, value| {
        if message == RELEASE && name == "lease" {
            lease = value.text();
        }
        if message != REQUEST {
            return;
        }
        let question = question.get_or_insert_with(Told::default);
        let port = |number| u16::try_from(number).unwrap_or_default();
        match (name, value) {
            ("source", Value::Address(address)) => question.source = Some(address),
            ("peer", Value::Address(address)) => question.ends[0].0 = Some(address),
            ("peer-port", Value::Integer(number)) => question.ends[0].1 = port(number),
            ("local", Value::Address(address)) => question.ends[1].0 = Some(address),
            ("local-port", Value::Integer(number)) => question.ends[1].1 = port(number),
            ("method", value) => question.method = value.text().map(str::to_owned),
            ("target", value) => question.target = value.text().map(str::to_owned),
            ("headers", Value::Bytes(bytes)) => headers = Some(bytes),
            _ => {}
        }
    })?;
    let Some(mut question) = question else {
        return Ok(lease.map_or(Message::Other, Message::Release));
    };
    if let Some(bytes) = headers {
        question.headers = headers_of(bytes)?;
    }
    Ok(Message::Request(question))
}

impl Told {
    /// The request, as a process tells of it.
    ///
    /// # Errors
    /// [`http::Fault`] for one that no limit can be held to.
    pub(super) fn question(&self, peer: Peer) -> Result<Question<'_>, http::Fault> {
        let source = self.source.ok_or(http::Fault::NoSource)?;
        let headers = self.headers.as_ref().ok_or(http::Fault::BadHeader)?;
        let asked = Asked::told(source, self.method.as_deref(), self.target.as_deref(), headers)?;
        let end = |(address, port): (Option<IpAddr>, u16)| {
            Some(SocketAddr::new(address?.to_canonical(), port)).filter(|_| port != 0)
        };
        // Who asks by a loopback address may be anybody, and so names no connection. That of a proxy on another host is none
        // of this one.
        let connection = match (peer, self.ends.map(end)) {
            (Peer::User(_), [Some(remote), Some(local)]) => Some(Connection { remote, local }),
            _ => None,
        };
        let is_remote = peer == Peer::Certificate;
        Ok(Question { asked, connection, is_remote, cost: 1, peek: false })
    }
}

/// The headers that the sample `req.hdrs_bin` has: names and values with their lengths, and an empty name and value at the end.
/// `None` if one is no header of HTTP.
fn headers_of(bytes: &[u8]) -> Result<Option<HeaderMap>, Fault> {
    let (mut reader, mut headers) = (Reader(bytes), HeaderMap::new());
    while !reader.is_empty() {
        let (name, value) = (reader.counted()?, reader.counted()?);
        if name.is_empty() {
            break;
        }
        // HAProxy hands on more bytes than HTTP allows. Left out, such a header would hide from the limits.
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        else {
            return Ok(None);
        };
        headers.try_append(name, value).map_err(|_| Fault::TOO_LARGE)?;
    }
    Ok(Some(headers))
}
