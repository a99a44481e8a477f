//! What a bridge tells of.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{
    table::Began,
    tls::{HandshakeResult, TlsError},
};
use crate::{
    agent::address::Address,
    error::{Error, Failure as _},
    output::faults::described,
    policy::{
        document::{Warnings, format_instant},
        reading::name,
    },
};

/// The name of the form that events have in JSON.
pub const SCHEMA: &str = "limiter.bridge/1";

/// Something that a bridge did, or could not do.
#[derive(Debug)]
pub enum Event {
    /// It answers at an address.
    Listening {
        /// The address.
        address: Address,
    },
    /// What is known of peers with penalties and of repeats could not be left to the next process, or not be taken over.
    Forgot(Error),
    /// The policy of a document is in force.
    Applied {
        /// The document.
        document: PathBuf,
        /// The number of its limits on requests.
        limits: usize,
    },
    /// What became of the state that another process left.
    State {
        /// The file.
        file: PathBuf,
        /// What became of it.
        began: Began,
    },
    /// A document is in force, and is hardly meant so.
    Warned(Warnings),
    /// A document is not used; the policy before stays in force.
    Rejected(Error),
    /// The agent, which the policy needs, does not answer.
    AgentAway {
        /// Why not.
        message: String,
    },
    /// The agent answers again.
    AgentBack,
    /// The map of HAProxy cannot be written.
    HaproxyAway {
        /// Why not.
        message: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The map of HAProxy is written again.
    HaproxyBack,
    /// The agent was asked to block a peer. Of many, some are told.
    Pushed {
        /// The peer.
        peer: IpAddr,
        /// The limit that it went on over.
        limit: String,
        /// What the agent made of it, in a word: `blocked`, or why not.
        result: String,
        /// For how long the peer is blocked, in seconds, if it is.
        seconds: Option<f64>,
    },
    /// A certificate is presented to proxies on other hosts.
    Certificate {
        /// Its file.
        file: PathBuf,
        /// Until when it is valid, in seconds of Unix time.
        expires: u64,
        /// Whether that is past.
        is_expired: bool,
    },
    /// The files of mutual TLS are not used; those before are.
    CertificateRejected(TlsError),
    /// A host did not become one that may ask. Of many, some are told.
    HandshakeFailed {
        /// Its address.
        from: SocketAddr,
        /// Why not.
        result: HandshakeResult,
    },
    /// It was asked to end.
    Stopped,
}

impl Event {
    /// Its name in JSON.
    const fn name(&self) -> &'static str {
        match self {
            Self::Listening { .. } => "listening",
            Self::Forgot(_) => "forgot",
            Self::Applied { .. } => "applied",
            Self::State { .. } => "state",
            Self::Warned(_) => "warned",
            Self::Rejected(_) => "rejected",
            Self::AgentAway { .. } => "agent_away",
            Self::AgentBack => "agent_back",
            Self::HaproxyAway { .. } => "haproxy_away",
            Self::HaproxyBack => "haproxy_back",
            Self::Pushed { .. } => "pushed",
            Self::Certificate { .. } => "certificate",
            Self::CertificateRejected(_) => "certificate_rejected",
            Self::HandshakeFailed { .. } => "handshake_failed",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { address } if address.is_local() => {
                write!(f, "listening on {address}")
            }
            Self::Listening { address } => write!(f, "listening on {address}, by mutual TLS"),
            Self::Applied { document, limits: 0 } => write!(
                f,
                "{}: in force, and no limit of it is about requests (`on: requests`): all of them pass",
                name(document)
            ),
            Self::Applied { document, limits: 1 } => {
                write!(f, "{}: in force, with 1 limit on requests", name(document))
            }
            Self::Applied { document, limits } => {
                write!(f, "{}: in force, with {limits} limits on requests", name(document))
            }
            Self::State { file, began } => {
                let word = if matches!(began, Began::Resized { lost: 1.., .. }) {
                    "warning: "
                } else {
                    ""
                };
                write!(f, "{word}{}: {began}", name(file))
            }
            Self::Forgot(error) => {
                write!(f, "{error}\npenalties and repeats of requests may begin anew")
            }
            Self::Warned(warnings) => write!(f, "{}", warnings.to_string().trim_end()),
            Self::Rejected(error) => {
                write!(f, "{error}\nthe policy in force stays until the document is valid")
            }
            Self::AgentAway { message } => write!(
                f,
                "warning: {message}\nno peer is blocked until the agent answers; requests are limited as before"
            ),
            Self::AgentBack => write!(f, "the agent answers"),
            Self::HaproxyAway { message, hint } => write!(
                f,
                "warning: {message}\nhint: {hint}\nHAProxy goes on refusing the sources that were written before, each until its end, and asks about others"
            ),
            Self::HaproxyBack => write!(f, "the map of HAProxy is written again"),
            Self::Pushed { peer, limit, result, seconds } => {
                write!(f, "{peer} went on over {limit}: {result}")?;
                seconds.map_or(Ok(()), |seconds| write!(f, ", for {seconds:.0} s"))
            }
            Self::Certificate { file, expires, is_expired: false } => {
                write!(f, "{}: in use, valid until {}", name(file), format_instant(*expires))
            }
            Self::Certificate { file, expires, is_expired: true } => write!(
                f,
                "warning: {} expired at {}; proxies on other hosts do not take it, and the bridge does not answer them",
                name(file),
                format_instant(*expires)
            ),
            Self::CertificateRejected(error) => {
                write!(f, "{error}")?;
                error.remedy().map_or(Ok(()), |remedy| write!(f, "\nhint: {remedy}"))?;
                f.write_str(
                    "\nthe certificate, the key and the CA in use stay until the files are valid",
                )
            }
            Self::HandshakeFailed { from, result } => {
                write!(f, "{from} is not answered: {result}")
            }
            Self::Stopped => write!(f, "stopped"),
        }
    }
}

/// An event, and when it was.
#[derive(Debug)]
pub struct Dated {
    /// Seconds of Unix time.
    pub unix: u64,
    /// What happened.
    pub event: Event,
}

impl Serialize for Dated {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", SCHEMA)?;
        map.serialize_entry("event", self.event.name())?;
        map.serialize_entry("time", &format_instant(self.unix))?;
        match &self.event {
            Event::Listening { address } => {
                map.serialize_entry("address", &address.to_string())?;
                map.serialize_entry("tls", &!address.is_local())?;
            }
            Event::Applied { document, limits } => {
                map.serialize_entry("document", &name(document))?;
                map.serialize_entry("limits", limits)?;
            }
            Event::State { file, began } => {
                map.serialize_entry("file", &name(file))?;
                map.serialize_entry("kept", &began.is_whole())?;
                map.serialize_entry("message", &began.to_string())?;
            }
            Event::Warned(warnings) => map.serialize_entry("message", &warnings.to_string())?,
            Event::Rejected(error) | Event::Forgot(error) => {
                for (key, value) in described(error).as_object().into_iter().flatten() {
                    map.serialize_entry(key, value)?;
                }
            }
            Event::AgentAway { message } => map.serialize_entry("message", message)?,
            Event::HaproxyAway { message, hint } => {
                map.serialize_entry("message", message)?;
                map.serialize_entry("hint", hint)?;
            }
            Event::Pushed { peer, limit, result, seconds } => {
                map.serialize_entry("peer", peer)?;
                map.serialize_entry("limit", limit)?;
                map.serialize_entry("result", result)?;
                map.serialize_entry("seconds", seconds)?;
            }
            Event::Certificate { file, expires, .. } => {
                map.serialize_entry("file", &name(file))?;
                map.serialize_entry("expires", &format_instant(*expires))?;
            }
            Event::CertificateRejected(error) => {
                map.serialize_entry("message", &error.to_string())?;
                map.serialize_entry("hint", &error.remedy())?;
            }
            Event::HandshakeFailed { from, result } => {
                map.serialize_entry("from", from)?;
                map.serialize_entry("result", result.name())?;
                map.serialize_entry("message", &result.to_string())?;
            }
            Event::AgentBack | Event::HaproxyBack | Event::Stopped => {}
        }
        map.end()
    }
}
