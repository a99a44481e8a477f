//! Configurations of proxies that ask the bridge, as `limiter bridge config` prints them.
//!
//! Each sets every header that the bridge goes by, whatever the client sends.

mod caddy;
mod nginx;
mod traefik;

use std::{fmt, net::SocketAddr};

use crate::policy::{
    Policy,
    model::{Mode, OnFailure},
};

/// A proxy that a configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// nginx 1.15.3 or later, with the module `auth_request`.
    Nginx,
    /// Caddy 2.6 or later.
    Caddy,
    /// Traefik 3.
    Traefik,
}

impl Proxy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nginx, Self::Caddy, Self::Traefik];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
        }
    }
}

/// Where the bridge answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket of this path.
    Unix(String),
    /// A port of an address.
    Tcp(SocketAddr),
}

/// The fields of an answer that clients are told, in the case that proxies write them in.
const FIELDS: [&str; 5] = [
    "RateLimit",
    "RateLimit-Policy",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
];

/// How long a proxy waits for the bridge to take a connection, in ms.
const PATIENCE: u32 = 50;
/// How long it waits for the answer of a bridge that has taken it, in ms: who asks very much at once makes it late, and is not
/// to pass for that.
const LATEST: u32 = 1_000;

/// The configuration of a proxy by a policy.
pub struct Config<'a> {
    /// The proxy.
    pub proxy: Proxy,
    /// Where it finds the bridge.
    pub bridge: &'a Place,
    /// What becomes of requests while the bridge does not answer.
    pub on_failure: OnFailure,
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proxy {
            Proxy::Nginx => nginx::write(f, self.bridge, self.on_failure),
            Proxy::Caddy => caddy::write(f, self.bridge, self.on_failure),
            Proxy::Traefik => traefik::write(f, self.bridge, self.on_failure),
        }
    }
}

/// What becomes of requests while the bridge does not answer: they are refused if one limit that refuses requests says so, as
/// a proxy cannot tell then which limits a request meets.
pub fn on_failure(policy: &Policy) -> OnFailure {
    let is_closed = policy.on_requests.iter().any(|limit| {
        limit.on_failure == OnFailure::Closed && matches!(limit.mode, Mode::Enforce | Mode::Drop)
    });
    if is_closed { OnFailure::Closed } else { OnFailure::Open }
}

/// What a configuration does while the bridge does not answer, and why, in a sentence.
const fn in_words(on_failure: OnFailure) -> &'static str {
    match on_failure {
        OnFailure::Open => {
            "Requests pass while the bridge does not answer: no limit has `on_failure: closed`."
        }
        OnFailure::Closed => {
            "Requests are refused while the bridge does not answer: a limit has `on_failure: closed`."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::model::RequestLimit;

    #[test]
    fn one_limit_that_refuses_requests_closes_the_proxy() {
        let mut policy = Policy::default();
        assert_eq!(on_failure(&policy), OnFailure::Open);
        policy.on_requests = ["a", "b"].map(|name| RequestLimit::new(name, &[])).into();
        assert_eq!(on_failure(&policy), OnFailure::Open);
        policy.on_requests[1].on_failure = OnFailure::Closed;
        assert_eq!(on_failure(&policy), OnFailure::Closed);
        for mode in [Mode::Monitor, Mode::Off] {
            policy.on_requests[1].mode = mode;
            assert_eq!(on_failure(&policy), OnFailure::Open);
        }
    }

    #[test]
    fn only_what_differs_between_open_and_closed_differs() {
        let unix = Place::Unix("/run/a.sock".to_owned());
        let tcp = Place::Tcp("[::1]:9190".parse().unwrap());
        for proxy in [Proxy::Nginx, Proxy::Caddy, Proxy::Traefik] {
            let text = |bridge, on_failure| Config { proxy, bridge, on_failure }.to_string();
            let [open, closed] = [OnFailure::Open, OnFailure::Closed].map(|it| text(&unix, it));
            assert_ne!(open, closed);
            assert!(open.ends_with("}\n") || proxy == Proxy::Traefik, "{open}");
            assert!(text(&tcp, OnFailure::Open).contains("[::1]:9190"), "{proxy:?}");
            assert!(open.is_ascii() && !open.contains("\n\n\n"), "{open}");
        }
    }
}
