//! What an agent tells of.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::json;

use crate::{
    datapath::{exchange::Exchanged, mode::Mode},
    error::Error,
    output::{
        exchanged,
        faults::described,
        number::{duration, grouped},
        setting::{limit_json, setting_cells},
    },
    policy::{
        document::{Warnings, format_instant},
        interfaces::listed,
        reading::name,
    },
    query::limit::LimitReport,
};

use super::address::Address;

/// The name of the form that events have in JSON.
pub const SCHEMA: &str = "limiter.agent/1";

/// Something that an agent did, or could not do.
#[derive(Debug)]
pub enum Event {
    /// It sees to things from now on.
    Started,
    /// An interface that it is to attach is not there, or it is to attach none and nothing is attached.
    Waiting {
        /// How the interface is called, if one is.
        interface: Option<String>,
        /// The interfaces that are there.
        existing: Vec<String>,
    },
    /// An interface was attached.
    Attached {
        /// The interface.
        interface: String,
        /// How the program runs on it.
        mode: Mode,
        /// Why it is not native, in the words of the driver, if that was tried.
        fallback: Option<String>,
    },
    /// The program of this version was put in the place of the one that ran.
    Replaced {
        /// The interface.
        interface: String,
    },
    /// The main program that these interfaces call was in its array no more, and is loaded again.
    Loaded {
        /// The interfaces.
        interfaces: Vec<String>,
    },
    /// What an older version left was brought to this one.
    Upgraded(Exchanged),
    /// The policy of a document was put in force.
    Applied {
        /// The document.
        document: PathBuf,
        /// How many lines of it differ from what was in force.
        changes: usize,
    },
    /// The policy of a document is in force already.
    Unchanged {
        /// The document.
        document: PathBuf,
    },
    /// A document is applied, and is hardly meant so.
    Warned(Warnings),
    /// A document is not used; the policy in force stays.
    Rejected(Error),
    /// What set files change is refused; the last policy that was accepted stays.
    Refused {
        /// Why.
        error: Error,
        /// Whether it was told before, and is so still.
        again: bool,
    },
    /// Metrics are served at an address.
    Listening {
        /// The address.
        address: Address,
    },
    /// Processes may ask it on a socket.
    Answering {
        /// The socket.
        address: Address,
    },
    /// Something else did not work, and is tried again.
    Failed(Error),
    /// Somebody set the clock by so many seconds; what is listed for a time ends by the new one.
    ClockSet {
        /// Forwards, or backwards if they are negative.
        seconds: i64,
    },
    /// A source begins to be over a limit, or was before the agent came.
    Limited(Limited),
    /// The same, but nothing is dropped for it.
    Monitored(Limited),
    /// A source is blocked for so long, because it stayed over a limit.
    Blocked(Limited, Duration),
    /// A process had a source blocked, by the control socket.
    Pushed {
        /// The source.
        source: String,
        /// For how long.
        length: Duration,
        /// The limit that the process named.
        limit: Option<String>,
        /// The reason that it gave.
        reason: Option<String>,
        /// The user of the process.
        user: u32,
    },
    /// A process had a pushed block of a source ended, by the control socket.
    Lifted {
        /// An address of the source.
        source: String,
        /// The user of the process.
        user: u32,
    },
    /// Decisions of CrowdSec were put in force; or it answers for the first time, or again.
    Decisions {
        /// How many bans are in force.
        total: usize,
        /// How many of them are new.
        added: usize,
        /// How many ended.
        ended: usize,
        /// How many are left out, since `allow` has their sources.
        allowed: usize,
        /// How many are left out, since they would cut this host off.
        harmful: usize,
        /// One of those, and why.
        harm: Option<String>,
    },
    /// A source is within its limits again.
    Released {
        /// The source.
        source: String,
        /// For how long it was not.
        lasted: Duration,
        /// Packets of it that were dropped meanwhile, if that is known.
        dropped: Option<u64>,
    },
    /// So many events about sources were not told.
    LeftOut {
        /// How many.
        events: u64,
    },
    /// It was asked to end; everything stays attached.
    Stopped,
}

/// A source that is over a limit.
#[derive(Debug)]
pub struct Limited {
    /// The source.
    pub source: String,
    /// The name of the limit; nothing if it is gone.
    pub name: Option<String>,
    /// How it stands for the source when that is told; nothing if it is not about it any more, or if that
    /// cannot be known just then.
    pub limit: Option<LimitReport>,
    /// The interface that the packet came in by.
    pub interface: Option<String>,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, " limit {name}")?,
            None => write!(f, " a limit")?,
        }
        if let Some(limit) = &self.limit {
            let [rate, burst] = setting_cells(limit).map(|cell| cell.text);
            match (rate.is_empty(), burst.is_empty()) {
                (false, false) => write!(f, " ({rate}, burst {burst})")?,
                (false, true) => write!(f, " ({rate})")?,
                _ => {}
            }
        }
        match &self.interface {
            Some(interface) => write!(f, " on {interface}"),
            None => Ok(()),
        }
    }
}

impl Event {
    /// Its name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Waiting { .. } => "waiting",
            Self::Attached { .. } => "attached",
            Self::Replaced { .. } => "replaced",
            Self::Loaded { .. } => "loaded",
            Self::Upgraded(_) => "upgraded",
            Self::Applied { .. } => "applied",
            Self::Unchanged { .. } => "unchanged",
            Self::Warned(_) => "warned",
            Self::Rejected(_) => "rejected",
            Self::Refused { .. } => "refused",
            Self::Listening { .. } => "listening",
            Self::Answering { .. } => "answering",
            Self::Failed(_) => "failed",
            Self::ClockSet { .. } => "clock_set",
            Self::Limited(_) => "limited",
            Self::Monitored(_) => "monitored",
            Self::Blocked(..) => "blocked",
            Self::Pushed { .. } => "pushed",
            Self::Lifted { .. } => "lifted",
            Self::Decisions { .. } => "decisions",
            Self::Released { .. } => "released",
            Self::LeftOut { .. } => "left_out",
            Self::Stopped => "stopped",
        }
    }

    /// How much it matters, as syslog(3) has it: from 3, an error, to 6, information.
    pub(super) const fn priority(&self) -> u8 {
        match self {
            Self::Rejected(_) | Self::Refused { .. } | Self::Failed(_) => 3,
            Self::Warned(_)
            | Self::LeftOut { .. }
            | Self::Loaded { .. }
            | Self::Decisions { harm: Some(_), .. } => 4,
            Self::Blocked(..)
            | Self::Pushed { .. }
            | Self::Lifted { .. }
            | Self::Limited(_)
            | Self::ClockSet { .. } => 5,
            _ => 6,
        }
    }

    /// How many events about sources are lost with it.
    pub(super) const fn of_sources(&self) -> u64 {
        match self {
            Self::Limited(_)
            | Self::Monitored(_)
            | Self::Blocked(..)
            | Self::Pushed { .. }
            | Self::Lifted { .. }
            | Self::Released { .. } => 1,
            Self::LeftOut { events } => *events,
            _ => 0,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => write!(f, "started"),
            Self::Waiting { interface: Some(interface), existing } => write!(
                f,
                "waiting for {interface}: no interface has this name; this network namespace has {}",
                listed(existing)
            ),
            Self::Waiting { interface: None, existing } => write!(
                f,
                "nothing is attached, and no interface is named that is to be: name some with --interface or in \
                 LIMITER_INTERFACES; this network namespace has {}",
                listed(existing)
            ),
            Self::Attached { interface, mode, fallback } => {
                write!(f, "{interface}: attached, {}", mode.name())?;
                match fallback {
                    Some(words) => write!(f, "; the driver refused native mode: {words}"),
                    None => Ok(()),
                }
            }
            Self::Replaced { interface } => write!(f, "{interface}: program replaced"),
            Self::Loaded { interfaces } => write!(
                f,
                "{}: no main program was loaded, and packets passed undecided; it is loaded again",
                listed(interfaces)
            ),
            Self::Upgraded(exchanged) => write!(
                f,
                "brought from layout {} to this version; {}",
                exchanged.from.unwrap_or_default(),
                exchanged::text(exchanged)
            ),
            Self::Applied { document, changes } => {
                let changes = match changes {
                    1 => "1 change".to_owned(),
                    more => format!("{} changes", grouped(*more as u64)),
                };
                write!(f, "{}: applied: {changes}", name(document))
            }
            Self::Unchanged { document } => write!(f, "{}: in force already", name(document)),
            Self::Warned(warnings) => write!(f, "{}", warnings.to_string().trim_end()),
            Self::Rejected(error) => {
                write!(f, "{error}\nthe policy in force stays until the document is valid")
            }
            Self::Failed(error) | Self::Refused { error, .. } => {
                write!(f, "error: {error}")?;
                match error.remedy() {
                    Some(remedy) => write!(f, "\nhint: {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Listening { address } => {
                write!(f, "metrics on {address}, {}", address.protection())
            }
            Self::ClockSet { seconds } => write!(
                f,
                "the clock was set by {seconds:+} s; what is listed for a time ends by the new one"
            ),
            Self::Limited(limited) => write!(f, "{}: over{limited}", limited.source),
            Self::Monitored(limited) => {
                write!(f, "{}: over{limited}, only monitored", limited.source)
            }
            Self::Blocked(limited, length) => {
                write!(f, "{}: blocked for {} by{limited}", limited.source, duration(*length))
            }
            Self::Pushed { source, length, limit, reason, user } => {
                write!(f, "{source}: blocked for {} by a push of user {user}", duration(*length))?;
                if let Some(limit) = limit {
                    write!(f, ", limit {limit}")?;
                }
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => Ok(()),
                }
            }
            Self::Lifted { source, user } => {
                write!(f, "{source}: the pushed block is ended by user {user}")
            }
            Self::Decisions { total, added, ended, allowed, harmful, harm } => {
                let number = |of: &usize| grouped(*of as u64);
                write!(
                    f,
                    "CrowdSec: {} in force, {} new, {} ended",
                    bans(*total as u64),
                    number(added),
                    number(ended)
                )?;
                if *allowed > 0 {
                    write!(f, "; {} left out that allow has", number(allowed))?;
                }
                match harm {
                    Some(harm) => write!(
                        f,
                        "; {} left out that would cut this host off: {harm}",
                        number(harmful)
                    ),
                    None => Ok(()),
                }
            }
            Self::Answering { address } => {
                write!(f, "answering on {address}, {}", address.protection())
            }
            Self::Released { source, lasted, dropped } => {
                write!(f, "{source}: within its limits again after {}", duration(*lasted))?;
                match dropped {
                    Some(dropped) => write!(f, ", {} packets dropped", grouped(*dropped)),
                    None => Ok(()),
                }
            }
            Self::LeftOut { events: 1 } => write!(f, "1 event about a source was left out"),
            Self::LeftOut { events } => {
                write!(f, "{} events about sources were left out", grouped(*events))
            }
            Self::Stopped => write!(f, "stopped; what is attached stays attached"),
        }
    }
}

/// A number of bans, in words.
pub(super) fn bans(count: u64) -> String {
    match count {
        1 => "1 ban".to_owned(),
        more => format!("{} bans", grouped(more)),
    }
}

/// An event, and when it was.
#[derive(Debug)]
pub struct Dated {
    /// Seconds of Unix time.
    pub unix: u64,
    /// What happened.
    pub event: Event,
}

impl Dated {
    /// When it was: RFC 3339, in UTC.
    pub fn time(&self) -> String {
        format_instant(self.unix)
    }
}

impl Serialize for Dated {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", SCHEMA)?;
        map.serialize_entry("event", self.event.name())?;
        map.serialize_entry("time", &self.time())?;
        match &self.event {
            Event::Waiting { interface, existing } => {
                map.serialize_entry("interface", interface)?;
                map.serialize_entry("existing", existing)?;
            }
            Event::Attached { interface, mode, fallback } => {
                map.serialize_entry("interface", interface)?;
                map.serialize_entry("mode", mode.name())?;
                map.serialize_entry("fallback", fallback)?;
            }
            Event::Replaced { interface } => map.serialize_entry("interface", interface)?,
            Event::Loaded { interfaces } => map.serialize_entry("interfaces", interfaces)?,
            Event::Upgraded(exchanged) => {
                for (key, value) in exchanged::entry(exchanged).as_object().into_iter().flatten() {
                    map.serialize_entry(key, value)?;
                }
            }
            Event::Applied { document, changes } => {
                map.serialize_entry("document", &name(document))?;
                map.serialize_entry("changes", changes)?;
            }
            Event::Unchanged { document } => map.serialize_entry("document", &name(document))?,
            Event::Warned(warnings) => map.serialize_entry("message", &warnings.to_string())?,
            Event::Rejected(error) | Event::Failed(error) => {
                for (key, value) in described(error).as_object().into_iter().flatten() {
                    map.serialize_entry(key, value)?;
                }
            }
            Event::Refused { error, again } => {
                for (key, value) in described(error).as_object().into_iter().flatten() {
                    map.serialize_entry(key, value)?;
                }
                map.serialize_entry("again", again)?;
            }
            Event::Listening { address } => {
                map.serialize_entry("address", &address.to_string())?;
                map.serialize_entry("tls", &false)?;
            }
            Event::Limited(limited) | Event::Monitored(limited) | Event::Blocked(limited, _) => {
                map.serialize_entry("source", &limited.source)?;
                map.serialize_entry("interface", &limited.interface)?;
                let named = limited.name.as_ref().map(|name| json!({ "name": name }));
                let limit = limited.limit.as_ref().map(limit_json);
                map.serialize_entry("limit", &limit.or(named))?;
                if let Event::Blocked(_, length) = &self.event {
                    map.serialize_entry("seconds", &length.as_secs_f64())?;
                }
            }
            Event::Pushed { source, length, limit, reason, user } => {
                map.serialize_entry("source", source)?;
                map.serialize_entry("seconds", &length.as_secs_f64())?;
                map.serialize_entry("limit", &limit.as_ref().map(|name| json!({ "name": name })))?;
                map.serialize_entry("reason", reason)?;
                map.serialize_entry("user", user)?;
            }
            Event::Lifted { source, user } => {
                map.serialize_entry("source", source)?;
                map.serialize_entry("user", user)?;
            }
            Event::Decisions { total, added, ended, allowed, harmful, harm } => {
                map.serialize_entry("total", total)?;
                map.serialize_entry("added", added)?;
                map.serialize_entry("ended", ended)?;
                map.serialize_entry("allowed", allowed)?;
                map.serialize_entry("harmful", harmful)?;
                map.serialize_entry("harm", harm)?;
            }
            Event::Answering { address } => {
                map.serialize_entry("address", &address.to_string())?;
            }
            Event::Released { source, lasted, dropped } => {
                map.serialize_entry("source", source)?;
                map.serialize_entry("seconds", &lasted.as_secs_f64())?;
                map.serialize_entry("dropped", dropped)?;
            }
            Event::ClockSet { seconds } => map.serialize_entry("seconds", seconds)?,
            Event::LeftOut { events } => map.serialize_entry("events", events)?,
            Event::Started | Event::Stopped => {}
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_events_as_they_are_told() {
        let source = || "192.0.2.9".to_owned();
        let limited = |source: &str, name: &str| Limited {
            source: source.to_owned(),
            name: Some(name.to_owned()),
            limit: None,
            interface: Some("eth0".to_owned()),
        };
        let page = include_str!("../../../docs/operate.md");
        // The numbers of a limit are in parentheses, which the events below do not have.
        let lines: Vec<String> = page
            .lines()
            .map(|line| match (line.find(" ("), line.find(')')) {
                (Some(begin), Some(end)) if begin < end => {
                    format!("{}{}", &line[..begin], &line[end + 1..])
                }
                _ => line.to_owned(),
            })
            .collect();
        for event in [
            Event::Limited(limited("192.0.2.9", "source")),
            Event::Blocked(limited("192.0.2.80", "ssh"), Duration::from_secs(60)),
            Event::Released {
                source: source(),
                lasted: Duration::from_secs(130),
                dropped: Some(34_560),
            },
            Event::LeftOut { events: 1_204 },
        ] {
            let told = event.to_string();
            assert!(lines.iter().any(|line| line.trim() == told), "{told}");
        }
    }
}
