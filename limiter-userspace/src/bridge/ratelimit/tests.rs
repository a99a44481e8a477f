use std::sync::Arc;

use limiter_common::algorithm::rate::Rate;
use prost::Message as _;

use super::{
    super::{decide::Decider, table::Table},
    messages::{Entry, ToldLimit, Whole},
    *,
};
use crate::policy::model::{
    Allowance, Attribute, AttributeSource, Field, Pattern, RequestKeyPart, RequestLayer,
    RequestLimit,
};

/// The start of an hour and of a day.
const NOW: u64 = 10 * 86_400 * SECOND;

/// A decider of the limits `user` (a window of 3 for each value of the attribute), `source` (5 a minute for each source, in the
/// domain `edge`) and `login` (1 for all, of the path `/login`).
struct Service(Decider, Arc<Policy>);

impl Service {
    fn new() -> Self {
        Self::with_override(false)
    }

    /// With a limit `user` that takes what is told with a descriptor, or does not.
    fn with_override(takes_told: bool) -> Self {
        let window = Allowance::FixedWindow { limit: 3, window: 3_600 * SECOND };
        let bucket =
            Allowance::LeakyBucket { rate: Rate { packets: 5, period: 60 * SECOND }, depth: 5 };
        let limit = |name: &str, part: Option<RequestKeyPart>, allowance| {
            let layers = vec![RequestLayer { allowance, key: None }];
            RequestLimit { layers, ..RequestLimit::new(name, part.as_slice()) }
        };
        let user = Field::Attribute("user".to_owned());
        let mut limits = [
            limit("user", Some(RequestKeyPart::Field(user)), window),
            limit("source", Some(RequestKeyPart::Source), bucket),
            limit("login", None, Allowance::FixedWindow { limit: 1, window: 86_400 * SECOND }),
        ];
        limits[0].takes_told = takes_told;
        let exact = |text: &str| vec![Pattern::Exact(text.to_owned())];
        limits[1].matching.fields.insert(Field::Domain, exact("edge"));
        limits[2].matching.fields.insert(Field::Path, exact("/login"));
        let from = AttributeSource::Header("x-user-id".to_owned());
        let mut policy = Policy { on_requests: limits.to_vec(), ..Policy::default() };
        policy.attributes.insert("user".to_owned(), Attribute { from, digest: false });
        Self(Decider::new(&policy, Table::in_memory(1_024)).unwrap(), Arc::new(policy))
    }

    fn ask(&mut self, message: &RateLimitRequest) -> Result<(RateLimitResponse, Verdict), Fault> {
        let Self(decider, policy) = self;
        let told = Some("within=web;left=7".to_owned());
        Ok(Call::read(message)?.answer(told, 0, |items| {
            let mut answers = vec![Answer::default(); items.len()];
            decider.decide_all(items, NOW, &mut answers);
            (answers, Arc::clone(policy))
        }))
    }
}

fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() }
}

fn call(descriptors: Vec<Descriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 }
}

fn header<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    response.response_headers_to_add.iter().find(|it| it.key == name).map(|it| &*it.value)
}

/// What is told of the source, by the entry that has the whole of it.
#[test]
fn a_source_that_a_limit_on_packets_has_too_little_left_for_is_refused() {
    let mut service = Service::new();
    let asks = descriptor(&[("remote_address", "::ffff:192.0.2.9")]);
    let mut gives_back = descriptor(&[("remote_address", "192.0.2.8")]);
    gives_back.is_negative_hits = true;
    let prefix = descriptor(&[("masked_remote_address", "192.0.2.0/24")]);
    let message = call(vec![descriptor(&[("user", "7")]), asks, gives_back, prefix]);
    let read = Call::read(&message).unwrap();
    let source = IpAddr::from([192, 0, 2, 9]);
    assert_eq!(read.sources(), [source].into());
    let refused = read.refused(source, "web", 21_500_000_000, u32::MAX);
    assert_eq!(refused.overall_code(), Code::OverLimit);
    let codes: Vec<Code> = refused.statuses.iter().map(Status::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit, Code::Ok, Code::Ok]);
    let until = Duration { seconds: 21, nanos: 500_000_000 };
    assert_eq!(refused.statuses[1].duration_until_reset, Some(until));
    assert_eq!(header(&refused, "retry-after"), Some("24"), "a tenth more");
    assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&refused.raw_body).unwrap();
    assert_eq!(problem["violated-policies"][0], "web");
    let never = read.refused(source, "deny", u64::MAX, 0);
    assert_eq!(header(&never, "retry-after"), None);
    assert_eq!(never.statuses[1].duration_until_reset, None);
    // A request that passes tells the service, and one that a limit on requests refuses does not.
    for passes in [true, false] {
        let (response, _) = service.ask(&call(vec![descriptor(&[("path", "/login")])])).unwrap();
        let told = response.request_headers_to_add.iter();
        let told = told.map(|it| (&*it.key, &*it.value)).collect::<Vec<_>>();
        let expected = ("x-limiter-source", "within=web;left=7");
        assert_eq!(told, if passes { vec![expected] } else { Vec::new() });
    }
}

/// Envoy tells what a client sent, and passes requests whose message is refused.
#[test]
fn no_byte_and_no_number_of_headers_makes_a_message_unreadable() {
    let mut service = Service::new();
    let entry = |key: &str, value: &[u8]| Entry { key: key.into(), value: value.into() };
    let mut entries = vec![entry("path", b"/login"), entry("user", b"\xff\x80")];
    entries.extend((0..100).map(|number| entry(&format!("attribute-{number}"), b"x")));
    let descriptors = vec![Descriptor { entries, ..Descriptor::default() }];
    let message = RateLimitRequest { descriptors, ..RateLimitRequest::default() };
    let bytes = message.encode_to_vec();
    for expected in [Verdict::Pass, Verdict::Limited] {
        let message = RateLimitRequest::decode(&*bytes).unwrap();
        let (_, verdict) = service.ask(&message).unwrap();
        assert_eq!(verdict, expected);
    }
}

#[test]
fn a_descriptor_is_a_request() {
    let mut service = Service::new();
    // By the name of the attribute, and by that of its header.
    for (key, left) in [("user", 2), ("x-user-id", 1), ("user", 0)] {
        let (response, verdict) = service.ask(&call(vec![descriptor(&[(key, "7")])])).unwrap();
        assert_eq!((verdict, response.overall_code), (Verdict::Pass, Code::Ok.into()));
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((&*limit.name, limit.requests_per_unit, limit.unit()), ("user", 3, Unit::Hour));
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
        assert_eq!(header(&response, "ratelimit-policy"), Some("\"user\";q=3;w=3600"));
        assert!(response.raw_body.is_empty() && header(&response, "retry-after").is_none());
    }
    let (response, verdict) = service.ask(&call(vec![descriptor(&[("user", "7")])])).unwrap();
    assert_eq!((verdict, response.overall_code), (Verdict::Limited, Code::OverLimit.into()));
    let reset = response.statuses[0].duration_until_reset.unwrap().seconds;
    assert!((1..=3_600).contains(&reset));
    assert_eq!(header(&response, "retry-after"), Some(&*reset.to_string()));
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&response.raw_body).unwrap();
    assert_eq!(problem["violated-policies"][0], "user");
    // The limit `source` is about one domain, and takes either kind of address.
    let mut left = |domain: &str, entry| {
        let message =
            RateLimitRequest { domain: domain.to_owned(), ..call(vec![descriptor(&[entry])]) };
        let (response, _) = service.ask(&message).unwrap();
        response.statuses[0].current_limit.as_ref().map(|_| response.statuses[0].limit_remaining)
    };
    assert_eq!(left("edge", ("remote_address", "192.0.2.9")), Some(4));
    assert_eq!(left("edge", ("remote_address", "::ffff:192.0.2.9")), Some(3));
    assert_eq!(left("edge", ("masked_remote_address", "192.0.2.0/24")), Some(4));
    assert_eq!(left("other", ("remote_address", "192.0.2.9")), None);
}

#[test]
fn a_call_charges_all_of_its_descriptors_or_none() {
    let mut service = Service::new();
    let both = || vec![descriptor(&[("user", "1")]), descriptor(&[("path", "/login?x")])];
    let codes = |response: &RateLimitResponse| {
        response.statuses.iter().map(Status::code).collect::<Vec<_>>()
    };
    let (response, _) = service.ask(&call(both())).unwrap();
    assert_eq!(codes(&response), [Code::Ok, Code::Ok]);
    assert_eq!(header(&response, "ratelimit"), Some("\"login\";r=0;t=86400, \"user\";r=2;t=3600"));
    for _ in 0..3 {
        let (response, verdict) = service.ask(&call(both())).unwrap();
        assert_eq!(
            (verdict, codes(&response)),
            (Verdict::Limited, vec![Code::Ok, Code::OverLimit])
        );
        assert_eq!(response.statuses[0].limit_remaining, 2);
    }
}

#[test]
fn hits_are_those_of_the_descriptor_or_of_the_call() {
    let mut service = Service::new();
    let mut left = |call_hits, own: Option<u64>| {
        let hits_addend = own.map(|value| Whole { value });
        let descriptor = Descriptor { hits_addend, ..descriptor(&[("user", "7")]) };
        let message = RateLimitRequest { hits_addend: call_hits, ..call(vec![descriptor]) };
        let (response, verdict) = service.ask(&message).unwrap();
        (verdict, response.statuses[0].limit_remaining)
    };
    // Not told is 1. What a descriptor tells wins, and 0 only asks.
    assert_eq!(left(5, Some(0)), (Verdict::Pass, 3));
    assert_eq!(left(0, None), (Verdict::Pass, 2));
    assert_eq!(left(3, None), (Verdict::Limited, 2));
    assert_eq!(left(1, Some(2)), (Verdict::Pass, 0));
    assert_eq!(left(1, Some(0)), (Verdict::Limited, 0));
    assert_eq!(left(1, Some(u64::MAX)), (Verdict::Limited, 0));
}

/// A descriptor of one entry and these hits as Envoy 1.40 writes it: the field 3 has the hits, and the field 4 says that they are
/// negative.
fn negative(hits: u8) -> Descriptor {
    let entry = [&[0x0a, 9, 0x0a, 4][..], b"user", &[0x12, 1], b"7"].concat();
    let bytes = [&entry[..], &[0x1a, 2, 0x08, hits, 0x20, 1]].concat();
    Descriptor::decode(&*bytes).unwrap()
}

#[test]
fn negative_hits_are_given_back() {
    let mut service = Service::new();
    let mut left = |descriptors| {
        let (response, verdict) = service.ask(&call(descriptors)).unwrap();
        (verdict, response.statuses.iter().map(|it| it.limit_remaining).collect::<Vec<_>>())
    };
    let charge = |value| {
        let hits_addend = Some(Whole { value });
        Descriptor { hits_addend, ..descriptor(&[("user", "7")]) }
    };
    assert_eq!(left(vec![charge(3)]), (Verdict::Pass, vec![0]));
    // One with hits of 0 asks.
    assert_eq!(left(vec![negative(0)]), (Verdict::Limited, vec![0]));
    assert_eq!(left(vec![negative(2)]), (Verdict::Pass, vec![2]));
    // No more comes back than was charged.
    assert_eq!(left(vec![negative(100)]), (Verdict::Pass, vec![3]));
    assert_eq!(left(vec![charge(3), negative(1)]), (Verdict::Pass, vec![0, 1]));
    // What a call gives back makes no room for the rest of it, and is given back only if that passes.
    assert_eq!(left(vec![negative(2), charge(2)]), (Verdict::Limited, vec![0, 1]));
    assert_eq!(left(vec![charge(0)]), (Verdict::Pass, vec![1]));
}

#[test]
fn a_told_limit_is_taken_where_the_policy_lets_it() {
    let asked = |requests_per_unit, unit: Unit| {
        let limit = Some(ToldLimit { requests_per_unit, unit: unit.into() });
        call(vec![Descriptor { limit, ..descriptor(&[("user", "7")]) }])
    };
    let told = |service: &mut Service, message: &RateLimitRequest| {
        let (response, verdict) = service.ask(message).unwrap();
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        (verdict, status.limit_remaining, limit.requests_per_unit, limit.unit())
    };
    let five = asked(5, Unit::Day);
    let mut service = Service::new();
    assert_eq!(told(&mut service, &five), (Verdict::Pass, 2, 3, Unit::Hour), "it is ignored");
    let mut service = Service::with_override(true);
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(told(&mut service, &five), (Verdict::Pass, left, 5, Unit::Day));
    }
    assert_eq!(told(&mut service, &five), (Verdict::Limited, 0, 5, Unit::Day));
    // Another limit has another state, and so has that of the policy.
    assert_eq!(told(&mut service, &asked(2, Unit::Day)).1, 1);
    for none in [asked(0, Unit::Day), asked(9, Unit::Unknown)] {
        assert_eq!(told(&mut service, &none).2, 3);
    }
}

/// An error would let the request pass, as far as the proxy is told so.
#[test]
fn a_path_that_services_understand_differently_is_refused() {
    let mut service = Service::new();
    let message = call(vec![descriptor(&[("user", "7")]), descriptor(&[("path", "/a/../login")])]);
    let (response, verdict) = service.ask(&message).unwrap();
    assert_eq!((verdict, response.overall_code), (Verdict::Denied, Code::OverLimit.into()));
    assert_eq!(
        response.statuses.iter().map(Status::code).collect::<Vec<_>>(),
        [Code::Ok, Code::OverLimit]
    );
    assert_eq!(response.statuses[0].limit_remaining, 3, "nothing is charged");
    assert_eq!(header(&response, "ratelimit"), None);
}

#[test]
fn what_is_not_understood_is_told() {
    let mut service = Service::new();
    let many = vec![descriptor(&[("user", "7")]); MOST_ITEMS + 1];
    let long = descriptor(&[("user", "7"); MOST_ENTRIES + 1]);
    for (message, fault) in [
        (call(vec![]), Fault::NoDescriptor),
        (call(many.clone()), Fault::TooManyDescriptors(MOST_ITEMS + 1)),
        (call(vec![long]), Fault::TooManyEntries(MOST_ENTRIES + 1)),
        (
            call(vec![descriptor(&[("remote_address", "x")])]),
            Fault::BadSource { key: "remote_address", value: quoted("x") },
        ),
    ] {
        let told = service.ask(&message).unwrap_err();
        assert_eq!(told.to_string(), fault.to_string());
    }
    assert!(service.ask(&call(many[1..].to_vec())).is_ok());
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    let message = call(vec![descriptor(&[("user", "7")])]);
    let mut bytes = message.encode_to_vec();
    // Field 99, a length and two bytes; and field 100, a number.
    bytes.extend([0x9a, 0x06, 2, 1, 2, 0xa0, 0x06, 7]);
    assert_eq!(RateLimitRequest::decode(&*bytes).unwrap(), message);
    assert!(RateLimitRequest::decode(&[0x12, 0x7f][..]).is_err());
}

#[test]
fn a_limit_is_told_in_the_nearest_unit() {
    for (quota, window, expected) in [
        (5, SECOND, (5, Unit::Second)),
        (20, 10 * SECOND, (120, Unit::Minute)),
        (1, 7 * SECOND, (8, Unit::Minute)),
        (5, 60 * SECOND, (5, Unit::Minute)),
        (3, 86_400 * SECOND, (3, Unit::Day)),
        (u64::MAX, 1, (u32::MAX, Unit::Second)),
        (7, u64::MAX, (0, Unit::Year)),
    ] {
        assert_eq!(per_unit(quota, window), expected);
    }
}

/// The service is told its places, and a call with them gives them back.
#[test]
fn a_call_about_the_end_of_a_request_gives_its_places_back() {
    let layers = vec![RequestLayer {
        allowance: Allowance::Concurrent { limit: 1, idle: SECOND },
        key: None,
    }];
    let limit = RequestLimit { layers, ..RequestLimit::new("open", &[RequestKeyPart::Source]) };
    let policy = Policy { on_requests: vec![limit], ..Policy::default() };
    let decider = Decider::new(&policy, Table::in_memory(1_024)).unwrap();
    let mut service = Service(decider, Arc::new(policy));
    let ask = call(vec![descriptor(&[("remote_address", "192.0.2.9")])]);
    assert_eq!(released(&ask), Ok(None));
    for _ in 0..2 {
        let (response, verdict) = service.ask(&ask).unwrap();
        assert_eq!(verdict, Verdict::Pass);
        assert_eq!(response.statuses[0].current_limit, None, "it has no unit of time");
        let told = &response.request_headers_to_add[0];
        assert_eq!(told.key, "x-limiter-lease");
        let (refused, verdict) = service.ask(&ask).unwrap();
        assert_eq!((verdict, refused.request_headers_to_add.len()), (Verdict::Limited, 0));
        let ended = call(vec![descriptor(&[("x-limiter-lease", &told.value)])]);
        let leases = released(&ended).unwrap().unwrap();
        assert_eq!([1, 0].map(|_| service.0.release(&leases, NOW)), [1, 0]);
    }
    let wrong = call(vec![descriptor(&[("x-limiter-lease", "x")])]);
    assert!(matches!(released(&wrong), Err(Fault::Lease(_))));
}
