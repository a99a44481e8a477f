//! The everyday commands.

use limiter_tests::sandbox::BPFFS;

use super::{Bench, SMALL};

#[test]
fn the_action_of_a_limit_is_set_beside_its_rate_or_alone() {
    let bench = Bench::attached();
    let before = bench.json("limit show source -j");
    assert_eq!(bench.done("limit set source --action monitor").stdout, "source limit: monitor\n");
    let mut after = bench.json("limit show source -j");
    assert_eq!(after["mode"].take(), "monitor");
    let mut same = before.clone();
    same["mode"].take();
    assert_eq!(after, same, "its rate, burst and overrides stay");
    let outcome = bench.done("limit set source --rate 2kpps --burst 9 --action enforce");
    assert_eq!(outcome.stdout, "source limit: 2 kpps after a burst of 9 packets, enforce\n");
    // An explicit burst stays when the rate changes, and can be changed alone.
    let outcome = bench.done("limit set source --rate 5/min");
    assert_eq!(outcome.stdout, "source limit: 5/min after a burst of 9 packets\n");
    let outcome = bench.done("limit set source --burst 7");
    assert_eq!(outcome.stdout, "source limit: 5/min after a burst of 7 packets\n");
    let words = ["there is no limit", "sauce", "hint: "];
    bench.refused("limit set sauce --action monitor", 4, &words);
    bench.done("limit del syn");
    bench.refused("limit set syn --action monitor", 4, &["limit syn is not set", "hint: "]);
    for usage in ["", "--src 10.0.0.0/8", "--src 10.0.0.0/8 --action off", "--action maybe"] {
        bench.refused(&format!("limit set source {usage}"), 2, &[]);
    }
}

#[test]
fn attach_observes_until_a_limit_is_set() {
    let bench = Bench::new();
    let outcome = bench.done(&format!("attach eth0 {SMALL}"));
    assert!(outcome.stdout.contains("eth0") && outcome.stdout.contains("native"), "{outcome}");
    assert!(outcome.stdout.contains("limiter limit set source"), "{outcome}");
    let list = bench.json("limit list -j")["limits"].take();
    let limits = list.as_array().unwrap();
    assert!(!limits.is_empty(), "{list}");
    assert!(limits.iter().all(|limit| limit["rate_per_second"].is_null()), "{list}");
    assert!(bench.programs()["eth0"].is_some());
}

#[test]
fn attach_sets_limits_on_the_way() {
    let bench = Bench::new();
    let outcome = bench.done(&format!("attach eth0 {SMALL} --pps 10kpps --burst 2k --syn 100/s"));
    assert!(!outcome.stdout.contains("Nothing is limited"), "{outcome}");
    let source = bench.json("limit show source -j");
    assert_eq!((&source["rate_per_second"], &source["burst"]), (&10_000.into(), &2_000.into()));
    assert_eq!(bench.json("limit show syn -j")["rate_per_second"], 100);
    assert!(bench.json("limit show connection -j")["rate_per_second"].is_null());
}

#[test]
fn attaching_twice_changes_nothing_and_says_so() {
    let bench = Bench::attached();
    let before = bench.state();
    let outcome = bench.done("attach eth0");
    assert!(outcome.stdout.contains("already") && outcome.stdout.contains("nothing"), "{outcome}");
    assert_eq!(bench.state(), before);
    let outcome = bench.done("attach eth0 lo");
    assert!(outcome.stdout.contains("eth0: attached already"), "{outcome}");
    assert!(outcome.stdout.contains("lo: attached in generic mode"), "{outcome}");
    let outcome = bench.done("attach eth0 eth0 --replace");
    assert!(outcome.stdout.contains("replaced"), "{outcome}");
}

#[test]
fn attaching_again_with_a_limit_sets_the_limit() {
    let bench = Bench::attached();
    let programs = bench.programs();
    let outcome = bench.done("attach eth0 --pps 5/s");
    assert!(
        outcome
            .stdout
            .starts_with("eth0: attached already, in native mode\nThe policy was changed:\n"),
        "{outcome}"
    );
    assert!(outcome.stdout.contains("5 pps"), "{outcome}");
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 5);
    // The other limits and the program stay.
    assert_eq!(bench.json("limit show syn -j")["rate_per_second"], 50);
    assert_eq!(bench.programs(), programs);
    let before = bench.state();
    let outcome = bench.done("attach eth0 --pps 5/s");
    let said =
        "eth0: attached already, in native mode; nothing was changed\nThe policy was so already.\n";
    assert_eq!(outcome.stdout, said);
    assert_eq!(bench.state(), before);
    let attached = bench.json("attach eth0 --rate 7/s -j");
    assert_eq!(attached["interfaces"][0]["action"], "unchanged");
    assert_eq!(attached["interfaces"][0]["policy_changes"].as_array().unwrap().len(), 1);
    // A limit for a time would end what holds without one.
    bench.refused("attach eth0 --pps 9/s --for 5m", 3, &["attached to eth0", "hint: "]);
    bench.done("attach eth0 --monitor");
    assert_eq!(bench.json("status -j")["mode"], "monitor");
}

#[test]
fn detaching_what_is_not_attached_is_done_already() {
    const NOTHING: &str = "Nothing is attached.\n";
    let bench = Bench::new();
    assert_eq!(bench.done("detach --all").stdout, NOTHING);
    let free = |name: &str| format!("{name}: not attached; nothing was changed\n");
    assert_eq!(bench.done("detach eth0").stdout, free("eth0"));
    assert_eq!(bench.json("detach eth0 -j")["interfaces"].as_array().unwrap().len(), 0);
    bench.refused("detach eth7", 4, &["eth7", "hint: "]);
    bench.done(&format!("attach eth0 {SMALL}"));
    let before = bench.state();
    assert_eq!(bench.done("detach lo").stdout, free("lo"));
    assert_eq!(bench.state(), before);
    let both = bench.done("detach eth0 lo").stdout;
    assert!(both.starts_with(&format!("eth0: detached\n{}Nothing of this", free("lo"))), "{both}");
    assert_eq!(bench.done("detach eth0").stdout, free("eth0"));
}

#[test]
fn limits_are_set_shown_and_deleted() {
    let bench = Bench::attached();
    bench.done("limit set source --rate 2kpps --burst 2k");
    bench.done("limit set source --src 203.0.113.0/24 --rate 50pps");
    bench.done("limit set source --src 2001:db8:1::/48 --rate 1Mpps --burst 100ms");
    bench.done("limit set syn --src 198.51.100.7 --rate 5/min");
    let list = bench.done("limit list").stdout;
    for part in [
        "source",
        "syn",
        "connection",
        "2 kpps",
        "2,000",
        "203.0.113.0/24",
        "2001:db8:1::/48",
        "198.51.100.7/32",
    ] {
        assert!(list.contains(part), "no {part} in:\n{list}");
    }
    let source = bench.json("limit show source -j");
    let overrides = source["overrides"].as_array().unwrap();
    assert_eq!(overrides.len(), 2, "set twice is set once: {source}");
    let wide = overrides.iter().find(|entry| entry["src"] == "2001:db8:1::/48").unwrap();
    assert_eq!((&wide["rate_per_second"], &wide["burst"]), (&1_000_000.into(), &100_000.into()));

    bench.done("limit del source --src 203.0.113.0/24");
    bench.done("limit del source");
    let source = bench.json("limit show source -j");
    assert!(source["rate_per_second"].is_null(), "{source}");
    assert_eq!(source["overrides"].as_array().unwrap().len(), 1, "overrides stay: {source}");
    bench.done("limit del source --src 2001:db8:1::/48");
    assert_eq!(bench.json("limit show source -j")["overrides"].as_array().unwrap().len(), 0);
}

#[test]
fn status_top_and_watch_print_text() {
    let bench = Bench::attached();
    let status = bench.done("status").stdout;
    for part in ["eth0", "native", "source", "syn", "connection", "4,096"] {
        assert!(status.contains(part), "no {part} in:\n{status}");
    }
    let tables: Vec<_> = status.lines().skip_while(|line| !line.starts_with("TABLE")).collect();
    let names = tables.iter().map(|line| line.split(' ').next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["TABLE", "sources", "buckets", "all"], "{status}");
    bench.done("top");
    bench.done("top -n 3");
    let watch = bench.done("watch --once --interval 50ms").stdout;
    assert!((1..=2).contains(&watch.lines().count()), "{watch}");
    let watch = bench.done("watch --for 200ms --interval 50ms").stdout;
    assert!(watch.lines().count() >= 3, "{watch}");
    assert_eq!(
        watch.lines().next().unwrap(),
        "TIME                   PASSED/S  DROPPED/S       PASSED      DROPPED  \
         TOP EXCEEDED LIMIT    TOP DROPPED SOURCE"
    );
    for text in [&status, &watch] {
        assert!(!text.contains('\u{1b}'), "colour where there is no terminal: {text:?}");
    }
}

#[test]
fn detach_takes_the_last_of_it_along() {
    let bench = Bench::attached();
    let footprint = bench.footprint();
    bench.done("attach lo");
    let outcome = bench.done("detach eth0");
    assert!(!outcome.stdout.contains("Nothing of this instance"), "{outcome}");
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 1);
    let outcome = bench.done("detach lo");
    assert!(outcome.stdout.contains("lo"), "{outcome}");
    footprint.assert_gone().unwrap();
    assert!(bench.programs().values().all(Option::is_none));
    assert_eq!(bench.done("detach --all").stdout, "Nothing is attached.\n");
    // The old policy does not come back.
    bench.done(&format!("attach eth0 {SMALL}"));
    assert!(bench.json("limit show source -j")["rate_per_second"].is_null());
}

#[test]
fn another_directory_is_another_instance() {
    let bench = Bench::attached();
    let other = format!("{BPFFS}/deep");
    bench.done(&format!("attach lo {SMALL} --bpffs {other}"));
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 1);
    let status = bench.run("status -j").env("LIMITER_BPFFS", &other).json().unwrap();
    assert_eq!(status["interfaces"][0]["name"], "lo");
    let before = bench.state();
    bench.run("detach --all").env("LIMITER_BPFFS", &other).done().unwrap();
    assert_eq!(bench.json("status -j")["interfaces"][0]["name"], "eth0");
    assert_ne!(bench.state(), before);
}

#[test]
fn help_and_version_are_data() {
    let bench = Bench::new();
    for command in [
        "--help",
        "help",
        "attach --help",
        "limit --help",
        "limit set --help",
        "policy --help",
        "policy apply --help",
        "allow add --help",
        "penalty --help",
        "watch --help",
    ] {
        let outcome = bench.done(command);
        assert!(outcome.stdout.contains("Usage: limiter"), "{outcome}");
        assert_eq!(outcome.stderr, "", "{outcome}");
    }
    assert!(bench.done("--version").stdout.starts_with("limiter "));
}
