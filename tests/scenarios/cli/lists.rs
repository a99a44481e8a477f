//! The run-time lists `allow` and `deny`.

use std::{
    fs,
    io::Write as _,
    net::Ipv4Addr,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use limiter_tests::command::Outcome;
use serde_json::{Value, json};

use super::{Bench, Document, SMALL, json::send};

/// The packets of a source that passed and that were dropped.
fn counted(bench: &Bench, source: &str) -> (u64, u64) {
    let top = bench.json("top -j")["sources"].take();
    let entry = top.as_array().unwrap().iter().find(|entry| entry["source"] == source).unwrap();
    (entry["passed"].as_u64().unwrap(), entry["dropped"].as_u64().unwrap())
}

#[test]
fn the_denied_are_dropped_and_the_allowed_pass_whatever_the_limits_say() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 10/s --burst 10"));
    assert_eq!(bench.done("deny add 192.0.2.0/28").stdout, "deny: 192.0.2.0/28\n");
    assert_eq!(bench.done("allow add 198.51.100.7").stdout, "allow: 198.51.100.7/32\n");
    for source in [[192, 0, 2, 1], [198, 51, 100, 7], [198, 51, 100, 8]] {
        send(&bench, source, 200);
    }
    assert_eq!(counted(&bench, "192.0.2.1"), (0, 200));
    assert_eq!(counted(&bench, "198.51.100.7"), (200, 0));
    let (passed, dropped) = counted(&bench, "198.51.100.8");
    assert!(passed <= 15 && passed + dropped == 200, "{passed} {dropped}");
    let reasons = &bench.json("status -j")["reasons"];
    assert_eq!((&reasons["deny"], &reasons["allow"]), (&200.into(), &200.into()));
    bench.done("deny del 192.0.2.0/28");
    bench.done("allow del 198.51.100.7");
    send(&bench, [192, 0, 2, 1], 5);
    assert_eq!(counted(&bench, "192.0.2.1"), (5, 200));
    assert_eq!(bench.done("deny list").stdout, "deny is empty.\n");
}

#[test]
fn an_entry_ends_with_its_time_and_goes_with_the_next_edit() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let outcome = bench.done("deny add 192.0.2.1 --for 2s");
    assert!(outcome.stdout.starts_with("deny: 192.0.2.1/32 until 20"), "{outcome}");
    assert!(outcome.stdout.ends_with("Z (2s)\n"), "{outcome}");
    send(&bench, [192, 0, 2, 1], 20);
    assert_eq!(counted(&bench, "192.0.2.1"), (0, 20));
    let list = bench.json("deny list -j")["entries"].take();
    assert!((1..=3).contains(&list[0]["seconds_left"].as_u64().unwrap()), "{list}");
    thread::sleep(Duration::from_millis(3_200));
    send(&bench, [192, 0, 2, 1], 20);
    assert_eq!(counted(&bench, "192.0.2.1"), (20, 20));
    let list = bench.json("deny list -j")["entries"].take();
    assert_eq!((&list[0]["gone"], &list[0]["seconds_left"]), (&true.into(), &0.into()));
    assert!(bench.done("deny list").stdout.contains("gone"));
    bench.done("allow add 198.51.100.7");
    assert_eq!(bench.json("deny list -j")["entries"], json!([]));
}

#[test]
fn lists_are_shown_and_answer_in_json() {
    let bench = Bench::attached();
    let told = bench.json("allow add 198.51.100.0/24 --reason office -j");
    assert_eq!(
        told,
        json!({
            "schema": "limiter.added/1", "list": "allow", "set": null, "removed": 0,
            "entries": [{"src": "198.51.100.0/24", "result": "added", "until": null, "seconds_left": null}],
        })
    );
    let added = bench.json("allow list -j")["entries"].take();
    let entry = &added[0];
    for (member, value) in [
        ("src", json!("198.51.100.0/24")),
        ("until", json!(null)),
        ("seconds_left", json!(null)),
        ("gone", json!(false)),
        ("layer", json!("run_time")),
        ("exception", json!(false)),
        ("reason", json!("office")),
        ("set_by", json!("root")),
    ] {
        assert_eq!(entry[member], value, "{member} in {entry}");
    }
    bench.done("allow add 2001:db8:7::/48 --until 2099-01-31T18:00:00Z");
    let text = bench.done("allow ls").stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("SOURCE ") && lines[0].ends_with("REASON"), "{text}");
    assert!(lines[1].starts_with("198.51.100.0/24  for ever"), "{text}");
    assert!(lines[1].contains("run time, root") && lines[1].ends_with("office"), "{text}");
    assert!(lines[2].starts_with("2001:db8:7::/48  2099-01-31T18:00:00Z  "), "{text}");
    let removed = bench.json("allow del 2001:db8:7::/48 2001:db8:8::/48 -j");
    let expected = json!({
        "schema": "limiter.removed/1", "list": "allow", "set": null, "removed": 1,
        "entries": [
            { "src": "2001:db8:7::/48", "result": "removed" },
            { "src": "2001:db8:8::/48", "result": "not_there" },
        ],
    });
    assert_eq!(removed, expected);
    assert_eq!(bench.json("allow list -j")["entries"], added);
    // An entry never gets shorter by an addition.
    let outcome = bench.done("allow add 198.51.100.0/24 --for 1h");
    let already = "allow: 198.51.100.0/24 is on the list already, for ever\n";
    assert_eq!(outcome.stdout, already);
    let outcome = bench.done("allow add 198.51.100.0/24 --reason branch");
    assert!(outcome.stdout.contains("instead of the entry that it had"), "{outcome}");
    bench.done("allow del 198.51.100.0/24");
    bench.done("allow add 198.51.100.0/24 --for 1h");
    // A run-time entry is not part of the policy document.
    let shown = bench.done("policy show").stdout;
    assert!(!shown.contains("allow:"), "{shown}");
    let told = bench.done("policy explain 198.51.100.7").stdout;
    assert!(told.contains("\nallow 198.51.100.0/24 (run time), for "), "{told}");
    assert_eq!(bench.done("allow flush").stdout, "allow: removed 1 run-time entry\n");
    assert_eq!(bench.json("allow list -j")["entries"], json!([]));
}

#[test]
fn an_addition_tells_in_json_what_it_did_and_not_what_the_list_has() {
    let bench = Bench::attached();
    let results = |words: &str| {
        let told = bench.json(words);
        let entries = told["entries"].as_array().unwrap().iter();
        let entries = entries.map(|it| [&it["src"], &it["result"], &it["until"]].map(Value::clone));
        (entries.collect::<Vec<_>>(), told["removed"].clone())
    };
    let end = "2099-01-31T18:00:00Z";
    bench.done("allow add 192.0.2.9");
    bench.done(&format!("deny add 192.0.2.1 192.0.2.2 --until {end}"));
    let earlier = "2098-01-31T18:00:00Z";
    let (entries, removed) =
        results(&format!("-j deny add 192.0.2.2 192.0.2.3 192.0.2.9 --until {earlier}"));
    assert_eq!(
        (json!(entries), removed),
        (
            json!([
                ["192.0.2.2/32", "already", end],
                ["192.0.2.3/32", "added", earlier],
                ["192.0.2.9/32", "allowed", null],
            ]),
            json!(0)
        )
    );
    assert_eq!(
        json!(results("-j deny add 192.0.2.3").0),
        json!([["192.0.2.3/32", "replaced", null]])
    );
    bench.done("deny add 192.0.2.4 192.0.2.5 --set feed");
    let (entries, removed) = results("-j deny add 192.0.2.5 2001:db8:7::7 --replace feed");
    assert_eq!(
        (json!(entries), removed),
        (json!([["192.0.2.5/32", "already", null], ["2001:db8:7::/64", "added", null]]), json!(1))
    );
    let told = bench.json("-j penalty add 192.0.2.6 --for 1h");
    assert_eq!((&told["list"], &told["set"]), (&json!("penalty"), &json!(null)));
    let left = told["entries"][0]["seconds_left"].as_u64().unwrap();
    assert!((3_500..=3_601).contains(&left), "{told}");
}

#[test]
fn run_time_lists_outlive_documents_and_the_longest_prefix_of_both_decides() {
    const LISTS: &str = "sets: {feed: {cidrs: [203.0.113.7]}}\nallow: [192.0.2.0/24]\n\
                         deny: [198.51.100.0/24, feed]";
    let bench = Bench::new();
    let document = Document::new(LISTS);
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    bench.done("deny add 192.0.2.1 --reason scans");
    bench.done("allow add 198.51.100.1 --for 1h");
    let excepted = bench.done("deny del 203.0.113.7").stdout;
    let said = "an entry of the document, which stays: a run-time exception takes it off the list";
    assert!(excepted.contains(said), "{excepted}");
    bench.done("penalty add 10.0.0.1 --for 1h");
    let verdicts = || {
        ["192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "203.0.113.7", "10.0.0.1"].map(
            |source| {
                let test =
                    format!("test --src {source} --dst 192.0.2.200 --proto udp --dport 9 -j");
                bench.json(&test)["reason"].as_str().unwrap().to_owned()
            },
        )
    };
    let (with, without) = (
        ["deny", "allow", "allow", "deny", "conform", "penalty"],
        ["deny", "conform", "allow", "conform", "conform", "penalty"],
    );
    assert_eq!(verdicts(), with);
    // The entries stay with another document that has the same lists, after an edit, and with a document
    // without lists.
    document.write(&format!("{LISTS}\nlimits: [{{name: a, key: source, rate: 1k pps}}]"));
    bench.done(&document.in_place("policy apply FILE"));
    bench.done("limit set a --rate 2kpps");
    assert_eq!(verdicts(), with);
    document.write("");
    bench.done(&document.in_place("policy apply FILE"));
    assert_eq!(verdicts(), without);
    // After a boot the kernel holds nothing, and the file holds all entries.
    bench.done("detach --all");
    bench.done(&format!("attach eth0 {SMALL}"));
    assert_eq!(verdicts(), without);
    let list = bench.done("deny list").stdout;
    for words in ["192.0.2.1/32 ", "run time, root", "scans", "exception to the document's list"] {
        assert!(list.contains(words), "no {words} in {list}");
    }
    for list in ["allow", "deny", "penalty"] {
        bench.done(&format!("{list} flush"));
        assert_eq!(bench.json(&format!("{list} list -j"))["entries"], json!([]));
    }
    let shell = |line: &str| {
        let output = bench.hosts.router.command("sh").args(["-c", line]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shell("ls /var/lib/limiter"), "", "no list, no file");
    // A damaged file is reported and does not prevent an attach.
    shell("echo broken > /var/lib/limiter/run-time.json");
    bench.done("detach --all");
    let outcome = bench.done(&format!("attach eth0 {SMALL}"));
    outcome.assert_says(&["run-time.json cannot be read", "the run-time lists begin empty"]);
    assert_eq!(shell("ls /var/lib/limiter"), "run-time.json.unread\n");
}

#[test]
fn what_a_list_leaves_without_effect_is_told_and_comes_back_with_it() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    bench.done("limit set source --src 203.0.113.9 --rate 5/s");
    let outcome = bench.done("deny add 203.0.113.0/24");
    let warning = "warning: limit `source`: the override for 203.0.113.9/32 is shadowed by `deny`, \
                   which has 203.0.113.0/24\n";
    assert_eq!(outcome.stderr, warning);
    // The warning is given once.
    assert_eq!(bench.done("deny add 198.51.100.7").stderr, "");
    let outcome = bench.done("limit set syn --src 203.0.113.9 --rate 5/s");
    assert!(outcome.stderr.contains("limit `syn`: the override for 203.0.113.9/32 is shadowed"));
    bench.done("limit del syn --all");
    bench.done("deny del 203.0.113.0/24");
    send(&bench, [203, 0, 113, 9], 20);
    assert!(counted(&bench, "203.0.113.9").1 >= 10);
    bench.done("limit del source --all");

    // A document may have a limit without a rate.
    let document = Document::new("");
    let limit =
        Document::new("limits: [{name: web, match: {protocol: udp}, key: source, rate: 5/s}]");
    bench.done(&limit.in_place("policy apply FILE"));
    bench.done("limit del web");
    bench.done(&document.in_place("policy save FILE"));
    bench.done(&document.in_place("policy apply FILE"));
    bench.done("limit set web --rate 7/s");
    let same = Document::new("limits: [{name: web, key: source, rate: 5/s}]");
    bench.done(&same.in_place("policy apply FILE"));
    bench.refused("limit set source --rate 5/s", 3, &["limit web has", "limit set web"]);
}

#[test]
fn edits_of_lists_that_make_no_sense_are_refused() {
    let bench = Bench::attached();
    bench.done("deny add 198.51.100.0/24");
    bench.done("allow add 192.0.2.0/24");
    let refused = |arguments: &str, code, words: &[&str]| {
        bench.refused(arguments, code, &[words, &["hint: "]].concat());
    };
    for list in ["allow", "deny", "penalty"] {
        let time = if list == "penalty" { " --for 1h" } else { "" };
        let add = |prefix: &str| format!("{list} add {prefix}{time}");
        refused(&add("203.0.113.9/24"), 2, &["host bits"]);
        refused(&add("nobody"), 2, &["neither"]);
        refused(&add("fe80::1%eth0"), 2, &["has a zone, which packets do not carry", "fe80::1"]);
        refused(&format!("{list} add 203.0.113.9 --for soon"), 2, &["soon"]);
    }
    for (option, word) in [
        ("--until tomorrow", "2027-01-31T18:00:00Z"),
        ("--until 2001-01-31T18:00:00Z", "that time is past"),
        ("--for 1h --until 2099-01-31T18:00:00Z", "cannot be used with"),
        ("--reason \u{7}", "control characters"),
    ] {
        let words = ["deny", "add", "203.0.113.9"].into_iter().chain(option.split(' '));
        let outcome = bench.limiter.with(words).outcome().unwrap();
        outcome.assert_exit_code(2).assert_says(&[word]);
    }
    // To allow the whole source would let more pass than was asked for.
    refused("allow add 2001:db8::1", 3, &["/64", "2001:db8::/64", "--ipv6-prefix"]);
    bench.refused("penalty add 203.0.113.9", 2, &["--for"]);
    refused("deny add 192.0.2.0/24", 3, &["shadowed by 192.0.2.0/24 in allow"]);
    refused("penalty add 192.0.2.0/24 --for 1h", 3, &["shadowed by 192.0.2.0/24 in allow"]);
    // The entry is for the source that the address belongs to.
    assert_eq!(bench.done("allow add 2001:db8::1 --source").stdout, "allow: 2001:db8::/64\n");
    bench.done("allow del 2001:db8::1");
    assert_eq!(bench.done("deny add 2001:db8::1 --source").stdout, "deny: 2001:db8::/64\n");
    assert_eq!(bench.done("deny del 2001:db8::2 --source").stdout, "deny: deleted 2001:db8::/64\n");
    let lists: Value = ["allow", "deny"]
        .map(|list| bench.json(&format!("{list} list -j"))["entries"].take())
        .into_iter()
        .collect();
    assert_eq!(
        (&lists[0][0]["src"], &lists[1][0]["src"]),
        (&"192.0.2.0/24".into(), &"198.51.100.0/24".into())
    );
}

#[test]
fn single_addresses_of_ipv6_are_widened_to_their_source_and_mapped_ones_are_ipv4() {
    let bench = Bench::attached();
    let said = |arguments: &str| bench.done(arguments).stdout;
    assert_eq!(said("deny add 2001:db8::2"), "deny: 2001:db8::/64 (the source of 2001:db8::2)\n");
    assert_eq!(
        said("deny add 2001:db8::3"),
        "deny: 2001:db8::/64 (the source of 2001:db8::3) is on the list already, for ever\n"
    );
    let blocked = said("penalty add 2001:db8:1::2 --for 60s");
    let words = "penalty: 2001:db8:1::/64 (the source of 2001:db8:1::2) until 20";
    assert!(blocked.starts_with(words), "{blocked}");
    assert_eq!(said("deny add ::ffff:192.0.2.7"), "deny: 192.0.2.7/32\n");
    assert_eq!(said("deny add ::ffff:198.51.100.0/120"), "deny: 198.51.100.0/24\n");
    assert_eq!(said("deny del ::ffff:192.0.2.7"), "deny: deleted 192.0.2.7/32\n");
    assert_eq!(said("deny del 2001:db8::9"), "deny: deleted 2001:db8::/64\n");
    assert_eq!(said("penalty del 2001:db8:1::9"), "penalty: deleted 2001:db8:1::/64\n");
    send(&bench, [198, 51, 100, 7], 5);
    assert_eq!(counted(&bench, "198.51.100.7"), (0, 5));
}

#[test]
fn what_is_so_already_is_success_and_says_so() {
    let bench = Bench::attached();
    let said = |arguments: &str| bench.done(arguments).stdout;
    bench.done("allow add 10.0.0.0/8");
    assert_eq!(said("allow add 10.1.1.1"), "allow: 10.1.1.1/32; 10.0.0.0/8 includes it already\n");
    bench.done("deny add 192.0.2.0/24");
    let already = "deny: 192.0.2.0/24 is on the list already, for ever\n";
    assert_eq!(said("deny add 192.0.2.0/24"), already);
    assert_eq!(said("deny add 192.0.2.0/24 --for 1h"), already);
    assert_eq!(
        said("deny del 192.0.2.7"),
        "deny: 192.0.2.7/32 has no entry of its own; 192.0.2.0/24 still includes it\n"
    );
    assert_eq!(said("deny del 198.51.100.7"), "deny: 198.51.100.7/32 is not on the list\n");
    bench.done("deny add 192.0.2.7 --for 1h");
    let longer = said("deny add 192.0.2.7 --for 2h");
    assert!(longer.contains("(2h 00m), instead of the entry that it had; 192.0.2.0/24 includes"));
    assert_eq!(
        said("deny del 192.0.2.7"),
        "deny: deleted 192.0.2.7/32; 192.0.2.0/24 still includes it\n"
    );
    assert_eq!(said("deny del --all"), "deny: removed 1 run-time entry\n");
    assert_eq!(said("deny flush"), "deny: removed 0 run-time entries\n");
    assert_eq!(said("penalty del --all"), "penalty: removed 0 run-time entries\n");
}

/// Runs a command with a text on standard input.
fn piped(bench: &Bench, arguments: &str, text: &[u8]) -> Outcome {
    bench.limiter.run(arguments).input(text).unwrap().outcome().unwrap()
}

#[test]
fn many_prefixes_are_listed_and_taken_off_at_once() {
    let bench = Bench::attached();
    let said = |arguments: &str| bench.done(arguments).stdout;
    let added = said("deny add 192.0.2.1 192.0.2.2-192.0.2.3 2001:db8::1 2001:db8::2");
    assert_eq!(added, "deny: 3 prefixes added; 2 prefixes narrower than a source widened to it\n");
    let list =
        b"\xef\xbb\xbf; a feed\r\n192.0.2.1 ; SBL1\r\n203.0.113.0 255.255.255.0\n198.51.100.7";
    let outcome = piped(&bench, "deny add - --for 1h", list);
    assert!(outcome.stdout.starts_with("deny: 2 prefixes added until 20"), "{outcome}");
    assert!(outcome.stdout.ends_with("Z (1h 00m); 1 already there\n"), "{outcome}");
    let wrong = piped(&bench, "deny add -", b"198.51.100.8\nnobody\n");
    wrong.assert_exit_code(2).assert_says(&[
        "line 2 of the list",
        "\"nobody\" is neither",
        "hint: ",
    ]);
    for nothing in ["deny add -", "deny del -", "allow add -"] {
        let outcome = piped(&bench, nothing, b"nobody,1\n");
        outcome.assert_exit_code(2).assert_says(&["the standard input names no prefix"]);
    }
    piped(&bench, "deny add -", b"\x1f\x8bbroken").assert_exit_code(1).assert_says(&["gzip -t"]);
    assert_eq!(bench.json("deny list -j")["entries"].as_array().map(Vec::len), Some(5));
    send(&bench, [203, 0, 113, 9], 5);
    assert_eq!(counted(&bench, "203.0.113.9"), (0, 5));
    let outcome = piped(&bench, "deny del -", b"192.0.2.1 192.0.2.9\n203.0.113.0/24");
    assert_eq!(outcome.stdout, "deny: 2 prefixes deleted; 1 not on the list\n");
    assert_eq!(bench.json("deny list -j")["entries"].as_array().map(Vec::len), Some(3));
}

/// As feeds are published: a list for a command, and the file of a set.
#[test]
fn a_list_that_is_compressed_is_unpacked() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let document = Document::new("sets: {feed: {file: feed.gz}}\ndeny: [feed]");
    let pack = |list: &str| {
        let mut gzip = Command::new("gzip");
        let mut gzip = gzip.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        gzip.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
        let packed = gzip.wait_with_output().unwrap().stdout;
        fs::write(document.path().with_file_name("feed.gz"), &packed).unwrap();
        packed
    };
    let packed = pack("# a feed\n203.0.113.0/24\n");
    assert_eq!(piped(&bench, "deny add -", &packed).stdout, "deny: 203.0.113.0/24\n");
    bench.done("deny flush");
    pack("# a feed\n192.0.2.0/24\n");
    bench.done(&document.in_place("policy apply FILE"));
    for source in [[192, 0, 2, 9], [203, 0, 113, 9]] {
        send(&bench, source, 5);
    }
    assert_eq!(counted(&bench, "192.0.2.9"), (0, 5));
    assert_eq!(counted(&bench, "203.0.113.9"), (5, 0));
    let cut = &packed[..packed.len() - 4];
    fs::write(document.path().with_file_name("feed.gz"), cut).unwrap();
    let apply = document.in_place("policy apply FILE");
    bench.refused(&apply, 3, &["file `feed.gz` is not used", "as gzip", "gzip -t"]);
}

/// As many as a large feed has; what came with one command is one run in the stored document.
#[test]
fn a_hundred_thousand_prefixes_are_listed_with_one_command() {
    let bench = Bench::attached();
    let address = |number: u32| Ipv4Addr::from((11 << 24) + number * 7);
    let list: String = (0..100_000).map(|number| format!("{}\n", address(number))).collect();
    let memory = || bench.json("status -j")["memory_bytes"].as_u64().unwrap();
    let before = memory();
    // On a terminal, it is told meanwhile what is done.
    let file = Document::new("");
    fs::write(file.path(), &list).unwrap();
    let on_terminal = |command: &str| bench.on_terminal(&file.in_place(command));
    let told = on_terminal("deny add - --replace feed < FILE");
    assert!(told.contains("deny: adding 100,000 prefixes ..."), "{told}");
    assert!(told.ends_with("\r\u{1b}[Kdeny: 100,000 prefixes added\r\n"), "{told:?}");
    let told = on_terminal("limit set source --rate 5kpps");
    assert!(told.starts_with("\r\u{1b}[Ksource limit: changing the policy in force ...\r\u{1b}[K"));
    let told = on_terminal("policy save FILE.saved");
    let steps =
        ["reading the policy in force ...\r\u{1b}[K", "writing ", " limits, 1 prefix ...\r"];
    assert!(steps.iter().all(|step| told.contains(step)), "{told:?}");
    // A prefix takes the kernel 40 bytes at least.
    assert!(memory() > before + 100_000 * 40, "{before} {}", memory());
    bench.done("deny add 192.0.2.7");
    let outcome = piped(&bench, "deny add - --replace feed", list.as_bytes());
    assert_eq!(outcome.stdout, "deny: 0 prefixes added; 100,000 already there\n", "{outcome}");
    for source in [address(0), address(99_999), address(5)] {
        send(&bench, source.octets(), 3);
        assert_eq!(counted(&bench, &source.to_string()), (0, 3));
    }
    send(&bench, [192, 0, 2, 8], 3);
    assert_eq!(counted(&bench, "192.0.2.8"), (3, 0));
    let outcome = bench.done("deny flush --set feed");
    assert_eq!(outcome.stdout, "deny: removed 100,000 run-time entries of set feed\n");
}

/// As many as any feed has. That a policy may have them in a file is a unit test, `hostile::a_million_prefixes_of_ipv6_fit`.
#[test]
fn a_million_prefixes_of_ipv6_are_listed_with_one_command() {
    let bench = Bench::attached();
    // All digits are written, which are as many as a prefix of sources may have.
    let source =
        |at: u32| format!("2001:0db8:{:04x}:{:04x}::", 0xa000 + (at >> 10), 0xb000 + (at & 0x3ff));
    let list: String = (0..1_000_000).map(|at| format!("{}/64\n", source(at))).collect();
    let outcome = piped(&bench, "deny add - --replace feed", list.as_bytes());
    assert_eq!(outcome.stdout, "deny: 1,000,000 prefixes added\n", "{outcome}");
    for (at, is_denied) in [(0, true), (999_999, true), (1_000_000, false)] {
        let told = bench.run(&format!("policy explain {}1", source(at))).outcome().unwrap();
        assert_eq!(told.stdout.contains("now: drop (deny)"), is_denied, "{told}");
    }
}

#[test]
fn a_set_of_entries_is_replaced_and_leaves_others_alone() {
    let bench = Bench::attached();
    bench.done("deny add 192.0.2.1 --reason scans");
    let replace = "deny add - --replace feed";
    let first: String = (1..=40).map(|last| format!("198.51.100.{last}\n")).collect();
    let outcome = piped(&bench, replace, first.as_bytes());
    assert_eq!(outcome.stdout, "deny: 40 prefixes added\n", "{outcome}");
    let second: String = (11..=41).map(|last| format!("198.51.100.{last}\n")).collect();
    let outcome = piped(&bench, replace, second.as_bytes());
    assert_eq!(
        outcome.stdout,
        "deny: 1 prefix added; 30 already there; 10 removed that the set no longer has\n"
    );
    // What a broken feed looks like changes nothing.
    for (list, words) in [
        ("", "the new list is empty"),
        ("# nothing\n", "the new list is empty"),
        ("0.0.0.0/0\n", "newly has 0.0.0.0/0, every address"),
        ("64.0.0.0-127.255.255.254\n", "more than an eighth of the unicast addresses of IPv4"),
        ("198.51.100.11\n", "loses more than half of its entries: 31 before, 1 now"),
    ] {
        let outcome = piped(&bench, replace, list.as_bytes());
        outcome.assert_exit_code(3).assert_says(&["set feed is not replaced", words, "hint: "]);
    }
    let entries = bench.json("deny list -j")["entries"].take();
    let sets: Vec<_> = entries.as_array().unwrap().iter().map(|entry| &entry["set"]).collect();
    assert_eq!(sets.iter().filter(|set| ***set == json!("feed")).count(), 31);
    assert_eq!((sets.len(), sets[0]), (32, &json!(null)));
    let outcome = bench.done("deny flush --set feed");
    assert_eq!(outcome.stdout, "deny: removed 31 run-time entries of set feed\n");
    assert_eq!(bench.json("deny list -j")["entries"][0]["src"], "192.0.2.1/32");
    bench.refused("deny add 192.0.2.1 --replace 192.0/2", 2, &["is no name"]);
}

/// As the jails of fail2ban ban and unban.
#[test]
fn who_bans_with_a_set_ends_no_ban_of_another() {
    let bench = Bench::attached();
    let said = |command: &str| bench.done(command).stdout;
    bench.done("deny add 198.51.100.99 --for 600s --set sshd");
    bench.done("deny add 198.51.100.99 --until 2099-01-31T18:00:00Z --set recidive");
    bench.done("deny add 198.51.100.98");
    let again = said("deny add 198.51.100.99 --until 2099-01-31T18:00:00Z --set recidive");
    assert!(again.contains("is on the list already, until 20"), "{again}");
    let denied = |source: [u8; 4]| {
        let name = source.map(|byte| byte.to_string()).join(".");
        let explained = bench.done(&format!("policy explain {name}")).stdout;
        explained.contains("drop (deny)")
    };
    let del = said("deny del 198.51.100.99 --set sshd");
    assert_eq!(
        del,
        "deny: deleted 198.51.100.99/32; 198.51.100.99/32 of set recidive still includes it\n"
    );
    assert!(denied([198, 51, 100, 99]));
    said("deny del 198.51.100.98 --set sshd");
    assert!(denied([198, 51, 100, 98]), "a ban by hand stays");
    let several = said("deny del 198.51.100.98 198.51.100.99");
    assert_eq!(several, "deny: 1 prefix deleted; 1 still listed, as a set has them\n");
    said("deny del 198.51.100.99 --set recidive");
    assert!(!denied([198, 51, 100, 98]) && !denied([198, 51, 100, 99]));
    bench.done("penalty add 198.51.100.97 --for 1h --set sshd");
    bench.done("penalty add 198.51.100.97 --for 1h");
    let del = said("penalty del 198.51.100.97 --set sshd");
    assert_eq!(del, "penalty: deleted 198.51.100.97/32; 198.51.100.97/32 still includes it\n");
    // What a set allows is told by the set.
    bench.done("allow add 198.51.100.50 --set partners");
    let words = ["198.51.100.50/32 of set partners", "--set SET", "hint: "];
    bench.refused("deny add 198.51.100.50", 3, &words);
    said("allow del 198.51.100.50 --set partners");
    bench.done("deny add 198.51.100.50");
}

/// Bans that end at different times take a profile each. A command makes room for one more, as `policy apply` does.
#[test]
fn room_is_made_for_bans_that_end_at_different_times() {
    let bench = Bench::new();
    let overrides = (1..=60).map(|number| format!("{{src: 10.0.0.{number}, rate: {number}/s}}"));
    let overrides = overrides.collect::<Vec<_>>().join(", ");
    let document = Document::new(&format!(
        "limits: [{{name: a, key: source, rate: 1k/s, overrides: [{overrides}]}}]"
    ));
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let commands = (1..=12).map(|number| {
        bench.done(&format!("deny add 192.0.2.{number} --for {}s", 600 + number)).stdout
    });
    let said: Vec<String> = commands.collect();
    let made = said.iter().filter(|said| said.contains("made room for the change first")).count();
    assert_eq!(made, 1, "{said:?}");
    send(&bench, [192, 0, 2, 1], 20);
    send(&bench, [192, 0, 2, 12], 20);
    assert_eq!([counted(&bench, "192.0.2.1"), counted(&bench, "192.0.2.12")], [(0, 20); 2]);
}
