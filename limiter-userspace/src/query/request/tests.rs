use super::*;
use crate::policy::document;

const POLICY: &str = "
version: 1
sets: {office: {cidrs: [203.0.113.0/24]}}
tenants: {gold: {cidrs: [198.51.100.0/24]}}
allow: [office]
deny: [{src: 192.0.2.66, until: 2020-01-01}, 192.0.2.7]
attributes:
  user: {header: x-user}
  key: {header: authorization, digest: true}
  route: {path: {/login: login, \"*\": other}}
limits:
  - name: login
    on: requests
    match: {route: login, method: POST, except: 192.0.2.128/25}
    key: [source/24, user]
    missing: refuse
    cost: {by: method, values: {POST: 5}}
    rate: 5/min
    burst: 5
    candidate: {rate: 60/min, burst: 9}
    overrides:
      - {user: batch, rate: 100/s, burst: 100}
      - {user: root, unlimited: true}
  - {name: secrets, on: requests, key: key, action: monitor, algorithm: fixed_window, rate: 100/min}
  - {name: tenants, on: requests, match: {host: example.com}, key: tenant, layers: [{rate: 9/s}, {rate: 1/s, key: all}]}
  - {name: closed, on: requests, match: {path: \"/admin*\"}, action: drop, key: tenant, overrides: [{src: 198.51.100.0/24, unlimited: true}]}
  - {name: none, on: requests, match: {path: /none, source: 192.0.2.0/24}, action: drop}
  - {name: nothing, on: requests, key: all, action: off, rate: 1/s}
";

fn policy() -> Policy {
    document::parse("policy", POLICY.as_bytes(), &mut |_| unreachable!()).unwrap()
}

fn sent(request: &str, headers: &[&str], source: Option<&str>) -> Sent {
    let headers: Vec<String> = headers.iter().map(|&text| text.to_owned()).collect();
    Sent::parse(request, &headers, source).unwrap()
}

/// Each row by its name, as a word for its standing and by what it counts.
fn rows(policy: &Policy, sent: &Sent) -> Vec<(String, String, String)> {
    let explained = explain(policy, sent, 1_767_225_600);
    let of = |row: &RequestRow<'_>| {
        let standing = match &row.standing {
            RequestStanding::Counts => "counts".to_owned(),
            RequestStanding::Depends => "depends".to_owned(),
            RequestStanding::Not(why) => format!("not {why}"),
            RequestStanding::Lacks(what) => format!("lacks {}", what.join(" ")),
            RequestStanding::RefusesLack(what) => format!("refuses {}", what.join(" ")),
        };
        let by = row.counted_by.iter();
        let by = by.map(|it| format!("{}={}", it.part, it.value.as_deref().unwrap_or("?")));
        (row.name.clone(), standing, by.collect::<Vec<_>>().join(" "))
    };
    explained.rows.iter().map(of).collect()
}

#[track_caller]
fn expect(rows: &[(String, String, String)], expected: &[[&str; 3]]) {
    let rows: Vec<[&str; 3]> = rows.iter().map(|(a, b, c)| [&**a, &**b, &**c]).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_request_is_read_as_it_is_sent() {
    let headers = ["X-User: ann ", "Host: Example.COM:8080", "empty:"];
    let read = sent(
        "post /login?next=/ HTTP/1.1".trim_end_matches(" HTTP/1.1"),
        &headers,
        Some("192.0.2.9"),
    );
    assert_eq!((read.method.as_str(), read.path.as_str()), ("POST", "/login"));
    assert_eq!(read.host.as_deref(), Some("example.com"));
    assert_eq!((read.header("x-user"), read.header("empty")), (Some("ann"), Some("")));
    for (host, expected) in [("[2001:DB8::1]:443", "[2001:db8::1]"), ("a", "a"), ("", "")] {
        assert_eq!(host_of(host), expected);
    }
    for (request, headers, source, words) in [
        ("/login", "a:b", None, "is not a method and a path"),
        ("GET login", "a:b", None, "has no path"),
        ("GET /a b", "a:b", None, "is not a method and a path"),
        ("", "a:b", None, "is not a method and a path"),
        ("GET /", "user", None, "has no name before a colon"),
        ("GET /", ":b", None, "has no name before a colon"),
        ("GET /", "a:b", Some("office"), "is no address"),
    ] {
        let error = Sent::parse(request, &[headers.to_owned()], source).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn each_limit_tells_by_what_it_counts_a_request() {
    let policy = policy();
    let all = sent(
        "POST /login",
        &["x-user: ann", "authorization: secret", "host: example.com"],
        Some("198.51.100.9"),
    );
    expect(
        &rows(&policy, &all),
        &[
            ["login", "counts", "source/24=198.51.100.0/24 user=ann"],
            ["login (candidate)", "counts", "source/24=198.51.100.0/24 user=ann"],
            ["secrets", "counts", "key=?"],
            ["tenants", "counts", "tenant=gold"],
            ["tenants (layer 2)", "counts", ""],
            ["closed", "not path", ""],
            ["none", "not path", ""],
            ["nothing", "not off", ""],
        ],
    );
    let few = sent("POST /login", &[], Some("192.0.2.9"));
    expect(
        &rows(&policy, &few)[..4],
        &[
            ["login", "refuses user", "source/24=192.0.2.0/24"],
            ["login (candidate)", "refuses user", "source/24=192.0.2.0/24"],
            ["secrets", "lacks key", ""],
            ["tenants", "not host", ""],
        ],
    );
    let any = sent("POST /login", &["x-user: ann", "host: example.com"], None);
    expect(
        &rows(&policy, &any)[..5],
        &[
            ["login", "depends", "user=ann"],
            ["login (candidate)", "depends", "user=ann"],
            ["secrets", "lacks key", ""],
            ["tenants", "depends", ""],
            ["tenants (layer 2)", "counts", ""],
        ],
    );
    let nobody = sent("POST /login", &["x-user: ann", "host: example.com"], Some("192.0.2.129"));
    let rows = rows(&policy, &nobody);
    assert_eq!((rows[0].1.as_str(), rows[3].1.as_str()), ("not source", "not tenant"));
}

#[test]
fn what_is_admitted_comes_from_the_first_override_that_fits() {
    let policy = policy();
    let row = |user: &str| {
        let user = format!("x-user:{user}");
        let sent = sent("POST /login", &[&user], Some("192.0.2.9"));
        let explained = explain(&policy, &sent, 0);
        let [row, candidate] = &explained.rows[..2] else { unreachable!() };
        assert_eq!((row.cost, candidate.by, candidate.mode), (5, None, Mode::Monitor));
        let burst = |row: &RequestRow<'_>| row.allowance.map(|it| it.bucket().burst);
        assert_eq!(burst(candidate), Some(9));
        (burst(row), row.by.is_some(), row.standing.clone())
    };
    assert_eq!(row("ann"), (Some(5), false, RequestStanding::Counts));
    assert_eq!(row("batch"), (Some(100), true, RequestStanding::Counts));
    assert_eq!(row("root"), (None, true, RequestStanding::Not("unlimited".to_owned())));

    let dropped = |name: &str, source| {
        let path = if name == "closed" { "GET /admin" } else { "GET /none" };
        let explained = explain(&policy, &sent(path, &[], source), 0);
        let row = explained.rows.iter().find(|row| row.name == name).unwrap();
        (row.standing.clone(), row.allowance)
    };
    let closed = |source| dropped("closed", source);
    assert_eq!(dropped("none", None), (RequestStanding::Depends, None));
    assert_eq!(dropped("none", Some("192.0.2.9")), (RequestStanding::Counts, None));
    assert_eq!(closed(Some("192.0.2.9")), (RequestStanding::Counts, None));
    assert_eq!(closed(None), (RequestStanding::Counts, None));
    let exempt = RequestStanding::Not("unlimited".to_owned());
    assert_eq!(closed(Some("198.51.100.9")), (exempt, None));
}

#[test]
fn lists_are_told_with_their_entries() {
    let policy = policy();
    let lists = |source| {
        let explained = explain(&policy, &sent("GET /", &[], Some(source)), 1_767_225_600);
        explained.lists
    };
    assert_eq!(
        lists("203.0.113.9"),
        [(List::Allow, "203.0.113.0/24 in the set office".to_owned())]
    );
    assert_eq!(lists("192.0.2.7"), [(List::Deny, "192.0.2.7/32".to_owned())]);
    assert_eq!(lists("192.0.2.66"), [], "it is over");
}
