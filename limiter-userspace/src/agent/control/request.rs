//! The blocks that a process asks for, as JSON.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};

use crate::policy::units::{parse_time, quoted};

/// The most blocks that are asked for at once.
pub(super) const MOST: usize = 1_000;
/// The longest block that may be asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The most bytes of a reason, and of the name of a limit.
const REASON: usize = 64;

/// A block that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Penalty")]
pub(super) struct Asked {
    /// An address of the source.
    #[serde(deserialize_with = "address")]
    #[schemars(schema_with = "address_schema")]
    pub(super) subject: IpAddr,
    /// For how long: a text such as `60s`, or seconds.
    #[serde(rename = "for", deserialize_with = "time")]
    #[schemars(schema_with = "time_schema")]
    pub(super) time: Duration,
    /// Why, for the event alone.
    #[serde(default, deserialize_with = "text")]
    pub(super) reason: Option<String>,
    /// The limit for which: for the event, and its penalty bounds the time.
    #[serde(default, deserialize_with = "text")]
    pub(super) limit: Option<String>,
    /// The connection that proves that the source was not forged.
    #[serde(default)]
    pub(super) proof: Option<Proof>,
}

/// A TCP connection of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Proof {
    /// The end of the source.
    #[serde(deserialize_with = "end")]
    pub(super) remote: SocketAddr,
    /// The end of this host.
    #[serde(deserialize_with = "end")]
    pub(super) local: SocketAddr,
}

impl Proof {
    /// Ends that no connection has: it proves nothing, whoever asks.
    pub(super) const NONE: Self = {
        let end = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self { remote: end, local: end }
    };
}

/// The body of a request: one block, or an array of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(super) asked: Vec<Asked>,
    /// Whether it is an array, as the answer is.
    pub(super) is_array: bool,
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("the body is no JSON: {error}"))?;
        let is_array = value.is_array();
        let all = match value {
            Value::Array(all) => all,
            one => vec![one],
        };
        if all.len() > MOST {
            return Err(format!("the body asks for {} blocks; {MOST} are the most", all.len()));
        }
        let asked = (1..).zip(all).map(|(number, one)| {
            Asked::deserialize(one).map_err(|error| match is_array {
                true => format!("block {number} of the body: {error}"),
                false => format!("the body: {error}"),
            })
        });
        Ok(Self { asked: asked.collect::<Result<_, _>>()?, is_array })
    }

    /// The same body, with a proof in each block. A block without one gets a proof that proves nothing, so that the agent answers
    /// `unproven` to a bridge of root too.
    pub(crate) fn with_proofs(self) -> Value {
        let all = self.asked.into_iter().map(|asked| {
            let Asked { subject, time, reason, limit, proof } = asked;
            let Proof { remote, local } = proof.unwrap_or(Proof::NONE);
            json!({
                "subject": subject,
                "for": time.as_secs_f64(),
                "reason": reason,
                "limit": limit,
                "proof": { "remote": remote, "local": local },
            })
        });
        let mut all: Vec<Value> = all.collect();
        match (self.is_array, all.pop()) {
            (false, Some(one)) => one,
            (_, last) => all.into_iter().chain(last).collect(),
        }
    }
}

impl JsonSchema for Body {
    fn schema_name() -> Cow<'static, str> {
        "Penalties".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Asked>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "maxItems": MOST }] })
    }
}

/// The schema of what [`address`] reads.
pub(crate) fn address_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "string", "format": "ipv4" }, { "type": "string", "format": "ipv6" }],
        "examples": ["192.0.2.9", "2001:db8::9"],
    })
}

/// The schema of what [`time`] reads.
fn time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            { "type": "number", "exclusiveMinimum": 0, "maximum": LONGEST.as_secs() },
            { "type": "string" },
        ],
        "examples": [60, "10m"],
    })
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    Ok(IpAddr::deserialize(deserializer)?.to_canonical())
}

fn end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let end = SocketAddr::deserialize(deserializer)?;
    Ok(SocketAddr::new(end.ip().to_canonical(), end.port()))
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let time = match Value::deserialize(deserializer)? {
        Value::String(text) => parse_time(&text).map_err(D::Error::custom)?,
        Value::Number(number) => {
            let seconds = number.as_f64().unwrap_or_default();
            Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)?
        }
        _ => {
            return Err(D::Error::custom(
                "`for` is a text such as \"60s\", or a number of seconds",
            ));
        }
    };
    if time.is_zero() || time > LONGEST {
        return Err(D::Error::custom("`for` is more than 0 s and at most 24h"));
    }
    Ok(time)
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    if let Some(text) = &text {
        if text.len() > REASON {
            return Err(D::Error::custom(format!("a text has more than {REASON} bytes")));
        }
        if text.chars().any(char::is_control) {
            return Err(D::Error::custom(format!("{} has control characters", quoted(text))));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_or_an_array_of_them_is_asked_for() {
        let one = r#"{"subject": "192.0.2.9", "for": "1m30s", "reason": "login", "limit": "web",
            "proof": {"remote": "[::ffff:192.0.2.9]:51812", "local": "198.51.100.1:443"}}"#;
        let body = Body::read(one.as_bytes()).unwrap();
        assert!(!body.is_array);
        let asked = &body.asked[0];
        assert_eq!(
            (asked.subject, asked.time),
            ("192.0.2.9".parse().unwrap(), Duration::from_secs(90))
        );
        assert_eq!(asked.proof.unwrap().remote, "192.0.2.9:51812".parse().unwrap());
        let short = r#"{"subject": "::ffff:192.0.2.9", "for": 0.5}"#;
        let body = Body::read(format!("[{one}, {short}]").as_bytes()).unwrap();
        assert!(body.is_array);
        let Asked { subject, time, reason, limit, proof } = body.asked[1].clone();
        assert_eq!((subject, time), (asked.subject, Duration::from_millis(500)));
        assert_eq!((reason, limit, proof), (None, None, None));
        assert_eq!(Body::read(b"[]").unwrap().asked, []);
    }

    #[test]
    fn a_block_without_a_proof_gets_one_that_proves_nothing() {
        let proof = r#"{"remote": "192.0.2.9:51812", "local": "198.51.100.1:443"}"#;
        let proven = format!(
            r#"{{"subject": "192.0.2.9", "for": "1500ms", "reason": "a", "limit": "b", "proof": {proof}}}"#
        );
        // Fields may come in their order, without names.
        for unproven in [
            r#"{"subject": "192.0.2.9", "for": 60}"#,
            r#"{"subject": "192.0.2.9", "for": 60, "proof": null}"#,
            r#"["192.0.2.9", 60, null, null, null]"#,
        ] {
            let text = format!("[{proven}, {unproven}]");
            let body = Body::read(text.as_bytes()).unwrap();
            let told = Body::read(body.with_proofs().to_string().as_bytes()).unwrap();
            let mut expected = Body::read(text.as_bytes()).unwrap();
            expected.asked[1].proof = Some(Proof::NONE);
            assert_eq!(told, expected, "{unproven}");
        }
        let one = Body::read(proven.as_bytes()).unwrap().with_proofs();
        assert!(one.is_object(), "{one}");
        assert_eq!(Body::read(b"[]").unwrap().with_proofs(), json!([]));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let long = "x".repeat(REASON + 1);
        let many = format!("[{}]", vec!["1"; MOST + 1].join(","));
        for (body, why) in [
            ("", "no JSON"),
            ("{}", "subject"),
            (r#"{"subject": "192.0.2.0/24", "for": 1}"#, "IP address"),
            (r#"{"subject": "192.0.2.9"}"#, "for"),
            (r#"{"subject": "192.0.2.9", "for": 0}"#, "at most 24h"),
            (r#"{"subject": "192.0.2.9", "for": -1}"#, "negative"),
            (r#"{"subject": "192.0.2.9", "for": 1e300}"#, ""),
            (r#"{"subject": "192.0.2.9", "for": "25h"}"#, "at most 24h"),
            (r#"{"subject": "192.0.2.9", "for": true}"#, "number of seconds"),
            (r#"{"subject": "192.0.2.9", "for": 1, "more": 1}"#, "more"),
            (r#"[{"subject": "192.0.2.9", "for": 1}, 7]"#, "block 2 of the body"),
            (r#"{"subject": "192.0.2.9", "for": 1, "proof": {"remote": "192.0.2.9:1"}}"#, "local"),
            (&format!(r#"{{"subject": "192.0.2.9", "for": 1, "reason": "{long}"}}"#), "64 bytes"),
            (r#"{"subject": "192.0.2.9", "for": 1, "reason": "a\nb"}"#, "control"),
            (&many, "1000 are the most"),
        ] {
            let error = Body::read(body.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
