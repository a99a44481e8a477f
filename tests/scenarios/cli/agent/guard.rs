//! Set files that break, and two agents on one instance.

use std::{
    fs,
    os::unix::fs::symlink,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{Bench, Document},
    Agent, PATIENCE, QUIET, ask,
};

#[test]
fn a_set_file_that_would_cut_the_host_off_is_refused_until_it_is_accepted() {
    let bench = Bench::new();
    bench.hosts.router.ip("link set lo up").unwrap();
    let document = Document::new("sets: {bad: {file: bad.txt}}\ndeny: [bad]");
    let list = document.path().with_file_name("bad.txt");
    let lines =
        |count| -> String { (1..=count).map(|number| format!("203.0.113.{number}\n")).collect() };
    let long = lines(30);
    let write = |text: &str| {
        // Replaced by a rename, as feeds do it.
        let beside = list.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &list).unwrap();
    };
    write(&long);
    let denied = || bench.json("policy show -j")["sets"]["bad"].as_array().unwrap().len();
    let own = bench.hosts.router_port.address_like([192, 0, 2, 1].into());
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --listen 127.0.0.1:9180");
    agent.expect("attached");
    agent.expect("unchanged");
    agent.expect("listening");
    let refused = |word: &str| {
        let event = agent.expect_past_others("refused");
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(word) && message.contains("set `bad`, in `deny`"), "{event}");
        assert!(event["hint"].as_str().unwrap().contains("--accept-change"), "{event}");
        assert_eq!(event["again"], false);
        assert_eq!(denied(), 30, "{word}");
    };
    write(&format!("{long}0.0.0.0/0\n"));
    refused("0.0.0.0/0");
    write(&format!("{long}{own}\n"));
    refused(&format!("{own}, an address of this host"));
    write(&format!("{long}16.0.0.0/4\n32.0.0.0/4\n"));
    refused("more than an eighth");
    write("");
    refused("30 before, 0 now");
    write(&lines(9));
    refused("loses more than half");
    // The refusal is reported once, and stays in force when the agent is restarted.
    agent.is_quiet();
    let metrics = ask(&bench, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    for line in ["limiter_policy_change_refused 1", "limiter_policy_last_reload_successful 0"] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line} in {metrics}");
    }
    agent.end();
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --listen 127.0.0.1:9180");
    agent.expect_past_others("refused");
    agent.expect_past_others("replaced");
    agent.expect("listening");
    assert_eq!(denied(), 30);
    // Commands refuse the change too, unless `--accept-change` is given.
    bench.refused(&document.in_place("policy apply FILE"), 3, &["half", "--accept-change"]);
    bench.refused(&document.in_place("policy apply FILE --dry-run"), 3, &["half"]);
    bench.refused(&document.in_place("attach lo --policy FILE"), 3, &["half", "--accept-change"]);
    assert_eq!(denied(), 30);
    bench.done(&document.in_place("policy apply FILE --accept-change"));
    assert_eq!(denied(), 9);
    agent.expect("unchanged");
    let begin = Instant::now();
    let metrics = || ask(&bench, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    while !metrics().contains("\nlimiter_policy_change_refused 0\n") {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(200));
    }
    // Ordinary sets are accepted: a list of bogons, and a neighbour.
    write(&format!("{}224.0.0.0/3\nfc00::/7\nfe80::/10\n127.0.0.0/8\n198.18.1.77\n", lines(7)));
    agent.expect_past_others("applied");
    // A change of the document itself is always accepted.
    document.write("deny: [0.0.0.0/0]");
    agent.expect_past_others("applied");
    agent.end();
}

#[test]
fn no_line_of_a_set_file_is_told_and_who_may_read_it_can_have_it_shown() {
    const SECRET: &str = "root:$y$j9T$secret:20000:0:99999:7:::";
    let bench = Bench::new();
    let document = Document::new("sets: {bad: {file: bad.txt}}\ndeny: [bad]");
    let list = document.path().with_file_name("bad.txt");
    let secret = document.path().with_file_name("shadow");
    let lines = format!(
        "# accounts\n{SECRET}\n10.0.0.1/8\nfe80::1%secret\n::ffff:10.1.2.3/64\nsecret\u{7f}\n"
    );
    fs::write(&secret, lines).unwrap();
    symlink(&secret, &list).unwrap();
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    let event = agent.expect("rejected");
    let faults = event["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 5, "{event}");
    assert_eq!((&faults[0]["file"], &faults[0]["line"]), (&"bad.txt".into(), &2.into()));
    let message = "set `bad`: a prefix is neither an address nor a prefix";
    assert_eq!(faults[0]["message"], message);
    let quotes = |text: &str| {
        ["secret", "root", "10.0.0", "fe80", "10.1"].iter().any(|it| text.contains(it))
    };
    assert!(!quotes(&event.to_string()), "{event}");
    agent.expect("failed");
    agent.end();
    for (arguments, shown) in [("policy check FILE", false), ("policy check FILE --show", true)] {
        let outcome = bench.run(&document.in_place(arguments)).outcome().unwrap();
        outcome.assert_exit_code(3).assert_says(&["bad.txt:2:1: error: set `bad`", "5 errors"]);
        assert_eq!(outcome.stderr.contains(SECRET), shown, "{outcome}");
        assert_eq!(quotes(&outcome.stderr), shown, "{outcome}");
    }
}

#[test]
fn a_second_agent_says_so_until_it_is_the_only_one() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let first = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    first.expect("attached");
    first.expect("unchanged");
    thread::sleep(QUIET / 2);
    let second = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = second.next();
        told.push(event["event"].as_str().unwrap().to_owned());
        if event["event"] == "failed" {
            let message = event["message"].as_str().unwrap();
            assert!(message.contains("another agent runs for"), "{event}");
            assert!(event["hint"].as_str().unwrap().contains("--bpffs"), "{event}");
        }
    }
    told.sort_unstable();
    assert_eq!(told, ["failed", "replaced", "unchanged"]);
    second.is_quiet();
    // A killed agent leaves no lock.
    first.signal(libc::SIGKILL);
    drop(first);
    second.end();
    let third = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    third.expect("replaced");
    third.expect("unchanged");
    third.is_quiet();
    third.end();
}
