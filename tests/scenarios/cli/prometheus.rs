//! The shipped files for Prometheus and Grafana, tested with a real Prometheus that scrapes a real agent.

mod dashboard;
mod runbooks;
mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::prometheus::{Prometheus, Sample, get, promtool};

use self::{
    dashboard::Dashboard,
    stage::{Traffic, count_costs, hasten, policy},
};
use super::{Bench, Document, SMALL, agent::Agent};

/// The dashboard of the limiter, for all hosts.
const DASHBOARD: &str = "limiter-dashboard.json";
/// The dashboard of the agents.
const AGENT_DASHBOARD: &str = "limiter-agent-dashboard.json";

/// The alerts about drops. They end some minutes after the drops do.
const DROPS: [&str; 2] = ["LimiterDropsJumped eth0", "LimiterMostDropped eth0"];

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the shipped files.
fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../monitoring")
}

/// Repeats `ask` until it returns no complaint.
#[track_caller]
fn until_well(mut ask: impl FnMut() -> Vec<String>) {
    let start = Instant::now();
    loop {
        let complaints = ask();
        if complaints.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{}", complaints.join("\n"));
        thread::sleep(Duration::from_millis(500));
    }
}

/// The complaint about an expression: that it fails, or that no sample is a number.
fn complaint(server: &Prometheus, expression: &str) -> Option<String> {
    match server.query(expression) {
        Err(error) => Some(format!("{expression}: {error:#}")),
        Ok(samples) if samples.iter().all(|sample| sample.value.is_nan()) => {
            Some(format!("{expression}: {samples:?}"))
        }
        Ok(_) => None,
    }
}

/// The metrics in an expression: those of limiter, records of its rules, and those of Prometheus itself.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let no_name = |letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter);
    let words = expression.split('"').step_by(2).flat_map(|text| text.split(no_name));
    let is_metric = |word: &&str| word.contains("limiter_") || ["up", "ALERTS"].contains(word);
    words.filter(is_metric).map(str::to_owned).collect()
}

/// The firing alerts, each with its interface or command.
fn firing(server: &Prometheus) -> BTreeSet<String> {
    let told = |Sample { labels, .. }: Sample| {
        let of = |name: &str| labels[name].as_str().unwrap_or_default().to_owned();
        let words = ["alertname", "interface", "by"].map(of);
        words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let alerts = server.query(r#"ALERTS{alertstate="firing"}"#).unwrap();
    alerts.into_iter().map(told).collect()
}

/// Waits until exactly these alerts fire; those in [`DROPS`] do not matter.
#[track_caller]
fn until_firing(server: &Prometheus, expected: &[&str]) {
    until_well(|| {
        let mut firing = firing(server);
        firing.retain(|alert| !DROPS.contains(&&**alert));
        let as_expected = firing.iter().eq(expected);
        if as_expected { Vec::new() } else { vec![format!("{firing:?} instead of {expected:?}")] }
    });
}

/// The expressions of the rules by name, and complaints about rules that fail.
fn rules(server: &Prometheus) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut expressions, mut complaints) = (BTreeMap::new(), Vec::new());
    let answer = server.ask("rules", &[]).unwrap();
    let groups = answer["groups"].as_array().unwrap();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let of = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        if of("health") != "ok" {
            complaints.push(format!("{}: {} {}", of("name"), of("health"), of("lastError")));
        }
        if of("type") == "alerting" {
            for annotation in ["summary", "description", "action", "runbook"] {
                let text = rule["annotations"][annotation].as_str();
                assert!(text.is_some_and(|text| text.len() > 10), "{}: {annotation}", of("name"));
            }
        } else {
            complaints.extend(complaint(server, &of("name")));
        }
        expressions.insert(of("name"), of("query"));
    }
    (expressions, complaints)
}

#[test]
fn rules_and_configuration_are_right() {
    let check = |arguments: &[&str]| promtool(&shipped(), arguments, "").unwrap();
    let checked = check(&["check", "rules", "limiter.rules.yaml"]);
    assert!(checked.contains("SUCCESS"), "{checked}");
    check(&["check", "config", "prometheus.yaml"]);
    check(&["test", "rules", "limiter.rules.test.yaml", "limiter.rules.days.test.yaml"]);
    // Every alert fires in a test of the rules.
    let [rules, tests, days] =
        ["limiter.rules.yaml", "limiter.rules.test.yaml", "limiter.rules.days.test.yaml"]
            .map(|name| fs::read_to_string(shipped().join(name)).unwrap());
    let tests = tests + &days;
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested: Vec<&str> = alerts
        .filter(|alert| !tests.contains(&format!("alertname=\"{alert}\", alertstate")))
        .collect();
    assert_eq!(untested, [""; 0]);
}

#[test]
fn everything_shipped_has_data_and_alerts_tell_of_trouble() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    let document = Document::new("");
    let folder = document.path().parent().unwrap().to_owned();
    fs::write(document.path(), policy("flood")).unwrap();
    hasten(&folder);
    let costs = count_costs();
    router.ip("link add late type veth peer name other\nlink add moved type veth").unwrap();
    bench.done(&document.in_place(&format!("attach eth0 late moved {SMALL} --policy FILE")));
    let arguments = "-i eth0 -i late --policy FILE --listen 127.0.0.1:9180 --events none";
    let agent = Agent::start(&bench, &document, arguments);
    for event in ["replaced", "replaced", "replaced", "unchanged", "listening"] {
        agent.expect(event);
    }
    let traffic = Traffic::start(&bench.hosts);
    let server = Prometheus::start(router, &folder).unwrap();
    until_well(|| complaint(&server, "limiter_policy_epoch").into_iter().collect());
    fs::write(document.path(), policy("all")).unwrap();
    agent.expect("applied");

    let [dashboard, of_agent] =
        [DASHBOARD, AGENT_DASHBOARD].map(|name| Dashboard::read(&shipped().join(name)));
    // The dashboard must not need metrics of the agent alone, which are missing where metrics come from a
    // textfile.
    let printed = bench.done("metrics").stdout;
    let printed: BTreeSet<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let asked = dashboard.asked().into_iter().flat_map(metrics_in);
    let foreign: BTreeSet<String> = asked
        .filter(|metric| metric.starts_with("limiter_") && !printed.contains(&**metric))
        .collect();
    assert_eq!(foreign, BTreeSet::new(), "`limiter metrics` does not print them");
    until_well(|| {
        let (rules, mut complaints) = rules(&server);
        assert!(rules.len() > 20, "{rules:?}");
        let of_both = [&dashboard, &of_agent].map(|dashboard| dashboard.queries(&server));
        let queries: Vec<String> = match of_both.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(queries) => queries.concat(),
            Err(why) => return vec![why],
        };
        assert!(queries.len() > 40, "{queries:?}");
        complaints.extend(queries.iter().filter_map(|query| complaint(&server, query)));
        let used = queries.iter().chain(rules.values()).flat_map(|query| metrics_in(query));
        let used: BTreeSet<String> = used.filter(|metric| metric != "ALERTS").collect();
        complaints.extend(used.iter().filter_map(|metric| complaint(&server, metric)));
        complaints
    });
    // Most of the traffic is dropped, and there is no history to compare with.
    until_well(|| {
        let firing = firing(&server);
        let silent = DROPS.into_iter().filter(|alert| !firing.contains(*alert));
        silent.map(|alert| format!("{alert} does not fire: {firing:?}")).collect()
    });
    until_firing(&server, &[]);
    let text = get(router, "127.0.0.1:9180", "/metrics").unwrap();
    assert_eq!(promtool(&folder, &["check", "metrics"], &text).unwrap(), "");
    assert!(!text.contains("192.0.2."), "an address: {text}");

    fs::write(document.path(), "nonsense").unwrap();
    agent.expect("rejected");
    bench.done("monitor on");
    let elsewhere = bench.hosts.client.namespace.path();
    router.ip(&format!("link del late\nlink set moved netns {elsewhere}")).unwrap();
    bench.done("attach lo --mode skb");
    agent.expect("replaced");
    let trouble = [
        "LimiterGenericMode lo",
        "LimiterInterfaceGone moved",
        "LimiterInterfaceUnlimited late",
        "LimiterInterfacesWaiting",
        "LimiterOnlyCounting switch",
        "LimiterPolicyRejected",
    ];
    until_firing(&server, &trouble);
    // The actions that the alerts recommend end them.
    for action in ["detach lo", "detach moved", "monitor off"] {
        bench.done(action);
    }
    fs::write(document.path(), policy("all")).unwrap();
    agent.expect("unchanged");
    until_firing(&server, &["LimiterInterfaceUnlimited late", "LimiterInterfacesWaiting"]);
    drop((traffic, costs));
    agent.end();
    until_firing(&server, &["LimiterDown"]);
}
