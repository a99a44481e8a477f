//! Run-time entries as they are stored: those next to each other that differ in their prefixes only are one run.
//! A list of a million prefixes from one command so takes some 20 bytes for each.

use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Entry, RunTime, is_false};
use crate::policy::lists::List;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    list: List,
    /// The prefix of a single entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<IpNet>,
    /// The prefixes of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "is_false")]
    exception: bool,
    until: Option<u64>,
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set: Option<String>,
    by: Option<String>,
    since: Option<u64>,
}

impl Run {
    /// The run of these entries, of which there is at least one and all say the same.
    fn new(entries: &[Entry], first: &Entry) -> Self {
        let text = |of: &Option<Arc<str>>| of.as_deref().map(str::to_owned);
        let (prefix, prefixes) = match entries {
            [one] => (Some(one.prefix), Vec::new()),
            several => (None, several.iter().map(|it| it.prefix).collect()),
        };
        Self {
            list: first.list,
            prefix,
            prefixes,
            exception: first.exception,
            until: first.until,
            reason: text(&first.reason),
            set: text(&first.set),
            by: text(&first.by),
            since: first.since,
        }
    }

    fn entries(self) -> impl Iterator<Item = Entry> {
        let text = |of: Option<String>| of.map(Arc::from);
        let Self { list, prefix, prefixes, exception, until, since, .. } = self;
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
        prefix.into_iter().chain(prefixes).map(entry)
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
        let runs: Vec<Run> = Deserialize::deserialize(deserializer)?;
        Ok(Self { entries: runs.into_iter().flat_map(Run::entries).collect() })
    }
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
                r#"[{"list":"deny","prefixes":["192.0.2.1/32","192.0.2.2/32"],"until":null,"#,
                r#""reason":null,"by":null,"since":null},"#,
                r#"{"list":"deny","prefix":"2001:db8::/64","until":9,"reason":"scans","#,
                r#""by":null,"since":null},"#,
                r#"{"list":"deny","prefix":"192.0.2.3/32","until":null,"reason":null,"#,
                r#""by":null,"since":null}]"#
            )
        );
        assert_eq!(serde_json::from_str::<RunTime>(&text).unwrap(), run_time);
        // As versions before stored each entry.
        let older = r#"[{"list":"deny","prefix":"192.0.2.1/32","until":null,"reason":null,
            "by":"root","since":5}]"#;
        let read: RunTime = serde_json::from_str(older).unwrap();
        let by = Some("root".into());
        assert_eq!(read.entries, [Entry { by, since: Some(5), ..entry("192.0.2.1/32") }]);
    }
}
