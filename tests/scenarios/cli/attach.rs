//! The policy of an attach: from a document, in monitor mode, and about interfaces by name.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{Bench, Document, SMALL, json::send};

/// The number of frames counted under a reason.
fn counted(bench: &Bench, reason: &str) -> u64 {
    bench.json("status -j")["reasons"][reason].as_u64().unwrap()
}

#[test]
fn a_policy_is_applied_on_the_way_and_not_to_what_is_attached_already() {
    let bench = Bench::new();
    let first = Document::new("limits: [{name: first, key: source, rate: 7/s}]");
    let other = Document::new("limits: [{name: other, key: source, rate: 7/s}]");
    bench.done(&first.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.done(&first.in_place("policy diff FILE")).stdout, "no difference\n");
    let outcome = bench.done(&other.in_place("attach eth0 --policy FILE"));
    assert!(
        outcome.stdout.contains("as it was; change it with `limiter policy apply`"),
        "{outcome}"
    );
    assert_eq!(bench.done(&first.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.done("deny add 203.0.113.0/24");
    let outcome = bench.done(&other.in_place("attach lo --policy FILE"));
    assert_eq!(bench.json("deny list -j")["entries"].as_array().map(Vec::len), Some(1));
    for line in ["- limits.first", "+ limits.other: key: source, "] {
        assert!(outcome.stdout.lines().any(|it| it.starts_with(line)), "no {line} in {outcome}");
    }
    assert_eq!(bench.done(&other.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.refused(&other.in_place("attach lo --policy FILE --pps 5/s"), 2, &["--pps"]);
}

#[test]
fn a_policy_for_a_new_instance_leaves_one_that_runs_as_it_is() {
    let bench = Bench::new();
    let limit = "limits: [{name: some, match: {protocol: udp}, key: source, rate: 7/s}]";
    let document = Document::new(limit);
    let outcome =
        bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy-if-new FILE")));
    assert!(!outcome.stdout.contains("changed"), "{outcome}");
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.done("deny add 203.0.113.0/24");
    bench.done("limit set some --rate 9/s");
    let running = bench.json("policy show -j");
    let outcome = bench.json(&document.in_place("attach lo --policy-if-new FILE -j"));
    assert_eq!(outcome["interfaces"][0]["policy_changes"], Value::Array(Vec::new()));
    assert_eq!(bench.json("policy show -j"), running);
    bench.done("detach lo");
    // The file is not needed, so its content does not matter.
    for file in ["/nowhere/policy.yaml", "/proc/self/mem"] {
        let outcome = bench.done(&format!("attach lo --policy-if-new {file}"));
        assert!(outcome.stderr.contains(file), "{outcome}");
        assert_eq!(bench.json("policy show -j"), running);
        bench.done("detach lo");
        let outcome = bench.done(&format!("attach lo --policy-if-new {file} -j"));
        let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
        let cause = &told["warning"]["cause"];
        assert!(
            told["warning"]["message"].as_str().unwrap().contains("the document is not used"),
            "{told}"
        );
        assert!(cause["faults"][0]["file"] == file && cause["message"].is_string(), "{told}");
        bench.done("detach lo");
    }
    // Limits given as options are applied and reported as well.
    let outcome = bench.json("attach lo --pps 5kpps -j");
    let changes = outcome["interfaces"][0]["policy_changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["path"]), (1, &"limits.source".into()), "{outcome}");
}

#[test]
fn of_an_exchanged_table_it_says_what_was_done_with_the_interface() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --wide-states 1024 --pps 1kpps"));
    let said = bench.done("attach eth0 --new-seed").stdout;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "There is room for 4,096 sources, 4,096 buckets, 1,024 wide states and 64 overrides now, hashed by another \
             seed; 0 debts were carried over.",
            "eth0: attached already, still in native mode; table and main program were exchanged",
        ]
    );
    let told = bench.json("attach eth0 --overrides 128 -j");
    assert_eq!(told["interfaces"][0]["action"], "exchanged", "{told}");
    assert_eq!(told["interfaces"][0]["carried_over"]["left_behind"], false, "{told}");
    let said = bench.done("attach eth0").stdout;
    assert_eq!(said, "eth0: attached already, in native mode; nothing was changed\n");
}

#[test]
fn what_is_hardly_meant_so_is_told_beside_the_output() {
    let document = Document::new(
        "sets: {nobody: {cidrs: []}}\nlimits: [{name: some, key: source, rate: 7/s}]",
    );
    let bench = Bench::new();
    let outcome = bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert!(outcome.stderr.contains("warning: set `nobody`: there are no"), "{outcome}");
    let outcome = bench.done(&document.in_place("attach lo --policy FILE -j"));
    let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
    let warning = &told["warning"];
    assert!(warning["message"].as_str().unwrap().contains("there are no prefixes"), "{told}");
    assert!(warning["line"].is_u64() && warning["hint"].is_string(), "{told}");
}

#[test]
fn an_interface_is_attached_while_a_policy_waits_to_be_confirmed() {
    let bench = Bench::attached();
    let document = Document::new("limits: [{name: some, key: source/24, rate: 7/s}]");
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    bench.done(&document.in_place("attach lo --policy-if-new FILE"));
    bench.done("detach lo");
    bench.refused("attach lo --pps 5kpps", 6, &["limiter policy confirm"]);
    bench.done("attach lo");
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 2);
    bench.done("policy confirm");
}

#[test]
fn a_policy_that_only_monitors_drops_nothing_until_it_is_told_to() {
    let bench = Bench::new();
    let outcome = bench.done(&format!("attach eth0 {SMALL} --pps 10/s --burst 10 --monitor"));
    assert!(outcome.stdout.contains("limiter monitor off"), "{outcome}");
    for command in ["limit list", "limit show source", "status", "top"] {
        let text = bench.done(command).stdout;
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("Nothing is dropped, ") && last.contains("`mode: monitor`"),
            "{text}"
        );
    }
    // The mode of the limit itself is not changed.
    assert_eq!(bench.json("limit show source -j")["mode"], "enforce");
    assert_eq!(bench.json("status -j")["mode"], "monitor");
    send(&bench, [192, 0, 2, 1], 300);
    let (monitored, dropped) = (counted(&bench, "monitor"), counted(&bench, "exceed"));
    assert!(monitored >= 280 && dropped == 0, "{monitored} {dropped}");

    assert!(bench.done("monitor").stdout.starts_with("monitor: off, but the policy has `mode: "));
    let asked = bench.json("monitor -j");
    let shape = "limiter.monitor/1";
    let told = json!({ "schema": shape, "mode": "monitor", "switch": false, "policy": "monitor" });
    assert_eq!(asked, told);
    let outcome = bench.done("monitor off");
    assert!(outcome.stdout.contains("`mode: monitor` was taken out of the policy"), "{outcome}");
    assert_eq!(bench.json("monitor -j")["mode"], "enforce");
    assert!(!bench.done("limit list").stdout.contains("Nothing is dropped"));
    send(&bench, [192, 0, 2, 2], 300);
    assert!(counted(&bench, "exceed") >= 280);
}

#[test]
fn a_limit_about_an_interface_holds_once_that_is_attached() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: some, match: {interface: eth0}, key: source, rate: 10/s, burst: 10}]",
    );
    bench.done(&document.in_place(&format!("attach lo {SMALL} --policy FILE")));
    bench.done("attach eth0");
    send(&bench, [192, 0, 2, 1], 300);
    assert!(counted(&bench, "exceed") >= 280, "{}", bench.done("status").stdout);
    // Another interface in the slot of the first one is not limited.
    bench.done("detach eth0");
    bench.done("detach lo");
    let other = document.in_place(&format!("attach eth0 {SMALL} --policy FILE"));
    bench.done(&other);
    send(&bench, [192, 0, 2, 1], 300);
    assert!(counted(&bench, "exceed") >= 280, "the first one too");
    bench.done("detach --all");
    let lo = Document::new(
        "limits: [{name: some, match: {interface: lo}, key: source, rate: 10/s, burst: 10}]",
    );
    bench.done(&lo.in_place(&format!("attach eth0 lo {SMALL} --policy FILE")));
    send(&bench, [192, 0, 2, 1], 300);
    assert_eq!(counted(&bench, "exceed"), 0);
}

#[test]
fn a_limit_of_bytes_is_set_and_shown_in_bytes() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: some, key: source, count: bytes, rate: 1MB/s}]");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let outcome = bench.done("limit set some --rate 2Mbit/s --burst 64kB");
    assert_eq!(outcome.stdout, "some limit: 250kB/s after a burst of 64kB\n");
    bench.done("limit set some --rate 1GB/h --src 203.0.113.0/24");
    let some = bench.json("limit show some -j");
    assert_eq!((&some["count"], &some["rate_per_second"]), (&"bytes".into(), &250_000.into()));
    assert_eq!((&some["burst"], &some["algorithm"]), (&64_000.into(), &"token_bucket".into()));
    let list = bench.done("limit list").stdout;
    for part in ["250kB/s", "64kB", "1GB/h"] {
        assert!(list.contains(part), "no {part} in\n{list}");
    }
    assert!(bench.done("status").stdout.contains("250kB/s"));
    bench.refused("limit set some --rate 1kpps", 2, &["this limit counts bytes", "2Mbit/s"]);
    bench.refused("limit set some --rate 1kB/s --burst 20B", 2, &["20B", "at least 34B"]);
    bench.refused("limit set source --rate 1kB/s", 2, &["this limit counts packets"]);
}

#[test]
fn interfaces_that_are_attached_together_share_the_policy() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: some, key: interface, rate: 10/s, burst: 10}]");
    let attached =
        bench.json(&document.in_place(&format!("attach eth0 lo {SMALL} --policy FILE -j")));
    assert_eq!(attached["interfaces"].as_array().map(Vec::len), Some(2));
    assert_eq!(attached["interfaces"][0]["action"], Value::from("attached"));
    for last in 1..=3 {
        send(&bench, [192, 0, 2, last], 100);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(counted(&bench, "exceed") >= 270);
}
