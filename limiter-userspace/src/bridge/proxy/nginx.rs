//! nginx, by its module `auth_request`. It takes 2xx, 401 and 403 as answers, and anything else for an error. So the bridge
//! answers 403 for a request that a limit refuses, and tells in a header that 429 is meant.

use std::fmt;

use super::{CA, CERTIFICATE, FIELDS, Failing, KEY, LATEST, Place, failing::Requests};

/// What has nginx tell the bridge that a request ended, in the location of the service.
const ENDS: &str = "        # Its end gives its place back, also where its client goes away before.
        post_action @limiter_release;
";

/// What has nginx wait for the answer where the client went away: only who knows the place can give it back.
const STAYS: &str = "        proxy_ignore_client_abort on;
";

/// What refuses a request without the bridge. Only then does nginx look it up in the map.
const IF_CLOSED: &str = "        if ($limiter_closed) {
            return 503;
        }
";

/// The most bytes of a regular expression. nginx refuses a parameter of 4,096 bytes.
const LONGEST: usize = 3_072;

/// The location that has a request refused without the bridge.
const REFUSED: &str = "
    location @limiter_away {
        internal;
        return 503;
    }
";

pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    bridge: &Place,
    failing: &Failing<'_>,
    latest: u32,
    has_open: bool,
) -> fmt::Result {
    let server = match bridge {
        Place::Unix(path) => format!("unix:{path}"),
        Place::Tcp(address) | Place::Tls(address, _) => address.to_string(),
    };
    let patience = bridge.patience();
    let (scheme, tls) = match bridge.tls_name() {
        Some(name) => (
            "https",
            format!(
                "        # Who may ask, and who answers.
        proxy_ssl_certificate {CERTIFICATE};
        proxy_ssl_certificate_key {KEY};
        proxy_ssl_trusted_certificate {CA};
        proxy_ssl_verify on;
        proxy_ssl_name {name};
        proxy_ssl_protocols TLSv1.2 TLSv1.3;
"
            ),
        ),
        None => ("http", String::new()),
    };
    let peer = match bridge {
        Place::Tls(..) => "        # No peer is blocked: the bridge sees no connection of this host.
        proxy_set_header X-Limiter-Peer \"\";
",
        Place::Unix(_) | Place::Tcp(_) => "        # The connection, whatever the source: a peer that goes on over a limit with a penalty is blocked, if the bridge is asked on a Unix socket.
        proxy_set_header X-Limiter-Peer \"$realip_remote_addr $realip_remote_port $server_addr $server_port\";
",
    };
    // The names of variables are those of the fields in lower case, with underscores.
    let variable = |field: &str| field.to_lowercase().replace('-', "_");
    let refused = [
        "X-Limiter-Status",
        "X-Limiter-Limit",
        "X-Limiter-Degrade",
        "X-Limiter-Source",
        "Retry-After",
    ];
    let lease: &[&str] = if has_open { &["X-Limiter-Lease"] } else { &[] };
    let set = refused.iter().chain(lease).chain(&FIELDS).map(|field| {
        let name = variable(field);
        format!("        auth_request_set $limiter_{name} $upstream_http_{name};\n")
    });
    let tell = |fields: &[&str]| {
        let lines = fields.iter().map(|field| {
            format!("        add_header {field} $limiter_{} always;\n", variable(field))
        });
        lines.collect::<String>()
    };
    let (set, told) = (set.collect::<String>(), tell(&FIELDS));
    let retry = tell(&["Retry-After"]);
    let words = failing.in_words();
    let [ends, release] = match has_open {
        true => [ENDS.to_owned(), release(scheme, &tls, patience)],
        false => Default::default(),
    };
    let stays = if has_open { STAYS } else { "" };
    let map = match failing {
        Failing::Partly(requests) => closed_map(requests),
        Failing::Open | Failing::Closed { .. } => String::new(),
    };
    let is_closed = !matches!(failing, Failing::Open);
    let away = if is_closed { "        error_page 500 = @limiter_away;\n" } else { "" };
    let open = match failing {
        Failing::Open => open(""),
        Failing::Partly(_) => open(IF_CLOSED),
        Failing::Closed { .. } => String::new(),
    };
    let refuses = if is_closed { REFUSED } else { "" };
    write!(
        f,
        r#"# limiter before a service: printed by `limiter bridge config nginx`.
# {words}
{map}upstream limiter_bridge {{
    server {server};
    keepalive 32;
    keepalive_timeout 3s;
}}

server {{
    # Where clients come in.
    listen 8080;

    location / {{
        auth_request /_limiter;
{set}{told}        error_page 403 = @limiter_refused;
{away}{ends}        # The service, which is told where to do less, and whether the kernel is about to drop packets of the source.
        proxy_set_header X-Limiter-Degrade $limiter_x_limiter_degrade;
        proxy_set_header X-Limiter-Source $limiter_x_limiter_source;
        proxy_pass http://127.0.0.1:8000;
    }}

    location @limiter_refused {{
        internal;
        default_type application/problem+json;
{retry}{told}        if ($limiter_x_limiter_status = 429) {{
            return 429 '{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["$limiter_x_limiter_limit"]}}';
        }}
        return 403;
    }}

    location = /_limiter {{
        internal;
        proxy_pass {scheme}://limiter_bridge/v1/auth?deny=403;
{tls}        proxy_method GET;
        proxy_pass_request_body off;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Content-Length "";
        proxy_set_header Host $host;
        # The source. Behind another proxy, ngx_http_realip_module sets it.
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Original-Method $request_method;
        proxy_set_header X-Original-URI $request_uri;
{peer}        # Clients may have sent these.
        proxy_set_header X-Forwarded-Method "";
        proxy_set_header X-Forwarded-Uri "";
        proxy_connect_timeout {patience}ms;
        proxy_send_timeout {LATEST}ms;
        proxy_read_timeout {latest}ms;
        proxy_next_upstream error;
{stays}{open}    }}
{refuses}{release}}}
"#
    )
}

/// What has requests pass without the bridge, but for those that this refuses.
fn open(refuses: &str) -> String {
    format!(
        "        proxy_intercept_errors on;
        error_page 500 502 503 504 = @limiter_open;
    }}

    location @limiter_open {{
        internal;
{refuses}        return 204;
"
    )
}

/// Which requests are refused without the bridge.
fn closed_map(requests: &[Requests<'_>]) -> String {
    let expressions = requests.iter().flat_map(|of| of.expressions(LONGEST));
    let lines: String = expressions.map(|it| format!("    \"~*{it}\" 1;\n")).collect();
    format!(
        "map \"$request_method $host $request_uri\" $limiter_closed {{\n    default 0;\n{lines}}}\n\n"
    )
}

/// The location that tells the bridge that a request ended.
fn release(scheme: &str, tls: &str, patience: u32) -> String {
    format!(
        r#"
    location @limiter_release {{
        internal;
        if ($limiter_x_limiter_lease = "") {{
            return 204;
        }}
        rewrite ^ /v1/release break;
        proxy_pass {scheme}://limiter_bridge;
{tls}        proxy_method POST;
        proxy_pass_request_headers off;
        proxy_pass_request_body off;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Content-Length "";
        proxy_set_header X-Limiter-Lease $limiter_x_limiter_lease;
        proxy_ignore_client_abort on;
        proxy_connect_timeout {patience}ms;
        proxy_send_timeout {LATEST}ms;
        proxy_read_timeout {LATEST}ms;
    }}
"#
    )
}
