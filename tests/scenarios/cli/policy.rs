//! Whole policies: check, diff, apply, show and save.

mod requests;

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::Path,
};

use limiter_common::abi::layout::map;
use limiter_tests::sandbox::BPFFS;
use limiter_userspace::datapath::bpffs::Pins;
use serde_json::Value;

use super::{Bench, Document, SMALL};

/// A limit as in the README.
const WEB: &str = "limits: [{name: web, match: {protocol: tcp, ports: [80, 443]}, key: source, \
                   rate: 10kpps, burst: 2k}]";

#[test]
fn a_document_may_come_by_the_standard_input() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: web, key: source, rate: \"10,000/s\"}]");
    let given = |arguments: &str| {
        let file = fs::File::open(document.path()).unwrap();
        bench.run(arguments).reading(file).outcome().unwrap()
    };
    assert_eq!(given("policy check -").stdout, "<stdin>: ok: 1 limit, 0 prefixes\n");
    given(&format!("attach eth0 {SMALL} --policy -")).assert_exit_code(0);
    assert_eq!(bench.json("limit show web -j")["rate_per_second"], 10_000);
    assert_eq!(given("policy diff -").stdout, "no difference\n");
    document.write("limits: [{name: web, key: source, rate: fast}]");
    given("policy check -").assert_exit_code(3).assert_says(&["<stdin>:2:", "fast"]);
    document.write("");
    let applied = given("policy apply -");
    assert!(applied.stdout.contains("<stdin>: applied"), "{applied}");
    // An agent follows a document as it changes.
    bench.refused("agent -i eth0 --policy -", 2, &["an agent follows a file", "hint: "]);
}

#[test]
fn a_good_document_is_summed_up_and_all_that_is_wrong_with_a_bad_one_is_told() {
    let bench = Bench::new();
    let penalty = "burst: 2k, penalty: {after: 10s, block: 1m, unproven: block}";
    let penalty = WEB.replace("burst: 2k", penalty);
    let good = Document::new(&format!("deny: [203.0.113.0/24, 192.0.2.1]\n{penalty}"));
    let outcome = bench.done(&good.in_place("policy check FILE"));
    assert_eq!(outcome.stdout, good.in_place("FILE: ok: 1 limit, 2 prefixes\n"));
    let check = bench.json(&good.in_place("policy check FILE -j"));
    assert_eq!((&check["limits"], &check["prefixes"]), (&1.into(), &2.into()));
    // A warning states what the limits cannot prevent, with the remedy; no other message does.
    let caveat = "limit web: packets with a forged source can have that source blocked, with its open connections";
    let hint =
        "put sources that must not be cut off on the `allow` list, or remove `unproven: block`";
    outcome.assert_says(&[&format!("warning: {caveat}; {hint}\n")]);
    assert_eq!(check["caveats"][0]["limits"][0], "web");
    assert_eq!(check["caveats"][0]["hint"], hint);

    let bad =
        Document::new("limits: [{name: a, key: source, rate: 1Mbps}, {name: b, kee: source}]");
    let places = [bad.in_place("FILE:2:39: error: "), bad.in_place("FILE:2:57: error: ")];
    let words = [places[0].as_str(), &places[1], "did you mean `key`?", "3 errors"];
    for command in ["policy check FILE", "policy diff FILE", "policy apply FILE"] {
        bench.refused(&bad.in_place(command), 3, &words);
    }
    bench.refused(&bad.in_place(&format!("attach eth0 {SMALL} --policy FILE")), 3, &words);
    let outcome = bench.run(&bad.in_place("policy check FILE -j")).outcome().unwrap();
    outcome.assert_exit_code(3);
    let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(told["error"]["message"], "the document has 3 errors");
    let faults = told["error"]["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 3);
    assert_eq!((&faults[0]["line"], &faults[0]["column"]), (&2.into(), &39.into()));
    assert_eq!(faults[2]["hint"], "did you mean `key`?");

    bench.refused("policy check /nowhere/policy.yaml", 3, &["/nowhere/policy.yaml", "help: "]);
}

#[test]
fn a_document_that_no_instance_could_apply_is_refused_before_one_is_asked() {
    let limits = (0..10).map(|number| {
        format!(
            "{{name: l{number}, key: connection, rate: 1/s, match: {{length: 100-{}}}}}",
            500 + number
        )
    });
    let limits = limits.collect::<Vec<_>>().join(", ");
    let document = Document::new(&format!("limits: [{limits}]"));
    let bench = Bench::attached();
    for command in ["policy check FILE", "policy diff FILE", "policy apply FILE"] {
        let words = [&document.in_place("FILE: "), "l9", "are the most", "hint: "];
        bench.refused(&document.in_place(command), 3, &words);
    }
}

#[test]
fn what_a_document_changes_is_told_and_then_it_is_in_force() {
    let bench = Bench::attached();
    let document = Document::new(&format!("deny: [203.0.113.0/24]\n{WEB}"));
    let before = bench.state();
    let expected = "\
+ deny: 203.0.113.0/24
- limits.connection
- limits.source
- limits.syn
+ limits.web: match: {protocol: tcp, ports: [80, 443]}, key: source, rate: 10 kpps, burst: 2000
";
    let mut diff: Vec<_> = bench
        .done(&document.in_place("policy diff FILE"))
        .stdout
        .lines()
        .map(str::to_owned)
        .collect();
    diff.sort();
    let mut wanted: Vec<_> = expected.lines().collect();
    wanted.sort_unstable();
    assert_eq!(diff, wanted);
    let outcome = bench.done(&document.in_place("policy apply FILE --dry-run"));
    assert!(outcome.stdout.ends_with("Nothing was applied.\n"), "{outcome}");
    assert_eq!(bench.state(), before);

    let outcome = bench.done(&document.in_place("policy apply FILE"));
    for line in wanted {
        assert!(outcome.stdout.lines().any(|found| found == line), "no {line} in {outcome}");
    }
    let applied = document.in_place("FILE: applied: 1 limit, 1 prefix\n");
    assert!(outcome.stdout.ends_with(&applied), "{outcome}");
    assert_eq!(outcome.stderr, "", "progress is for terminals");
    for command in ["policy diff FILE", "policy apply FILE", "policy apply FILE --dry-run"] {
        let outcome = bench.done(&document.in_place(command));
        assert_eq!(outcome.stdout, "no difference\n", "{outcome}");
    }
    assert_eq!(
        bench.json(&document.in_place("policy diff FILE -j"))["changes"],
        serde_json::json!([])
    );
    let names = bench.json("limit list -j")["limits"].take();
    assert!(names.as_array().unwrap().iter().any(|limit| limit["name"] == "web"), "{names}");
}

#[test]
fn a_limit_of_several_layers_is_listed_and_deleted_with_all_of_them() {
    let bench = Bench::attached();
    let document = Document::new(
        "limits: [{name: web, key: source, layers: [{rate: 1/h, burst: 20}, {rate: 10/s, key: \
         [source, destination_port]}]}, {name: old, key: source/24, action: off, rate: 7/s}]",
    );
    bench.done(&document.in_place("policy apply FILE"));
    let list = bench.done("limit list").stdout;
    let words: Vec<Vec<&str>> = list.lines().map(|it| it.split_whitespace().collect()).collect();
    for row in [
        &["web", "source", "packets", "1/h", "20", "enforce"][..],
        &["web", "(layer", "2)", "[source,", "destination_port]", "10", "pps", "10", "enforce"],
        &["old", "source/24", "packets", "7", "pps", "7", "off"],
        &["syn", "source", "syns", "off", "off"],
    ] {
        assert!(words.iter().any(|found| found == row), "no {row:?} in\n{list}");
    }
    let web = bench.json("limit show web -j");
    assert_eq!(web["layers"][1]["key"], "[source, destination_port]");
    assert_eq!((&web["burst"], &web["layers"][1]["burst"]), (&20.into(), &10.into()));
    assert_eq!(bench.done("limit del web").stdout, "web limit: off\n");
    assert_eq!(bench.json("limit show web -j")["layers"], Value::Array(Vec::new()));
}

/// A command on packets says so where the policy is also about requests, which a bridge decides about.
#[test]
fn limits_on_requests_are_told_to_be_the_bridges() {
    let bench = Bench::attached();
    let document = Document::new("limits: [{name: web, on: requests, key: source, rate: 1/s}]");
    let applied = bench.done(&document.in_place("policy apply FILE")).stdout;
    assert!(applied.contains("Limits on requests are the bridge's"), "{applied}");
    let on = bench.done("monitor on").stdout;
    assert!(on.contains("Limits on requests go on"), "{on}");
    bench.done(&Document::new("limits: []").in_place("policy apply FILE"));
    let on = bench.done("monitor on").stdout;
    assert!(!on.contains("requests"), "{on}");
}

#[test]
fn lists_in_another_order_are_no_difference() {
    let bench = Bench::attached();
    let document =
        Document::new("deny: [203.0.113.0/25, 192.0.2.1]\nallow: [10.0.0.0/8, 172.16.0.0/12]");
    bench.done(&document.in_place("policy apply FILE"));
    let before = bench.state();
    fs::write(
        document.path(),
        "version: 1\ndeny: [192.0.2.1, 203.0.113.0/25]\nallow: [172.16.0.0/12, 10.0.0.0/8]\n",
    )
    .unwrap();
    let outcome = bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    assert_eq!(outcome.stdout, "no difference\nNothing waits to be confirmed.\n");
    assert_eq!(bench.json(&document.in_place("policy apply FILE -j"))["applied"], false);
    assert_eq!(bench.state(), before);
}

#[test]
fn what_is_shown_can_be_applied() {
    let bench = Bench::attached();
    let shown = bench.done("policy show").stdout;
    assert!(shown.starts_with("version: 1\n"), "{shown}");
    let document = Document::new("");
    fs::write(document.path(), &shown).unwrap();
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
    let model = bench.json("policy show -j");
    assert_eq!(model["mode"], "enforce");
    assert_eq!(model["limits"].as_array().unwrap().len(), 3);

    let empty = Document::new("");
    let applied = bench.json(&empty.in_place("policy apply FILE -j"));
    assert_eq!((&applied["applied"], &applied["kept"]), (&true.into(), &Value::Null));
    assert_eq!(applied["changes"].as_array().unwrap().len(), 3, "{applied}");
    assert!(applied["changes"][0]["path"].as_str().unwrap().starts_with("limits."), "{applied}");
    bench.done(&document.in_place("policy apply FILE"));
    assert_eq!(bench.done("policy show").stdout, shown);

    let schema: Value = serde_json::from_str(&bench.done("policy schema").stdout).unwrap();
    assert_eq!(schema["title"], "Policy of limiter");
    assert_eq!(schema, bench.json("policy schema -j"));
}

#[test]
fn what_a_list_shadows_is_shown_so_and_can_be_applied() {
    let bench = Bench::attached();
    let document = Document::new("");
    let apply = |lists: &str, mark: &str| {
        let text = bench.done("policy show").stdout;
        let limits = &text[text.find("\nlimits:").unwrap()..];
        let own = "192.0.2.9/32, rate: 5 pps, burst: 5";
        document.write(&format!("{lists}\n{}", limits.replace(own, &format!("{own}{mark}"))));
        bench.done(&document.in_place("policy apply FILE"));
    };
    let shown = |marks: usize| {
        let shown = bench.done("policy show").stdout;
        assert_eq!(shown.matches("shadowed: true").count(), marks, "{shown}");
        shown
    };
    bench.done("limit set source --src 192.0.2.9 --rate 5/s");
    apply("deny: [198.51.100.7]", "");
    shown(0);
    let deny = "deny: [{src: 198.51.100.7, shadowed: true}, 192.0.2.0/24]";
    apply(&format!("{deny}\nallow: [198.51.100.0/24]"), ", shadowed: true");
    let text = shown(2);
    for entry in [
        "{src: 192.0.2.9/32, rate: 5 pps, burst: 5, shadowed: true}",
        "  - {src: 198.51.100.7/32, shadowed: true}\n",
    ] {
        assert!(text.contains(entry), "no {entry} in {text}");
    }
    fs::write(document.path(), &text).unwrap();
    let outcome = bench.done(&document.in_place("policy apply FILE"));
    assert_eq!((&*outcome.stdout, &*outcome.stderr), ("no difference\n", ""));
    assert_eq!(bench.done("policy save -").stdout, text);

    fs::write(document.path(), text.replace(", shadowed: true", "")).unwrap();
    let words = ["`source`", "198.51.100.7/32", "`shadowed: true`", "help: ", "2 errors"];
    for command in ["policy check FILE", "policy diff FILE", "policy apply FILE"] {
        bench.refused(&document.in_place(command), 3, &words);
    }
    // A needless `shadowed` mark does no harm and is shown correctly.
    fs::write(document.path(), text.replace("  - 192.0.2.0/24\n", "")).unwrap();
    let outcome = bench.done(&document.in_place("policy apply FILE"));
    assert_eq!(outcome.stderr, "");
    shown(1);
}

/// A set file may grow until limits and overrides apply to no source; the policy is applied nevertheless.
#[test]
fn a_policy_is_in_force_whatever_its_files_have() {
    let bench = Bench::attached();
    let document = Document::below(
        Path::new("/var/tmp"),
        "sets: {feed: {file: feed.txt}, own: {cidrs: [192.0.2.128/25], file: feed.txt}}\n\
         tenants: {acme: {cidrs: [192.0.2.0/26]}, others: {file: feed.txt}}\n\
         deny: [198.51.100.7, own]\n\
         limits:\n\
         - {name: web, key: source, match: {except: feed}, rate: 10/s, overrides: [{src: \
         192.0.2.9, rate: 1/s}]}\n\
         - {name: some, key: source, match: {source: 192.0.2.0/28, except: feed}, rate: 10/s}\n\
         - {name: shares, key: tenant, match: {except: feed}, rate: 10/s}",
    );
    let feed = document.folder.join("feed.txt");
    fs::write(&feed, "203.0.113.0/24\n").unwrap();
    let outcome = bench.done(&document.in_place("policy apply FILE"));
    assert_eq!(outcome.stderr, "");
    let lines = "198.51.100.0/24\n192.0.2.0/24\n192.0.2.0/26\n192.0.2.9\n";
    fs::write(&feed, lines).unwrap();
    let told = [
        "`own`: 192.0.2.128/25 is within 192.0.2.0/24 of file `feed.txt`, and left out",
        "`feed`: 2 prefixes of file `feed.txt` are left out",
        "tenant `others`: a prefix of file `feed.txt` is left out, as tenant `acme` has it",
        "198.51.100.7/32 is within 198.51.100.0/24 of set `own`",
        "the override for 192.0.2.9/32 is not used",
        "limit `some`: it matches nothing",
        "limit `shares`: the key counts tenants only",
        "warning: ",
    ];
    let diff = bench.done(&document.in_place("policy diff FILE")).stdout;
    assert!(diff.contains("- deny: 198.51.100.7/32\n"), "{diff}");
    for command in ["policy check FILE", "policy apply FILE"] {
        bench.done(&document.in_place(command)).assert_says(&told);
    }
    let text = bench.done("policy show").stdout;
    assert_eq!(text.matches("shadowed: true").count(), 3, "{text}");
    for command in [
        "policy explain 192.0.2.9",
        "limit list",
        "status",
        "test --src 192.0.2.9 --dst 192.0.2.200 --proto tcp --dport 80",
    ] {
        bench.done(command);
    }
    // The source has sent nothing, so the answer is what would apply.
    bench.run("get 192.0.2.9").outcome().unwrap().assert_exit_code(4).assert_says(&["would apply"]);
    // After a restart the policy is the same, from the document and from the saved file.
    let saved = Document::new("");
    bench.done(&saved.in_place("policy save FILE"));
    let outcome = bench.done(&saved.in_place("policy apply FILE"));
    // It names the file, so what the file has is warned of as before.
    assert_eq!(outcome.stdout, "no difference\n");
    outcome.assert_says(&["of file `", "feed.txt` are left out"]);
    for document in [&document, &saved] {
        bench.done("detach --all");
        bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy-if-new FILE")));
        assert_eq!(bench.done("policy show").stdout, text);
    }
}

#[test]
fn room_is_made_for_a_policy_and_a_dry_run_says_so() {
    let bench = Bench::attached();
    let overrides = (1..=100).map(|number| format!("{{src: 10.0.0.{number}, rate: {number}/s}}"));
    let overrides = overrides.collect::<Vec<_>>().join(", ");
    // More overrides than there is room for, and more limits of a source than its entry has room for.
    let more = [9, 10].map(|port| {
        format!(
            "{{name: at-{port}, key: source, match: {{protocol: udp, ports: {port}}}, rate: 2kpps}}"
        )
    });
    let document = Document::new(&format!(
        "limits: [{{name: a, key: source, rate: 1kpps, overrides: [{overrides}]}}, {}]",
        more.join(", ")
    ));
    bench.done(&document.in_place("policy check FILE"));
    for (command, says) in [
        ("policy apply FILE --dry-run", "Applying it would make the tables larger first"),
        ("policy apply FILE", "Made room for this policy"),
    ] {
        let said = bench.done(&document.in_place(command)).stdout;
        assert!(said.starts_with(says), "{said}");
    }
    let limits = bench.json("limit list -j")["limits"].take();
    let of_a = limits.as_array().unwrap().iter().find(|limit| limit["name"] == "a").unwrap();
    assert_eq!(of_a["overrides"].as_array().unwrap().len(), 100, "{of_a}");
}

/// A map that no policy needs takes no memory.
#[test]
fn maps_are_made_when_a_policy_needs_them_and_stay() {
    let bench = Bench::attached();
    let made = || {
        let router = &bench.hosts.router;
        let pins = Pins::new(format!("{BPFFS}/limiter"));
        let is_pinned = |name: &str| pins.map(name).exists();
        let names = [map::WIDE_STATE, map::ENDINGS, map::OFFENCES, map::REFUSED_SYNS];
        router.sandbox.inside(&router.namespace, || names.map(is_pinned)).unwrap()
    };
    let memory = || bench.json("status -j")["memory_bytes"].as_u64().unwrap();
    let mut before = memory();
    assert_eq!(made(), [false; 4]);
    for (limit, expected) in [
        (
            "{name: log, key: source, algorithm: sliding_log, limit: 5, window: 1h}",
            [true, false, false, false],
        ),
        ("{name: open, key: source, algorithm: concurrent, limit: 5}", [true, true, false, false]),
        ("{name: a, key: source, rate: 1/s, penalty: {after: 3s, block: 1h}}", [true; 4]),
    ] {
        let document = Document::new(&format!("limits: [{limit}]"));
        bench.done(&document.in_place("policy apply --dry-run FILE"));
        assert_eq!(memory(), before, "{limit}");
        bench.done(&document.in_place("policy apply FILE"));
        assert_eq!(made(), expected, "{limit}");
        assert!(memory() > before, "{limit}");
        before = memory();
    }
    bench.done(&Document::new("limits: []").in_place("policy apply FILE"));
    assert_eq!((made(), memory()), ([true; 4], before));
}

#[test]
fn a_saved_policy_is_back_with_the_next_attach() {
    let bench = Bench::attached();
    bench.done("deny add 203.0.114.0/24 --reason scans");
    let saved = Document::new("");
    // The permissions are kept: a service that is not root reads the file through its group.
    let permissions = |mode| fs::set_permissions(saved.path(), fs::Permissions::from_mode(mode));
    permissions(0o640).unwrap();
    let outcome = bench.done(&saved.in_place("policy save FILE"));
    assert!(
        outcome.stdout.starts_with(&saved.in_place("FILE: saved: 3 limits, 1 prefix\n")),
        "{outcome}"
    );
    assert!(outcome.stdout.contains("policy save"), "what applies it at boot: {outcome}");
    assert_eq!(fs::metadata(saved.path()).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(saved.path()).unwrap(), bench.done("policy show").stdout);
    let model = bench.json("policy show -j");
    bench.done("detach --all");
    bench.done(&saved.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.json("policy show -j"), model);
    // The run-time list is stored separately from the document.
    let entries = bench.json("deny list -j")["entries"].take();
    assert_eq!(entries[0]["src"], "203.0.114.0/24", "{entries}");
    assert_eq!(entries[0]["reason"], "scans", "{entries}");

    let unit = bench.done(&saved.in_place("policy save FILE --systemd")).stdout;
    let attach = saved.in_place(&format!(" attach %I {SMALL} --policy-if-new FILE"));
    let starts = |line: &str| line.starts_with("ExecStart=/") && line.ends_with(&attach);
    let starts = unit.lines().find(|line| starts(line)).unwrap();
    // The command that systemd runs when the interface appears after boot.
    bench.done("detach --all");
    let (_, command) = starts.split_once(' ').unwrap();
    bench.done(&command.replace("%I", "eth0"));
    assert_eq!(bench.json("policy show -j"), model);
    bench.done("detach --all");
    let attach = "attach eth0 --mode generic --sources 4000 --buckets 2000";
    bench.done(attach);
    let unit = bench.json("policy save --systemd -j")["unit"].as_str().unwrap().to_owned();
    let attach = attach.replace("eth0", "%I");
    assert!(
        unit.contains(&format!("{attach} --policy-if-new /etc/limiter/policy.yaml\n")),
        "{unit}"
    );
}

#[test]
fn a_policy_is_saved_to_a_file_or_printed_and_never_in_the_place_of_something_else() {
    let bench = Bench::attached();
    let shown = bench.done("policy show").stdout;
    assert_eq!(bench.done("policy save -").stdout, shown);
    assert_eq!(bench.json("policy save - -j")["document"].as_str(), Some(shown.as_str()));
    let place = Document::new("");
    let socket = place.folder.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let words = ["is not a regular file", "`-`", "hint: "];
    bench.refused(&format!("policy save {}", socket.display()), 2, &words);
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    bench.refused("policy save /dev/stdout", 2, &words);
    bench.refused(
        "policy save - --systemd",
        2,
        &["a systemd unit cannot have the path", "printed"],
    );
    let odd = place.folder.join("a\nExecStart=");
    let odd = odd.to_str().unwrap();
    let outcome = bench.limiter.with(["policy", "save", odd, "--systemd"]).outcome().unwrap();
    outcome.assert_exit_code(2).assert_says(&["control characters", "hint: "]);
}

#[test]
fn what_cannot_be_written_leaves_the_file_as_it_was() {
    let bench = Bench::attached();
    let saved = Document::new("# as it was");
    let before = fs::read_to_string(saved.path()).unwrap();
    let document = Document::new("limits: [{name: other, key: source, rate: 7/s}]");
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    bench.refused(&saved.in_place("policy save FILE"), 6, &["limiter policy confirm", "hint: "]);
    assert_eq!(fs::read_to_string(saved.path()).unwrap(), before);
    let names: Vec<_> = fs::read_dir(&saved.folder).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    bench.done("policy confirm");
    bench.refused("policy save /proc/nowhere/policy.yaml", 1, &["/proc/nowhere/policy.yaml"]);
}

#[test]
fn a_file_is_never_replaced_by_what_loses_some_of_it() {
    let bench = Bench::attached();
    let feed: String = (0..500).map(|n| format!("10.0.{}.{}\n", n / 256, n % 256)).collect();
    let document = Document::new(
        "# for the shop\nsets: {bad: {file: bad.txt, cidrs: [192.0.2.7]}, office: {cidrs: [192.0.2.0/28]}}\n\
         deny: [bad]\nlimits: [{name: web, key: source, rate: 5/s}]",
    );
    fs::write(document.folder.join("bad.txt"), &feed).unwrap();
    let beside = |suffix: &str| {
        fs::read_to_string(document.in_place(&format!("FILE{suffix}"))).unwrap_or_default()
    };
    bench.done(&document.in_place("policy apply FILE"));
    let before = beside("");
    // What the file says already is not written again, and keeps its comments.
    let outcome = bench.done(&document.in_place("policy save FILE"));
    let same = document.in_place("FILE: has this policy already: 1 limit, 502 prefixes\n");
    assert!(outcome.stdout.starts_with(&same), "{outcome}");
    // Comments in front of the document are kept.
    let headed = document.in_place("FILE").replace("policy.yaml", "headed.yaml");
    fs::write(&headed, "# What it is for.\n\nversion: 1\nlimits: []\n").unwrap();
    bench.done(&format!("policy save {headed}"));
    let text = fs::read_to_string(&headed).unwrap();
    assert!(text.starts_with("# What it is for.\n\n") && text.contains("web"), "{text}");
    bench.done("limit set web --rate 7/s");
    let words = ["has comments, which would be lost", "policy.yaml.new", "--force", "hint: "];
    bench.refused(&document.in_place("policy save FILE"), 1, &words);
    assert_eq!(beside(""), before);
    let new = beside(".new");
    assert!(new.contains("rate: 7 pps") && new.contains("file: bad.txt"), "{new}");
    assert!(new.contains("cidrs: [192.0.2.7/32]") && new.lines().count() < 30, "{new}");
    // With --force the file before is kept. Set files stay references in any case.
    let outcome = bench.done(&document.in_place("policy save FILE --force"));
    for words in [" saved: 1 limit, 502 prefixes\n", "its set files: bad.txt", ".bak\n"] {
        assert!(outcome.stdout.contains(words), "no {words} in {outcome}");
    }
    let (mark, new) = new.split_once('\n').unwrap();
    assert!(mark.starts_with("# The policy in force, by `limiter policy save`"), "{mark}");
    assert_eq!((beside(""), beside(".bak")), (new.to_owned(), before.clone()));
    // The feed goes on meanwhile; without comments nothing is lost.
    fs::write(document.folder.join("bad.txt"), format!("{feed}10.1.0.0/16\n")).unwrap();
    bench.done("limit set web --rate 9/s");
    let outcome = bench.json(&document.in_place("policy save FILE -j"));
    assert_eq!(outcome["unchanged"], false, "{outcome}");
    assert!(outcome["backup"].as_str().unwrap().ends_with("policy.yaml.bak.1"), "{outcome}");
    assert_eq!((beside(".bak"), beside(".bak.1")), (before, new.to_owned()));
    assert!(beside("").contains("rate: 9 pps") && beside("").contains("file: bad.txt"));
    bench.done(&document.in_place("policy apply FILE"));
    // A set in force that is none of its file's is not replaced by that.
    fs::write(document.folder.join("bad.txt"), "10.9.9.9\n192.0.2.7\n").unwrap();
    let words = ["a file for set \"bad\", which has none of the prefixes in force", "hint: "];
    bench.refused(&document.in_place("policy save FILE"), 1, &words);
    // Of one that the file has grown by, the file is named, and the difference told.
    let grown = format!("{feed}10.1.0.0/16\n10.2.0.0/16\n");
    fs::write(document.folder.join("bad.txt"), grown).unwrap();
    let outcome = bench.done(&document.in_place("policy save FILE"));
    outcome.assert_says(&["warning: of bad, other prefixes are in force than the files have now"]);
    document.write("limits: [{nonsense}]");
    bench.refused(&document.in_place("policy save FILE"), 1, &["is no policy", ".new", "hint: "]);
}

#[test]
fn a_new_file_names_the_set_files_that_the_policy_came_from() {
    let bench = Bench::attached();
    // It outlasts a start of the machine, unlike `/tmp`.
    let document = Document::below(
        Path::new("/var/tmp"),
        "sets: {bad: {file: bad.txt, cidrs: [192.0.2.7]}, office: {cidrs: [192.0.2.0/28]}}\n\
         tenants: {acme: {file: acme.txt}}\ndeny: [bad]\n\
         limits: [{name: web, key: source, rate: 5/s}]",
    );
    let (bad, acme) = (document.folder.join("bad.txt"), document.folder.join("acme.txt"));
    fs::write(&bad, "10.0.0.1\n10.0.0.3\n").unwrap();
    fs::write(&acme, "10.1.0.0/24\n").unwrap();
    bench.done(&document.in_place("policy apply FILE"));
    bench.done("limit set web --rate 7/s");
    let beside = document.in_place("FILE").replace("policy.yaml", "saved.yaml");
    let outcome = bench.done(&format!("policy save {beside}"));
    assert_eq!(outcome.stderr, "", "{outcome}");
    let text = fs::read_to_string(&beside).unwrap();
    for words in ["file: bad.txt", "cidrs: [192.0.2.7/32]", "file: acme.txt", "rate: 7 pps"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    assert!(!text.contains("10.0.0.1") && !text.contains("10.1.0.0"), "{text}");
    // In another folder, and where there is no file, by the whole path.
    let elsewhere = Document::new("");
    fs::remove_file(elsewhere.path()).unwrap();
    bench.done(&elsewhere.in_place("policy save FILE"));
    let printed = bench.done("policy save -").stdout;
    assert_eq!(fs::read_to_string(elsewhere.path()).unwrap(), printed);
    assert!(printed.contains(&format!("file: \"{}\"", bad.display())), "{printed}");
    bench.done(&elsewhere.in_place("policy apply FILE"));
    // A file that is gone cannot be named.
    fs::remove_file(&bad).unwrap();
    fs::remove_file(elsewhere.path()).unwrap();
    let outcome = bench.done(&elsewhere.in_place("policy save FILE"));
    outcome.assert_says(&["warning: set \"bad\" is written out in full, 3 prefixes: its file /"]);
    let text = fs::read_to_string(elsewhere.path()).unwrap();
    assert!(text.contains("10.0.0.1") && text.contains("/acme.txt"), "{text}");
}

/// The document is for a start of the machine, which would find no such file, and apply nothing.
#[test]
fn a_set_file_that_a_start_of_the_machine_removes_is_written_out() {
    let bench = Bench::attached();
    let volatile = Document::below(Path::new("/run"), "sets: {bad: {file: bad.txt}}\ndeny: [bad]");
    fs::write(volatile.folder.join("bad.txt"), "10.0.0.1\n10.0.0.3\n").unwrap();
    bench.done(&volatile.in_place("policy apply FILE"));
    let saved = Document::new("");
    fs::remove_file(saved.path()).unwrap();
    for command in [saved.in_place("policy save FILE"), "policy save -".to_owned()] {
        let outcome = bench.done(&command);
        outcome.assert_says(&[
            "warning: set \"bad\" is written out in full, 2 prefixes: its file /run/",
        ]);
        let text = fs::read_to_string(saved.path()).unwrap();
        assert!(text.contains("10.0.0.3") && !text.contains("bad.txt"), "{text}");
    }
    // Beside it, both are gone together.
    let beside = volatile.in_place("FILE").replace("policy.yaml", "saved.yaml");
    assert_eq!(bench.done(&format!("policy save {beside}")).stderr, "");
    assert!(fs::read_to_string(&beside).unwrap().contains("file: bad.txt"));
}

#[test]
fn what_could_not_be_saved_is_not_applied() {
    let bench = Bench::attached();
    // Each is written with its burst.
    let one = |at: u32| format!("    - {{src: {}, rate: 1/s}}\n", Ipv4Addr::from((11 << 24) + at));
    let document = Document::new(&format!(
        "limits:\n  - name: some\n    key: source\n    rate: 1/s\n    overrides:\n{}",
        (0..300_000).map(one).collect::<String>()
    ));
    let words = ["more than 2,097,152 values: it could not be saved", "hint: "];
    bench.refused(&document.in_place("policy apply FILE"), 3, &words);
}
