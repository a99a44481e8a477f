//! Interfaces by name, alternative name, pattern and index, and an interface in another network namespace.

use std::{
    os::unix::net::UnixDatagram,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::command::Limiter;
use serde_json::Value;

use super::{
    Bench, Document, SMALL,
    agent::{Agent, PATIENCE, REQUEST, ask},
    interfaces::dropped,
};

/// An alternative name, longer than the name of an interface may be.
const ALTNAME: &str = "enp175s0f1np1-uplink-a";

/// The index of an interface of the router.
fn index(bench: &Bench, name: &str) -> u64 {
    let link = bench.hosts.router.ip_json(&["link", "show", "dev", name]).unwrap();
    link[0]["ifindex"].as_u64().unwrap()
}

#[test]
fn a_word_means_the_same_interface_to_every_command() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip(&format!("link property add dev eth0 altname {ALTNAME}")).unwrap();
    router.ip("link add veth0 type veth peer name veth1").unwrap();
    let number = format!("if{}", index(&bench, "eth0"));
    let words = [ALTNAME, "eth?", "*uplink-a", &number];
    let document = |word: &str| {
        Document::new(&format!(
            "limits: [{{name: some, match: {{interface: '{word}'}}, key: source, rate: 10/s, burst: 10}}]"
        ))
    };
    let first = document(ALTNAME);
    let attached =
        bench.done(&first.in_place(&format!("attach {ALTNAME} veth* {SMALL} --policy FILE")));
    assert_eq!(attached.stderr, "", "the limit is about the interface");
    let lines = attached.stdout.lines().filter_map(|line| line.split_once(": attached"));
    let mut named: Vec<_> = lines.map(|(name, _)| name).collect();
    named.sort_unstable();
    assert_eq!(named, ["eth0", "veth0", "veth1"], "{attached}");
    for (place, word) in (1..).zip(words) {
        let applied = bench.done(&document(word).in_place("policy apply FILE"));
        assert_eq!(applied.stderr, "", "{word}");
        assert!(dropped(&bench, place) >= 280, "{word}");
        let test = format!("test --src 192.0.2.{place} --dst 198.51.100.1 -j --in {word}");
        let verdict = bench.json(&test);
        assert!(verdict.to_string().contains("\"some\""), "{word}: {verdict}");
        let report = bench.run(&format!("doctor -j {word}")).json().unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        let mut about = findings.filter(|it| it["check"] == "xdp" && it["interface"] == "eth0");
        assert!(about.next().unwrap()["found"].as_str().unwrap().contains("of this instance"));
        assert!(bench.done(&format!("attach {word}")).stdout.contains("eth0: attached already"));
    }
    bench.refused("test --src 192.0.2.9 --dst 198.51.100.1 --in eth7", 4, &["eth7", "veth0"]);
    bench.refused("attach wlan*", 4, &["wlan*", "eth0"]);
    // A missing interface is reported; the limit applies once an interface gets the name.
    let wan = document("wan");
    let applied = bench.done(&wan.in_place("policy apply FILE"));
    assert!(applied.stderr.contains("a limit is about wan"), "{applied}");
    assert_eq!(dropped(&bench, 9), 0);
    router.ip("link property add dev eth0 altname wan").unwrap();
    let again = bench.done(&wan.in_place("policy apply FILE"));
    assert!(again.stdout.contains("applied again, for the interfaces"), "{again}");
    assert!(dropped(&bench, 10) >= 280);
    bench.done(&format!("detach {number} veth*"));
    assert!(bench.programs().values().all(Option::is_none));
}

#[test]
fn an_agent_tells_what_it_waits_for() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip(&format!("link property add dev eth0 altname {ALTNAME}")).unwrap();
    router.ip("link set lo up").unwrap();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let path = document.path().with_file_name("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = |word: &str| {
        let begin = Instant::now();
        loop {
            let mut message = [0; 512];
            let length = manager.recv(&mut message).unwrap();
            let heard = String::from_utf8(message[..length].to_vec()).unwrap();
            if heard.contains(word) {
                break heard;
            }
            assert!(begin.elapsed() < PATIENCE, "no {word}, but {heard}");
        }
    };
    let arguments =
        format!("-j agent -i {ALTNAME} -i late* -i vdd --policy FILE --listen 127.0.0.1:9180");
    let command = bench.run(&document.in_place(&arguments));
    let agent = Agent::of(command.env("NOTIFY_SOCKET", path.to_str().unwrap()));
    assert_eq!(agent.expect("attached")["interface"], "eth0");
    let mut told: Vec<String> = Vec::new();
    for _ in 0..2 {
        let event = agent.waits(PATIENCE).unwrap();
        let existing = event["existing"].as_array().unwrap();
        assert!(existing.contains(&"eth0".into()), "{event}");
        told.push(event["interface"].as_str().unwrap().to_owned());
    }
    assert_eq!(told, ["late*", "vdd"]);
    let heard = hear("READY=1");
    assert!(heard.contains("STATUS=attached to eth0; waiting for late*, vdd\n"), "{heard}");
    agent.expect("unchanged");
    agent.expect("listening");
    let answer = ask(&bench, REQUEST);
    for line in [
        "limiter_agent_interface{interface=\"eth0\"} 1",
        "limiter_agent_interface{interface=\"vdd\"} 1",
        "limiter_agent_interfaces_waiting 2",
        "limiter_attached{interface=\"eth0\",mode=\"native\"} 1",
    ] {
        assert!(answer.lines().any(|it| it == line), "{line} in {answer}");
    }
    assert!(!answer.contains(ALTNAME) && !answer.contains("late*"), "{answer}");
    // A pattern matches new interfaces, and an alternative name that an interface gets later is found too.
    router.ip("link add late0 type veth peer name other").unwrap();
    assert_eq!(agent.expect("attached")["interface"], "late0");
    router.ip("link property add dev other altname vdd").unwrap();
    assert_eq!(agent.expect("attached")["interface"], "other");
    hear("STATUS=attached to eth0, late0, other\n");
    assert!(agent.waits(Duration::from_millis(1)).is_none());
    agent.end();
    bench.done("detach --all");

    // A word that cannot name an interface is an error at once. An agent without any interface reports that.
    for (word, why) in
        [("vd,lo", "comma"), ("a/b", "such a name"), (&"l".repeat(128), "at most 127")]
    {
        bench.refused(&format!("agent -i {word}"), 2, &[why]);
    }
    let nothing = Agent::start(&bench, &document, "--policy FILE");
    let event = nothing.waits(PATIENCE).unwrap();
    assert_eq!(event["interface"], Value::Null, "{event}");
    nothing.end();
}

/// An interface that moved to another namespace stays limited. Both namespaces show which instance it belongs
/// to.
#[test]
fn an_interface_that_moved_is_known_by_its_link() {
    let bench = Bench::new();
    let (router, client) = (&bench.hosts.router, &bench.hosts.client);
    router.ip("link add moved type veth peer name other").unwrap();
    bench.done(&format!("attach eth0 moved {SMALL} --pps 5/min --burst 5"));
    router.ip(&format!("link set moved netns {}", client.namespace.path())).unwrap();
    let there = Limiter::new(client).unwrap();
    let of = |status: &Value, name: &str| {
        let interfaces = status["interfaces"].as_array().unwrap().clone();
        let found = interfaces.into_iter().find(|it| it["name"] == name).unwrap();
        (found["present"].as_bool().unwrap(), found["exists"].as_bool().unwrap())
    };
    let status = there.run("status -j").json().unwrap();
    assert_eq!((of(&status, "moved"), of(&status, "eth0")), ((true, true), (false, true)));
    let status = bench.json("status -j");
    assert_eq!((of(&status, "moved"), of(&status, "eth0")), ((false, true), (true, true)));
    let text = bench.done("status").stdout;
    assert!(text.contains("in another network namespace"), "{text}");
    let metrics = there.run("metrics").done().unwrap().stdout;
    for line in [
        "limiter_attached{interface=\"moved\",mode=\"native\"} 1",
        "limiter_attached{interface=\"eth0\",mode=\"native\"} 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    let report = there.run("doctor -j moved").json().unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut about = findings.filter(|it| it["check"] == "xdp" && it["interface"] == "moved");
    let found = about.next().unwrap();
    assert!(found["found"].as_str().unwrap().ends_with("of this instance"), "{found}");
    let again = there.run("attach moved").done().unwrap();
    assert!(again.stdout.contains("moved: attached already"), "{again}");
    // After its program is replaced there, the interface is still known.
    there.run("attach moved --replace").done().unwrap();
    assert_eq!(of(&there.run("status -j").json().unwrap(), "moved"), (true, true));
    // Another interface with the same index is not taken for it.
    let number = client.ip_json(&["link", "show", "dev", "moved"]).unwrap()[0]["ifindex"].clone();
    router.ip(&format!("link add filler index {number} type veth peer name filled")).unwrap();
    assert_eq!(of(&bench.json("status -j"), "moved"), (false, true));
    bench.refused("attach moved", 4, &["moved"]);
    there.run("detach moved").done().unwrap();
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 1);
    // A deleted interface is shown as gone.
    router.ip("link add gone type veth peer name rest").unwrap();
    bench.done("attach gone");
    router.ip("link del gone").unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(of(&bench.json("status -j"), "gone"), (false, false));
    bench.done("detach --all");
}
