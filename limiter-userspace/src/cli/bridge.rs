//! `limiter bridge`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser as _},
    value_parser,
};
use rustls::pki_types::{DnsName, ServerName};
use serde_json::json;
use thiserror::Error;

use super::{stderr, unix};
use crate::{
    agent::address::Address,
    bridge::{
        event::Dated,
        haproxy,
        listener::Protocol,
        openapi,
        proxy::{Config, Failing, Map, Place, Proxy},
        run::{self, Options},
        table::Table,
        tls,
    },
    error::{Failure, Result},
    output::stream::Output,
    policy::document,
};

/// Where the package has the policy.
const POLICY: &str = "/etc/limiter/policy.yaml";
/// Where proxies find the bridge of the package.
pub(super) const SOCKET: &str = "unix:/run/limiter-bridge/bridge.sock";
/// Where the bridge finds the agent of the package.
const AGENT: &str = "unix:/run/limiter/agent.sock";

const HELP: &str = "\
A proxy asks it about each request: nginx by auth_request, Caddy and Traefik by forward_auth, Envoy by its rate limit service, HAProxy by its offload engine. `limiter bridge config` prints \
how. It decides by the limits with `on: requests`, and needs no instance and no capability: it gives all of them up at its \
start. Peers that go on over a limit with a penalty are blocked in the kernel by `limiter agent`, whose socket is \
that of --agent. Without an agent, requests are limited, and nobody is blocked.

It follows the document: a change of it is in force within seconds, and at once on SIGHUP. A wrong document is not used, and \
the policy before stays. SIGTERM and SIGINT end it.

Processes that connect to a loopback address may name any source. A Unix socket is for the users of --trusted alone. Other \
addresses are for proxies on other hosts, and need --tls-cert, --tls-key and --client-ca: the proxy presents a certificate, and \
so does the bridge. Unix sockets and loopback addresses are asked without TLS all the same. The files are followed as the \
document is.";

#[derive(Debug, Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub(super) struct Bridge {
    #[command(subcommand)]
    command: Option<BridgeCommand>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum BridgeCommand {
    /// Print a configuration of a proxy that asks the bridge
    Config(Configuration),
    /// Print what the bridge answers, as an OpenAPI document
    Openapi,
}

#[derive(Debug, Args)]
struct Serve {
    /// Policy document, which is followed as it changes
    #[arg(long, value_name = "FILE", default_value = POLICY)]
    policy: PathBuf,
    /// Answer on unix:PATH, on a port of a loopback address, e.g. 127.0.0.1:9190, or by TLS on one of another
    #[arg(long, value_name = "ADDRESS", default_value = SOCKET)]
    listen: Vec<Address>,
    /// Answer Envoy by gRPC there too, on unix:PATH or on a port of an address [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    grpc: Vec<Address>,
    /// Answer HAProxy by SPOP there too, on unix:PATH, on the abstract socket unix:@NAME, or on a port of an address [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    spop: Vec<Address>,
    /// Certificate of the bridge in PEM, and those that lead to its CA; for addresses that are no loopback ones
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "client_ca"])]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, which only the owner and the group of the file may read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA in PEM that certificates of proxies are signed by; without --trusted-name, each of them may ask
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// DNS name or address that the certificate of a proxy has to have as another name (SAN); of several, one
    #[arg(long, value_name = "NAME", value_parser = tls::name, requires = "tls_cert")]
    trusted_name: Vec<ServerName<'static>>,
    /// Keys of limits whose state is kept
    #[arg(long, value_name = "N", default_value_t = Table::KEYS as u32,
          value_parser = value_parser!(u32).range(1_024..=16_777_216))]
    keys: u32,
    /// File that keeps the state over a restart of the bridge, on a file system in memory, such as below /run
    /// [default: none, and a restart begins anew]
    #[arg(long, value_name = "FILE")]
    state_file: Option<PathBuf>,
    /// User whose processes are answered on Unix sockets, besides that of the bridge
    /// [default: root, www-data, nginx, caddy, envoy and haproxy]
    #[arg(long, value_name = "USER")]
    trusted: Vec<String>,
    /// Group of Unix sockets, whose users may connect
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Socket of the agent, which blocks peers that go on over a limit with a penalty
    #[arg(long, value_name = "ADDRESS", default_value = AGENT, value_parser = unix_socket)]
    agent: PathBuf,
    #[command(flatten)]
    haproxy: HaproxyMap,
}

/// The map by which HAProxy answers sources itself.
#[derive(Debug, Args)]
struct HaproxyMap {
    /// Runtime socket of HAProxy, unix:PATH, by which the bridge has it answer sources itself that are refused for a while
    /// [default: HAProxy asks about each request]
    #[arg(long, value_name = "ADDRESS", value_parser = runtime_socket)]
    haproxy_socket: Option<String>,
    /// Map of HAProxy that the bridge writes by that socket: a file that is empty
    #[arg(long, value_name = "FILE", default_value = "/etc/haproxy/limiter-held.map", value_parser = map_file,
          requires = "haproxy_socket")]
    haproxy_map: String,
}

#[derive(Debug, Args)]
struct Configuration {
    /// The proxy
    #[arg(value_name = "PROXY", value_parser = PossibleValuesParser::new(Proxy::ALL.map(Proxy::name)).try_map(named))]
    proxy: Proxy,
    /// Policy document, which says whether requests pass while the bridge does not answer
    #[arg(long, value_name = "FILE", default_value = POLICY)]
    policy: PathBuf,
    /// Where the bridge answers the proxy [default: unix:/run/limiter-bridge/bridge.sock; for Envoy, grpc.sock there; for HAProxy, unix:@limiter-spop]
    #[arg(long, value_name = "ADDRESS", value_parser = place)]
    listen: Option<Place>,
    /// Name in the certificate of the bridge, which the proxy verifies; for an address that is no loopback one
    #[arg(long, value_name = "NAME", default_value = "limiter-bridge", value_parser = tls_name)]
    tls_name: String,
    #[command(flatten)]
    haproxy: HaproxyMap,
}

/// What only HAProxy does, and is asked of another proxy.
#[derive(Debug, Error)]
enum OnlyHaproxy {
    /// Others do not pad the name of such a socket.
    #[error("{0} cannot ask an abstract socket of the bridge: only HAProxy does")]
    AbstractSocket(&'static str),
    #[error("{0} has no map of sources that it answers itself: only HAProxy has")]
    Map(&'static str),
}

impl Failure for OnlyHaproxy {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::AbstractSocket(_) => "give unix:PATH, or leave out --listen",
            Self::Map(_) => "leave out --haproxy-socket",
        };
        Some(remedy.to_owned())
    }
}

/// The proxy of a name.
fn named(name: String) -> Result<Proxy, String> {
    Proxy::ALL.into_iter().find(|it| it.name() == name).ok_or(name)
}

/// The path of a Unix socket.
pub(super) fn unix_socket(text: &str) -> Result<PathBuf, String> {
    match text.parse()? {
        Address::Unix(path) => Ok(path),
        Address::Tcp(_) | Address::Abstract(_) => {
            Err("it answers on a Unix socket: give unix:PATH".to_owned())
        }
    }
}

/// A DNS name that can be written into a configuration as it is.
fn tls_name(text: &str) -> Result<String, String> {
    match DnsName::try_from(text) {
        Ok(name) => Ok(name.to_lowercase_owned().as_ref().to_owned()),
        Err(_) => Err("give a DNS name that the certificate has as another name".to_owned()),
    }
}

/// What a name of a socket may have that is written into a configuration as it is.
const PLAIN: &str = "letters, digits and /._-+@";

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte)
}

/// An address that can be written into a configuration as it is.
fn place(text: &str) -> Result<Place, String> {
    match text.parse()? {
        Address::Tcp(address) if address.ip().is_unspecified() => Err(format!(
            "{} is no address that a proxy connects to: give the one by which it reaches the bridge",
            address.ip()
        )),
        Address::Tcp(address) => Ok(Place::Tcp(address)),
        Address::Unix(path) => {
            let path = path.to_str().filter(|path| path.bytes().all(is_plain));
            let path = path.ok_or(format!("a proxy is told only of paths of {PLAIN}"))?;
            Ok(Place::Unix(path.to_owned()))
        }
        Address::Abstract(name) => match name.bytes().all(is_plain) {
            true => Ok(Place::Unix(format!("@{name}"))),
            false => Err(format!("a proxy is told only of names of {PLAIN}")),
        },
    }
}

/// The path of a socket that can be written into a configuration as it is.
fn runtime_socket(text: &str) -> Result<String, String> {
    match place(text)? {
        Place::Unix(path) if path.starts_with('/') => Ok(path),
        _ => Err("the runtime socket of HAProxy on this host is unix:PATH".to_owned()),
    }
}

/// The path of a file that commands can name.
fn map_file(text: &str) -> Result<String, String> {
    match text.starts_with('/') && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("give a path of {PLAIN} that begins with /")),
    }
}

impl Bridge {
    pub(super) fn run(self, output: &mut Output) -> Result<()> {
        match self.command {
            Some(BridgeCommand::Config(configuration)) => configuration.print(output),
            Some(BridgeCommand::Openapi) if output.is_json() => {
                Ok(output.json(&openapi::document())?)
            }
            Some(BridgeCommand::Openapi) => Ok(writeln!(output, "{:#}", openapi::document())?),
            None => self.serve.run(output),
        }
    }
}

impl Serve {
    fn run(self, output: &mut Output) -> Result<()> {
        let Self { policy, keys, state_file, trusted, group, agent, .. } = self;
        let (keys, state) = (keys as usize, state_file);
        let by = |protocol, addresses: Vec<Address>| {
            addresses.into_iter().map(move |address| (protocol, address))
        };
        let listen = by(Protocol::Http, self.listen)
            .chain(by(Protocol::Grpc, self.grpc))
            .chain(by(Protocol::Spop, self.spop))
            .collect();
        let files = self.tls_cert.zip(self.tls_key).zip(self.client_ca);
        let names = self.trusted_name;
        let tls = files.map(|((certificate, key), client_ca)| tls::Options {
            certificate,
            key,
            client_ca,
            names,
        });
        let HaproxyMap { haproxy_socket, haproxy_map: map } = self.haproxy;
        let haproxy = haproxy_socket.map(|socket| haproxy::Options { socket: socket.into(), map });
        let options = Options { policy, listen, tls, keys, state, trusted, group, agent, haproxy };
        run::run(&options, unix, |event| {
            let told = match output.is_json() {
                true => output.json(&Dated { unix: unix(), event }),
                false => writeln!(output, "{event}"),
            };
            // Requests are answered whether somebody reads this or not.
            let _: Result<(), _> = told.and_then(|()| output.flush());
        })
    }
}

impl Configuration {
    fn print(self, output: &mut Output) -> Result<()> {
        let policy = document::read(&self.policy)?;
        let Self { proxy, listen, tls_name, haproxy, .. } = self;
        let file = &*haproxy.haproxy_map;
        let map = haproxy.haproxy_socket.as_deref().map(|socket| Map { socket, file });
        let bridge = &match listen.unwrap_or_else(|| proxy.bridge()) {
            Place::Tcp(address) if !address.ip().is_loopback() => Place::Tls(address, tls_name),
            place => place,
        };
        let is_haproxy = matches!(proxy, Proxy::Haproxy | Proxy::HaproxySpoe);
        if matches!(bridge, Place::Unix(path) if path.starts_with('@') && !is_haproxy) {
            return Err(OnlyHaproxy::AbstractSocket(proxy.name()).into());
        }
        if map.is_some() && !is_haproxy {
            return Err(OnlyHaproxy::Map(proxy.name()).into());
        }
        if let Failing::Closed { untold } = Failing::new(&policy)
            && !untold.is_empty()
        {
            let message = format!(
                "{proxy} cannot tell which requests these limits with `on_failure: closed` are about, so it refuses all requests \
                 while the bridge does not answer: {}. Match by path, host and method alone, or remove `on_failure: closed`",
                untold.join(", "),
                proxy = proxy.name(),
            );
            stderr::warn(&message, output);
        }
        let config = Config { proxy, bridge, map, policy: &policy };
        if output.is_json() {
            let shape = json!({ "proxy": proxy.name(), "config": config.to_string() });
            return Ok(output.shape("limiter.proxy/1", &shape)?);
        }
        Ok(write!(output, "{config}")?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bridge: Bridge,
    }

    #[test]
    fn a_map_of_haproxy_has_plain_names() {
        let parsed = |arguments: &str| {
            let line = Line::try_parse_from(format!("bridge {arguments}").split(' '));
            line.map(|line| line.bridge.serve.haproxy).ok()
        };
        let map = parsed("--haproxy-socket unix:/run/haproxy/limiter.sock").unwrap();
        assert_eq!(map.haproxy_socket.as_deref(), Some("/run/haproxy/limiter.sock"));
        assert_eq!(map.haproxy_map, "/etc/haproxy/limiter-held.map");
        for wrong in [
            "--haproxy-map /m",
            "--haproxy-socket unix:@name",
            "--haproxy-socket 127.0.0.1:9",
            "--haproxy-socket unix:/s --haproxy-map m",
            "--haproxy-socket unix:/s --haproxy-map /m;x",
        ] {
            assert!(parsed(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_state_has_room_for_as_many_keys_as_the_page_says() {
        let keys = Line::parse_from(["bridge", "--policy", "p.yaml"]).bridge.serve.keys;
        assert_eq!(keys, 262_144);
        let page = include_str!("../../../docs/l7.md");
        assert!(page.contains("room for 262,144 keys (`--keys`)"));
    }
}
