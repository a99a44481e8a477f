use ipnet::IpNet;

use super::*;
use crate::{bridge::request::Told, policy::model::Pattern};

/// Headers, and entries of a descriptor.
struct Both(&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

impl Told for Both {
    fn header(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    fn entry(&self, key: &str) -> Option<&str> {
        self.1.iter().find(|(known, _)| *known == key).map(|&(_, value)| value)
    }
}

fn request<'r>(told: &'r dyn Told, path: &'r str) -> Request<'r> {
    Request {
        method: Some("POST"),
        host: None,
        path: Some(path),
        domain: "",
        source: Some("::ffff:192.0.2.9".parse().unwrap()),
        told,
    }
}

fn attribute(name: &str) -> Field {
    Field::Attribute(name.to_owned())
}

fn properties(attributes: &[(&str, AttributeSource, bool)]) -> Properties {
    let mut policy = Policy::default();
    for (name, from, digest) in attributes {
        let attribute = Attribute { from: from.clone(), digest: *digest };
        policy.attributes.insert((*name).to_owned(), attribute);
    }
    Properties::new(&policy, [1, 2])
}

#[test]
fn each_property_is_found_where_the_policy_says() {
    let exact = |text: &str| Pattern::Exact(text.to_owned());
    let prefix = |text: &str| Pattern::Prefix(text.to_owned());
    let path = vec![
        (exact("/login"), "login".to_owned()),
        (prefix("/v1/"), "api".to_owned()),
        (prefix("/v1/search"), "never".to_owned()),
    ];
    let properties = properties(&[
        ("user", AttributeSource::Header("x-user".to_owned()), false),
        ("session", AttributeSource::Cookie("sid".to_owned()), false),
        ("route", AttributeSource::Path(path), false),
        ("plan", AttributeSource::Descriptor, false),
    ]);
    let told = Both(&[("x-user", "ann"), ("cookie", "sid2=a; sid=b=c ;sid=d")], &[]);
    let value = |field: &Field, path: &str| {
        properties.value(field, &request(&told, path)).map(|value| value.to_string())
    };
    let found = |field: &str, path: &str| value(&attribute(field), path);
    assert_eq!(found("user", "/").as_deref(), Some("ann"));
    assert_eq!(found("session", "/").as_deref(), Some("b=c"));
    assert_eq!(found("route", "/login").as_deref(), Some("login"));
    assert_eq!(found("route", "/v1/search").as_deref(), Some("api"));
    for (field, path) in [("route", "/login/"), ("plan", "/"), ("unknown", "/")] {
        assert_eq!(found(field, path), None, "{field} {path}");
    }
    assert_eq!(value(&Field::Method, "/").as_deref(), Some("POST"));
    assert_eq!(value(&Field::Path, "/a").as_deref(), Some("/a"));
    assert_eq!(value(&Field::Host, "/"), None);
    assert_eq!(value(&Field::Domain, "/"), None);
}

#[test]
fn an_entry_of_a_descriptor_is_taken_first() {
    let properties = properties(&[
        ("user", AttributeSource::Header("x-user".to_owned()), false),
        ("plan", AttributeSource::Descriptor, false),
    ]);
    let told = Both(&[("x-user", "ann"), ("plan", "header")], &[("user", "bob"), ("plan", "gold")]);
    let request = request(&told, "/");
    for (name, expected) in [("user", "bob"), ("plan", "gold")] {
        let value = properties.value(&attribute(name), &request);
        assert_eq!(value.as_deref(), Some(expected));
    }
}

#[test]
fn an_empty_value_is_none() {
    let properties = properties(&[
        ("user", AttributeSource::Header("x-user".to_owned()), true),
        ("session", AttributeSource::Cookie("sid".to_owned()), false),
    ]);
    let told = Both(&[("x-user", ""), ("cookie", "sid=; other")], &[]);
    for name in ["user", "session"] {
        assert_eq!(properties.value(&attribute(name), &request(&told, "/")), None, "{name}");
    }
    let properties = Properties::new(&Policy::default(), [0; 2]);
    assert_eq!(properties.value(&Field::Path, &request(&told, "")), None);
}

#[test]
fn a_digest_depends_on_the_seed_and_the_whole_secret() {
    let digits = |text: &str, seed| {
        let digits = digest(text, seed);
        PropertyValue::Digest(digits).to_string()
    };
    let first = digits("secret", [1, 2]);
    assert_eq!(first, digits("secret", [1, 2]));
    assert!(first.len() == 16 && first.bytes().all(|byte| byte.is_ascii_hexdigit()));
    for (text, seed) in [
        ("secret", [1, 3]),
        ("secret", [2, 2]),
        ("secret\0", [1, 2]),
        ("secret12", [1, 2]),
        ("", [1, 2]),
    ] {
        assert_ne!(first, digits(text, seed), "{text:?}");
    }
}

#[test]
fn all_conditions_have_to_hold() {
    let properties = properties(&[("user", AttributeSource::Header("x-user".to_owned()), false)]);
    let told = Both(&[("x-user", "ann")], &[]);
    let request = request(&told, "/");
    let within =
        |whom: &Whom, source: IpAddr| matches!(whom, Whom::Prefix(it) if it.contains(&source));
    let accepts = |matching: &RequestMatch| properties.accepts(matching, &request, within);
    let prefix = |text: &str| Whom::Prefix(text.parse::<IpNet>().unwrap());
    let text = |text: &str| Pattern::Exact(text.to_owned());

    let mut matching = RequestMatch::default();
    assert!(accepts(&matching));
    matching.fields.insert(Field::Method, vec![text("GET"), text("POST")]);
    matching.fields.insert(attribute("user"), vec![Pattern::Prefix("a".to_owned())]);
    matching.sources = vec![prefix("198.51.100.0/24"), prefix("192.0.2.0/24")];
    matching.except_sources = vec![prefix("192.0.2.0/29")];
    assert!(accepts(&matching));

    let mut other = matching.clone();
    other.fields.insert(Field::Method, vec![text("GET")]);
    assert!(!accepts(&other));
    let mut other = matching.clone();
    // The host was not told.
    other.fields.insert(Field::Host, vec![Pattern::Prefix(String::new())]);
    assert!(!accepts(&other));
    let other = RequestMatch { sources: vec![prefix("::/0")], ..matching.clone() };
    assert!(!accepts(&other));
    let other = RequestMatch { except_sources: vec![prefix("192.0.2.9/32")], ..matching.clone() };
    assert!(!accepts(&other));

    let nowhere = Request { source: None, ..request };
    assert!(!properties.accepts(&matching, &nowhere, within));
    matching.sources.clear();
    assert!(properties.accepts(&matching, &nowhere, within));
}
