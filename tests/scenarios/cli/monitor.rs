//! `limiter monitor`, the switch that stops all drops: what it survives, and where it is reported.

use std::{
    fs::{self, File},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::sandbox::BPFFS;
use serde_json::{Value, json};

use super::{Bench, Document, SMALL, json::send};

const OTHER: &str = "limits: [{name: other, key: source, rate: 10/s, burst: 10}]";
const UNTIL: &str = "nothing is dropped until `limiter monitor off`";

fn mode(bench: &Bench) -> String {
    bench.json("status -j")["mode"].as_str().unwrap().to_owned()
}

/// The number of frames counted under a reason.
fn counted(bench: &Bench, reason: &str) -> u64 {
    bench.json("status -j")["reasons"][reason].as_u64().unwrap()
}

/// Takes the lock of the instance, as a command that changes it does.
fn lock(bench: &Bench) -> File {
    let router = &bench.hosts.router;
    let open = || File::open(format!("{BPFFS}/limiter/maps"));
    let directory = router.sandbox.inside(&router.namespace, open).unwrap().unwrap();
    directory.lock().unwrap();
    directory
}

#[test]
fn it_waits_for_no_other_command() {
    let bench = Bench::attached();
    let lock = lock(&bench);
    for (command, now) in
        [("monitor on", "monitor"), ("monitor off", "enforce"), ("monitor on", "monitor")]
    {
        let start = Instant::now();
        bench.done(command);
        assert!(start.elapsed() < Duration::from_secs(5), "{command}: {:?}", start.elapsed());
        assert_eq!(mode(&bench), now);
    }
    drop(lock);
}

#[test]
fn an_apply_that_began_before_does_not_undo_it() {
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    let lock = lock(&bench);
    let apply = bench.run(&document.in_place("policy apply FILE")).to(Stdio::piped());
    let apply = apply.start().unwrap();
    thread::sleep(Duration::from_millis(500));
    bench.done("monitor on");
    drop(lock);
    let applied = apply.wait_with_output().unwrap();
    assert!(applied.status.success(), "{applied:?}");
    let said = String::from_utf8(applied.stderr).unwrap();
    assert_eq!(said, format!("warning: {UNTIL}\n"));
    assert!(!String::from_utf8(applied.stdout).unwrap().contains("mode"));
    assert_eq!(mode(&bench), "monitor");
    send(&bench, [192, 0, 2, 1], 100);
    assert_eq!(counted(&bench, "exceed"), 0);
    assert!(counted(&bench, "monitor") >= 85);
    bench.done("monitor off");
    send(&bench, [192, 0, 2, 1], 100);
    assert!(counted(&bench, "exceed") >= 85);
}

#[test]
fn it_is_no_part_of_the_document() {
    let bench = Bench::attached();
    let shown = bench.done("policy show").stdout;
    let (running, other, saved) = (Document::new(""), Document::new(OTHER), Document::new(""));
    fs::write(running.path(), &shown).unwrap();
    assert!(bench.done("monitor on").stdout.starts_with("monitor: on;"));
    assert_eq!(bench.done("policy show").stdout, shown);
    bench.done(&saved.in_place("policy save FILE"));
    assert_eq!(fs::read_to_string(saved.path()).unwrap(), shown);
    for command in ["policy diff FILE", "policy apply FILE"] {
        let outcome = bench.done(&running.in_place(command));
        assert_eq!(outcome.stdout, "no difference\n", "{outcome}");
    }
    let outcome = bench.done(&other.in_place("policy apply FILE"));
    assert!(!outcome.stdout.contains("mode"), "{outcome}");
    bench.done(&running.in_place("policy apply FILE --confirm 60s"));
    assert_eq!(mode(&bench), "monitor");
    bench.done("policy revert");
    assert_eq!(mode(&bench), "monitor");
    bench.done(&running.in_place("policy apply FILE --confirm 60s"));
    bench.done("policy confirm");
    bench.done("attach lo");
    bench.done("detach eth0");
    assert_eq!(mode(&bench), "monitor");
    // The switch ends with the instance.
    bench.done("detach lo");
    bench.done(&format!("attach eth0 {SMALL}"));
    assert_eq!(mode(&bench), "enforce");
}

#[test]
fn it_is_thrown_while_a_policy_waits_to_be_confirmed() {
    let bench = Bench::attached();
    let document = Document::new(OTHER);
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    for (command, now) in [("monitor on", "monitor"), ("monitor off", "enforce")] {
        bench.done(command);
        assert_eq!(mode(&bench), now);
    }
    bench.done("policy confirm");
    // When the policy itself has to be edited, the command waits for the confirmation.
    let monitors = Document::new(&format!("mode: monitor\n{OTHER}"));
    bench.done(&monitors.in_place("policy apply FILE --confirm 60s"));
    bench.done("monitor on");
    bench.refused("monitor off", 6, &["limiter policy confirm"]);
    let asked = bench.json("monitor -j");
    let shape = "limiter.monitor/1";
    let told = json!({ "schema": shape, "mode": "monitor", "switch": true, "policy": "monitor" });
    assert_eq!(asked, told);
    assert!(bench.done("monitor").stdout.starts_with("monitor: on, and the policy has `mode: "));
    bench.done("policy revert");
    bench.done("monitor off");
    assert_eq!(mode(&bench), "enforce");
}

#[test]
fn a_change_of_the_policy_says_that_nothing_is_dropped_all_the_same() {
    let bench = Bench::attached();
    bench.done("monitor on");
    let document = Document::new(OTHER);
    for command in [
        "limit set source --rate 5/s",
        "limit del syn",
        "deny add 203.0.113.0/25",
        "allow add 198.51.100.7",
        "penalty add 192.0.2.7 --for 1h",
        "attach lo",
        &document.in_place("policy apply FILE"),
        &document.in_place("policy apply FILE"),
    ] {
        let outcome = bench.done(command);
        assert_eq!(outcome.stderr.matches(UNTIL).count(), 1, "{outcome}");
    }
    let outcome = bench.done("limit set other --rate 5/s -j");
    let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(told, json!({ "warning": { "message": UNTIL } }));
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stderr, "");
    // If the policy says `mode: monitor` too, `monitor off` edits it.
    let monitors = Document::new(&format!("mode: monitor\n{OTHER}"));
    bench.done(&monitors.in_place("policy apply FILE"));
    let outcome = bench.done("monitor off");
    assert_eq!(outcome.stderr, "");
    assert_eq!(bench.json("policy show -j")["mode"], "enforce");
    assert_eq!(bench.done("limit set other --rate 5/s").stderr, "");
}

#[test]
fn it_is_told_wherever_limits_or_drops_are() {
    let bench = Bench::attached();
    let own = Document::new(
        "limits: [{name: a, key: source, rate: 5/s, burst: 5}, \
         {name: b, key: source/24, rate: 5/s, action: monitor}]",
    );
    bench.done(&own.in_place("policy apply FILE"));
    bench.done("monitor on");
    send(&bench, [192, 0, 2, 1], 50);
    let line = "Nothing is dropped, only counted, until: limiter monitor off";
    for command in [
        "status",
        "limit list",
        "limit show a",
        "top",
        "get 192.0.2.1",
        "policy explain 192.0.2.1",
        "watch --once --interval 50ms",
    ] {
        let text = bench.done(command).stdout;
        assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{command}:\n{text}");
    }
    // The mode of each limit is shown as well.
    let modes = |limits: &Value| -> Vec<(String, String)> {
        let of = |limit: &Value, name: &str| limit[name].as_str().unwrap().to_owned();
        let mut modes: Vec<_> = limits
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| (of(limit, "name"), of(limit, "mode")))
            .filter(|(name, _)| ["a", "b"].contains(&name.as_str()))
            .collect();
        modes.sort();
        modes
    };
    let expected = [("a", "enforce"), ("b", "monitor")].map(|(a, b)| (a.into(), b.into()));
    assert_eq!(modes(&bench.json("limit list -j")["limits"]), expected);
    for command in ["get 192.0.2.1 -j", "policy explain 192.0.2.1 -j"] {
        let told = bench.json(command);
        assert_eq!(modes(&told["limits"]), expected, "{command}");
        assert_eq!(told["mode"], "monitor", "{command}");
    }
    assert_eq!(bench.json("watch -j --once --interval 50ms")["mode"], "monitor");
    bench.done("monitor off");
    let text = bench.done("status").stdout;
    assert!(!text.contains("Nothing is dropped"), "{text}");
    assert_eq!(bench.json("get 192.0.2.1 -j")["mode"], "enforce");
}

#[test]
fn without_a_limit_it_is_told_too_and_so_are_the_lists() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let status = || bench.done("status").stdout;
    assert!(status().contains("No limit is set, so every packet passes."));
    bench.done("deny add 192.0.2.0/24");
    let text = status();
    assert!(text.contains("the lists alone decide") && !text.contains("every packet"), "{text}");
    bench.done("monitor on");
    assert!(status().contains("\nNothing is dropped, "), "{}", status());
    send(&bench, [192, 0, 2, 1], 20);
    assert_eq!((counted(&bench, "deny"), counted(&bench, "monitor")), (0, 20));
}
