//! Caddy, by what its directive `forward_auth` stands for. The directive itself hands no field of the bridge to clients whose
//! requests pass.

use std::fmt;

use super::{
    CA, CERTIFICATE, FIELDS, Failing, KEY, LATEST, LEFT_TO_SERVICE, Place, failing::Requests,
};

/// What takes places from clients, and what hands them on to the service. A text that is not there stays as it is written.
const LEASE: [&str; 2] = [
    "\t\trequest_header -X-Limiter-Lease\n",
    "\t\t\t\t@limiter_leased vars_regexp {http.reverse_proxy.header.X-Limiter-Lease} ^[0-9a-f.]+$
\t\t\t\trequest_header @limiter_leased X-Limiter-Lease {http.reverse_proxy.header.X-Limiter-Lease}\n",
];

/// What is compared with [`Requests::expressions`].
const SET_REQUEST: &str = "\t\tvars limiter_request \"{method} {host} {uri}\"\n";

pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    bridge: &Place,
    failing: &Failing<'_>,
    latest: u32,
    has_open: bool,
) -> fmt::Result {
    let server = match bridge {
        Place::Unix(path) => format!("unix/{path}"),
        Place::Tcp(address) | Place::Tls(address, _) => address.to_string(),
    };
    let patience = bridge.patience();
    let tls = bridge.tls_name().map(|name| {
        format!(
            "				# Who may ask, and who answers.
				tls_client_auth {CERTIFICATE} {KEY}
				tls_trusted_ca_certs {CA}
				tls_server_name {name}
"
        )
    });
    let tls = tls.unwrap_or_default();
    let peer = match bridge {
        Place::Tls(..) => "			# No peer is blocked: the bridge sees no connection of this host.
			header_up -X-Limiter-Peer
",
        Place::Unix(_) | Place::Tcp(_) => "			# The connection: a peer that goes on over a limit with a penalty is blocked, if the bridge is asked on a Unix socket.
			header_up X-Limiter-Peer \"{remote_host} {remote_port} {http.request.local.host} {http.request.local.port}\"
",
    };
    // Caddy compares the names as it writes them itself.
    let fields = FIELDS.map(|field| field.replace("RateLimit", "Ratelimit")).join(" ");
    let words = failing.in_words();
    let (note, [unsent, lease]) = match has_open {
        true => (LEFT_TO_SERVICE, LEASE),
        false => ("", [""; 2]),
    };
    // An error before the bridge is asked, or after its answer, stays one.
    let [failed, away] = ["vars limiter answered", "reverse_proxy 127.0.0.1:8000"];
    let mut request = "";
    let [failed, away] = match failing {
        Failing::Open => [failed, away].map(str::to_owned),
        Failing::Partly(requests) => {
            request = SET_REQUEST;
            let refused = |indent| -> String {
                requests.iter().enumerate().map(|(at, of)| refused(at + 1, of, indent)).collect()
            };
            [refused("\t\t\t\t") + failed, refused("\t\t\t") + away]
        }
        Failing::Closed { .. } => ["respond 503", "respond 503"].map(str::to_owned),
    };
    write!(
        f,
        r#"# limiter before a service: printed by `limiter bridge config caddy`.
# {words}
{note}{{
	servers {{
		# The bridge takes 16 KiB, and Caddy 4 KiB more than this.
		max_header_size 10KiB
	}}
}}

# Where clients come in.
:8080 {{
	route {{
		# The service believes them, so clients may not send them.
		request_header -X-Limiter-Degrade
		request_header -X-Limiter-Source
{unsent}{request}		# From here to its answer, an error is that of the bridge.
		vars limiter asked
		# What forward_auth does, and clients of requests that pass are told of their limits.
		reverse_proxy {server} {{
			method GET
			rewrite /v1/auth?deny=429
			header_up X-Forwarded-Method {{method}}
			header_up X-Forwarded-Uri {{uri}}
			# The source. Behind another proxy, set trusted_proxies and use {{client_ip}}.
			header_up X-Real-IP {{remote_host}}
			# What the client sent, and not what Caddy adds: it tells of a proxy before this one.
			header_up X-Forwarded-For {{header.X-Forwarded-For}}
{peer}			# Clients may have sent these.
			header_up -X-Original-Method
			header_up -X-Original-Uri
			transport http {{
{tls}				dial_timeout {patience}ms
				response_header_timeout {latest}ms
				write_timeout {LATEST}ms
				keepalive 3s
			}}

			@limiter_degraded {{
				status 2xx
				header X-Limiter-Degrade *
			}}
			handle_response @limiter_degraded {{
				vars limiter answered
				request_header X-Limiter-Degrade {{http.reverse_proxy.header.X-Limiter-Degrade}}
{lease}				copy_response_headers {{
					include {fields}
				}}
			}}
			@limiter_passed status 2xx
			handle_response @limiter_passed {{
				vars limiter answered
{lease}				copy_response_headers {{
					include {fields}
				}}
			}}
			@limiter_failed status 5xx
			handle_response @limiter_failed {{
				{failed}
			}}
		}}

		# The service.
		reverse_proxy 127.0.0.1:8000
	}}

	handle_errors {{
		# The bridge was asked and did not answer. After another error, nothing goes to the service.
		@unanswered vars limiter asked
		handle @unanswered {{
			{away}
		}}
		handle {{
			respond {{http.error.status_code}}
		}}
	}}
}}
"#
    )
}

/// What refuses requests, with this indent of all lines but the first.
fn refused(number: usize, requests: &Requests<'_>, indent: &str) -> String {
    // Caddy has no bound.
    let expression = requests.expressions(usize::MAX).join("|");
    format!(
        "@limiter_closed_{number} vars_regexp limiter_request \"(?i){expression}\"
{indent}respond @limiter_closed_{number} 503
{indent}"
    )
}
