//! Imported configurations of Envoy's rate limit service, against a model of that service.

use std::collections::HashMap;

use limiter_common::algorithm::rate::SECOND;
use limiter_userspace::{
    bridge::{
        answer::{Answer, Verdict},
        decide::Decider,
        request::{Request, Told},
        table::Table,
    },
    policy::{
        Policy,
        document::{
            parse,
            ratelimit::{WindowAlgorithm, import},
            to_yaml,
        },
        model::{Mode, RequestOverride},
    },
};
use proptest::{prelude::*, sample::select};

/// All forms of nodes: values, beginnings of values, no value; nested; unlimited; without a rate.
const CONFIG: &str = r#"
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: user
    value: big
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: user
    value: "bot-*"
    rate_limit: { unit: DAY, requests_per_unit: 1 }
  - key: user
    value: bot-good
    rate_limit: { unlimited: true }
  - key: remote_address
    value: 192.0.2.1
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: plan
    value: free
    descriptors:
      - key: region
        rate_limit: { unit: month, requests_per_unit: 2 }
      - key: region
        value: eu
  - key: plan
    descriptors:
      - key: region
        value: us
        rate_limit: { unit: hour, requests_per_unit: 4 }
  - key: region
    rate_limit: { unit: day, requests_per_unit: 6 }
  - key: plan
    value: paid
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors:
      - key: remote_address
        rate_limit: { unit: day, requests_per_unit: 2 }
      - key: remote_address
        value: 192.0.2.1
        rate_limit: { unit: day, requests_per_unit: 0 }
  - key: user
    value: "spam-*"
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: user
    value: spam-known
    rate_limit: { unit: day, requests_per_unit: 1 }
"#;

struct Entries<'e>(&'e [(&'e str, &'e str)]);

impl Told for Entries<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.entry(name)
    }

    fn entry(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
    }
}

/// The number of requests that a descriptor may have in a unit, as the service looks it up.
fn limit_of(entries: &[(&str, &str)]) -> Option<u64> {
    match entries {
        [("user", "big")] => Some(5),
        [("user", "bot-good")] => None,
        [("user", "spam-known")] => Some(1),
        [("user", user)] if user.starts_with("spam-") => Some(0),
        [("user", user)] if user.starts_with("bot-") => Some(1),
        [("user", _)] => Some(3),
        [("remote_address", "192.0.2.1")] => Some(2),
        [("plan", "free"), ("region", "eu")] => None,
        [("plan", "free"), ("region", _)] => Some(2),
        // The value itself comes first, and has no region below it.
        [("plan", "paid"), ("region", _)] => None,
        [("plan", _), ("region", "us")] => Some(4),
        [("region", _)] => Some(6),
        [("plan", "paid")] => Some(3),
        [("plan", "paid"), ("remote_address", "192.0.2.1")] => Some(0),
        [("plan", "paid"), ("remote_address", _)] => Some(2),
        _ => None,
    }
}

fn imported(text: &str, algorithm: WindowAlgorithm) -> Policy {
    let mut policy = Policy::default();
    import("config.yaml", text.as_bytes(), algorithm, &mut policy).unwrap();
    let yaml = to_yaml(&policy);
    let read = parse("written", yaml.as_bytes(), &mut |_| unreachable!());
    assert_eq!(read.as_ref(), Ok(&policy), "{yaml}");
    policy
}

#[derive(Clone, Debug)]
struct Asked(Vec<(&'static str, &'static str)>);

fn asked() -> impl Strategy<Value = Asked> {
    let one = (
        select(vec!["user", "remote_address", "plan", "plan alone", "plan of address", "region"]),
        select(vec!["big", "bot-good", "bot-a", "spam-a", "spam-known", "anna", "free", "paid"]),
        select(vec!["192.0.2.1", "192.0.2.2"]),
        select(vec!["eu", "us", "asia"]),
    );
    one.prop_map(|(key, value, address, region)| {
        Asked(match key {
            "remote_address" => vec![(key, address)],
            "plan" => vec![(key, value), ("region", region)],
            "plan alone" => vec![("plan", value)],
            "plan of address" => vec![("plan", value), ("remote_address", address)],
            "region" => vec![(key, region)],
            _ => vec![(key, value)],
        })
    })
}

/// The first example of its documentation: a limit is about descriptors that have its entries and no others.
#[test]
fn a_descriptor_with_another_entry_is_another_one() {
    let text = "domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - { key: to_number, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: to_number, rate_limit: { unit: day, requests_per_unit: 100 } }
";
    let policy = imported(text, WindowAlgorithm::FixedWindow);
    let mut decider = Decider::new(&policy, Table::in_memory(64)).unwrap();
    let mut passed = |entries: &[(&str, &str)]| {
        let told = Entries(entries);
        let request = Request {
            method: None,
            host: None,
            path: None,
            domain: "messaging",
            source: None,
            told: &told,
        };
        let passes = |_: &u32| {
            let mut answer = Answer::default();
            decider.decide(&request, 1, 100 * 365 * 86_400 * SECOND, &mut answer);
            answer.verdict == Verdict::Pass
        };
        (0..200).filter(passes).count()
    };
    let to = ("to_number", "2061111111");
    assert_eq!(passed(&[("message_type", "marketing"), to]), 5);
    assert_eq!(passed(&[("message_type", "news"), to]), 200, "no node is about it");
    assert_eq!(passed(&[to]), 100);
    let warnings = import("a", text.as_bytes(), WindowAlgorithm::default(), &mut Policy::default());
    let told: String = warnings.unwrap().iter().map(ToString::to_string).collect();
    assert!(told.contains("keep the `rate_limits` of your Envoy"), "{told}");
}

/// A value that another node is about is exempt, whatever the sources that are limited beside it.
#[test]
fn what_is_exempt_is_so_for_each_source() {
    let text = "domain: a
descriptors:
  - { key: user, value: abc }
  - key: user
    value: \"a*\"
    descriptors:
      - { key: remote_address, value: 192.0.2.1, rate_limit: { unit: day, requests_per_unit: 2 } }
";
    let policy = imported(text, WindowAlgorithm::FixedWindow);
    let overrides = &policy.on_requests[0].overrides;
    let [exempt, source] = [true, false].map(|is_of_user| {
        overrides.iter().position(|entry| entry.whom.is_none() == is_of_user).unwrap()
    });
    assert!(exempt < source, "{overrides:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The same requests pass, as long as no window ends.
    #[test]
    fn verdicts_are_those_of_the_service(sequence in prop::collection::vec(asked(), 1..80)) {
        for algorithm in [WindowAlgorithm::FixedWindow, WindowAlgorithm::SlidingWindow] {
            let policy = imported(CONFIG, algorithm);
            let mut decider = Decider::new(&policy, Table::in_memory(4_096)).unwrap();
            let mut counted: HashMap<&[(&str, &str)], u64> = HashMap::new();
            for asked in &sequence {
                let told = Entries(&asked.0);
                let source = told.entry("remote_address").map(|text| text.parse().unwrap());
                let request = Request {
                    method: None, host: None, path: None, domain: "edge", source, told: &told,
                };
                let mut answer = Answer::default();
                decider.decide(&request, 1, 100 * 365 * 86_400 * SECOND, &mut answer);
                let count = counted.entry(&asked.0).or_default();
                *count += 1;
                let passes = limit_of(&asked.0).is_none_or(|limit| *count <= limit);
                prop_assert_eq!(answer.verdict == Verdict::Pass, passes, "{:?}", asked);
            }
        }
    }

    /// No text has it panic.
    #[test]
    fn any_text_is_read_or_refused(text in "(domain: a\n)?(descriptors: )?[ \\-a-z:{},*\n\"0-9]{0,80}") {
        let mut policy = Policy::default();
        let _ = import("it", text.as_bytes(), WindowAlgorithm::TokenBucket, &mut policy);
    }
}

#[test]
fn a_config_map_has_several_domains() {
    let nested = |domain: &str| {
        format!(
            "    domain: {domain}\n    descriptors:\n      - key: PATH\n      - key: a.b\n        \
             shadow_mode: true\n        rate_limit: {{unit: second, requests_per_unit: 7}}\n"
        )
    };
    let text = format!(
        "kind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  one.yaml: |\n{}  two.yaml: |\n{}",
        nested("one"),
        nested("two")
    );
    let mut policy = Policy::default();
    let warnings =
        import("map", text.as_bytes(), WindowAlgorithm::TokenBucket, &mut policy).unwrap();
    let told: String = warnings.iter().map(ToString::to_string).collect();
    assert!(told.contains("descriptors with the key `PATH` are left out"), "{told}");
    let yaml = to_yaml(&policy);
    for line in ["domain: one", "domain: two", "x-a-b:", "header: a.b", "action: monitor"] {
        assert!(yaml.contains(line), "no {line} in {yaml}");
    }
    let names: Vec<_> = policy.on_requests.iter().map(|limit| &*limit.name).collect();
    assert_eq!(names, ["a-b", "a-b-2"]);
}

/// A policy has fewer limits than a key has values.
#[test]
fn values_that_are_refused_are_one_limit() {
    let node = |key: &str, value: String, rate: &str| {
        format!("  - {{ key: {key}, value: \"{value}\", rate_limit: {{ {rate} }} }}\n")
    };
    let refused = "unit: day, requests_per_unit: 0";
    let users = (0..600).map(|at| node("user", format!("bad-{at}"), refused));
    let sources = (0..250).map(|at| node("remote_address", format!("192.0.2.{at}"), refused));
    let free = (0..300).map(|at| node("user", format!("good-{at}"), "unlimited: true"));
    let nodes: String = users.chain(sources).chain(free).collect();
    let all = "  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }\n";
    let text = format!("domain: a\ndescriptors:\n{nodes}{all}");
    let mut policy = Policy::default();
    import("a", text.as_bytes(), WindowAlgorithm::default(), &mut policy).unwrap();
    let yaml = to_yaml(&policy);
    let policy = parse("policy", yaml.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let names: Vec<_> = policy.on_requests.iter().map(|limit| &*limit.name).collect();
    let refusing = ["user-refused", "user-refused-2", "user-refused-3"];
    assert_eq!(names, [&refusing[..], &["user", "remote_address-refused"]].concat());
    let modes: Vec<_> = policy.on_requests.iter().map(|limit| limit.mode).collect();
    assert_eq!(modes, [Mode::Drop, Mode::Drop, Mode::Drop, Mode::Enforce, Mode::Drop]);
    let values = policy.on_requests[..3].iter().flat_map(|it| it.matching.fields.values());
    let values = values.flatten().filter(|it| it.to_string().starts_with("bad-"));
    assert_eq!(values.count(), 600);
    assert_eq!(policy.on_requests[4].matching.sources.len(), 250);
}

#[test]
fn what_is_lost_is_told() {
    let text = "domain: a
descriptors:
  - { key: user, detailed_metric: true, rate_limit: { unit: second, requests_per_unit: 2, replaces: [{ name: b }] } }
  - { key: remote_address, value: x, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: plan, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 0 } }
  - key: user
    value: a
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 1 }
    descriptors: [{ key: user, rate_limit: { unit: second, requests_per_unit: 1 } }]
";
    let mut policy = Policy::default();
    let warnings = import("a", text.as_bytes(), WindowAlgorithm::default(), &mut policy).unwrap();
    let told: String = warnings.iter().map(ToString::to_string).collect();
    for words in [
        "`detailed_metric` has no meaning here",
        "what it replaces is limited, too",
        "with `shadow_mode`, what 0 would refuse is not counted",
        "its value is no source",
        "with `shadow_mode` beside values without it",
        "`user` is in a descriptor twice",
    ] {
        assert!(told.contains(words), "no {words} in {told}");
    }
    for (text, words) in [
        ("descriptors: []", "there is no `domain`"),
        ("domain: a\ndescriptors: [{value: b}]", "no `key`"),
        (
            "domain: a\ndescriptors: [{key: b, rate_limit: {unit: era, requests_per_unit: 1}}]",
            "no unit",
        ),
        ("domain: a\ndescriptors: [{key: b, rate_limit: {unit: day}}]", "no `requests_per_unit`"),
    ] {
        let faults = import("a", text.as_bytes(), WindowAlgorithm::default(), &mut policy);
        let told = faults.unwrap_err().to_string();
        assert!(told.contains(words), "no {words} in {told}");
    }
}

/// What one document cannot have is left out, and the rest of it is a document.
#[test]
fn sources_that_are_none_and_values_that_occur_twice_are_left_out() {
    let entry = |value: &str, number: u32| {
        format!(
            "  - {{ key: remote_address, value: \"{value}\", rate_limit: {{ unit: hour, requests_per_unit: {number} }} }}\n"
        )
    };
    let text = [("2001:db8::1", 1), ("192.0.0.0/16", 2), ("192.0.2.1", 3), ("192.0.2.1", 4)];
    let text: String = text.map(|(value, number)| entry(value, number)).concat();
    let text = format!("domain: a\ndescriptors:\n{text}");
    let mut policy = Policy::default();
    let warnings = import("a", text.as_bytes(), WindowAlgorithm::default(), &mut policy).unwrap();
    let told: String = warnings.iter().map(ToString::to_string).collect();
    assert!(told.contains("its value is no source") && told.contains("it occurs twice"), "{told}");
    let yaml = to_yaml(&policy);
    let read = parse("a", yaml.as_bytes(), &mut |_| Ok(Vec::new())).unwrap();
    let of = |it: &RequestOverride| it.whom.as_ref().unwrap().to_string();
    let overrides: Vec<String> = read.on_requests[0].overrides.iter().map(of).collect();
    assert_eq!(overrides, ["192.0.2.1/32", "192.0.0.0/16"]);
}
