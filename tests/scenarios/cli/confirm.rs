//! Policies that are reverted unless they are confirmed in time.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Bench, Document, SMALL};

const OTHER: &str = "limits: [{name: other, key: source, rate: 7/s}]";

/// Waits until the policy is `policy` again.
#[track_caller]
fn wait_for(bench: &Bench, policy: &str) {
    let start = Instant::now();
    while bench.done("policy show").stdout != policy {
        assert!(start.elapsed() < Duration::from_secs(10), "{}", bench.done("policy show").stdout);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_policy_that_nobody_confirms_is_taken_back() {
    let bench = Bench::attached();
    let before = bench.done("policy show").stdout;
    let document = Document::new(OTHER);
    let start = Instant::now();
    let outcome = bench.done(&document.in_place("policy apply FILE --confirm 2s"));
    assert!(outcome.stdout.contains("It is taken back at 20"), "{outcome}");
    assert!(
        outcome.stdout.ends_with("(in 2s) unless you keep it: limiter policy confirm\n"),
        "{outcome}"
    );
    let shown = bench.done("policy show").stdout;
    assert!(shown.starts_with("# Taken back in ") && shown.contains("name: other"), "{shown}");
    wait_for(&bench, &before);
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    bench.refused("policy confirm", 4, &["no policy waits", "hint: "]);
    bench.refused("policy revert", 4, &["no policy waits"]);
    // The policy that is in force again can be changed.
    bench.done("limit set source --rate 3/s");
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 3);
}

#[test]
fn a_confirmed_policy_stays() {
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    let applied = bench.json(&document.in_place("policy apply FILE --confirm 1s -j"));
    assert!(applied["confirm_until"].as_str().unwrap().ends_with('Z'), "{applied}");
    bench.done("policy confirm");
    thread::sleep(Duration::from_millis(1_200));
    let outcome = bench.done(&document.in_place("policy diff FILE"));
    assert_eq!(outcome.stdout, "no difference\n");
    assert!(bench.done("policy show").stdout.starts_with("version: 1\n"));
}

#[test]
fn a_script_that_applies_and_confirms_runs_twice() {
    const NOTHING: &str = "No policy waits to be confirmed; the one in force stays.\n";
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    let apply = document.in_place("policy apply FILE --confirm 1s");
    bench.done(&apply);
    bench.done("policy confirm");
    assert_eq!(bench.done(&apply).stdout, "no difference\nNothing waits to be confirmed.\n");
    assert_eq!(bench.done("policy confirm").stdout, NOTHING);
    assert_eq!(bench.json("policy confirm -j")["confirmed"], false);
    bench.refused("policy revert", 4, &["no policy waits"]);
    assert!(bench.done("policy show").stdout.contains("name: other"));

    // Confirming a reverted policy fails; applying it again when it is already in force succeeds.
    bench.done(&Document::new("").in_place("policy apply FILE --confirm 1s"));
    thread::sleep(Duration::from_millis(1_200));
    bench.refused("policy confirm", 4, &["no policy waits"]);
    assert_eq!(bench.done(&apply).stdout, "no difference\nNothing waits to be confirmed.\n");
    assert_eq!(bench.done("policy confirm").stdout, NOTHING);
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
}

#[test]
fn nothing_else_is_changed_before_a_policy_is_confirmed_or_taken_back() {
    let bench = Bench::attached();
    let before = bench.done("policy show").stdout;
    let (document, saved) = (Document::new(OTHER), Document::new(""));
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    for command in
        ["deny add 203.0.113.9", "deny del 203.0.113.9", "penalty add 203.0.113.9 --for 1h"]
    {
        bench.refused(command, 6, &["limiter policy revert", "then give the command again"]);
    }
    for command in [
        "limit set source --rate 1kpps",
        &document.in_place("policy apply FILE"),
        &saved.in_place("policy apply FILE"),
        &saved.in_place("policy save FILE"),
        "attach lo --pps 1kpps",
    ] {
        bench.refused(command, 6, &["limiter policy confirm", "limiter policy revert", "s more"]);
    }
    let status = bench.done("status").stdout;
    assert!(status.contains("The policy is taken back in ") && status.contains("policy confirm"));
    let outcome = bench.done("policy revert");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(lines.contains(&"- limits.other"), "{outcome}");
    assert_eq!(lines.last(), Some(&"The previous policy is in force again."));
    assert_eq!(bench.done("policy show").stdout, before);
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    assert_eq!(bench.json("policy revert -j")["reverted"], true);
    // A time without a unit is in seconds.
    let outcome = bench.done(&document.in_place("policy apply FILE --confirm 60"));
    assert!(outcome.stdout.contains("(in 1m 00s)"), "{outcome}");
    assert_eq!(bench.json("policy confirm -j")["confirmed"], true);
}

/// Nobody has to choose between the policy before and a ban.
#[test]
fn a_source_is_blocked_while_a_policy_waits_and_stays_so() {
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    bench.done("penalty add 203.0.113.8 --for 1h --push");
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    bench.refused("deny add 203.0.113.9", 6, &["penalty add ADDRESS", "--push"]);
    bench.done("penalty add 203.0.113.9 --for 1h --push");
    for end in ["policy revert", "policy apply FILE --confirm 60s", "policy confirm"] {
        let blocked = bench.json("penalty list -j").to_string();
        assert!(blocked.contains("203.0.113.9"), "before {end}: {blocked}");
        bench.done(&document.in_place(end));
    }
    assert!(bench.json("penalty list -j").to_string().contains("203.0.113.9"));
}

#[test]
fn times_that_make_no_sense_are_refused() {
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    for time in ["0s", "0", "60x", "soon", "-1s"] {
        let arguments = document.in_place(&format!("policy apply FILE --confirm={time}"));
        bench.refused(&arguments, 2, &[time]);
    }
    bench.refused(
        &document.in_place("policy apply FILE --confirm 5s --dry-run"),
        2,
        &["--dry-run"],
    );
}

#[test]
fn an_attach_for_a_time_limits_nothing_any_more_afterwards() {
    let bench = Bench::new();
    let outcome = bench.done(&format!("attach eth0 {SMALL} --pps 1kpps --for 2s"));
    assert!(outcome.stdout.contains("It is taken back at 20"), "{outcome}");
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 1_000);
    wait_for(&bench, "version: 1\n");
    assert!(bench.programs()["eth0"].is_some(), "it stays attached");
    bench.done("detach --all");

    let document = Document::new(OTHER);
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE --for 1s")));
    bench.done("policy confirm");
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
    // A trial would also end limits that apply to `eth0`.
    bench.refused("attach lo --pps 1kpps --for 1s", 3, &["eth0", "policy apply", "--confirm"]);
    bench.refused("attach lo --for 1s", 2, &["--for"]);
}
