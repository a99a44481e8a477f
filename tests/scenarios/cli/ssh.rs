//! Whoever changes a policy over SSH is not cut off by it.

use limiter_tests::command::Outcome;

use super::{Bench, Document, SMALL, json::send};

/// Runs a command as from an SSH session.
#[track_caller]
fn over_ssh(bench: &Bench, peer: &str, arguments: &str) -> Outcome {
    let connection = format!("{peer} 50000 198.18.0.2 22");
    bench.run(arguments).env("SSH_CONNECTION", &connection).done().unwrap()
}

#[test]
fn the_peer_is_allowed_where_a_policy_could_drop_it() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let document = Document::new("limits: [{name: some, key: source, rate: 10/s, burst: 10}]");
    let apply = document.in_place("policy apply FILE --keep-ssh");
    let outcome = over_ssh(&bench, "203.0.113.9", &apply);
    let line = "203.0.113.9 (this SSH session) is kept allowed; leave it out with --no-keep-ssh";
    assert!(outcome.stdout.lines().any(|found| found == line), "{outcome}");
    assert!(outcome.stdout.contains("+ allow: 203.0.113.9/32\n"), "{outcome}");
    for source in [[203, 0, 113, 9], [203, 0, 113, 10]] {
        send(&bench, source, 100);
    }
    let reasons = &bench.json("status -j")["reasons"];
    assert_eq!(reasons["allow"], 100);
    assert!(reasons["exceed"].as_u64().unwrap() >= 80, "{reasons}");

    // In JSON, and as the source that an address is of.
    let connection = "2001:db8:1:2::9 50000 2001:db8::1 22";
    let apply = bench.run(&document.in_place("policy apply FILE --keep-ssh -j"));
    let applied = apply.env("SSH_CONNECTION", connection).json().unwrap();
    assert_eq!(applied["kept"], "2001:db8:1:2::/64");
}

#[test]
fn a_session_is_left_alone_without_need_or_wish() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let some = Document::new("limits: [{name: some, key: source, rate: 10/s}]");
    let udp =
        Document::new("limits: [{name: some, match: {protocol: udp}, key: source, rate: 9/s}]");
    for (document, options) in [(&some, ""), (&some, "--no-keep-ssh"), (&udp, "--keep-ssh")] {
        let apply = document.in_place(&format!("policy apply FILE {options}"));
        let outcome = over_ssh(&bench, "203.0.113.9", &apply);
        assert!(!outcome.stdout.contains("SSH session"), "{outcome}");
        assert_eq!(bench.json("allow list -j").as_array().map(Vec::len), Some(0), "{options}");
        over_ssh(&bench, "203.0.113.9", &Document::new("").in_place("policy apply FILE"));
    }
    bench.refused(
        &some.in_place("policy apply FILE --keep-ssh --no-keep-ssh"),
        2,
        &["--no-keep-ssh"],
    );
}

#[test]
fn the_peer_is_kept_out_of_what_is_denied() {
    let bench = Bench::attached();
    let outcome = over_ssh(&bench, "203.0.113.9", "deny add 203.0.0.0/16 --keep-ssh");
    assert!(outcome.stdout.contains("203.0.113.9 (this SSH session) is kept allowed"), "{outcome}");
    assert_eq!(bench.json("allow list -j")[0]["src"], "203.0.113.9/32");
    let outcome = over_ssh(&bench, "192.0.2.1", "deny add 198.51.100.0/24 --keep-ssh");
    assert!(!outcome.stdout.contains("SSH session"), "it is not denied: {outcome}");
    over_ssh(&bench, "192.0.2.1", "penalty add 192.0.2.0/24 --for 1h --keep-ssh");
    assert_eq!(bench.json("allow list -j")[1]["src"], "192.0.2.1/32");

    let itself = bench
        .run("deny add 192.0.9.1 --keep-ssh")
        .env("SSH_CONNECTION", "192.0.9.1 1 192.0.2.9 22");
    bench.refused_as(
        itself,
        3,
        &["192.0.9.1/32 is where this SSH session comes from", "--no-keep-ssh"],
    );
    over_ssh(&bench, "192.0.9.1", "deny add 192.0.9.1 --no-keep-ssh");
}

#[test]
fn an_attach_with_a_policy_keeps_the_peer_too() {
    let bench = Bench::new();
    let document = Document::new("deny: [203.0.113.0/24]");
    let attach = document.in_place(&format!("attach eth0 {SMALL} --policy FILE --keep-ssh"));
    let outcome = over_ssh(&bench, "203.0.113.9", &attach);
    assert!(outcome.stdout.contains("203.0.113.9 (this SSH session) is kept allowed"), "{outcome}");
    assert_eq!(bench.json("allow list -j")[0]["src"], "203.0.113.9/32");
}
