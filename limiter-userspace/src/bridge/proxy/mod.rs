//! Configurations of proxies that ask the bridge, as `limiter bridge config` prints them.
//!
//! Each sets every header that the bridge goes by, whatever the client sends.

mod caddy;
mod envoy;
mod failing;
mod haproxy;
mod nginx;
mod traefik;

use std::{fmt, net::SocketAddr};

pub use self::failing::Failing;
use crate::policy::{
    Policy,
    model::{GlobalMode, Mode, RequestLimit},
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
    /// Envoy, by its rate limit service.
    Envoy,
    /// Envoy, by `ext_authz`.
    EnvoyExtAuthz,
    /// HAProxy 2.6 or later.
    Haproxy,
    /// The engine of HAProxy, which has a file of its own.
    HaproxySpoe,
}

impl Proxy {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Nginx,
        Self::Caddy,
        Self::Envoy,
        Self::EnvoyExtAuthz,
        Self::Haproxy,
        Self::HaproxySpoe,
        Self::Traefik,
    ];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
            Self::Envoy => "envoy",
            Self::EnvoyExtAuthz => "envoy-ext-authz",
            Self::Haproxy => "haproxy",
            Self::HaproxySpoe => "haproxy-spoe",
        }
    }

    /// Where it finds the bridge of the package.
    pub fn bridge(self) -> Place {
        let unix = |name| Place::Unix(format!("/run/limiter-bridge/{name}"));
        match self {
            Self::Envoy => unix("grpc.sock"),
            // From the folder that its package locks it in (`chroot`), it reaches no path, and an abstract name.
            Self::Haproxy | Self::HaproxySpoe => Place::Unix("@limiter-spop".to_owned()),
            Self::Nginx | Self::Caddy | Self::EnvoyExtAuthz | Self::Traefik => unix("bridge.sock"),
        }
    }
}

/// Where the bridge answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket of this path; of an abstract one, for HAProxy, `@` and its name.
    Unix(String),
    /// A port of an address.
    Tcp(SocketAddr),
    /// A port of an address that is asked by mutual TLS, and the DNS name in its certificate.
    Tls(SocketAddr, String),
}

impl Place {
    /// The name in the certificate that it presents, if it does.
    fn tls_name(&self) -> Option<&str> {
        match self {
            Self::Tls(_, name) => Some(name),
            Self::Unix(_) | Self::Tcp(_) => None,
        }
    }

    /// How long a proxy waits for it to take a connection, in ms.
    const fn patience(&self) -> u32 {
        match self {
            Self::Unix(_) | Self::Tcp(_) => 50,
            // A handshake goes to another host and back three times.
            Self::Tls(..) => 250,
        }
    }
}

/// Where a proxy that asks by TLS has its certificate, and those that lead to its CA.
const CERTIFICATE: &str = "/etc/limiter/tls/proxy.crt";
/// Where it has its private key.
const KEY: &str = "/etc/limiter/tls/proxy.key";
/// Where it has the CA of the bridge.
const CA: &str = "/etc/limiter/tls/ca.crt";

/// The fields of an answer that clients are told, in the case that proxies write them in.
const FIELDS: [&str; 5] = [
    "RateLimit",
    "RateLimit-Policy",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
];

/// How long a proxy waits for the answer of a bridge that has taken it, in ms: who asks very much at once makes it late, and is not
/// to pass for that.
const LATEST: u32 = 1_000;

/// A map of HAProxy that the bridge writes.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    /// The path of HAProxy's runtime socket.
    pub socket: &'a str,
    /// The file that has its entries at the start: none.
    pub file: &'a str,
}

/// The configuration of a proxy by a policy.
pub struct Config<'a> {
    /// The proxy.
    pub proxy: Proxy,
    /// Where it finds the bridge.
    pub bridge: &'a Place,
    /// The map by which HAProxy answers sources itself; `None`: it asks about each request.
    pub map: Option<Map<'a>>,
    /// The policy, which says what becomes of requests while the bridge does not answer, how long an answer may be held back,
    /// and what Envoy tells of a request.
    pub policy: &'a Policy,
}

impl fmt::Display for Config<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, bridge, map, policy } = *self;
        let (failing, latest) = (&Failing::new(policy), latest(policy));
        let has_open = has_open(policy);
        f.write_str(unserved(proxy, bridge, policy))?;
        match proxy {
            Proxy::Nginx => nginx::write(f, bridge, failing, latest, has_open),
            Proxy::Caddy => caddy::write(f, bridge, failing, latest, has_open),
            Proxy::Traefik => traefik::write(f, bridge, failing, has_open),
            Proxy::Envoy | Proxy::EnvoyExtAuthz => {
                envoy::write(f, proxy, bridge, failing, latest, policy)
            }
            Proxy::Haproxy => haproxy::write(f, bridge, map, failing),
            Proxy::HaproxySpoe => haproxy::write_engine(f, bridge, has_open),
        }
    }
}

/// How long a proxy waits for the answer of a bridge that has taken its connection, in ms: longer where limits hold requests
/// back.
pub fn latest(policy: &Policy) -> u32 {
    let delay = policy.longest_delay().div_ceil(1_000_000);
    LATEST.saturating_add(u32::try_from(delay).unwrap_or(u32::MAX))
}

/// Why a proxy has no peer blocked although a limit has a `penalty`, as a comment; empty where it has, or no limit has one.
fn unserved(proxy: Proxy, bridge: &Place, policy: &Policy) -> &'static str {
    let has_penalty = |limit: &RequestLimit| limit.penalty.is_some() && refuses(limit, policy);
    if !policy.on_requests.iter().any(has_penalty) {
        return "";
    }
    match (proxy, bridge) {
        (_, Place::Tls(..)) => {
            "# No peer is blocked for a `penalty` of the policy: the bridge sees no connection of this host.\n"
        }
        (Proxy::Envoy, _) => {
            "# No peer is blocked for a `penalty` of the policy: the rate limit service is told no connection. Take envoy-ext-authz.\n"
        }
        (Proxy::Traefik, _) => {
            "# No peer is blocked for a `penalty` of the policy: Traefik tells no connection.\n"
        }
        (_, Place::Tcp(_)) => {
            "# No peer is blocked for a `penalty` of the policy: over TCP, anybody could tell a connection. Ask by a Unix socket.\n"
        }
        (_, Place::Unix(_)) => "",
    }
}

/// Whether a limit refuses requests.
fn refuses(limit: &RequestLimit, policy: &Policy) -> bool {
    policy.mode == GlobalMode::Enforce && matches!(limit.mode, Mode::Enforce | Mode::Drop)
}

/// Whether requests have places that are given back when they end.
fn has_open(policy: &Policy) -> bool {
    policy.on_requests.iter().any(|limit| limit.mode != Mode::Off && limit.has_open())
}

/// What a proxy that does not tell when a request ends leaves to the service, as a comment.
const LEFT_TO_SERVICE: &str = "# A place of a request is given back by the service, which gets X-Limiter-Lease, or after the `idle` of its limit.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::model::{Field, OnFailure, Pattern, Penalty};

    #[test]
    fn envoy_tells_what_the_policy_asks_for() {
        use crate::policy::model::{Attribute, AttributeSource, RequestKeyPart};
        let mut policy = Policy::default();
        for (name, from) in [
            ("user", AttributeSource::Header("x-user-id".to_owned())),
            ("sid", AttributeSource::Cookie("session".to_owned())),
            ("tier", AttributeSource::Descriptor),
            ("unused", AttributeSource::Header("x-unused".to_owned())),
        ] {
            policy.attributes.insert(name.to_owned(), Attribute { from, digest: false });
        }
        let key = ["user", "sid", "tier"]
            .map(|name| RequestKeyPart::Field(Field::Attribute(name.to_owned())));
        let mut limit = RequestLimit::new("a", &key);
        let domain = vec![Pattern::Exact("a \"b\"".to_owned())];
        limit.matching.fields.insert(Field::Domain, domain);
        limit.matching.fields.insert(Field::Method, vec![Pattern::Exact("POST".to_owned())]);
        policy.on_requests.push(limit);
        let bridge = &Proxy::Envoy.bridge();
        let text = Config { proxy: Proxy::Envoy, bridge, map: None, policy: &policy }.to_string();
        for line in [
            "domain: \"a \\\"b\\\"\"",
            "- remote_address: {}",
            "header_name: \":method\", descriptor_key: \"method\", skip",
            "header_name: \"cookie\", descriptor_key: \"cookie\", skip",
            "header_name: \"x-user-id\", descriptor_key: \"user\", skip",
            "# Add an action that tells the attribute tier.",
            "pipe: { path: \"/run/limiter-bridge/grpc.sock\" }",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("x-unused") && !text.contains(":path"), "{text}");
    }

    fn penalised() -> Policy {
        let second = 1_000_000_000;
        let penalty = Penalty::new(second, second);
        let limit = RequestLimit { penalty: Some(penalty), ..RequestLimit::new("a", &[]) };
        Policy { on_requests: vec![limit], ..Policy::default() }
    }

    #[test]
    fn a_proxy_that_has_no_peer_blocked_says_so() {
        let (policy, none) = (penalised(), Policy::default());
        let counting = Policy { mode: GlobalMode::Monitor, ..penalised() };
        let unix = Place::Unix("/run/a.sock".to_owned());
        let at = "127.0.0.1:9190".parse().unwrap();
        let [tcp, tls] = [Place::Tcp(at), Place::Tls(at, "bridge.example".to_owned())];
        for proxy in Proxy::ALL {
            let is_said = |bridge, policy| {
                Config { proxy, bridge, map: None, policy }
                    .to_string()
                    .starts_with("# No peer is blocked")
            };
            assert_eq!([&tcp, &tls].map(|bridge| is_said(bridge, &policy)), [true; 2], "{proxy:?}");
            for none in [&none, &counting] {
                assert_eq!([&unix, &tcp].map(|bridge| is_said(bridge, none)), [false; 2]);
            }
            let is_unserved = matches!(proxy, Proxy::Envoy | Proxy::Traefik);
            assert_eq!(is_said(&unix, &policy), is_unserved, "{proxy:?}");
        }
    }

    #[test]
    fn comments_are_indented_as_what_follows_them() {
        let (policy, at) = (penalised(), "127.0.0.1:9190".parse().unwrap());
        let places =
            [Place::Unix("/run/a.sock".to_owned()), Place::Tls(at, "bridge.example".to_owned())];
        for (proxy, bridge) in
            Proxy::ALL.into_iter().flat_map(|it| places.each_ref().map(|at| (it, at)))
        {
            let text = Config { proxy, bridge, map: None, policy: &policy }.to_string();
            let lines: Vec<&str> = text.lines().collect();
            let indent = |line: &str| line.len() - line.trim_start().len();
            for pair in lines.windows(2).filter(|pair| pair[0].trim_start().starts_with('#')) {
                assert_eq!(indent(pair[0]), indent(pair[1]), "{pair:?} in {text}");
            }
        }
    }

    #[test]
    fn only_haproxy_with_a_map_knows_who_is_held() {
        let policy = Policy::default();
        let held = Map { socket: "/run/h.sock", file: "/etc/held.map" };
        for proxy in Proxy::ALL {
            let bridge = &proxy.bridge();
            let text = |map| Config { proxy, bridge, map, policy: &policy }.to_string();
            let (with, without) = (text(Some(held)), text(None));
            assert_eq!(with != without, proxy == Proxy::Haproxy, "{proxy:?}");
            assert!(!without.contains("limiter_held") && !without.contains("stats socket"));
            let lines = ["src,map_ip(/etc/held.map)\n", "stats socket /run/h.sock user"];
            let has = |line: &str| with.contains(line);
            assert_eq!(lines.map(has), [proxy == Proxy::Haproxy; 2], "{with}");
            assert!(with.is_ascii() && !with.contains("\n\n\n"), "{with}");
        }
    }

    #[test]
    fn a_proxy_waits_for_requests_that_are_held_back() {
        let mut policy = Policy::default();
        assert_eq!(latest(&policy), LATEST);
        policy.on_requests = vec![RequestLimit::new("a", &[])];
        policy.on_requests[0].delay = Some(2_500_000_000);
        assert_eq!(latest(&policy), LATEST + 2_500);
    }

    #[test]
    fn a_bridge_on_another_host_is_asked_by_mutual_tls() {
        let at = "192.0.2.1:9190".parse().unwrap();
        let (policy, plain) = (Policy::default(), Place::Tcp(at));
        let tls = Place::Tls(at, "bridge.example".to_owned());
        for (proxy, lines) in [
            (
                Proxy::Nginx,
                &[
                    "https://limiter_bridge/",
                    "proxy_ssl_verify on",
                    "proxy_ssl_name bridge.example",
                ][..],
            ),
            (Proxy::Caddy, &["tls_client_auth", "tls_server_name bridge.example"]),
            (Proxy::Envoy, &["UpstreamTlsContext", "exact: \"bridge.example\"", "0.250s"]),
            (Proxy::EnvoyExtAuthz, &["UpstreamTlsContext", "exact: \"bridge.example\""]),
            (Proxy::Haproxy, &["ssl crt", "verify required verifyhost bridge.example"]),
            (Proxy::HaproxySpoe, &["timeout hello 250ms"]),
            (Proxy::Traefik, &["https://192.0.2.1:9190/v1/auth", "tls: { cert: "]),
        ] {
            let text = |bridge| Config { proxy, bridge, map: None, policy: &policy }.to_string();
            let (tls, plain) = (text(&tls), text(&plain));
            for line in lines {
                assert!(tls.contains(line) && !plain.contains(line), "{line} in {tls}");
            }
            // It would be of no use.
            assert!(!tls.contains("realip_remote_addr") && !tls.contains("http.request.local"));
            assert!(tls.is_ascii() && !tls.contains("\n\n\n"), "{tls}");
        }
    }

    /// It tries the routes one after the other at every request.
    #[test]
    fn envoy_has_few_routes_for_long_limits() {
        let short: fn(usize) -> String = |at| format!("/{at}/example");
        let long: fn(usize) -> String = |at| format!("{at:03}{}", "a".repeat(253));
        let dots: fn(usize) -> String = |at| format!("{at:03}{}", ".".repeat(253));
        for (form, counts, routes, bytes) in [
            (short, [40, 40, 0], 1, 10_000),
            (short, [256, 256, 64], 1, 30_000),
            (long, [256, 256, 64], 9, 1_500_000),
            (dots, [256, 256, 64], 98, 10_000_000),
        ] {
            let mut limit = RequestLimit::new("a", &[]);
            limit.on_failure = OnFailure::Closed;
            for (field, count) in [Field::Host, Field::Path, Field::Method].into_iter().zip(counts)
            {
                let texts = (0..count).map(|at| Pattern::Exact(form(at)));
                limit.matching.fields.insert(field, texts.collect());
            }
            let policy = Policy { on_requests: vec![limit], ..Policy::default() };
            for proxy in [Proxy::Envoy, Proxy::EnvoyExtAuthz] {
                let text = Config { proxy, bridge: &proxy.bridge(), map: None, policy: &policy }
                    .to_string();
                // The last route is for the other requests.
                assert_eq!(text.matches("- match: ").count(), routes + 1);
                assert!(text.len() <= bytes, "{} > {bytes}", text.len());
                let expressions = text.split("regex: \"").skip(1);
                let mut lengths = expressions.filter_map(|it| Some(it.split_once('"')?.0.len()));
                assert!(lengths.all(|length| length < 33_000));
                assert!(text.contains("re2.max_program_size.error_level: 174000"));
            }
        }
    }

    /// Its map is looked up in the location of a bridge that does not answer.
    #[test]
    fn nginx_looks_for_closed_limits_only_without_the_bridge() {
        let mut limit = RequestLimit::new("a", &[]);
        limit.on_failure = OnFailure::Closed;
        limit.matching.fields.insert(Field::Path, vec![Pattern::Exact("/login".to_owned())]);
        let policy = Policy { on_requests: vec![limit], ..Policy::default() };
        let bridge = &Place::Unix("/run/a.sock".to_owned());
        let text = Config { proxy: Proxy::Nginx, bridge, map: None, policy: &policy }.to_string();
        let (_, text) = text.split_once("server {").unwrap();
        let (before, open) = text.split_once("location @limiter_open {").unwrap();
        assert!(!before.contains("closed") && open.contains("if ($limiter_closed)"), "{text}");
    }

    #[test]
    fn only_what_differs_between_open_and_closed_differs() {
        let unix = Place::Unix("/run/a.sock".to_owned());
        let tcp = Place::Tcp("[::1]:9190".parse().unwrap());
        let mut closed = RequestLimit::new("a", &[]);
        closed.on_failure = OnFailure::Closed;
        let mut partly = closed.clone();
        let path = vec![Pattern::Exact("/login".to_owned())];
        partly.matching.fields.insert(Field::Path, path);
        let policies = [RequestLimit::new("a", &[]), closed, partly]
            .map(|limit| Policy { on_requests: vec![limit], ..Policy::default() });
        // The engine has a file that says nothing of it.
        for proxy in Proxy::ALL.into_iter().filter(|it| *it != Proxy::HaproxySpoe) {
            let text = |bridge, policy| Config { proxy, bridge, map: None, policy }.to_string();
            let [open, closed, partly] = policies.each_ref().map(|policy| text(&unix, policy));
            assert!(open != closed && open != partly && partly != closed);
            assert_eq!(partly.contains("/login"), proxy != Proxy::Traefik, "{partly}");
            let told = match proxy {
                Proxy::Envoy | Proxy::EnvoyExtAuthz => "\"::1\", port_value: 9190",
                _ => "[::1]:9190",
            };
            assert!(text(&tcp, &policies[0]).contains(told), "{proxy:?}");
            for text in [open, closed, partly] {
                assert!(text.is_ascii() && !text.contains("\n\n\n"), "{text}");
            }
        }
    }
}
