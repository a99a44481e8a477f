//! What the page about requests shows: its commands for curl, its client and its service in Python.

use std::path::Path;

use super::{
    super::{SMALL, agent::Agent},
    proxies::{Proxy, bridge_and},
    *,
};

/// One request to `/login` at once, and one each three seconds. Who does not wait as told, but first for a second as curl does, is
/// refused again.
const SLOW: &str = "attributes:
  route: { path: { /login: login } }
  user: { header: x-user-id }
limits:
  - { name: login, on: requests, match: { route: login }, key: source, rate: 12/min, burst: 1 }
  - { name: tokens, on: requests, key: user, algorithm: fixed_window, limit: 1000, window: 365d }
";

pub(super) fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/l7.md")).unwrap()
}

/// The commands of the page that begin with this word. A line that ends with `\\` goes on in the next one.
pub(super) fn commands(page: &str, word: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.map(str::trim).filter(|line| line.split(' ').next() == Some(word));
    lines.map(str::to_owned).collect()
}

/// The program in Python that has this in it.
fn python<'p>(page: &'p str, part: &str) -> &'p str {
    let programs = page.split("\n```python\n").skip(1);
    let mut programs = programs.map(|it| it.split_once("```").unwrap().0);
    programs.find(|it| it.contains(part)).unwrap()
}

#[test]
fn the_page_shows_commands_and_clients_that_work() {
    let (bench, document) = (Bench::new(), Document::new(SLOW));
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let control = format!("unix:{}", document.path().with_file_name("agent.sock").display());
    let agent = format!("--policy FILE --control {control}");
    let agent = Agent::start(&bench, &document, &agent);
    agent.until_it_answers();
    let bridge = bridge_and(&bench, &document, &format!("--agent {control}"));
    let proxy = Proxy::start(&bench, &document, "nginx");
    let page = page();
    let run = |script: &str| {
        let mut shell = bench.hosts.router.command("sh");
        let output = shell.args(["-ec", script]).output().unwrap();
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{script}: {told}");
        told
    };
    let at = socket(&document).display().to_string();
    let told = commands(&page, "curl").into_iter().map(|line| {
        let line = line.replace("/run/limiter-bridge/bridge.sock", &at);
        (run(&line.replacen("curl", "curl --fail --silent --show-error", 1)), line)
    });
    let told: Vec<_> = told.collect();
    for (part, expected) in [
        ("/metrics", "limiter_bridge_"),
        (":8080/login", "GET /login"),
        ("/v1/penalties", "\"result\":\"unproven\""),
        ("/v1/budget", "\"schema\":\"limiter.budget/1\""),
        ("/v1/charge", "\"left\":188"),
    ] {
        let of: Vec<_> = told.iter().filter(|(_, line)| line.contains(part)).collect();
        let [(told, _)] = of[..] else { panic!("{part}: {of:?}") };
        assert!(told.contains(expected), "{part}: {told}");
    }
    assert_eq!(told.len(), 5, "{told:?}");
    // Both clients are refused at first, wait, and have what they asked for.
    let client = python(&page, "def get(");
    let file = document.path().with_file_name("client.py");
    let call = "print(get('http://127.0.0.1:8080/login'))";
    fs::write(&file, format!("{client}\n\n{call}\n")).unwrap();
    let curl = commands(&page, "curl").into_iter().find(|line| line.contains("--retry")).unwrap();
    for script in [curl, format!("python3 {}", file.display())] {
        while proxy.get(1, "GET /login", &[]).status != 429 {}
        let refused = || {
            let metrics = bridge.ask("GET /metrics", &[]).body;
            let name = "limiter_requests_total{limit=\"login\",layer=\"1\",result=\"exceed\"} ";
            let count = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            count.unwrap_or(0_u64)
        };
        let before = refused();
        let told = run(&script);
        assert!(told.contains("GET /login"), "{told}");
        assert_eq!(refused(), before + 1, "{script}");
    }
}

#[test]
fn the_page_shows_a_service_that_gives_places_back() {
    let text = "limits: [{name: open, on: requests, key: source, algorithm: concurrent, limit: 1}]";
    let (bench, document) = (Bench::new(), Document::new(text));
    let bridge = Bridge::start(&bench, &document, "");
    let page = page();
    let at = socket(&document).display().to_string();
    let service = python(&page, "def limited(").replace("/run/limiter-bridge/bridge.sock", &at);
    let file = document.path().with_file_name("service.py");
    let call = "import sys
app = limited(lambda environ, start_response: [b'one', b'two'])
print(list(app({'HTTP_X_LIMITER_LEASE': sys.argv[1]}, None)), list(app({}, None)))";
    fs::write(&file, format!("{service}\n\n{call}\n")).unwrap();
    for _ in 0..2 {
        let reply = bridge.auth("192.0.2.9", "GET", "/");
        let lease = reply.field("x-limiter-lease").unwrap();
        assert_eq!(bridge.auth("192.0.2.9", "GET", "/").status, 429);
        let output = std::process::Command::new("python3").arg(&file).arg(lease).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.trim(), "[b'one', b'two'] [b'one', b'two']", "{output:?}");
    }
}
