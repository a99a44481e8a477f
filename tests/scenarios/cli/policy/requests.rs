//! Limits on requests: in documents, beside the kernel's limits, and explained.

use std::fs;

use serde_json::{Value, json};

use super::super::{Bench, Document, SMALL};

/// Two limits on requests.
const REQUESTS: &str = "\
sets: {office: {cidrs: [203.0.113.0/24]}}
allow: [office]
attributes:
  user: {header: x-user-id}
  api-key: {header: authorization, digest: true}
  route: {path: {/login: login, \"*\": other}}
limits:
  - name: login
    on: requests
    match: {route: login, method: POST}
    key: [source, user]
    missing: refuse
    cost: {by: method, values: {POST: 5}}
    rate: 5/min
    burst: 5
    headers: [ietf, x-ratelimit]
    on_failure: closed
    overrides: [{user: batch, rate: 100/s, burst: 100}]
    candidate: {rate: 60/min, burst: 6}
  - {name: keys, on: requests, key: api-key, rate: 1k/s}
";

const WEB: &str = "  - {name: web, key: source, rate: 10kpps}\n";

fn requests(more: &str) -> Document {
    Document::new(&format!("{REQUESTS}{more}"))
}

#[test]
fn they_are_counted_and_their_faults_are_told() {
    let bench = Bench::new();
    let document = requests(WEB);
    let outcome = bench.done(&document.in_place("policy check FILE"));
    let summed = "FILE: ok: 1 limit, 2 limits on requests, 2 prefixes\n";
    assert_eq!(outcome.stdout, document.in_place(summed));
    let check = bench.json(&document.in_place("policy check FILE -j"));
    assert_eq!((&check["limits"], &check["limits_on_requests"]), (&json!(1), &json!(2)));

    let unused = Document::new("attributes: {plan: {header: x-plan}}");
    let words =
        ["FILE:2:14: warning: no limit uses attribute `plan`"].map(|it| unused.in_place(it));
    bench.done(&unused.in_place("policy check FILE")).assert_says(&[&words[0]]);

    let bad = Document::new(
        "limits: [{name: a, on: requests, key: usr, ports: 80, rate: 5/s}, {name: b, key: source, missing: pass, rate: 1/s}]",
    );
    let words = [
        "`ports` is of limits on packets",
        "there is no key `usr`",
        "`missing` is of limits on requests",
        "3 errors",
    ];
    for command in ["policy check FILE", "policy diff FILE", "policy apply FILE"] {
        bench.refused(&bad.in_place(command), 3, &words);
    }
}

/// The kernel has no limit then, and the policy is kept with those on requests.
#[test]
fn they_are_in_force_without_any_limit_on_packets() {
    let bench = Bench::new();
    let document = requests("");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");

    let shown = bench.done("policy show").stdout;
    for line in [
        "  api-key: {header: authorization, digest: true}\n",
        "  - name: login\n    on: requests\n    match: {method: POST, route: login}\n",
        "    cost: {default: 1, by: method, values: {POST: 5}}\n",
        "      - {user: batch, rate: 100/s, burst: 100}\n",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let model = bench.json("policy show -j");
    assert_eq!(model["on_requests"][1]["key"], json!({"parts": [{"field": "api-key"}]}));

    let saved = Document::new("");
    let outcome = bench.done(&saved.in_place("policy save FILE"));
    let summed = "FILE: saved: 0 limits, 2 limits on requests, 2 prefixes\n";
    assert!(outcome.stdout.starts_with(&saved.in_place(summed)), "{outcome}");
    assert_eq!(fs::read_to_string(saved.path()).unwrap(), shown);
    bench.done("detach --all");
    bench.done(&saved.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.json("policy show -j"), model);
}

#[test]
fn what_changes_of_them_is_told_and_then_in_force() {
    let bench = Bench::new();
    let document = requests(WEB);
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let changed = REQUESTS
        .replace("burst: 5\n", "burst: 9\n")
        .replace("/login: login", "/login: login, /signin: login")
        .replace("burst: 100}", "burst: 200}")
        .replace("  - {name: keys, on: requests, key: api-key, rate: 1k/s}\n", "");
    let other = "  - {name: all, on: requests, key: all, rate: 50/s}\n";
    document.write(&format!("{changed}{other}{WEB}"));
    let expected = "\
~ attributes.route: {path: {\"/login\": login, \"*\": other}} -> {path: {\"/login\": login, \"/signin\": login, \"*\": other}}
- limits.keys
~ limits.login.burst: 5 -> 9
~ limits.login.overrides.user: batch: rate: 100/s, burst: 100 -> rate: 100/s, burst: 200
+ limits.all: on: requests, key: all, rate: 50/s, burst: 50
";
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, expected);
    let applied = bench.done(&document.in_place("policy apply FILE"));
    assert!(applied.stdout.starts_with(expected), "{applied}");
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
}

#[test]
fn commands_that_edit_limits_leave_them_to_the_document() {
    let bench = Bench::new();
    let document = requests(WEB);
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let before = bench.json("policy show -j")["on_requests"].take();
    let words = [
        "limit login is on requests, and this command is for limits on packets",
        "hint: change it in the document",
    ];
    for command in [
        "limit set login --rate 1/s",
        "limit set login --action off",
        "limit del login --all",
        "limit show login",
        "limit add login --rate 1/s --match tcp:22",
    ] {
        bench.refused(command, 3, &words);
    }
    bench.done("limit set web --rate 5/s");
    bench.done("limit add ssh --match tcp:22 --rate 5/min --count syns");
    bench.done("limit del web --all");
    assert_eq!(bench.json("policy show -j")["on_requests"], before);
    let list = bench.done("limit list").stdout;
    assert!(list.contains("ssh ") && !list.contains("login"), "{list}");
}

#[test]
fn it_is_explained_by_which_keys_a_request_is_counted() {
    let bench = Bench::new();
    let document = requests(WEB);
    let asked = "policy explain --request POST /login --header x-user-id:7 --source 192.0.2.9";
    // A document needs no instance.
    let of_document = document.in_place(&format!("{asked} --policy FILE"));
    let explained = bench.done(&of_document).stdout;
    let lines: Vec<Vec<&str>> =
        explained.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "request POST /login from 192.0.2.9");
    let row = |name: &str| lines.iter().find(|line| line.first() == Some(&name)).unwrap().join(" ");
    assert_eq!(row("login"), "login enforce yes source=192.0.2.9 user=7 5/min 5 5");
    assert_eq!(row("keys"), "keys enforce no: lacks api-key 1k/s 100 1");
    let candidate = "login (candidate) monitor yes source=192.0.2.9 user=7 60/min 6 5";
    assert!(lines.iter().any(|line| line.join(" ") == candidate), "{explained}");

    bench.refused(asked, 4, &["hint: "]);
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.done(asked).stdout, explained);

    let secret = "policy explain --request GET / --header Authorization:sesame";
    let told = bench.done(secret);
    assert!(told.stdout.contains("api-key=(digest)") && !told.stdout.contains("sesame"), "{told}");
    let told = bench.json(&format!("{secret} -j"));
    let keys = |told: &Value, name: &str| {
        told["limits"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone()
    };
    let by = json!([{ "part": "api-key", "value": null, "digest": true }]);
    assert_eq!(keys(&told, "keys")["counted_by"], by);
    assert_eq!(keys(&told, "login")["conditions"], json!(["method"]));

    let batch = bench.json("policy explain --request POST /login?a=b --header X-User-Id:batch -j");
    let login = keys(&batch, "login");
    assert_eq!((&login["matches"], &login["conditions"]), (&json!("depends"), &json!(["source"])));
    assert_eq!((&login["override"], &login["burst"]), (&json!("user: batch"), &json!(100)));
    assert_eq!((&login["rate_per_second"], &login["cost"]), (&json!(100), &json!(5)));
    let lacking = bench.json("policy explain --request POST /login --source 203.0.113.9 -j");
    let login = keys(&lacking, "login");
    assert_eq!((&login["matches"], &login["missing"]), (&json!("refused"), &json!(["user"])));
    let office = json!([{ "list": "allow", "entry": "203.0.113.0/24 in the set office" }]);
    assert_eq!(lacking["lists"], office);

    for (arguments, words) in [
        ("policy explain --request /login", "is not a method and a path"),
        ("policy explain --request GET / --header user", "has no name before a colon"),
        ("policy explain --request GET / --flags syn", "cannot be used with"),
        ("policy explain 192.0.2.9 --header a:b", "cannot be used with"),
        ("policy explain", "<ADDRESS"),
    ] {
        bench.refused(arguments, 2, &[words]);
    }
}

/// What the bridge could not decide by is refused before it is in force.
#[test]
fn a_document_that_the_bridge_cannot_use_is_refused() {
    let bench = Bench::attached();
    // A path of many letters begins as each of them says.
    let limit = |at: usize| {
        let path = "a".repeat(at);
        format!(
            "  - {{name: l{at}, on: requests, match: {{path: /{path}*}}, key: source, rate: 9/s}}\n"
        )
    };
    let limits: String = (0..65).map(limit).collect();
    let document = Document::new(&format!("limits:\n{limits}"));
    for command in ["policy check FILE", "policy apply FILE"] {
        let words = ["65", "64", "hint: "];
        bench.refused(&document.in_place(command), 3, &words);
    }
}
