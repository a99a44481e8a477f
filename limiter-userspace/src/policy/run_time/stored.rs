//! Run-time entries as they are stored: those next to each other that differ in their prefixes only are one run.
//! A list of a million prefixes from one command so takes some 10 bytes for each.

use std::{borrow::Cow, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Entry, RunTime, is_false};
use crate::policy::{
    lists::List,
    packed::{NotPacked, pack, unpack},
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run<'a> {
    list: List,
    /// The prefix of a single entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<IpNet>,
    /// The prefixes of several, as older versions stored them.
    #[serde(default, skip_serializing)]
    prefixes: Vec<IpNet>,
    /// The prefixes of several: see [`packed`](crate::policy::packed).
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    packed: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_false")]
    exception: bool,
    until: Option<u64>,
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set: Option<String>,
    by: Option<String>,
    since: Option<u64>,
}

impl Run<'_> {
    /// The run of these entries, of which there is at least one and all say the same.
    fn new(entries: &[Entry], first: &Entry) -> Self {
        let text = |of: &Option<Arc<str>>| of.as_deref().map(str::to_owned);
        let (prefix, packed) = match entries {
            [one] => (Some(one.prefix), String::new()),
            several => (None, pack(several.iter().map(|it| it.prefix))),
        };
        Self {
            list: first.list,
            prefix,
            prefixes: Vec::new(),
            packed: packed.into(),
            exception: first.exception,
            until: first.until,
            reason: text(&first.reason),
            set: text(&first.set),
            by: text(&first.by),
            since: first.since,
        }
    }

    fn entries(self) -> Result<impl Iterator<Item = Entry>, NotPacked> {
        let text = |of: Option<String>| of.map(Arc::from);
        let Self { list, prefix, prefixes, exception, until, since, .. } = self;
        let packed = unpack(&self.packed)?;
        let (reason, set, by) = (text(self.reason), text(self.set), text(self.by));
        let entry = move |prefix| Entry {
            list,
            prefix,
            exception,
            until,
            reason: reason.clone(),
            set: set.clone(),
            by: by.clone(),
            since,
        };
        Ok(prefix.into_iter().chain(prefixes).chain(packed).map(entry))
    }
}

/// Whether two entries differ in their prefixes only.
fn are_alike(one: &Entry, other: &Entry) -> bool {
    let Entry { list, prefix: _, exception, until, reason, set, by, since } = one;
    (list, exception, until, since) == (&other.list, &other.exception, &other.until, &other.since)
        && (reason, set, by) == (&other.reason, &other.set, &other.by)
}

impl Serialize for RunTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let runs = self.entries.chunk_by(are_alike);
        serializer.collect_seq(runs.filter_map(|run| Some(Run::new(run, run.first()?))))
    }
}

impl<'de> Deserialize<'de> for RunTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let runs: Vec<Run<'_>> = Deserialize::deserialize(deserializer)?;
        let mut entries = Vec::new();
        for run in runs {
            entries.extend(run.entries().map_err(broken)?);
        }
        Ok(Self { entries })
    }
}

/// Run-time entries that could be read, which takes longer.
#[derive(Debug)]
pub(crate) struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let runs: Vec<Run<'_>> = Deserialize::deserialize(deserializer)?;
        let mut unpacked = runs.iter().map(|run| unpack(&run.packed));
        unpacked.try_for_each(|run| run.map(drop)).map_err(broken)?;
        Ok(Self)
    }
}

fn broken<E: serde::de::Error>(_: NotPacked) -> E {
    E::custom("prefixes are not as they were written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_say_the_same_are_stored_as_one_run() {
        let entry = |prefix: &str| Entry::new(List::Deny, prefix.parse().unwrap());
        let reason = Some("scans".into());
        let entries = vec![
            entry("192.0.2.1/32"),
            entry("192.0.2.2/32"),
            Entry { reason, until: Some(9), ..entry("2001:db8::/64") },
            entry("192.0.2.3/32"),
        ];
        let run_time = RunTime { entries };
        let text = serde_json::to_string(&run_time).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"[{"list":"deny","packed":"20c000020120c0000202","until":null,"#,
                r#""reason":null,"by":null,"since":null},"#,
                r#"{"list":"deny","prefix":"2001:db8::/64","until":9,"reason":"scans","#,
                r#""by":null,"since":null},"#,
                r#"{"list":"deny","prefix":"192.0.2.3/32","until":null,"reason":null,"#,
                r#""by":null,"since":null}]"#
            )
        );
        assert_eq!(serde_json::from_str::<RunTime>(&text).unwrap(), run_time);
        let older = text.replace(
            r#""packed":"20c000020120c0000202""#,
            r#""prefixes":["192.0.2.1/32","192.0.2.2/32"]"#,
        );
        assert_ne!(older, text);
        assert_eq!(serde_json::from_str::<RunTime>(&older).unwrap(), run_time);
        // As versions before stored each entry.
        let older = r#"[{"list":"deny","prefix":"192.0.2.1/32","until":null,"reason":null,
            "by":"root","since":5}]"#;
        let read: RunTime = serde_json::from_str(older).unwrap();
        let by = Some("root".into());
        assert_eq!(read.entries, [Entry { by, since: Some(5), ..entry("192.0.2.1/32") }]);
        let broken = r#"[{"list":"deny","packed":"20c0","until":null}]"#;
        assert!(serde_json::from_str::<RunTime>(broken).is_err());
        assert!(serde_json::from_str::<Readable>(broken).is_err());
    }
}
