//! HAProxy, by its Stream Processing Offload Engine: it asks by SPOP, whose part is in a file of its own.

use std::fmt;

use super::{CA, FIELDS, Failing, LATEST, Map, Place};

/// Where HAProxy has its certificate, those that lead to its CA, and its private key.
const CERTIFICATE_AND_KEY: &str = "/etc/limiter/tls/proxy.pem";

/// Where the printed configuration expects the part for the engine.
const ENGINE: &str = "/etc/haproxy/limiter-spoe.conf";

/// The most bytes of headers that are asked about. With the target, which is not among them, a question fits into a frame,
/// whose size is that of HAProxy's buffers: 16 KiB unless `tune.bufsize` says something else.
const LONGEST: u32 = 14_000;

/// What is compared with [`Requests::expressions`](super::failing::Requests::expressions).
const SET_REQUEST: &str =
    "    http-request set-var-fmt(txn.limiter_request) \"%[method] %[req.fhdr(host)] %[pathq]\" if !{ var(txn.limiter.status) -m found }
";

/// The most bytes of a regular expression. PCRE compiles it to up to 64 KiB, and a short path to five times its length.
const LONGEST_EXPRESSION: usize = 8_192;

/// Writes the main part, for `haproxy.cfg`.
pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    bridge: &Place,
    map: Option<Map<'_>>,
    failing: &Failing<'_>,
) -> fmt::Result {
    let server = match bridge {
        Place::Unix(path) => match path.strip_prefix('@') {
            Some(name) => format!("abns@{name}"),
            None => format!("unix@{path}"),
        },
        Place::Tcp(address) | Place::Tls(address, _) => address.to_string(),
    };
    let patience = bridge.patience();
    let (note, tls) = match bridge.tls_name() {
        Some(name) => (
            "    # The first file has the certificate and the key, one after the other.\n",
            format!(
                " ssl crt {CERTIFICATE_AND_KEY} ca-file {CA} verify required verifyhost {name} sni str({name}) check-sni {name}"
            ),
        ),
        None => ("", String::new()),
    };
    // The names of variables are those of the fields in lower case, with underscores.
    let tell = |field: &str| {
        let variable = field.to_lowercase().replace('-', "_");
        format!(
            "    http-after-response set-header {field} %[var(txn.limiter.{variable})] if {{ var(txn.limiter.{variable}) -m len gt 0 }}\n"
        )
    };
    let told: String = FIELDS.iter().chain(&["Retry-After"]).map(|field| tell(field)).collect();
    let words = failing.in_words();
    let (socket, held) = map.map(rules).unwrap_or_default();
    let deny = |condition: &str| {
        format!(
            "    http-request deny deny_status 503 if !{{ var(txn.limiter.status) -m found }}{condition}\n"
        )
    };
    let closed = |expression: String| {
        deny(&format!(" {{ var(txn.limiter_request) -m reg -i '{expression}' }}"))
    };
    let away = match failing {
        Failing::Open => String::new(),
        Failing::Partly(requests) => {
            let expressions = requests.iter().flat_map(|of| of.expressions(LONGEST_EXPRESSION));
            SET_REQUEST.to_owned() + &expressions.map(closed).collect::<String>()
        }
        Failing::Closed { .. } => deny(""),
    };
    write!(
        f,
        "# limiter before a service: printed by `limiter bridge config haproxy`.
# {words}
# It needs {ENGINE}, which `limiter bridge config haproxy-spoe` prints.
{socket}frontend limited
    mode http
    timeout client 30s
    # Where clients come in.
    bind :8080
    filter spoe engine limiter config {ENGINE}
    # Headers that may not fit into a question are not asked about.
    http-request return status 431 if {{ req.hdrs_bin,length gt {LONGEST} }}
{held}    # Who is away is not asked.
    http-request send-spoe-group limiter limiter-ask if !{{ var(txn.limiter.status) -m found }} {{ nbsrv(limiter_bridge) gt 0 }}
{away}    http-request return status 429 content-type application/problem+json lf-string %[var(txn.limiter.body)] if {{ var(txn.limiter.status) -m int 429 }}
    http-request deny deny_status 400 if {{ var(txn.limiter.status) -m int 400 }}
    http-request deny deny_status 403 if {{ var(txn.limiter.status) -m int 403 }}
{told}    # The service is told where to do less, and whether the kernel is about to drop packets of the source.
    http-request del-header X-Limiter-Degrade
    http-request del-header X-Limiter-Source
    http-request set-header X-Limiter-Degrade %[var(txn.limiter.degrade)] if {{ var(txn.limiter.degrade) -m found }}
    http-request set-header X-Limiter-Source %[var(txn.limiter.source)] if {{ var(txn.limiter.source) -m found }}
    default_backend service

backend service
    mode http
    timeout connect 5s
    timeout server 30s
    # The service.
    server service 127.0.0.1:8000

backend limiter_bridge
    mode tcp
    timeout connect {patience}ms
    timeout check {LATEST}ms
    timeout server 2m
    option spop-check
{note}    server bridge {server} check inter 500ms rise 1 fall 1{tls}
"
    )
}

/// The socket by which the bridge writes the map, and what answers the sources in it. An entry has
/// fields between `|`: its end and that of `Retry-After`, in ms of Unix time, and texts.
fn rules(Map { socket, file }: Map<'_>) -> (String, String) {
    let global = format!(
        "global
    # The bridge writes the map there, as this user.
    stats socket {socket} user limiter-bridge mode 600 level user

"
    );
    let mut rules = format!(
        "    # Sources that a limit refuses for a while are answered without a question. An empty file has to be there.
    http-request set-var(txn.limiter_held) src,map_ip({file})
    http-request set-var(txn.limiter_now) date(0,ms)
    http-request set-var(txn.limiter_left) var(txn.limiter_held),field(1,|),sub(txn.limiter_now)
    http-request unset-var(txn.limiter_held) if !{{ var(txn.limiter_left) -m int gt 0 }}
    http-request set-var(txn.limiter_wait) var(txn.limiter_left),add(999),div(1000)
    http-request set-var(txn.limiter.status) int(429) if {{ var(txn.limiter_held) -m found }}
    http-request set-var(txn.limiter.retry_after) var(txn.limiter_held),field(2,|),sub(txn.limiter_now),add(999),div(1000)
    http-request set-var-fmt(txn.limiter.ratelimit) %[var(txn.limiter_held),field(5,|)]%[var(txn.limiter_wait)] if {{ var(txn.limiter_held),field(5,|) -m len gt 0 }}
"
    );
    for (variable, field) in
        [("limit", 3), ("ratelimit_policy", 4), ("x_ratelimit_limit", 6), ("body", 7)]
    {
        rules += &format!(
            "    http-request set-var(txn.limiter.{variable}) var(txn.limiter_held),field({field},|)\n"
        );
    }
    for (variable, value) in [("remaining", "int(0)"), ("reset", "var(txn.limiter_wait)")] {
        rules += &format!(
            "    http-request set-var(txn.limiter.x_ratelimit_{variable}) {value} if {{ var(txn.limiter.x_ratelimit_limit) -m len gt 0 }}\n"
        );
    }
    (global, rules)
}

/// What gives the place of a request back. HAProxy has no later event that its engine could tell of.
const RELEASE: &str = "
# A request has its place until the headers of its response come, or for the `idle` of its limit.
spoe-message limiter-release
    args lease=var(txn.limiter.lease)
    event on-http-response if { var(txn.limiter.lease) -m found }
";

/// Writes the part for the engine.
pub(super) fn write_engine(
    f: &mut fmt::Formatter<'_>,
    bridge: &Place,
    has_open: bool,
) -> fmt::Result {
    let patience = bridge.patience();
    let [message, release] =
        if has_open { ["    messages limiter-release\n", RELEASE] } else { [""; 2] };
    write!(
        f,
        "# How HAProxy asks limiter: printed by `limiter bridge config haproxy-spoe`.
[limiter]
spoe-agent limiter
    groups limiter-ask
{message}    option var-prefix limiter
    option set-on-error error
    option continue-on-error
    timeout hello {patience}ms
    timeout idle 1m
    timeout processing {LATEST}ms
    use-backend limiter_bridge

spoe-group limiter-ask
    messages limiter-request

spoe-message limiter-request
    args source=src peer=fc_src peer-port=fc_src_port local=fc_dst local-port=fc_dst_port method=method target=pathq headers=req.hdrs_bin
{release}"
    )
}
