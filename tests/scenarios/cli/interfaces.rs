//! Limits with `interface`, while interfaces come and go.

use std::{thread, time::Duration};

use serde_json::Value;

use super::{Bench, Document, SMALL, json::send};

/// A policy with a limit for `eth0` alone.
const ETH0: &str =
    "limits: [{name: some, match: {interface: eth0}, key: source, rate: 10/s, burst: 10}]";

/// Sends 300 packets through `eth0` and returns how many were dropped.
pub(super) fn dropped(bench: &Bench, last: u8) -> u64 {
    let exceed = || bench.json("status -j")["reasons"]["exceed"].as_u64().unwrap();
    let before = exceed();
    send(bench, [192, 0, 2, last], 300);
    exceed() - before
}

#[test]
fn no_interface_comes_that_the_policy_that_may_be_back_was_not_compiled_for() {
    let bench = Bench::new();
    let (about, empty) = (Document::new(ETH0), Document::new(""));
    bench.done(&about.in_place(&format!("attach lo {SMALL} --policy FILE")));
    bench.done(&empty.in_place("policy apply FILE --confirm 6s"));
    bench.refused("attach eth0", 6, &["limiter policy confirm", "limiter policy revert"]);
    thread::sleep(Duration::from_millis(6_200));
    bench.done("attach eth0");
    assert!(dropped(&bench, 1) >= 280, "{}", bench.done("status").stdout);

    // A policy that waits to be confirmed is checked as well.
    bench.done("detach eth0");
    bench.done(&empty.in_place("policy apply FILE"));
    bench.done(&about.in_place("policy apply FILE --confirm 60s"));
    bench.refused("attach eth0", 6, &["limiter policy confirm"]);
    bench.done("policy confirm");
    bench.done("attach eth0");
    assert!(dropped(&bench, 2) >= 280);
}

#[test]
fn no_other_interface_takes_the_slot_that_the_policy_that_may_be_back_limits() {
    let bench = Bench::new();
    let mut ip = bench.hosts.router.command("ip");
    let ip = ip.args("link add other0 type veth peer name other1".split(' '));
    assert!(ip.status().unwrap().success());
    let about = Document::new(&ETH0.replace("eth0", "other0"));
    bench.done(&about.in_place(&format!("attach other0 lo {SMALL} --policy FILE")));
    bench.done(&Document::new("").in_place("policy apply FILE --confirm 60s"));
    bench.done("detach other0");
    bench.refused("attach eth0", 6, &["limiter policy confirm"]);
    bench.done("attach other0");
    // No limit of the policy is for an interface with a slot of its own.
    bench.done("attach eth0");
    bench.done("detach other0");
    bench.done("policy revert");
    assert_eq!(dropped(&bench, 1), 0);
    bench.done("detach eth0");
    bench.done("attach eth0");
    assert_eq!(dropped(&bench, 2), 0, "it is in the slot of the other one");
}

#[test]
fn a_policy_is_applied_again_that_was_compiled_for_other_interfaces() {
    let bench = Bench::new();
    let document = Document::new(&ETH0.replace("eth0", "wan"));
    let apply = document.in_place("policy apply FILE");
    bench.hosts.router.ip("link property add dev eth0 altname wan").unwrap();
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.done(&apply).stdout, "no difference\n");
    // The interface loses its alternative name and gets it back without a compilation in between.
    let name = |action: &str| {
        let line = format!("link property {action} dev eth0 altname wan");
        bench.hosts.router.ip(&line).unwrap();
    };
    name("del");
    bench.done("limit set syn --rate 9/s");
    bench.done("limit del syn");
    assert_eq!(dropped(&bench, 1), 0);
    name("add");
    assert_eq!(
        bench.done(&apply).stdout,
        "no difference\nIt was applied again, for the interfaces that are attached now.\n"
    );
    assert!(dropped(&bench, 2) >= 280);
    assert_eq!(bench.done(&apply).stdout, "no difference\n");
    name("del");
    let applied = bench.json(&document.in_place("policy apply FILE --confirm 9s -j"));
    assert_eq!(applied["applied"], true);
    assert!(applied["confirm_until"].is_null(), "{applied}");
}

#[test]
fn an_interface_that_is_not_attached_is_told() {
    const ABSENT: &str = "warning: a limit is about ethh0, but no interface ethh0 is attached\n";
    let bench = Bench::new();
    let document = Document::new(&ETH0.replace("eth0", "ethh0"));
    let of = |arguments: &str| bench.done(&document.in_place(arguments)).stderr;
    assert_eq!(of("policy check FILE"), "", "nobody knows what will be attached");
    assert_eq!(of(&format!("attach eth0 {SMALL} --policy FILE")), ABSENT);
    bench.done(&Document::new(ETH0).in_place("policy apply FILE"));
    for option in ["--dry-run", "", "", "--confirm 9s"] {
        assert_eq!(of(&format!("policy apply FILE {option}")), ABSENT, "{option}");
    }
    let told: Value = serde_json::from_str(&of("policy apply FILE -j")).unwrap();
    assert!(ABSENT.trim_end().ends_with(told["warning"]["message"].as_str().unwrap()), "{told}");
    assert_eq!(of("attach lo"), "", "nothing is applied");
    bench.done("detach lo");
    assert_eq!(of("attach lo --policy FILE"), ABSENT);
    assert_eq!(bench.done(&Document::new(ETH0).in_place("policy apply FILE")).stderr, "");
}
