//! What the page about requests shows: its commands for curl, its client and its service in Python.

use std::{path::Path, time::Instant};

use super::{
    proxies::{Proxy, bridge},
    *,
};

/// One request to `/login` at once, and one a second.
const SLOW: &str = "attributes:
  route: { path: { /login: login } }
limits:
  - { name: login, on: requests, match: { route: login }, key: source, rate: 60/min, burst: 1 }
";

pub(super) fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/l7.md")).unwrap()
}

/// The commands of the page that begin with this word.
pub(super) fn commands(page: &str, word: &str) -> Vec<String> {
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
    let _bridge = bridge(&bench, &document);
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
    let mut asked = 0;
    for line in commands(&page, "curl") {
        let told = run(&line.replace("/run/limiter-bridge/bridge.sock", &at));
        asked += usize::from(told.contains("limiter_bridge_") || told.contains("limiter.budget/1"));
    }
    assert_eq!(asked, 2);
    // Both clients are refused at first, wait, and have what they asked for.
    let client = python(&page, "def get(");
    let file = document.path().with_file_name("client.py");
    let call = "print(get('http://127.0.0.1:8080/login'))";
    fs::write(&file, format!("{client}\n\n{call}\n")).unwrap();
    let curl = commands(&page, "curl").into_iter().find(|line| line.contains("--retry")).unwrap();
    for script in [curl, format!("python3 {}", file.display())] {
        while proxy.get(1, "GET /login", &[]).status != 429 {}
        let begin = Instant::now();
        let told = run(&script);
        assert!(told.contains("GET /login"), "{told}");
        assert!(begin.elapsed() >= Duration::from_millis(900), "{script}: {:?}", begin.elapsed());
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
