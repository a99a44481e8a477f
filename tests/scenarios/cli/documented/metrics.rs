//! The tables of the page about metrics are generated from what the code prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Mutex,
};

use limiter_common::packet::reason::Reason;

use super::{page, root};
use crate::cli::{
    Bench, Document,
    agent::{Agent, REQUEST, ask},
    bridge::Bridge,
};

/// The rows of the table below a heading of the page, without its head.
fn rows(heading: &str) -> Vec<String> {
    let page = page("docs/metrics.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("|---"));
    lines.skip(1).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

/// The metrics of a scrape as rows of a table: name, type, names of labels, meaning.
fn table(scrape: &str) -> Vec<String> {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in scrape.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = sample.split_once('{') else { continue };
        // Of a histogram, the parts.
        let mut parts = ["_bucket", "_sum", "_count"].into_iter();
        let name = parts.find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        let names = rest.split("=\"").filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let names = names.filter(|name| !name.is_empty() && !name.starts_with('}'));
        labels.entry(name).or_default().extend(names);
    }
    let kinds: BTreeMap<&str, &str> =
        scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let helps = scrape.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let mut rows: Vec<String> = helps
        .map(|(name, help)| {
            let of = labels.get(name).into_iter().flatten().map(|label| format!("`{label}`"));
            let of = of.collect::<Vec<_>>().join(", ");
            format!("| `{name}` | {} | {of} | {help} |", kinds[name])
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn the_page_has_every_metric_with_its_labels() {
    let bench = Bench::new();
    bench.hosts.router.ip("link set lo up").unwrap();
    let document = Document::new(
        "limits: [{name: source, key: source, rate: 10/s, burst: 5, penalty: {after: 1s, block: 1m}},\
         {name: all, key: all, rate: 10/s}]",
    );
    let socket = document.path().with_file_name("agent.sock");
    let arguments = format!(
        "-i eth0 --policy FILE --listen 127.0.0.1:9180 --control unix:{} \
         --crowdsec http://127.0.0.1:1 --crowdsec-key-file /nonexistent",
        socket.display()
    );
    let agent = Agent::start(&bench, &document, &arguments);
    // The order of its first events is not fixed.
    while agent.next()["event"] != "unchanged" {}
    let scrape = ask(&bench, REQUEST);
    let (_, scrape) = scrape.split_once("\r\n\r\n").unwrap();
    compare(scrape, "All of them");
}

#[test]
fn the_page_has_every_metric_of_a_bridge() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: all, on: requests, key: source, rate: 10/s, burst: 5},\
         {name: open, on: requests, key: all, algorithm: concurrent, limit: 5}]",
    );
    let bridge = Bridge::start(&bench, &document, "--haproxy-socket unix:/nonexistent");
    bridge.ask("GET /v1/auth", &["X-Real-IP: 192.0.2.9"]);
    compare(&bridge.ask("GET /metrics", &[]).body, "Of a bridge");
}

/// Asserts that the table below a heading is what a scrape makes of it; with `LIMITER_BLESS` set, writes it.
#[track_caller]
fn compare(scrape: &str, heading: &str) {
    // The tests of the two tables run beside each other.
    static PAGE: Mutex<()> = Mutex::new(());
    let _page = PAGE.lock();
    let (generated, shown) = (table(scrape), rows(heading));
    assert!(!shown.is_empty(), "docs/metrics.md has no table below {heading}");
    if std::env::var_os("LIMITER_BLESS").is_some() {
        let text = page("docs/metrics.md").replace(&shown.join("\n"), &generated.join("\n"));
        return fs::write(root().join("docs/metrics.md"), text).unwrap();
    }
    let lacking: Vec<_> = generated.iter().filter(|row| !shown.contains(row)).collect();
    let stale: Vec<_> = shown.iter().filter(|row| !generated.contains(row)).collect();
    assert_eq!(
        generated, shown,
        "docs/metrics.md lacks {lacking:#?}, and has {stale:#?}: LIMITER_BLESS=1 writes it anew"
    );
}

#[test]
fn the_page_has_every_reason() {
    let cells = |row: &String| -> Vec<String> {
        row.split('|').skip(1).take(2).map(|cell| cell.trim().replace('`', "")).collect()
    };
    let shown: Vec<_> = rows("Reasons").iter().map(cells).collect();
    let verdict = |reason: Reason| if reason.drops() { "dropped" } else { "passed" };
    assert_eq!(
        shown,
        Reason::ALL.map(|reason| vec![reason.name().to_owned(), verdict(reason).to_owned()])
    );
}
