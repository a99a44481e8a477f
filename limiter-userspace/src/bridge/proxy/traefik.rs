//! Traefik, by its middleware `forwardAuth`.

use std::fmt;

use super::{CA, CERTIFICATE, Failing, KEY, LEFT_TO_SERVICE, Place};

pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    bridge: &Place,
    failing: &Failing<'_>,
    has_open: bool,
) -> fmt::Result {
    let (server, note) = match bridge {
        Place::Tcp(address) => (format!("http://{address}"), ""),
        // It verifies the address itself.
        Place::Tls(address, _) => (
            format!("https://{address}"),
            "# The certificate of the bridge has to have this address as another name.\n",
        ),
        // Traefik asks no Unix socket.
        Place::Unix(_) => (
            "http://127.0.0.1:9190".to_owned(),
            "# Traefik asks by TCP only: start the bridge with `--listen 127.0.0.1:9190` too.\n",
        ),
    };
    let tls = bridge.tls_name().map(|_| {
        format!(
            "        # Who may ask, and who answers.
        tls: {{ cert: {CERTIFICATE}, key: {KEY}, ca: {CA} }}
"
        )
    });
    let tls = tls.unwrap_or_default();
    let words = match failing {
        Failing::Open => "although no limit that refuses any has `on_failure: closed`",
        Failing::Partly(_) => "although not all limits have `on_failure: closed`",
        Failing::Closed { .. } => "as a limit with `on_failure: closed` asks",
    };
    let [told, left] = if has_open { [", X-Limiter-Lease", LEFT_TO_SERVICE] } else { ["", ""] };
    write!(
        f,
        r#"# limiter before a service: printed by `limiter bridge config traefik`, for the file provider.
# Traefik refuses all requests with 500 while the bridge does not answer, {words}. It waits 30 s for one that is stopped.
{note}{left}http:
  middlewares:
    # Clients may have sent these, also through a proxy that the entry point trusts.
    limiter-unset:
      headers:
        customRequestHeaders: {{ X-Original-Method: "", X-Original-Uri: "", X-Forwarded-Method: "", X-Forwarded-Uri: "" }}
    limiter:
      forwardAuth:
        address: "{server}/v1/auth?deny=429"
{tls}        # The source is X-Real-Ip. The entry point sets it, unless its forwardedHeaders trust the client. Without trust in the entry
        # point, Traefik 3.6.14 or later tells no source.
        trustForwardHeader: true
        authResponseHeaders: [X-Limiter-Degrade, X-Limiter-Source{told}]
  routers:
    service:
      rule: "PathPrefix(`/`)"
      entryPoints: [web]
      middlewares: [limiter-unset, limiter]
      service: service
  services:
    service:
      loadBalancer:
        servers:
          - url: "http://127.0.0.1:8000"
"#
    )
}
