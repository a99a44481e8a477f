//! What a policy says: lists, modes, matches, overrides, candidates, and changes of it.

use super::*;

fn exact(text: &str) -> Pattern {
    Pattern::Exact(text.to_owned())
}

fn about(field: Field, patterns: &[Pattern], limit: RequestLimit) -> RequestLimit {
    let mut limit = limit;
    limit.matching.fields.insert(field, patterns.to_vec());
    limit
}

fn listed(prefix: &str) -> Listed {
    Listed { whom: Whom::Prefix(prefix.parse().unwrap()), until: None }
}

#[test]
fn lists_are_asked_before_limits() {
    let mut policy = policy(&[by_source("source", per_minute(1, 2))]);
    policy.allow = vec![listed("192.0.2.0/24")];
    policy.deny = vec![listed("192.0.2.0/25"), listed("198.51.100.0/24"), listed("2001:db8::/32")];
    policy.penalties = vec![
        Listed { until: Some(1), ..listed("203.0.113.1/32") },
        Listed { until: Some(u64::MAX / 2), ..listed("203.0.113.2/32") },
    ];
    let mut decider = decider(&policy);
    assert_eq!(decider.admitted(&Asked::from("192.0.2.1"), NOW), 200);
    assert_eq!(decider.admitted(&Asked::from("::ffff:192.0.2.1"), NOW), 200, "the same");
    let denied = ["198.51.100.1", "2001:db8::1", "203.0.113.2"];
    for source in denied {
        let answer = decider.ask(&Asked::from(source), NOW);
        assert_eq!((answer.verdict, answer.standings.len()), (Verdict::Denied, 0), "{source}");
    }
    assert_eq!(decider.admitted(&Asked::from("203.0.113.1"), NOW), 2, "the penalty has ended");
    let counts = decider.counts();
    assert_eq!((counts.allowed, counts.denied), (400, 3));
    policy.mode = GlobalMode::Monitor;
    decider.apply(&policy).unwrap();
    assert_eq!(decider.admitted(&Asked::from("198.51.100.1"), NOW), 200);
}

#[test]
fn a_limit_that_monitors_counts_and_refuses_nothing() {
    let monitored = RequestLimit { mode: Mode::Monitor, ..by_source("soft", per_minute(1, 3)) };
    let mut decider = decider(&policy(&[monitored, by_user("user", per_minute(1, 5))]));
    let asked = Asked::default().user("anna");
    assert_eq!(decider.admitted(&asked, NOW), 5);
    let answer = decider.ask(&asked, NOW);
    assert_eq!(answer.standings.len(), 1, "only the limit that refuses is told of");
    let (soft, user) = (decider.row("soft"), decider.row("user"));
    // It is asked first, for each request.
    assert_eq!((soft.conform, soft.exceed, soft.exceed_monitor), (3, 0, 198));
    assert_eq!((user.conform, user.exceed, user.near), (5, 196, 2));
}

#[test]
fn a_policy_that_monitors_refuses_nothing() {
    let drop = RequestLimit { mode: Mode::Drop, ..by_source("none", per_minute(1, 1)) };
    let drop = about(Field::Method, &[exact("PUT")], drop);
    let lacking = RequestLimit { missing: Missing::Refuse, ..by_user("user", per_minute(1, 1)) };
    let limits = [by_source("source", per_minute(1, 3)), drop, lacking];
    let policy = Policy { mode: GlobalMode::Monitor, ..policy(&limits) };
    let mut decider = decider(&policy);
    let asked = Asked::default().user("anna");
    assert_eq!(decider.admitted(&asked, NOW), 200);
    assert_eq!(decider.admitted(&asked.clone().method("PUT"), NOW), 200);
    assert_eq!(decider.admitted(&Asked::default(), NOW), 200);
    assert!(decider.ask(&asked, NOW).standings.is_empty());
    let user = decider.row("user");
    assert_eq!((user.exceed, user.exceed_monitor, user.missing), (0, 200, 200));
    assert_eq!(decider.counts().dropped, 200);
}

#[test]
fn a_candidate_counts_beside_its_limit() {
    let candidate = Some(per_minute(1, 2));
    let limit = RequestLimit { candidate, ..by_source("web", per_minute(1, 5)) };
    let mut decider = decider(&policy(&[limit]));
    assert_eq!(decider.admitted(&Asked::default(), NOW), 5);
    let candidate = decider.row("web (candidate)");
    assert_eq!((candidate.conform, candidate.exceed_monitor), (2, 198));
    assert_eq!(decider.row("web").conform, 5);
}

#[test]
fn a_request_that_lacks_its_key_passes_or_is_refused() {
    let refusing = RequestLimit { missing: Missing::Refuse, ..by_user("user", per_minute(1, 2)) };
    let mut other = decider(&policy(&[refusing]));
    let answer = other.ask(&Asked::default(), NOW);
    assert_eq!((answer.verdict, other.row("user").missing), (Verdict::Denied, 1));
    assert_eq!(other.admitted(&Asked::default().user("anna"), NOW), 2);
    let mut decider = decider(&policy(&[by_user("user", per_minute(1, 2))]));
    assert_eq!(decider.admitted(&Asked::default(), NOW), 200);
    let nobody = Asked { source: None, ..Asked::default() };
    let mut by_source = super::decider(&policy(&[by_source("source", per_minute(1, 2))]));
    assert_eq!(by_source.admitted(&nobody, NOW), 200);
    assert_eq!(by_source.row("source").missing, 200);
}

#[test]
fn a_limit_is_about_what_it_matches() {
    let posts = about(Field::Method, &[exact("POST")], by_source("posts", per_minute(1, 1)));
    let prefix = Pattern::Prefix("/api/".to_owned());
    let api = about(Field::Path, &[prefix, exact("/v2")], by_source("api", per_minute(1, 2)));
    let mut office = by_source("office", per_minute(1, 3));
    office.matching.sources = vec![Whom::Set("office".to_owned())];
    office.matching.except_sources = vec![Whom::Prefix("192.0.2.8/29".parse().unwrap())];
    let mut policy = policy(&[posts, api, office]);
    policy.sets.insert("office".to_owned(), vec!["192.0.2.0/24".parse().unwrap()]);
    let mut decider = decider(&policy);
    let asked = |method, path: &str, source: &str| Asked {
        method,
        path: path.to_owned(),
        ..Asked::from(source)
    };
    assert_eq!(decider.admitted(&asked("GET", "/", "198.51.100.1"), NOW), 200);
    assert_eq!(decider.admitted(&asked("POST", "/", "198.51.100.1"), NOW), 1);
    assert_eq!(decider.admitted(&asked("GET", "/api/x", "198.51.100.2"), NOW), 2);
    assert_eq!(decider.admitted(&asked("GET", "/v2", "198.51.100.3"), NOW), 2);
    assert_eq!(decider.admitted(&asked("GET", "/v2/", "198.51.100.3"), NOW), 200);
    assert_eq!(decider.admitted(&asked("GET", "/", "192.0.2.1"), NOW), 3);
    assert_eq!(decider.admitted(&asked("GET", "/", "192.0.2.9"), NOW), 200);
}

#[test]
fn what_is_dropped_is_dropped_at_any_rate() {
    let drop = RequestLimit { mode: Mode::Drop, ..by_user("none", per_minute(1_000, 100)) };
    let fields = BTreeMap::from([(user(), exact("anna"))]);
    let exempt = RequestOverride { whom: None, fields, layers: None };
    let drop = RequestLimit { overrides: vec![exempt], ..drop };
    let mut decider = decider(&policy(&[drop, by_source("source", per_minute(1, 2))]));
    assert_eq!(decider.ask(&Asked::default().user("bert"), NOW).verdict, Verdict::Denied);
    assert_eq!(decider.ask(&Asked::default(), NOW).verdict, Verdict::Denied);
    assert_eq!(decider.admitted(&Asked::default().user("anna"), NOW), 2);
    assert_eq!(decider.counts().dropped, 2);
}

#[test]
fn the_first_override_that_is_about_a_request_applies() {
    let with = |whom: Option<OverrideWhom>, user_is: Option<Pattern>, burst: Option<u64>| {
        let fields = user_is.map(|pattern| (user(), pattern)).into_iter().collect();
        let layers = burst.map(|burst| vec![per_minute(1, burst)]);
        RequestOverride { whom, fields, layers }
    };
    let prefix = |text: &str| Some(OverrideWhom::Prefix(text.parse().unwrap()));
    let tenant = Some(OverrideWhom::Tenant("gold".to_owned()));
    let key = [RequestKeyPart::Source, RequestKeyPart::Field(user())];
    let mut web = limit("web", &key, per_minute(1, 2));
    web.overrides = vec![
        with(prefix("203.0.113.0/25"), Some(exact("anna")), Some(3)),
        with(None, Some(exact("anna")), Some(4)),
        with(tenant, None, Some(5)),
        with(None, Some(Pattern::Prefix("bot-".to_owned())), Some(6)),
        with(prefix("203.0.113.0/24"), None, None),
        with(None, Some(exact("bot-7")), Some(7)),
    ];
    let mut policy = policy(&[web]);
    policy.tenants.insert("gold".to_owned(), vec!["198.51.100.0/24".parse().unwrap()]);
    let mut decider = decider(&policy);
    for (source, user, admitted) in [
        ("192.0.2.1", "cleo", 2),
        ("203.0.113.1", "anna", 3),
        ("203.0.113.200", "anna", 4),
        ("198.51.100.1", "anna", 4),
        ("198.51.100.1", "bot-1", 5),
        ("192.0.2.1", "bot-1", 6),
        ("203.0.113.1", "bot-1", 6),
        ("192.0.2.1", "bot-7", 6),
        ("203.0.113.1", "cleo", 200),
    ] {
        let asked = Asked::from(source).user(user);
        assert_eq!(decider.admitted(&asked, NOW), admitted, "{source} {user}");
    }
}

#[test]
fn tenants_share_a_state_and_others_are_not_limited() {
    let mut policy = policy(&[limit("tenant", &[RequestKeyPart::Tenant], per_minute(1, 4))]);
    policy.tenants.insert("a".to_owned(), vec!["192.0.2.0/25".parse().unwrap()]);
    policy.tenants.insert("b".to_owned(), vec!["192.0.2.128/25".parse().unwrap()]);
    let mut decider = decider(&policy);
    assert_eq!(decider.admitted(&Asked::from("192.0.2.1"), NOW), 4);
    assert_eq!(decider.admitted(&Asked::from("192.0.2.2"), NOW), 0);
    assert_eq!(decider.admitted(&Asked::from("192.0.2.200"), NOW), 4);
    assert_eq!(decider.admitted(&Asked::from("198.51.100.1"), NOW), 200);
    assert_eq!(decider.row("tenant").missing, 0);
    // The number of a tenant may change with a policy, and its state stays.
    policy.tenants.insert("0".to_owned(), vec!["203.0.113.0/24".parse().unwrap()]);
    decider.apply(&policy).unwrap();
    assert_eq!(decider.admitted(&Asked::from("192.0.2.2"), NOW), 0);
}

#[test]
fn another_policy_keeps_the_state_of_limits_that_stay() {
    let mut before = policy(&[
        by_source("source", per_minute(1, 10)),
        by_user("user", per_minute(1, 4)),
        by_source("gone", Allowance::SlidingLog { limit: 9, window: 60 * SECOND }),
    ]);
    let mut decider = decider(&before);
    let asked = Asked::default().user("anna");
    assert_eq!(decider.admitted(&asked, NOW), 4);
    before.on_requests.reverse();
    before.on_requests.remove(0);
    before.on_requests.insert(0, by_source("new", per_minute(1, 50)));
    // Four tenths of it are used.
    before.on_requests[2] = by_source("source", per_minute(60, 100));
    decider.apply(&before).unwrap();
    let answer = decider.ask(&asked, NOW);
    assert_eq!((answer.verdict, answer.standings[0].limit), (Verdict::Limited, 1));
    assert_eq!(decider.admitted(&Asked::default(), NOW), 50, "the new limit");
    let source = decider.row("source");
    assert_eq!((source.conform, decider.row("user").exceed), (54, 197));
    let mut answer = Answer::default();
    decider.peek(&Asked::default().request(), 1, NOW, &mut answer);
    let source = answer.standings.iter().find(|standing| standing.limit == 2).unwrap();
    assert_eq!(source.left, 100 - 40 - 50);
    // A policy that cannot be compiled changes nothing.
    let mut wrong = before.clone();
    wrong.on_requests.push(by_user("other", per_minute(1, 0)));
    assert_eq!(decider.apply(&wrong), Err(PolicyError::NoBurst));
    assert_eq!(decider.ask(&asked, NOW).verdict, Verdict::Limited);
}

#[test]
fn a_secret_is_told_apart_by_its_digest() {
    let mut policy = policy(&[by_user("user", per_minute(1, 2))]);
    policy.attributes.values_mut().for_each(|attribute| attribute.digest = true);
    let mut decider = decider(&policy);
    for user in ["secret", "another"] {
        assert_eq!(decider.admitted(&Asked::default().user(user), NOW), 2);
    }
}

#[test]
fn layers_have_keys_of_their_own() {
    let key = RequestKey { parts: vec![RequestKeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }] };
    let mut ladder = by_source("ladder", per_minute(1, 2));
    ladder.layers.push(RequestLayer { allowance: per_minute(1, 5), key: Some(key) });
    let mut decider = decider(&policy(&[ladder]));
    let admitted =
        [1, 2, 3].map(|last| decider.admitted(&Asked::from(&format!("192.0.2.{last}")), NOW));
    assert_eq!(admitted, [2, 2, 1]);
    assert_eq!(decider.ask(&Asked::from("192.0.2.4"), NOW).standings[0].layer, 1);
}

#[test]
fn a_request_about_more_limits_than_are_asked_is_refused() {
    let many = |number: usize, patterns: &dyn Fn(usize) -> Vec<Pattern>| -> Policy {
        let named = |at: usize| by_source(&format!("limit-{at}"), per_minute(60_000, 1_000));
        let limits = (0..number).map(|at| about(Field::Path, &patterns(at), named(at)));
        policy(&limits.collect::<Vec<_>>())
    };
    let exacts = |at: usize| vec![exact(&format!("/{at}"))];
    let mut apart = decider(&many(256, &exacts));
    assert!(apart.passes(&Asked { path: "/7".to_owned(), ..Asked::default() }, NOW));
    assert_eq!(apart.counts().rows.iter().map(|row| row.conform).sum::<u64>(), 1);
    assert!(Decider::new(&many(64, &|_| vec![exact("/")]), Table::in_memory(16)).is_ok());
    let error = Decider::new(&many(65, &|_| vec![exact("/")]), Table::in_memory(16)).unwrap_err();
    assert_eq!(error, PolicyError::TooManyOfRequest { needed: 65, most: 64 });
    // Two properties tell them apart, where one alone does not.
    let mut halves = many(65, &exacts);
    for (at, limit) in halves.on_requests.iter_mut().enumerate() {
        let patterns = if at < 33 { exacts(0) } else { vec![exact("/"), exact("/0")] };
        limit.matching.fields.insert(Field::Path, patterns);
        let method = if at.is_multiple_of(2) { "GET" } else { "POST" };
        limit.matching.fields.insert(Field::Method, vec![exact(method)]);
    }
    assert!(Decider::new(&halves, Table::in_memory(16)).is_ok());
    let too_many = many(257, &exacts);
    let error = Decider::new(&too_many, Table::in_memory(16)).unwrap_err();
    assert_eq!(error, PolicyError::TooManyOnRequests { needed: 257, most: 256 });
}

#[test]
fn what_no_table_can_count_is_told() {
    let errors =
        |limit: RequestLimit| Decider::new(&policy(&[limit]), Table::in_memory(16)).unwrap_err();
    let error = errors(by_source("web", Allowance::Concurrent { limit: 129, idle: SECOND }));
    assert!(matches!(error, PolicyError::Algorithm { .. }), "{error}");
    let other = RequestKeyPart::Field(Field::Attribute("other".to_owned()));
    assert!(matches!(
        errors(limit("web", &[other], per_minute(1, 1))),
        PolicyError::Undefined { .. }
    ));
    let overridden = |whom: Option<&str>, field: Option<Field>, allowance| {
        let whom = whom.map(|text| OverrideWhom::Prefix(text.parse().unwrap()));
        let fields = field.map(|field| (field, exact("x"))).into_iter().collect();
        RequestOverride { whom, fields, layers: Some(vec![allowance]) }
    };
    let with =
        |limit: RequestLimit, entry| errors(RequestLimit { overrides: vec![entry], ..limit });
    let web = || by_source("web", per_minute(1, 1));
    let error = with(web(), overridden(None, Some(Field::Method), per_minute(1, 1)));
    assert!(matches!(error, PolicyError::OverrideOfField { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("method"));
    let error = with(
        by_user("web", per_minute(1, 1)),
        overridden(Some("192.0.2.0/24"), None, per_minute(1, 1)),
    );
    assert!(matches!(error, PolicyError::OverrideOfKey { .. }), "{error}");
    let error = with(web(), overridden(Some("2001:db8::1/128"), None, per_minute(1, 1)));
    assert!(matches!(error, PolicyError::OverrideTooNarrow { length: 64, .. }), "{error}");
    let window = Allowance::FixedWindow { limit: 1, window: SECOND };
    let error = with(web(), overridden(Some("192.0.2.0/24"), None, window));
    assert!(matches!(error, PolicyError::OverrideShape { .. }), "{error}");
}

#[test]
fn what_is_left_for_a_source_needs_no_request() {
    let monitored = RequestLimit { mode: Mode::Monitor, ..by_source("soft", per_minute(1, 3)) };
    let login = by_source("login", per_minute(1, 5));
    let login = about(Field::Path, &[Pattern::Exact("/login".to_owned())], login);
    let (other, tenant) = (by_user("user", per_minute(1, 1)), Field::Method);
    let pair =
        limit("pair", &[RequestKeyPart::Source, RequestKeyPart::Field(tenant)], per_minute(1, 1));
    let mut decider = decider(&policy(&[monitored, login, other, pair]));
    let source = IpAddr::from([192, 0, 2, 1]);
    let left = |decider: &mut Decider| {
        let standings = decider.of_source(source, NOW).into_iter();
        standings.map(|it| (it.limit, it.left)).collect::<Vec<_>>()
    };
    assert_eq!(left(&mut decider), [(1, 5), (0, 3)]);
    let asked = Asked { path: "/login".to_owned(), ..Asked::default() };
    assert!(decider.passes(&asked, NOW));
    assert_eq!(left(&mut decider), [(1, 4), (0, 2)]);
    assert_eq!(left(&mut decider), [(1, 4), (0, 2)], "nothing was charged");
}
