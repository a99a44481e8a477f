//! The description in OpenAPI, and schemathesis, which asks what that describes.

use std::{env, io, net::TcpListener, path::Path};

use super::{
    super::{SMALL, agent::Agent},
    *,
};

const POLICY: &str = "attributes:
  user: { header: x-user-id }
limits:
  - { name: tokens, on: requests, key: user, rate: 1000/min, burst: 1000 }
  - { name: clients, on: requests, key: source, rate: 10/min, burst: 10 }
  - { name: packets, key: source, rate: 1M pps }
";

#[test]
fn the_bridge_tells_what_is_printed() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    let bridge = Bridge::start(&bench, &document, "");
    let printed: Value = serde_json::from_str(&bench.done("bridge openapi").stdout).unwrap();
    let told: Value = serde_json::from_str(&bridge.ask("GET /v1/openapi.json", &[]).body).unwrap();
    assert_eq!(told, printed);
    assert_eq!(bench.json("bridge openapi -j"), printed);
    // What a path has not is told, and what it has.
    let wrong = bridge.ask("DELETE /v1/budget", &[]);
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("GET, HEAD")));
    assert_eq!(bridge.ask("PROPFIND /v1/auth", &["X-Real-IP: 192.0.2.9"]).status, 204);
    let unknown = bridge.ask("GET /v1/nothing", &[]);
    assert!(unknown.status == 404 && unknown.body.contains("/v1/openapi.json"), "{unknown:?}");
}

/// Hands connections to an address of a host on to a socket, as long as the process runs: the client speaks TCP alone.
fn relay(bench: &Bench, address: &'static str, socket: PathBuf) {
    let listen = || TcpListener::bind(address).unwrap();
    let listener = bench.hosts.router.namespace.inside(listen).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&socket) else { continue };
            let copies = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let pass = |mut from: Box<dyn io::Read + Send>, mut to: Box<dyn io::Write + Send>| {
                thread::spawn(move || io::copy(&mut from, &mut to));
            };
            pass(Box::new(client), Box::new(server));
            pass(Box::new(copies.1), Box::new(copies.0));
        }
    });
}

/// Each answer has a status, a type and a form that the document describes, whatever is asked.
#[test]
fn schemathesis_finds_nothing_that_is_not_described() {
    let (bench, document) = (Bench::new(), Document::new(POLICY));
    bench.hosts.router.ip("link set lo up").unwrap();
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let control = document.path().with_file_name("agent.sock");
    let control = format!("unix:{}", control.display());
    let agent = format!("-i eth0 --policy FILE --control {control}");
    let agent = Agent::start(&bench, &document, &agent);
    agent.until_it_answers();
    let bridge = Bridge::start(&bench, &document, &format!("--agent {control}"));
    relay(&bench, "127.0.0.1:9190", bridge.socket.clone());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unpacked = || here.join("../target/tools/schemathesis").into_os_string();
    let checks = [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "missing_required_header",
        "negative_data_rejection",
    ];
    let folder = document.path().parent().unwrap().to_owned();
    let mut command = bench.hosts.router.command("python3");
    command.env("PYTHONPATH", env::var_os("LIMITER_SCHEMATHESIS").unwrap_or_else(unpacked));
    command.env("PYTHONDONTWRITEBYTECODE", "1").args(["-m", "schemathesis.cli"]);
    command.args(["run", "http://127.0.0.1:9190/v1/openapi.json", "--no-color", "--seed", "1"]);
    command.args(["--max-examples", "10", "--phases", "examples,coverage,fuzzing", "--checks"]);
    command.args([&*checks.join(","), "--generation-database", "none", "--request-timeout", "5"]);
    // Without the name of a limit, a request that is made up asks none.
    let config = "[parameters]\n\"query.limit\" = \"tokens\"\n\"body.limit\" = \"tokens\"\n";
    fs::write(folder.join("schemathesis.toml"), config).unwrap();
    let output = command.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("Test cases:"), "{told}");
    // The agent answered, and did what it was asked for.
    let metrics = bridge.ask("GET /metrics", &[]).body;
    for endpoint in ["penalties", "source"] {
        let answered = format!("{{endpoint=\"{endpoint}\",code=\"200\"}}");
        assert!(metrics.contains(&answered), "no {answered} in {metrics}");
    }
    while agent.next()["event"] != "pushed" {}
}
