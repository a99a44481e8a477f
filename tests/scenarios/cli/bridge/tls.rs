//! Mutual TLS: a bridge on one host, and proxies and clients on another, with the certificates that the page shows.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{ChildStdin, ChildStdout, Output},
    time::Instant,
};

use limiter_tests::{command::Limiter, process::terminate, topology::Host};

use super::{
    documented::{commands, page},
    proxies::{Proxy, at_tls},
    *,
};

/// Where the bridge is asked by HTTP.
const PORT: u16 = 9190;
/// The library by which a program sees another time.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// A CA in a folder, with the certificates that it signed.
pub(super) struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Runs the commands of the page: there are the CA, a certificate of the bridge and one of a proxy then.
    pub(super) fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let authority = Self { folder: folder.to_owned() };
        let page = page();
        for word in ["openssl", "cat"] {
            for line in commands(&page, word) {
                authority.run(&line, "0");
            }
        }
        authority
    }

    /// Signs another certificate of a proxy: with this name, and made at a time that is so far from now.
    fn sign(&self, name: &str, time: &str) {
        self.sign_for(name, &format!("DNS:{name}"), time);
    }

    /// Signs one for another name than that of its file.
    fn sign_for(&self, file: &str, name: &str, time: &str) {
        for line in commands(&page(), "openssl").iter().filter(|line| line.contains("proxy.csr")) {
            let line = line.replace("DNS:proxy1.example", name);
            self.run(&line.replace("proxy.", &format!("{file}.")), time);
        }
    }

    fn run(&self, line: &str, time: &str) {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", line]).current_dir(&self.folder);
        if time != "0" {
            shell.env("LD_PRELOAD", FAKETIME).env("FAKETIME", time);
        }
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The path of a file.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// What a bridge is started with.
    pub(super) fn options(&self) -> String {
        let [certificate, key, ca] =
            ["bridge.crt", "bridge.key", "ca.crt"].map(|name| self.file(name));
        format!("--tls-cert {certificate} --tls-key {key} --client-ca {ca}")
    }
}

/// A bridge on the router, which clients on the other host ask.
struct Remote {
    bench: Bench,
    document: Document,
    authority: Authority,
}

impl Remote {
    fn new(policy: &str) -> Self {
        let document = Document::new(policy);
        let authority = Authority::new(&document.path().with_file_name("tls"));
        Self { bench: Bench::new(), document, authority }
    }

    fn bridge(&self, more: &str) -> Bridge {
        let options = self.authority.options();
        let arguments = format!("--listen 0.0.0.0:{PORT} {options} {more}");
        let bridge = Bridge::start(&self.bench, &self.document, &arguments);
        let listening = bridge.began.iter().find(|it| it["tls"] == true).unwrap();
        assert_eq!(listening["address"], format!("0.0.0.0:{PORT}"));
        assert!(bridge.began.iter().any(|it| it["event"] == "certificate"), "{:?}", bridge.began);
        bridge
    }

    /// Has curl on the other host ask, with a certificate or none.
    fn curl(&self, certificate: Option<&str>, path: &str, more: &[&str]) -> Output {
        let to = self.bench.hosts.router_port.v4;
        let mut curl = self.bench.hosts.client.command("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20"]);
        curl.args(["--resolve", &format!("limiter-bridge:{PORT}:{to}")]);
        curl.args(["--cacert", &self.authority.file("ca.crt")]);
        if let Some(name) = certificate {
            let [certificate, key] =
                ["crt", "key"].map(|it| self.authority.file(&format!("{name}.{it}")));
            curl.args(["--cert", &certificate, "--key", &key]);
        }
        curl.args(["--write-out", "%{http_code}"]).args(more);
        curl.arg(format!("https://limiter-bridge:{PORT}{path}")).output().unwrap()
    }

    /// The status and the body of the answer to one who may ask.
    #[track_caller]
    fn ask(&self, certificate: &str, path: &str, more: &[&str]) -> (u16, String) {
        let output = self.curl(Some(certificate), path, more);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
        let (body, status) = told.split_at(told.len() - 3);
        (status.parse().unwrap(), body.to_owned())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let to = (self.bench.hosts.router_port.v4, PORT);
        let stream =
            self.bench.hosts.client.namespace.inside(|| TcpStream::connect(to)).unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn handshakes(bridge: &Bridge, result: &str) -> u64 {
    metric(bridge, &format!("limiter_bridge_handshakes_total{{result=\"{result}\"}}"))
}

/// The next event of this name, past others. Files that are written one after the other may be read in between.
#[track_caller]
fn until(bridge: &Bridge, name: &str) -> Value {
    loop {
        let event = bridge.next();
        if event["event"] == name {
            return event;
        }
    }
}

#[track_caller]
fn metric(bridge: &Bridge, name: &str) -> u64 {
    let metrics = bridge.ask("GET /metrics", &[]).body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    assert!(value.is_some(), "no {name} in {metrics}");
    value.unwrap()
}

/// Waits until a handshake ended in this way once more.
#[track_caller]
fn wait_for(bridge: &Bridge, result: &str, count: u64) {
    let begin = Instant::now();
    while handshakes(bridge, result) < count {
        assert!(begin.elapsed() < PATIENCE, "{}", bridge.ask("GET /metrics", &[]).body);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_host_with_a_certificate_asks_and_no_other_one() {
    let remote = Remote::new(&format!("{LOGIN}    penalty: {{ after: 1s, block: 1m }}\n"));
    remote.authority.sign("other.example", "0");
    remote.authority.sign("expired.example", "-400d");
    remote.authority.sign("early.example", "+20d");
    let strangers = Authority::new(&remote.document.path().with_file_name("strangers"));
    for file in ["proxy.crt", "proxy.key"] {
        let name = file.replace("proxy", "stranger");
        fs::copy(strangers.file(file), remote.authority.file(&name)).unwrap();
    }
    let bridge = remote.bridge("--trusted-name proxy2.example --trusted-name proxy1.example");
    let source = [
        "-H",
        "X-Real-IP: 192.0.2.9",
        "-H",
        "X-Original-URI: /login",
        "-H",
        "X-Original-Method: GET",
    ];
    let peer = ["-H", "X-Limiter-Peer: 192.0.2.9 7777 198.18.0.2 443"];
    for version in ["1.3", "1.2"] {
        let version = [&source[..], &["--tls-max", version]].concat();
        assert_eq!(remote.ask("proxy", "/v1/auth", &version).0, 204);
    }
    assert_eq!(remote.ask("proxy", "/v1/auth", &source).0, 204);
    let refused = remote.ask("proxy", "/v1/auth?deny=429", &[&source[..], &peer].concat());
    assert_eq!(refused.0, 429);
    // Its peer is no connection of this host.
    assert_eq!(metric(&bridge, "limiter_bridge_pushed_total{result=\"elsewhere\"}"), 1);
    let (status, body) = remote.ask("proxy", "/v1/penalties", &[]);
    assert!(status == 403 && body.contains("Unix socket"), "{body}");
    let charge = "{\"limit\": \"login\", \"request\": {\"source\": \"192.0.2.9\", \"path\": \"/login\"}, \"cost\": 1}";
    for path in ["/v1/charge", "/v1/refund"] {
        assert_eq!(remote.ask("proxy", path, &["--json", charge]).0, 200);
    }
    assert_eq!(
        remote.ask("proxy", "/v1/budget?limit=login&source=192.0.2.9&path=/login", &[]).0,
        200
    );
    assert_eq!(handshakes(&bridge, "completed"), 8);
    for (certificate, result) in [
        (None, "no_certificate"),
        (Some("stranger"), "unknown_ca"),
        (Some("expired.example"), "expired"),
        (Some("early.example"), "expired"),
        (Some("other.example"), "name"),
    ] {
        let before = handshakes(&bridge, result);
        for version in ["1.3", "1.2"] {
            let output = remote.curl(certificate, "/healthz", &["--tls-max", version]);
            assert!(!output.status.success(), "{result}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "000", "{result}");
        }
        wait_for(&bridge, result, before + 2);
    }
    assert_eq!(handshakes(&bridge, "completed"), 8);
    // Of many, some are told.
    let event = until(&bridge, "handshake_failed");
    assert_eq!(event["result"], "no_certificate", "{event}");
    assert!(event["from"].as_str().unwrap().starts_with("198.18.0.1:"), "{event}");
    // A client that does not trust the bridge says so, and plain HTTP gets no answer.
    let output = remote.curl(Some("proxy"), "/healthz", &["--cacert", &strangers.file("ca.crt")]);
    assert!(!output.status.success());
    wait_for(&bridge, "alert", 1);
    let mut plain = remote.connect().unwrap();
    plain.write_all(request("GET /healthz", &[]).as_bytes()).unwrap();
    let mut told = Vec::new();
    // The end of the connection may be a reset.
    let _: io::Result<usize> = plain.read_to_end(&mut told);
    assert!(!String::from_utf8_lossy(&told).contains("HTTP"), "{told:?}");
    wait_for(&bridge, "not_tls", 1);
    // Processes of this host go on to ask as before.
    assert_eq!(bridge.ask("GET /healthz", &[]).status, 200);
}

#[test]
fn each_certificate_of_the_ca_asks_unless_names_are_given() {
    let remote = Remote::new(LOGIN);
    remote.authority.sign("any.example", "0");
    let _bridge = remote.bridge("");
    assert_eq!(remote.ask("any.example", "/healthz", &[]).0, 200);
}

#[test]
fn a_host_asks_by_ipv6_and_is_known_by_its_address() {
    let remote = Remote::new(LOGIN);
    remote.authority.sign_for("address", "IP:2001:0db8:7::9", "0");
    remote.authority.sign_for("neighbour", "IP:2001:db8:7::10", "0");
    let own = format!("[::1]:{}", PORT + 1);
    let options = remote.authority.options();
    let listen = format!("--listen [::]:{PORT} --listen {own}");
    let bridge = Bridge::start(
        &remote.bench,
        &remote.document,
        &format!("{listen} {options} --trusted-name 2001:db8:7::9"),
    );
    let hosts = &remote.bench.hosts;
    let from = [format!("[{}]:", hosts.client_port.v6), format!("{}:", hosts.client_port.v4)];
    let to = [format!("::[{}]:", hosts.router_port.v6), format!("::{}:", hosts.router_port.v4)];
    for (from, to) in from.iter().zip(&to) {
        let more = ["--connect-to", to, "-H", "X-Real-IP: 2001:db8::7", "-H", "X-Original-URI: /"];
        assert_eq!(remote.ask("address", "/v1/auth", &more).0, 204);
        let output = remote.curl(Some("neighbour"), "/healthz", &more);
        assert!(!output.status.success());
        let event = until(&bridge, "handshake_failed");
        assert_eq!(event["result"], "name", "{event}");
        assert!(event["from"].as_str().unwrap().starts_with(from), "{event}");
    }
    // The address of this host alone is asked without TLS.
    hosts.router.ip("link set lo up").unwrap();
    let ask = || exchange(&mut TcpStream::connect(&own)?, request("GET /healthz", &[]));
    assert_eq!(hosts.router.namespace.inside(ask).unwrap().unwrap().status, 200);
}

#[test]
fn silent_peers_keep_nobody_from_asking() {
    let remote = Remote::new(LOGIN);
    let bridge = remote.bridge("");
    let silent: Vec<_> = (0..300).map(|_| remote.connect().unwrap()).collect();
    // One that said half of what it is to say.
    let mut half = remote.connect().unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    assert_eq!(remote.ask("proxy", "/healthz", &[]).0, 200);
    assert_eq!(bridge.ask("GET /healthz", &[]).status, 200);
    // On a slow machine the first ones may have had their time.
    assert!(handshakes(&bridge, "displaced") + handshakes(&bridge, "timeout") >= 45);
    // Those that are left are not waited for.
    let mut last = silent.into_iter().next_back().unwrap();
    assert_eq!(last.read(&mut [0; 16]).unwrap(), 0);
    wait_for(&bridge, "timeout", 1);
}

/// A connection by openssl, which stays open between requests.
struct Open {
    process: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl io::Read for Open {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.from.read(bytes)
    }
}

impl io::Write for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Open {
    fn new(remote: &Remote) -> Self {
        let mut openssl = remote.bench.hosts.client.command("openssl");
        openssl.args(["s_client", "-quiet", "-no_ign_eof", "-verify_return_error"]);
        openssl.args(["-connect", &format!("{}:{PORT}", remote.bench.hosts.router_port.v4)]);
        for (option, file) in [("-cert", "proxy.crt"), ("-key", "proxy.key"), ("-CAfile", "ca.crt")]
        {
            openssl.args([option, &remote.authority.file(file)]);
        }
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = openssl.spawn().unwrap();
        let to = process.stdin.take().unwrap();
        let from = process.stdout.take().unwrap();
        Self { process, to, from }
    }

    #[track_caller]
    fn ask(&mut self) {
        assert_eq!(exchange(self, request("GET /healthz", &[])).unwrap().status, 200);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        kill(&mut self.process);
    }
}

#[test]
fn renewed_files_are_used_and_wrong_ones_are_not() {
    let remote = Remote::new(LOGIN);
    let bridge = remote.bridge("");
    let expiry = || metric(&bridge, "limiter_bridge_certificate_expiry_timestamp_seconds");
    let is_current = || metric(&bridge, "limiter_bridge_certificate_last_reload_successful");
    let before = expiry();
    let year = Duration::from_secs(365 * 24 * 3600).as_secs();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(before.abs_diff(now + year) < 3600, "{before}");
    assert!(metric(&bridge, "limiter_bridge_client_ca_expiry_timestamp_seconds") > before);
    let mut open = Open::new(&remote);
    open.ask();
    // All three files are another CA's. Each of them is written alone, so they do not fit meanwhile.
    let other = Authority::new(&remote.document.path().with_file_name("other"));
    let renew = |file: &str| fs::copy(other.file(file), remote.authority.file(file)).unwrap();
    renew("bridge.crt");
    let rejected = until(&bridge, "certificate_rejected");
    assert!(
        rejected["message"].as_str().unwrap().contains("is not the private key of"),
        "{rejected}"
    );
    assert!(rejected["hint"].as_str().unwrap().contains("one renewal"), "{rejected}");
    assert_eq!((is_current(), expiry()), (0, before));
    open.ask();
    assert_eq!(remote.ask("proxy", "/healthz", &[]).0, 200, "the last good ones are used");
    for file in ["bridge.key", "ca.crt", "proxy.crt", "proxy.key"] {
        renew(file);
    }
    let renewed = until(&bridge, "certificate");
    assert_eq!(renewed["file"], remote.authority.file("bridge.crt"));
    assert_eq!(is_current(), 1);
    // Who was accepted by the CA before is not any more.
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert_eq!(remote.ask("proxy", "/healthz", &[]).0, 200);
    // At a signal they are read in any case, and a file that is gone or empty is told.
    fs::write(remote.authority.file("ca.crt"), "").unwrap();
    bridge.signal(libc::SIGHUP);
    let rejected = until(&bridge, "certificate_rejected");
    assert!(
        rejected["message"].as_str().unwrap().contains("has no certificate in PEM"),
        "{rejected}"
    );
    until(&bridge, "applied");
    renew("ca.crt");
    bridge.signal(libc::SIGHUP);
    until(&bridge, "certificate");
    until(&bridge, "applied");
    assert_eq!(remote.ask("proxy", "/healthz", &[]).0, 200);
}

#[test]
fn a_connection_of_another_host_ends_with_the_bridge() {
    let remote = Remote::new(LOGIN);
    let mut bridge = remote.bridge("");
    let (mut open, mut silent) = (Open::new(&remote), remote.connect().unwrap());
    open.ask();
    assert!(terminate(&mut bridge.process).unwrap().success());
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
}

#[test]
fn files_that_cannot_be_used_are_told_at_the_start() {
    let remote = Remote::new(LOGIN);
    let (authority, document) = (&remote.authority, &remote.document);
    let start = |address: &str, options: &str| {
        let listen = format!("--listen unix:{}", socket(document).display());
        let line = format!("bridge --policy FILE {listen} --listen {address} {options}");
        remote.bench.run(&document.in_place(&line))
    };
    let all = authority.options();
    let refused = |address: &str, options: &str, code: i32, words: &[&str]| {
        start(address, options).outcome().unwrap().assert_exit_code(code).assert_says(words);
        assert!(!socket(document).exists(), "a start that fails leaves no socket");
    };
    let any = "0.0.0.0:9190";
    let key_only = format!("--tls-key {}", authority.file("bridge.key"));
    let two = format!("--tls-cert {} {key_only}", authority.file("bridge.crt"));
    refused(any, "", 2, &["0.0.0.0:9190 is no loopback address", "--client-ca"]);
    refused(any, &two, 2, &["--client-ca"]);
    refused(any, &key_only, 2, &["--tls-cert"]);
    refused(any, "--trusted-name a.example", 2, &["--tls-cert"]);
    refused(any, &format!("{all} --trusted-name a_b..c"), 2, &["DNS name"]);
    refused("127.0.0.1:9190", &all, 2, &["--tls-cert is of no use"]);
    let swapped = all.replace("bridge.key", "proxy.key");
    refused(any, &swapped, 1, &["proxy.key is not the private key of", "one renewal"]);
    refused(any, &all.replace("ca.crt", "ca.key"), 1, &["ca.key has no certificate in PEM"]);
    refused(any, &all.replace("bridge.key", "ca.crt"), 1, &["the private key", "chmod o="]);
    refused(any, &all.replace("bridge.crt", "none.crt"), 4, &["cannot read", "none.crt"]);
    // Nobody may make sockets there.
    let folder = document.path().parent().unwrap().to_owned();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let key = authority.file("bridge.key");
    let private = start(any, &all).as_nobody().outcome().unwrap();
    private.assert_exit_code(5).assert_says(&[&key, "chmod 640"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
    refused(any, &all, 1, &["any user of this machine may use the private key", "604", "chmod o="]);
}

/// A bridge on another host than the proxy.
fn elsewhere<'d>(bench: &Bench, document: &'d Document) -> (Bridge, &'d Document, Authority) {
    let authority = Authority::new(&document.path().with_file_name("tls"));
    let host: &Host = &bench.hosts.client;
    let listen = format!("--listen [::]:{PORT} --grpc [::]:9192 --spop 0.0.0.0:9191");
    let options = format!("{listen} {} --trusted-name proxy1.example", authority.options());
    let limiter = Limiter::new(host).unwrap();
    let bridge = Bridge::of(Bridge::command_of(&limiter, document, &options), document);
    (bridge, document, authority)
}

fn clients_are_limited_by_a_bridge_elsewhere(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let (bridge, document, authority) = elsewhere(&bench, &document);
    let at = at_tls(name, bench.hosts.client_port.v4);
    let proxy = Proxy::start_at(&bench, document, name, "", &at);
    for left in ["2", "1", "0"] {
        let reply = proxy.get(2, "POST /login", &[]);
        assert_eq!((reply.status, reply.field("x-ratelimit-remaining")), (200, Some(left)));
    }
    let refused = proxy.get(2, "POST /login", &[]);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    assert_eq!(proxy.get(3, "GET /login", &[]).status, 200);
    assert!(handshakes(&bridge, "completed") > 0);
    // After a renewal of all files, the proxy goes on, with a connection of its own accord.
    for file in ["bridge.crt", "bridge.key", "ca.crt"] {
        let bytes = fs::read(authority.file(file)).unwrap();
        fs::write(authority.file(file), bytes).unwrap();
    }
    until(&bridge, "certificate");
    proxy.wait_for_the_bridge();
    assert_eq!(proxy.get(2, "POST /login", &[]).status, 429);
    // A bridge with another certificate is not asked, and requests pass.
    drop(bridge);
    let other = Authority::new(&document.path().with_file_name("other"));
    for file in ["bridge.crt", "bridge.key"] {
        fs::copy(other.file(file), authority.file(file)).unwrap();
    }
    let limiter = Limiter::new(&bench.hosts.client).unwrap();
    let listen = format!("--listen [::]:{PORT} --grpc [::]:9192 --spop 0.0.0.0:9191");
    let options = format!("{listen} {}", authority.options());
    let impostor = Bridge::of(Bridge::command_of(&limiter, document, &options), document);
    let begin = Instant::now();
    // nginx looks at the certificate after the handshake.
    while handshakes(&impostor, "alert") + handshakes(&impostor, "completed") < 3 {
        assert_eq!(proxy.get(2, "POST /login", &[]).status, 200);
        assert!(begin.elapsed() < PATIENCE, "{}", impostor.ask("GET /metrics", &[]).body);
        thread::sleep(Duration::from_millis(20));
    }
    let asked = "limiter_requests_total{limit=\"login\",layer=\"1\",result=\"conform\"}";
    assert_eq!(metric(&impostor, asked), 0);
}

/// gRPC, by the library that clients in Python use.
#[test]
fn an_independent_client_on_another_host_is_answered() {
    let (bench, document) = (Bench::new(), Document::new(ratelimit::POLICY));
    let (bridge, _, authority) = elsewhere(&bench, &document);
    let at = format!("{}:9192", bench.hosts.client_port.v4);
    let files = ["ca.crt", "proxy.key", "proxy.crt"].map(|name| authority.file(name));
    let client = bench.hosts.router.command("python3");
    let output = ratelimit::run(client, &[&[at], &files[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(handshakes(&bridge, "completed"), 1);
}

#[test]
fn clients_of_nginx_are_limited_by_a_bridge_elsewhere() {
    clients_are_limited_by_a_bridge_elsewhere("nginx");
}

#[test]
fn clients_of_caddy_are_limited_by_a_bridge_elsewhere() {
    clients_are_limited_by_a_bridge_elsewhere("caddy");
}

#[test]
fn clients_of_envoy_are_limited_by_a_bridge_elsewhere() {
    clients_are_limited_by_a_bridge_elsewhere("envoy");
}

#[test]
fn clients_of_envoy_are_limited_by_ext_authz_elsewhere() {
    clients_are_limited_by_a_bridge_elsewhere("envoy-ext-authz");
}

#[test]
fn clients_of_haproxy_are_limited_by_a_bridge_elsewhere() {
    clients_are_limited_by_a_bridge_elsewhere("haproxy");
}
