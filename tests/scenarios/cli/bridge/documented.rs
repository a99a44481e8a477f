//! What the page about requests shows: its commands for curl, and its client in Python.

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

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/l7.md")).unwrap()
}

/// The commands of the page that begin with this word.
fn commands(page: &str, word: &str) -> Vec<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.map(str::trim).filter(|line| line.split(' ').next() == Some(word));
    lines.map(str::to_owned).collect()
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
    let (_, client) = page.split_once("\n```python\n").unwrap();
    let (client, _) = client.split_once("```").unwrap();
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
