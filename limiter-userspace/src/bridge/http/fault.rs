//! Why the bridge cannot answer a request to it.

use thiserror::Error;

use crate::{bridge::lease::LeaseError, policy::units::quoted};

/// A request that cannot be answered. The text says what is wrong, and what mends it.
#[derive(Debug, Error)]
pub(in crate::bridge) enum Fault {
    /// The proxy tells no source.
    #[error(
        "the proxy tells no source: have it set the header X-Real-IP to the address of its client, as the \
             output of `limiter bridge config` does"
    )]
    NoSource,
    /// There are several, one of which the client may have sent.
    #[error(
        "there are several headers X-Real-IP: have the proxy replace what its client sends, as the output of \
             `limiter bridge config` does"
    )]
    SeveralSources,
    /// The source is no address.
    #[error(
        "X-Real-IP is {value}, which is no address: have the proxy set it to the address of its client alone"
    )]
    BadSource {
        /// The value, quoted.
        value: String,
    },
    /// Two kinds of headers tell of the request, one of which the client may have sent.
    #[error(
        "both X-Original-* and X-Forwarded-* headers tell of the request: have the proxy remove those that it does \
             not set, as the output of `limiter bridge config` does"
    )]
    BothKinds,
    /// A header that tells of the request occurs more than once.
    #[error("there are several headers {name}: have the proxy replace what its client sends")]
    Several {
        /// The name of the header.
        name: &'static str,
    },
    /// A header or cookie that an attribute is read from occurs more than once: the service may take another one than the bridge.
    #[error("there are several {what}, and the service may go by another one than the limits")]
    Ambiguous {
        /// What there are several of, quoted.
        what: String,
    },
    /// A header has a byte that HTTP does not allow.
    #[error(
        "a header of the request has a byte that HTTP does not allow, and services understand it differently"
    )]
    BadHeader,
    /// The target has a path that services understand differently.
    #[error(
        "the path of the request has `.`, `..`, a backslash or a NUL, which services understand differently"
    )]
    BadPath,
    /// The policy asks for what the proxy does not tell.
    #[error(
        "the proxy tells no {what}, which limits ask for: have it set the headers that `limiter bridge config` prints"
    )]
    Untold {
        /// `path` or `method`.
        what: &'static str,
    },
    /// A parameter has no known name or a wrong value.
    #[error("the parameter {name} is wrong: {remedy}")]
    Parameter {
        /// The name, quoted.
        name: String,
        /// What may be given.
        remedy: String,
    },
    /// The body is of another type.
    #[error("the body is no JSON by its header: send `Content-Type: application/json`")]
    BadType,
    /// The body is longer than it may be.
    #[error("the body has more than {most} bytes")]
    TooLong {
        /// The most bytes.
        most: usize,
    },
    /// The body did not come in time.
    #[error("the body did not come within {seconds} s")]
    Late {
        /// How long is waited for it, in seconds.
        seconds: u64,
    },
    /// The body is not as it should be.
    #[error(
        "the body is wrong: {error}: send such as {{\"limit\": \"api\", \"request\": {{\"source\": \"192.0.2.9\"}}, \"cost\": 7}}"
    )]
    BadBody {
        /// What is wrong with it.
        error: String,
    },
    /// The limit that is named is not about the request.
    #[error(
        "limit {limit} is not about such a request: give all the properties that its `match` and its `key` name"
    )]
    NotAbout {
        /// The name of the limit.
        limit: String,
    },
    /// A process of this user asks, which may not.
    #[error(
        "user {user} may not ask: name it with `--trusted`, and start the bridge again if the user is new"
    )]
    Untrusted {
        /// Its number.
        user: u32,
    },
    /// A penalty is asked for by an address, where no user is known.
    #[error(
        "only a user of this host may ask for penalties, and by an address it is not known who asks: connect to a Unix \
             socket of the bridge"
    )]
    NoUser,
    /// What is handed back is no lease, is missing, or is there more than once.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The limit counts how many requests are open.
    #[error(
        "limit {limit} counts how many requests are open: ask for a place by /v1/auth, and give it back by /v1/release"
    )]
    OfOpen {
        /// The name of the limit.
        limit: String,
    },
    /// The agent cannot be asked.
    #[error("{error}: start `limiter agent`, and give its socket by `--agent` if it is elsewhere")]
    Agent {
        /// Why.
        error: String,
    },
}

impl Fault {
    /// A fault of a parameter.
    pub(super) fn parameter(name: &str, remedy: &str) -> Self {
        Self::Parameter { name: quoted(name), remedy: remedy.to_owned() }
    }

    /// The status of the answer.
    pub(in crate::bridge) const fn status(&self) -> u16 {
        match self {
            Self::Untrusted { .. } | Self::NoUser => 403,
            Self::Late { .. } => 408,
            Self::TooLong { .. } => 413,
            Self::BadType => 415,
            Self::Agent { .. } => 503,
            _ => 400,
        }
    }
}
