//! The answer of LAPI to `GET /v1/decisions/stream`: decisions that were made, and those that ended.
//!
//! Any bytes are an answer, or are told what is wrong with them. What an answer takes is bounded by its length.

use std::{borrow::Cow, collections::HashSet, fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use thiserror::Error;

use crate::policy::units::printable;

/// The only remediation that drops packets.
const BAN: &str = "ban";
/// The most characters of a scenario that a reason has.
const SCENARIO: usize = 150;
/// The longest duration that is read, in bytes. LAPI writes some 25.
const DURATION: usize = 64;

/// The bytes are no answer of LAPI.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("it is no stream of decisions: {0}")]
pub struct AnswerError(String);

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Bans that were made.
    pub made: Vec<Decision>,
    /// The subjects of bans that ended: none of them has a ban any more, unless `made` has one.
    pub ended: Vec<Subject>,
    /// Decisions that were made and are not used.
    pub ignored: Ignored,
}

/// What a decision is about, as LAPI tells subjects apart: by their text.
///
/// Several can be about the same addresses, such as `192.0.2.0/24` and `192.0.2.7/24`. LAPI ends the decisions about each of them apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// What the value is.
    pub scope: Scope,
    /// The address or the range.
    pub value: Box<str>,
}

/// The scope of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A single address.
    Ip,
    /// A range of addresses.
    Range,
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What it is about.
    pub subject: Subject,
    /// Whom it bans: the addresses of the subject, without host bits.
    pub prefix: IpNet,
    /// For how many seconds from the answer on, rounded up.
    pub seconds: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// The reason for the entries, with the scenario: one line of at most [`REASON`](crate::policy::run_time::REASON) characters.
    pub reason: Arc<str>,
}

/// Where a decision comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The community list.
    Capi,
    /// The console.
    Console,
    /// A scenario of this CrowdSec.
    Crowdsec,
    /// `cscli decisions add`.
    Cscli,
    /// `cscli decisions import`.
    Import,
    /// A blocklist that the console subscribes to.
    Lists,
    /// Any other, and entries that were there before the agent.
    Other,
}

impl Origin {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Capi,
        Self::Console,
        Self::Crowdsec,
        Self::Cscli,
        Self::Import,
        Self::Lists,
        Self::Other,
    ];

    /// The word of LAPI.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capi => "CAPI",
            Self::Console => "console",
            Self::Crowdsec => "crowdsec",
            Self::Cscli => "cscli",
            Self::Import => "cscli-import",
            Self::Lists => "lists",
            Self::Other => "other",
        }
    }

    /// Whether it is a list that others publish, which has thousands of decisions and changes as a whole.
    pub const fn is_list(self) -> bool {
        matches!(self, Self::Capi | Self::Lists)
    }

    fn of(word: &str) -> Self {
        // LAPI appends the name of a list.
        let word = word.split_once(':').map_or(word, |(word, _)| word);
        let is_it = |it: &Self| it.name().eq_ignore_ascii_case(word);
        Self::ALL.into_iter().find(is_it).unwrap_or(Self::Other)
    }
}

/// How many decisions are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Those that do not drop packets, such as `captcha`, and simulated ones.
    pub remediation: u64,
    /// Those about something else than addresses, such as countries.
    pub scope: u64,
    /// Those whose value or duration cannot be read.
    pub invalid: u64,
}

impl Answer {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// What is wrong with the body. A decision that is wrong in itself is counted, and ends nothing.
    pub fn read(body: &[u8]) -> Result<Self, AnswerError> {
        let stream: Stream = serde_json::from_slice(body)
            .map_err(|error| AnswerError(printable(&error.to_string(), 200)))?;
        let Stream { new: Made { decisions: made, ignored }, deleted: Ended(ended) } = stream;
        Ok(Self { made, ended, ignored })
    }
}

/// Both members are required: an answer without them is of another server, and would end all bans.
#[derive(Deserialize)]
struct Stream {
    new: Made,
    deleted: Ended,
}

/// A decision as LAPI writes it, as far as it is read.
#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(rename = "type")]
    remediation: Option<Cow<'a, str>>,
    scope: Option<Cow<'a, str>>,
    value: Option<Cow<'a, str>>,
    duration: Option<Cow<'a, str>>,
    origin: Option<Cow<'a, str>>,
    scenario: Option<Cow<'a, str>>,
    simulated: Option<bool>,
}

/// Why a decision is not used.
enum Unused {
    Remediation,
    Scope,
    Invalid,
}

impl Raw<'_> {
    /// The subject, if it is a ban.
    fn subject(&self) -> Result<Subject, Unused> {
        let text = |of: &Option<Cow<'_, str>>| of.as_deref().map(str::to_ascii_lowercase);
        if text(&self.remediation).as_deref() != Some(BAN) || self.simulated == Some(true) {
            return Err(Unused::Remediation);
        }
        let scope = match text(&self.scope).as_deref() {
            Some("ip") => Scope::Ip,
            Some("range") => Scope::Range,
            _ => return Err(Unused::Scope),
        };
        let value = self.value.as_deref().ok_or(Unused::Invalid)?;
        Ok(Subject { scope, value: value.into() })
    }
}

struct Made {
    decisions: Vec<Decision>,
    ignored: Ignored,
}

impl<'de> Deserialize<'de> for Made {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut made = Self { decisions: Vec::new(), ignored: Ignored::default() };
        // A long list has few scenarios.
        let mut reasons = HashSet::new();
        deserializer.deserialize_any(Each(|raw: Raw<'_>| {
            let read = raw.subject().and_then(|subject| {
                let prefix = prefix(&subject.value).ok_or(Unused::Invalid)?;
                let seconds = raw.duration.as_deref().and_then(seconds).ok_or(Unused::Invalid)?;
                Ok((subject, prefix, seconds))
            });
            match read {
                Ok((subject, prefix, seconds)) if seconds > 0 => made.decisions.push(Decision {
                    subject,
                    prefix,
                    seconds: seconds.unsigned_abs(),
                    origin: Origin::of(raw.origin.as_deref().unwrap_or_default()),
                    reason: reason(&mut reasons, raw.scenario.as_deref().unwrap_or_default()),
                }),
                // It is over already.
                Ok(_) => {}
                Err(Unused::Remediation) => made.ignored.remediation += 1,
                Err(Unused::Scope) => made.ignored.scope += 1,
                Err(Unused::Invalid) => made.ignored.invalid += 1,
            }
        }))?;
        Ok(made)
    }
}

struct Ended(Vec<Subject>);

impl<'de> Deserialize<'de> for Ended {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut ended = Vec::new();
        let take = |raw: Raw<'_>| ended.extend(raw.subject().ok());
        deserializer.deserialize_any(Each(take))?;
        Ok(Self(ended))
    }
}

/// Hands each decision of an array on. LAPI writes `null` for an empty one.
struct Each<F>(F);

impl<'de, F: FnMut(Raw<'de>)> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of decisions, or null")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut decisions: A) -> Result<(), A::Error> {
        while let Some(raw) = decisions.next_element()? {
            (self.0)(raw);
        }
        Ok(())
    }
}

/// An address or a range, without host bits. An address of IPv4 in one of IPv6 is that of IPv4.
fn prefix(text: &str) -> Option<IpNet> {
    let prefix = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => text.parse::<IpNet>().ok()?,
    };
    let mapped = match prefix {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6.addr().to_ipv4_mapped(),
        _ => None,
    };
    match mapped {
        Some(v4) => IpNet::new(v4.into(), prefix.prefix_len() - 96).ok().map(|it| it.trunc()),
        None => Some(prefix.trunc()),
    }
}

/// The reason for entries of a scenario, the same one for each.
fn reason(reasons: &mut HashSet<Arc<str>>, scenario: &str) -> Arc<str> {
    let plain = |of: char| if of.is_control() { ' ' } else { of };
    let mut text = "crowdsec".to_owned();
    if !scenario.is_empty() {
        text.push(' ');
        text.extend(scenario.chars().map(plain).take(SCENARIO));
    }
    if let Some(same) = reasons.get(&*text) {
        return Arc::clone(same);
    }
    let new: Arc<str> = text.into();
    reasons.insert(Arc::clone(&new));
    new
}

/// The seconds of a duration as Go writes it, such as `3h59m57.6s` or `-2m0s`, rounded up.
fn seconds(text: &str) -> Option<i64> {
    const UNITS: [(&str, f64); 8] = [
        // Those that others begin with come after them.
        ("ms", 1e-3),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("μs", 1e-6),
        ("ns", 1e-9),
        ("h", 3600.0),
        ("m", 60.0),
        ("s", 1.0),
    ];
    if text.len() > DURATION {
        return None;
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let is_number = |of: char| of.is_ascii_digit() || of == '.';
        let (number, after) = rest.split_at(rest.find(|of| !is_number(of))?);
        let (unit, length) = UNITS
            .into_iter()
            .find_map(|(name, length)| after.strip_prefix(name).map(|it| (it, length)))?;
        sum += number.parse::<f64>().ok()? * length;
        rest = unit;
    }
    // As the cast does with what is out of range.
    Some((sign * sum).ceil() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Answer {
        Answer::read(text.as_bytes()).unwrap()
    }

    fn subject(scope: Scope, value: &str) -> Subject {
        Subject { scope, value: value.into() }
    }

    #[test]
    fn decisions_of_crowdsec_1_4_are_read() {
        let answer = read(
            r#"{"deleted":[{"duration":"-2h0m1.5s","id":1,"origin":"cscli","scenario":"manual 'ban' from 'm'",
            "scope":"Ip","type":"ban","value":"192.0.2.9"}],
            "new":[{"duration":"3h59m57.612s","id":2,"origin":"crowdsec","scenario":"crowdsecurity/ssh-bf",
            "scope":"Ip","type":"ban","value":"::ffff:192.0.2.5"},
            {"duration":"167h0m0s","id":3,"origin":"CAPI","scenario":"http:scan\n","scope":"Range","type":"ban",
            "value":"2001:db8::7/48"}]}"#,
        );
        assert_eq!(answer.ended, [subject(Scope::Ip, "192.0.2.9")]);
        let told =
            |it: &Decision| (it.subject.clone(), it.prefix.to_string(), it.seconds, it.origin);
        let [five, net] = ["192.0.2.5/32", "2001:db8::/48"].map(str::to_owned);
        assert_eq!(
            answer.made.iter().map(told).collect::<Vec<_>>(),
            [
                (subject(Scope::Ip, "::ffff:192.0.2.5"), five, 4 * 3600 - 2, Origin::Crowdsec),
                (subject(Scope::Range, "2001:db8::7/48"), net, 167 * 3600, Origin::Capi),
            ]
        );
        let reasons: Vec<_> = answer.made.iter().map(|it| &*it.reason).collect();
        assert_eq!(reasons, ["crowdsec crowdsecurity/ssh-bf", "crowdsec http:scan "]);
        assert_eq!(answer.ignored, Ignored::default());
        assert_eq!(read(r#"{"new":null,"deleted":null}"#), Answer::default());
        assert_eq!(read(r#"{"new":[],"deleted":[]}"#), Answer::default());
    }

    #[test]
    fn decisions_that_are_not_used_are_counted_and_keep_no_other_out() {
        let one =
            |fields: &str| format!(r#"{{"duration":"1h","origin":"x","scenario":"y",{fields}}}"#);
        let ban = one(r#""type":"Ban","scope":"ip","value":"192.0.2.5""#);
        let all = [
            ban,
            one(r#""type":"captcha","scope":"Ip","value":"192.0.2.6""#),
            one(r#""type":"ban","scope":"Ip","value":"192.0.2.6","simulated":true"#),
            one(r#""scope":"Ip","value":"192.0.2.6""#),
            one(r#""type":"ban","scope":"Country","value":"DE""#),
            one(r#""type":"ban","scope":"Ip","value":"DE""#),
            one(r#""type":"ban","scope":"Range","value":"192.0.2.0/33""#),
            r#"{"duration":"soon","type":"ban","scope":"Ip","value":"192.0.2.6"}"#.to_owned(),
            r#"{"type":"ban","scope":"Ip","value":"192.0.2.6"}"#.to_owned(),
            r#"{"duration":"0s","type":"ban","scope":"Ip","value":"192.0.2.6"}"#.to_owned(),
        ];
        let all = all.join(",");
        let answer = read(&format!(r#"{{"new":[{all}],"deleted":[{all}]}}"#));
        assert_eq!(answer.ignored, Ignored { remediation: 3, scope: 1, invalid: 4 });
        assert_eq!(answer.made.len(), 1);
        assert_eq!(answer.made[0].origin, Origin::Other);
        // The end of a captcha ends no ban, and that of a subject without addresses nothing.
        let ended: Vec<&str> = answer.ended.iter().map(|it| &*it.value).collect();
        let [five, six] = ["192.0.2.5", "192.0.2.6"];
        assert_eq!(ended, [five, "DE", "192.0.2.0/33", six, six, six]);
    }

    #[test]
    fn what_is_no_answer_is_refused_as_a_whole() {
        let deep = "[".repeat(10_000);
        for body in [
            "",
            "<html>502 Bad Gateway</html>",
            "{}",
            "[]",
            "null",
            r#"{"new":[]}"#,
            r#"{"deleted":[]}"#,
            r#"{"message":"access forbidden"}"#,
            r#"{"new":{},"deleted":[]}"#,
            r#"{"new":[7],"deleted":[]}"#,
            r#"{"new":[{"value":7}],"deleted":[]}"#,
            r#"{"new":[],"deleted":[]"#,
            r#"{"new":[],"deleted":[]}x"#,
            &deep,
        ] {
            let error = Answer::read(body.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("it is no stream of decisions: "), "{body}: {error}");
        }
        Answer::read(b"\xff").unwrap_err();
    }

    #[test]
    fn durations_of_go_are_rounded_up() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1s", Some(1)),
            ("1.2s", Some(2)),
            ("1h2m3s", Some(3_723)),
            ("+1.5h", Some(5_400)),
            ("300ms", Some(1)),
            ("5us", Some(1)),
            ("5µs", Some(1)),
            ("5ns", Some(1)),
            ("-1m0.5s", Some(-60)),
            ("2562047h47m16.854775807s", Some(9_223_372_037)),
            ("999999999999999999999999999999h", Some(i64::MAX)),
            ("", None),
            ("-", None),
            ("1", None),
            ("1d", None),
            ("h", None),
            ("1.2.3s", None),
            (".s", None),
            ("1 h", None),
            ("NaNs", None),
            ("infs", None),
            ("1e9s", None),
            ("1h-1m", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert_eq!(seconds(&"1s".repeat(100)), None);
    }

    #[test]
    fn origins_are_bounded() {
        for (word, origin) in [
            ("CAPI", Origin::Capi),
            ("capi", Origin::Capi),
            ("cscli-import", Origin::Import),
            ("lists:firehol", Origin::Lists),
            ("", Origin::Other),
            ("anything", Origin::Other),
        ] {
            assert_eq!(Origin::of(word), origin, "{word}");
        }
        for (number, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!(origin as usize, number);
        }
    }
}
