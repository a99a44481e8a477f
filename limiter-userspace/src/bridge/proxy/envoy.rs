//! Envoy, by its filter `ratelimit` or `ext_authz`. The first tells all of a request that the policy asks for in one descriptor,
//! the second as the request has it.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use super::{
    CA, CERTIFICATE, FIELDS, Failing, KEY, LATEST, LEFT_TO_SERVICE, Place, Proxy,
    failing::{Requests, UNPLAIN, alternatives, any_of, conditions, host_expression, literal},
    has_open,
};
use crate::{
    bridge::http::proxied,
    policy::{
        Policy,
        model::{AttributeSource, Field, Idempotency, Mode, Pattern, RequestLimit},
    },
};

/// The domain of a policy whose limits name none.
const DOMAIN: &str = "limiter";

pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    proxy: Proxy,
    bridge: &Place,
    failing: &Failing<'_>,
    latest: u32,
    policy: &Policy,
) -> fmt::Result {
    let server = match bridge {
        Place::Unix(path) => format!("pipe: {{ path: \"{path}\" }}"),
        Place::Tcp(address) | Place::Tls(address, _) => format!(
            "socket_address: {{ address: \"{}\", port_value: {} }}",
            address.ip(),
            address.port()
        ),
    };
    let (has_open, is_rls) = (has_open(policy), proxy == Proxy::Envoy);
    let [unsent, allowed, note, released] = match (has_open, is_rls) {
        (false, _) => [""; 4],
        (true, true) => [LEASE[0], "", "", RELEASE],
        (true, false) => [LEASE[0], LEASE[1], LEFT_TO_SERVICE, ""],
    };
    let (name, words, patience) = (proxy.name(), failing.in_words(), seconds(bridge.patience()));
    let tls = bridge.tls_name().map(tls).unwrap_or_default();
    let told = Told::new(policy);
    let (alone, actions, protocol) = match proxy {
        Proxy::EnvoyExtAuthz => ("envoy.filters.http.ext_authz", String::new(), ""),
        _ => ("envoy.filters.http.ratelimit", told.actions()? + released, HTTP2),
    };
    let filter = |name: &str, is_closed: bool| match proxy {
        Proxy::EnvoyExtAuthz => ext_authz(name, bridge, is_closed, latest, &told, allowed),
        _ => rate_limit(name, is_closed, domain(policy)),
    };
    let all = "{ prefix: \"/\" }";
    let (runtime, routes, filters) = match failing {
        Failing::Partly(requests) => {
            // A route is asked about by one of the two.
            let closed = requests.iter().flat_map(matchings);
            let closed = closed.map(|of| route(&of, &actions, Some(OPEN)));
            (
                LONG_EXPRESSIONS,
                closed.collect::<String>() + &route(all, &actions, Some(CLOSED)),
                filter(OPEN, false) + &filter(CLOSED, true),
            )
        }
        Failing::Open => ("", route(all, &actions, None), filter(alone, false)),
        Failing::Closed { .. } => ("", route(all, &actions, None), filter(alone, true)),
    };
    write!(
        f,
        r#"# limiter before a service: printed by `limiter bridge config {name}`.
# {words}
{note}{runtime}static_resources:
  listeners:
  # Where clients come in.
  - name: clients
    address: {{ socket_address: {{ address: "0.0.0.0", port_value: 8080 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          # The source is the address of the connection. Behind another proxy, add xff_num_trusted_hops.
          use_remote_address: true
          normalize_path: true
          merge_slashes: true
          # The bridge takes 16 KiB of headers.
          max_request_headers_kb: 14
          route_config:
            virtual_hosts:
            - name: service
              domains: ["*"]
              routes:
{routes}          http_filters:
          # Clients may have sent these.
          - name: envoy.filters.http.header_mutation
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
              mutations:
                request_mutations: [{{ remove: x-limiter-degrade }}, {{ remove: x-limiter-source }}{unsent}]
{filters}          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  # The service.
  - name: service
    connect_timeout: 5s
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: "127.0.0.1", port_value: 8000 }} }} }}
  - name: limiter
    connect_timeout: {patience}
{protocol}{tls}    load_assignment:
      cluster_name: limiter
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ {server} }} }}
"#
    )
}

/// The filter of requests that pass while the bridge does not answer.
const OPEN: &str = "limiter-open";
/// The filter of those that are refused then.
const CLOSED: &str = "limiter-closed";

/// A route to the service that one of two filters has no part in.
fn route(matching: &str, actions: &str, disabled: Option<&str>) -> String {
    let disabled = disabled.map(|filter| {
        format!(
            r#"                typed_per_filter_config:
                  {filter}: {{ "@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true }}
"#
        )
    });
    let disabled = disabled.unwrap_or_default();
    format!(
        "              - match: {matching}
                route:
                  cluster: service
{actions}{disabled}"
    )
}

/// The most bytes of the texts in a regular expression. RE2 compiles it to up to 174,000 instructions: about one for each byte,
/// and up to five for a `k` or an `s`, which have other forms in Unicode.
const LONGEST: usize = 32_768;

/// Has Envoy take expressions of more than its 100 instructions.
const LONG_EXPRESSIONS: &str =
    "# Keep this with the routes. Without it, Envoy refuses to load long regular expressions.
layered_runtime:
  layers:
  - name: limiter
    static_layer: { re2.max_program_size.error_level: 174000 }
";

/// Which requests the routes of a limit are for.
fn matchings(requests: &Requests<'_>) -> Vec<String> {
    let literals = |texts: &[&str]| alternatives(texts.iter().map(|it| literal(it)), LONGEST);
    let methods = conditions(&literals(&requests.methods), any_of, "[^ ]*");
    let host = |it: &str| format!(", {}", header(":authority", &host_expression(it)));
    let hosts = conditions(&literals(&requests.hosts), host, "");
    // Envoy compares the path without a query.
    let paths = requests.paths.iter().map(|path| match path {
        Pattern::Exact(path) => literal(path),
        Pattern::Prefix(path) => literal(path) + ".*",
    });
    let unplain = (!requests.paths.is_empty()).then(|| format!("({UNPLAIN}).*"));
    let paths = conditions(&alternatives(paths.chain(unplain), LONGEST), any_of, ".*");
    let mut matchings = Vec::new();
    for method in methods.iter().map(|it| header(":method", it)) {
        for host in &hosts {
            matchings.extend(paths.iter().map(|path| {
                format!("{{ safe_regex: {{ regex: \"(?i){path}\" }}, headers: [{method}{host}] }}")
            }));
        }
    }
    matchings
}

/// A condition on a header.
fn header(name: &str, expression: &str) -> String {
    format!(
        "{{ name: \"{name}\", string_match: {{ safe_regex: {{ regex: \"(?i){expression}\" }} }} }}"
    )
}

/// What takes places from clients, and what hands them on to the service.
const LEASE: [&str; 2] = [", { remove: x-limiter-lease }", ", { exact: x-limiter-lease }"];

/// The action that gives the place of a request back at its end, whichever that is.
const RELEASE: &str = "                  - apply_on_stream_done: true
                    actions:
                    - request_headers: { header_name: x-limiter-lease, descriptor_key: x-limiter-lease }
";

/// That a cluster is asked by HTTP/2.
const HTTP2: &str = r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
"#;

/// That a cluster with this name in its certificate is asked by mutual TLS.
fn tls(name: &str) -> String {
    format!(
        r#"    # Who may ask, and who answers.
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: "{name}"
        common_tls_context:
          tls_params: {{ tls_maximum_protocol_version: TLSv1_3 }}
          tls_certificates:
          - certificate_chain: {{ filename: "{CERTIFICATE}" }}
            private_key: {{ filename: "{KEY}" }}
          validation_context:
            trusted_ca: {{ filename: "{CA}" }}
            match_typed_subject_alt_names:
            - {{ san_type: DNS, matcher: {{ exact: "{name}" }} }}
"#
    )
}

/// The filter that asks by gRPC.
fn rate_limit(name: &str, is_closed: bool, domain: &str) -> String {
    let (domain, latest) = (text(domain), seconds(LATEST));
    format!(
        r#"          - name: {name}
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: {domain}
              timeout: {latest}
              failure_mode_deny: {is_closed}
              status_on_error: {{ code: ServiceUnavailable }}
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {{ envoy_grpc: {{ cluster_name: limiter, authority: limiter }} }}
"#
    )
}

/// The connection, in place of what the client says.
const PEER: &str = r#"                  # The connection, whatever the source: a peer that goes on over a limit with a penalty is blocked, if the bridge is asked on a Unix socket.
                  # None is blocked by Envoy before 1.28, which adds itself to X-Forwarded-For.
                  - { key: x-limiter-peer, value: "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_DIRECT_REMOTE_PORT% %DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT% %DOWNSTREAM_LOCAL_PORT%" }
"#;

/// The filter that asks by HTTP.
fn ext_authz(
    name: &str,
    bridge: &Place,
    is_closed: bool,
    latest: u32,
    told: &Told<'_>,
    lease: &str,
) -> String {
    let (allows, latest) = (!is_closed, seconds(latest));
    let exact = |name: &str| format!("{{ exact: {} }}", text(&name.to_ascii_lowercase()));
    let fields = FIELDS.map(exact).join(", ");
    let headers = told.headers.iter().map(|(header, _)| *header);
    let mut headers: BTreeSet<&str> = headers.filter(|header| !header.starts_with(':')).collect();
    // The bridge sees no connection of another host.
    let peer = match bridge {
        Place::Tls(..) => "",
        Place::Unix(_) | Place::Tcp(_) => {
            headers.extend(proxied::fields().map(|field| -> &str { field }));
            PEER
        }
    };
    let headers = match headers.into_iter().map(exact).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        headers => format!("              allowed_headers: {{ patterns: [{headers}] }}\n"),
    };
    format!(
        r#"          - name: {name}
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              failure_mode_allow: {allows}
              status_on_error: {{ code: ServiceUnavailable }}
              # What the limits of the policy ask for, and what tells of a proxy before this one.
{headers}              http_service:
                server_uri: {{ uri: "http://limiter", cluster: limiter, timeout: {latest} }}
                path_prefix: /v1/ext_authz
                authorization_request:
                  headers_to_add:
                  - {{ key: x-real-ip, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" }}
{peer}                authorization_response:
                  allowed_upstream_headers: {{ patterns: [{{ exact: x-limiter-degrade }}, {{ exact: x-limiter-source }}{lease}] }}
                  allowed_client_headers_on_success: {{ patterns: [{fields}] }}
"#
    )
}

/// Milliseconds as a text of seconds.
fn seconds(milliseconds: u32) -> String {
    format!("{}.{:03}s", milliseconds / 1_000, milliseconds % 1_000)
}

/// The first domain that a limit names.
fn domain(policy: &Policy) -> &str {
    let mut patterns = policy.on_requests.iter().filter_map(|limit| {
        limit.matching.fields.get(&Field::Domain)?.iter().find_map(|pattern| match pattern {
            Pattern::Exact(domain) => Some(&**domain),
            Pattern::Prefix(_) => None,
        })
    });
    patterns.next().unwrap_or(DOMAIN)
}

/// What the bridge is told of a request, as the limits of a policy ask for it.
#[derive(Default)]
struct Told<'p> {
    /// Headers, and the keys of their entries in a descriptor.
    headers: BTreeSet<(&'p str, &'p str)>,
    /// Attributes that no header has.
    others: BTreeSet<&'p str>,
}

impl<'p> Told<'p> {
    fn new(policy: &'p Policy) -> Self {
        let mut told = Self::default();
        let limits = policy.on_requests.iter().filter(|limit| limit.mode != Mode::Off);
        if limits.clone().any(|limit| limit.idempotency.is_some()) {
            told.headers.insert((Idempotency::HEADER, Idempotency::HEADER));
        }
        for field in limits.flat_map(RequestLimit::fields) {
            match field {
                Field::Method => told.headers.insert((":method", "method")),
                Field::Host => told.headers.insert((":authority", "host")),
                Field::Path => told.headers.insert((":path", "path")),
                Field::Domain => false,
                Field::Attribute(name) => match policy.attributes.get(name).map(|it| &it.from) {
                    Some(AttributeSource::Header(header)) => told.headers.insert((header, name)),
                    Some(AttributeSource::Cookie(_)) => told.headers.insert(("cookie", "cookie")),
                    Some(AttributeSource::Path(_)) => told.headers.insert((":path", "path")),
                    Some(AttributeSource::Descriptor) | None => told.others.insert(name),
                },
            };
        }
        told
    }

    /// The actions that make a descriptor of it.
    fn actions(&self) -> Result<String, fmt::Error> {
        let indent = "                    ";
        let mut actions = format!(
            "                  # What the limits of the policy ask for, in one descriptor.\n\
             \x20                 rate_limits:\n                  - actions:\n\
             {indent}- remote_address: {{}}\n"
        );
        for (header, key) in &self.headers {
            let [header, key] = [header, key].map(|it| text(it));
            writeln!(
                actions,
                "{indent}- request_headers: {{ header_name: {header}, descriptor_key: {key}, skip_if_absent: true }}"
            )?;
        }
        for name in &self.others {
            writeln!(actions, "{indent}# Add an action that tells the attribute {name}.")?;
        }
        Ok(actions)
    }
}

/// A text as it is in YAML.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
