//! Sources that are blocked by hand and by limits.

use std::{net::Ipv6Addr, thread, time::Duration};

use super::{Bench, Document, SMALL, json::send};

#[test]
fn a_block_by_hand_drops_until_its_time_or_until_it_is_taken_back() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let outcome = bench.done("penalty add 192.0.2.1 --for 1h");
    assert!(outcome.stdout.starts_with("penalty: 192.0.2.1/32 until 20"), "{outcome}");
    bench.done("penalty add 192.0.2.2 --for 1s");
    let dropped = || bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
    send(&bench, [192, 0, 2, 1], 50);
    send(&bench, [192, 0, 2, 2], 50);
    assert_eq!(dropped(), 100);
    let list = bench.json("penalty list -j")["entries"].take();
    assert_eq!((&list[0]["src"], &list[0]["by"]), (&"192.0.2.1/32".into(), &"hand".into()));
    assert!((3_595..=3_601).contains(&list[0]["seconds_left"].as_u64().unwrap()), "{list}");
    thread::sleep(Duration::from_millis(2_200));
    send(&bench, [192, 0, 2, 2], 50);
    assert_eq!(dropped(), 100, "its time is over");
    assert_eq!(bench.json("penalty list -j")["entries"][1]["gone"], true);
    bench.done("penalty del 192.0.2.1");
    send(&bench, [192, 0, 2, 1], 50);
    assert_eq!(dropped(), 100);
    assert_eq!(bench.done("penalty list").stdout, "No source is blocked.\n");
}

/// Ends are whole seconds, rounded up. No output shows more time than the command was given.
#[test]
fn an_entry_for_a_minute_shows_a_minute() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    for (list, source) in [("penalty", "192.0.2.1"), ("deny", "192.0.2.2"), ("allow", "192.0.2.3")]
    {
        bench.done(&format!("{list} add {source} --for 60s"));
        let text = bench.done(&format!("{list} list")).stdout;
        assert!(!text.contains("1m 01s"), "{text}");
        let entry = bench.json(&format!("{list} list -j"))["entries"][0].take();
        assert!((50..=60).contains(&entry["seconds_left"].as_u64().unwrap()), "{entry}");
        let known = bench.run(&format!("get {source}")).outcome().unwrap().stdout;
        assert!(known.contains("for ") && !known.contains("1m 01s"), "{known}");
    }
}

#[test]
fn sources_that_a_limit_blocks_are_listed_with_the_rest_of_their_time() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: some, key: source, rate: 10/s, burst: 10, \
         penalty: {after: 100ms, block: 60s, backoff: 2, max: 1h, unproven: block}}]",
    );
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    bench.done("penalty add 203.0.113.9 --for 1h");
    send(&bench, [192, 0, 2, 1], 5_000);
    send(&bench, [192, 0, 2, 2], 5);
    let list = bench.json("penalty list -j")["entries"].take();
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    let blocked = &list[1];
    assert_eq!((&blocked["src"], &blocked["by"]), (&"192.0.2.1".into(), &"limit".into()));
    assert_eq!(blocked["blocks"], 1);
    assert!((50..=60).contains(&blocked["seconds_left"].as_u64().unwrap()), "{blocked}");
    let text = bench.done("penalty list").stdout;
    let line = text.lines().find(|line| line.starts_with("192.0.2.1 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[words.len() - 3..], ["limit", "some", "1"], "{text}");
    let told = bench.done("get 192.0.2.1").stdout;
    assert!(told.contains("limit some, block 1, for "), "{told}");

    let none = "penalty: 192.0.2.2/32 is not on the list\n";
    assert_eq!(bench.done("penalty del 192.0.2.2").stdout, none);
    let dropped = || bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
    let before = dropped();
    send(&bench, [192, 0, 2, 1], 5);
    assert_eq!(dropped(), before + 5);
    let lifted = "penalty: 192.0.2.0/24: 1 source that a limit blocked is free again\n";
    assert_eq!(bench.done("penalty del 192.0.2.0/24").stdout, lifted);
    send(&bench, [192, 0, 2, 1], 5);
    assert_eq!(dropped(), before + 5);
    assert_eq!(bench.json("penalty list -j")["entries"].as_array().map(Vec::len), Some(1));
    send(&bench, [192, 0, 2, 1], 5_000);
    assert_eq!(bench.json("penalty list -j")["entries"][1]["limit"], "some");
    // Without a penalty in the policy no limit blocks a source. A block by hand does not depend on the
    // policy.
    bench.done(&Document::new("").in_place("policy apply FILE"));
    let list = bench.json("penalty list -j")["entries"].take();
    assert_eq!((list.as_array().map(Vec::len), &list[0]["by"]), (Some(1), &"hand".into()));
    bench.done("penalty flush");
    assert_eq!(bench.done("penalty list").stdout, "No source is blocked.\n");
    // The record of the offence is still there, and can be forgotten.
    let forgotten =
        "penalty: 192.0.2.1/32: its refusals so far are forgotten; no limit blocked it\n";
    assert_eq!(bench.done("penalty del 192.0.2.1").stdout, forgotten);
    let none = "penalty: 192.0.2.1/32 is not on the list\n";
    assert_eq!(bench.done("penalty del 192.0.2.1").stdout, none);
}

/// A block is for the source of an address: for IPv6, a /64.
#[test]
fn a_source_of_ipv6_is_free_again_by_its_prefix_or_any_of_its_addresses() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: some, key: source, rate: 10/s, burst: 10, \
         penalty: {after: 100ms, block: 60s, backoff: 2, max: 1h, unproven: block}}]",
    );
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let address = |last| Ipv6Addr::from([0x2001, 0xdb8, 0x77, 0, 0, 0, 0, last]);
    let other = "2001:db8:77:1::1";
    let lifted = "penalty: 2001:db8:77::/64: 1 source that a limit blocked is free again\n";
    for asked in ["2001:db8:77::1", "2001:db8:77::2", "2001:db8:77::/96", "2001:db8:77::/64"] {
        send(&bench, address(1), 5_000);
        let list = bench.json("penalty list -j")["entries"].take();
        assert_eq!(list[0]["src"], "2001:db8:77::/64", "{list}");
        let none = "penalty: 2001:db8:77:1::/64 is not on the list\n";
        assert_eq!(bench.done(&format!("penalty del {other}")).stdout, none);
        assert_eq!(bench.done(&format!("penalty del {asked}")).stdout, lifted, "{asked}");
        let dropped = || bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
        let before = dropped();
        send(&bench, address(2), 5);
        assert_eq!(dropped(), before, "{asked}");
        assert_eq!(bench.done("penalty list").stdout, "No source is blocked.\n");
    }
    bench.done("penalty add 2001:db8:77::/64 --for 1h");
    let deleted = bench.done("penalty del 2001:db8:77::9").stdout;
    assert_eq!(deleted, "penalty: deleted 2001:db8:77::/64\n");
}
