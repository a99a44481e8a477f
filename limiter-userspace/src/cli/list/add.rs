//! `limiter allow add`, `deny add` and `penalty add`.

use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use serde::Serialize;

use super::{
    by_user, check_own,
    given::{Given, each_once, some},
    sets,
};
use crate::{
    cli::{
        change::{Changed, change},
        end_of,
        keep_ssh::KeepSsh,
        progress::Progress,
        stderr::warn,
        unix, unix_time,
    },
    datapath::{bpffs::Pins, host},
    error::Result,
    output::{
        lists::seconds_left,
        number::{duration, grouped},
        stream::Output,
    },
    policy::{
        Layered, Layers, List, PolicyError, Session,
        document::{INSTANTS, format_instant, parse_instant},
        run_time::{Added, Entry, REASON, decides},
        units::{parse_lasting, parse_time},
    },
};

/// The JSON schema of what was added.
const SCHEMA: &str = "limiter.added/1";

#[derive(Debug, Args)]
pub(in crate::cli) struct Add {
    #[command(flatten)]
    given: Given,
    /// Only for this time, e.g. 10m, 1h30m, or 600 for seconds [default: forever]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    time: Option<String>,
    #[command(flatten)]
    more: More,
    #[command(flatten)]
    keep: KeepSsh,
}

/// Options of an entry, beside `--for`.
#[derive(Debug, Args)]
pub(in crate::cli) struct More {
    /// Only until this time, e.g. 2027-01-31T18:00:00Z, 2027-01-31T19:00+01:00, or 2027-01-31 for 00:00 UTC
    #[arg(long, value_name = "INSTANT", conflicts_with = "time", value_parser = instant)]
    until: Option<u64>,
    /// Reason that is shown with the entry, up to 200 characters
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    /// Take the whole source of an address: of IPv6 its /64, unless the policy says otherwise; `deny` and
    /// `penalty` do so in any case
    #[arg(long)]
    source: bool,
    /// Replace the named set of run-time entries by these prefixes, at once: what the set had besides is
    /// removed, and entries without this set stay
    #[arg(long, value_name = "SET", value_parser = sets::name)]
    replace: Option<String>,
    /// Put the entries into the named set, beside what it has. What is in a set is ended with it alone: by `del --set` and
    /// `flush --set`
    #[arg(long, value_name = "SET", value_parser = sets::name, conflicts_with = "replace")]
    set: Option<String>,
}

fn instant(text: &str) -> Result<u64, String> {
    let end = parse_instant(text).ok_or(INSTANTS)?;
    if end <= unix() { Err("that time is past".to_owned()) } else { Ok(end) }
}

fn reason(text: &str) -> Result<String, String> {
    if text.chars().count() > REASON {
        return Err(format!("it has more than {REASON} characters"));
    }
    if text.chars().any(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    Ok(text.to_owned())
}

impl Add {
    pub(super) fn run(&self, list: List, pins: &Pins, output: &mut Output) -> Result<()> {
        let Self { given, time, more, keep } = self;
        Asked::read(list, given, time.as_deref(), more, keep.session(output)?)?.run(pins, output)
    }
}

/// A request to put prefixes on a list.
pub(in crate::cli) struct Asked {
    list: List,
    prefixes: Vec<IpNet>,
    /// How long the entries last. Without this and `until`, they do not end.
    time: Option<Duration>,
    /// When the entries end, in seconds of Unix time.
    until: Option<u64>,
    /// Whether the user asked for the whole source of an address.
    widened: bool,
    /// The reason, as the user gave it.
    reason: Option<String>,
    /// The set that the entries belong to.
    set: Option<String>,
    /// Whether they are all of it from then on.
    replaces: bool,
    session: Option<Session>,
}

/// The result of a request.
#[derive(Default)]
pub(in crate::cli) struct Done {
    /// What became of each prefix, in the order of the prefixes; each has the form in which it is listed.
    added: Vec<(IpNet, Added)>,
    /// The number of prefixes that were narrower than a source.
    widened: usize,
    /// The number of entries that the set had besides.
    removed: usize,
    /// When the entries end that are new, in seconds of Unix time; `None`: never.
    until: Option<u64>,
}

/// What was added, in JSON.
#[derive(Serialize)]
struct Told<'a> {
    list: &'static str,
    set: Option<&'a str>,
    entries: Vec<ToldEntry>,
    removed: usize,
}

/// What became of a prefix, in JSON.
#[derive(Serialize)]
struct ToldEntry {
    src: String,
    result: &'static str,
    until: Option<String>,
    seconds_left: Option<u64>,
}

impl Asked {
    /// A request to list one source for a time.
    pub(in crate::cli) fn for_time(
        list: List,
        source: IpNet,
        time: Duration,
        session: Option<Session>,
    ) -> Self {
        let (prefixes, time) = (vec![source], Some(time));
        let (until, reason, set) = (None, None, None);
        Self { list, prefixes, time, until, widened: false, reason, set, replaces: false, session }
    }

    /// The request of a command.
    pub(super) fn read(
        list: List,
        given: &Given,
        time: Option<&str>,
        more: &More,
        session: Option<Session>,
    ) -> Result<Self> {
        let parse = |text| match list {
            List::Penalty => parse_time(text).map(Some),
            List::Allow | List::Deny => parse_lasting(text),
        };
        let time = time.map(parse).transpose().map_err(PolicyError::from)?.flatten();
        let (reason, replaces) = (more.reason.clone(), more.replace.is_some());
        let set = more.replace.clone().or_else(|| more.set.clone());
        let prefixes = given.read()?;
        let prefixes = match &more.replace {
            Some(set) => sets::some(list, set, prefixes)?,
            None => some(prefixes)?,
        };
        let (until, widened) = (more.until, more.source);
        Ok(Self { list, prefixes, time, until, widened, reason, set, replaces, session })
    }

    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let progress = Progress::of(&format!(
            "{}: adding {}",
            self.list.name(),
            prefixes(self.prefixes.len())
        ));
        let (changed, said) = self.put(pins)?;
        drop(progress);
        for all in
            self.prefixes.iter().filter(|it| self.list != List::Allow && it.prefix_len() == 0)
        {
            let of = if all.addr().is_ipv4() { "IPv4" } else { "IPv6" };
            let left = "`allow` and `limiter monitor on` let some or all of it pass";
            warn(&format!("{all} is all of {of}: nothing of it passes now; {left}"), output);
        }
        if output.is_json() {
            output.shape(SCHEMA, &self.told(&changed.said, unix_time()))?;
        } else {
            writeln!(output, "{said}")?;
        }
        changed.tell(output)
    }

    /// What JSON tells of the result.
    fn told(&self, done: &Done, now: Duration) -> Told<'_> {
        let entry = |(prefix, added): &(IpNet, Added)| {
            let (result, until) = match added {
                Added::New => ("added", done.until),
                Added::Replaced => ("replaced", done.until),
                Added::Already(until) => ("already", *until),
                Added::Allowed => ("allowed", None),
            };
            ToldEntry {
                src: prefix.to_string(),
                result,
                until: until.map(format_instant),
                seconds_left: until.map(|until| seconds_left(until, now)),
            }
        };
        Told {
            list: self.list.name(),
            set: self.set.as_deref(),
            entries: done.added.iter().map(entry).collect(),
            removed: done.removed,
        }
    }

    /// Puts the prefixes on the list. Returns the message on the result.
    pub(in crate::cli) fn put(&self, pins: &Pins) -> Result<(Changed<Done>, String)> {
        let now = unix();
        let until = self.time.map(end_of).or(self.until);
        let changed = change(pins, self.session, |layers| self.edit(layers, until, now))?;
        let said = match changed.said.added[..] {
            [(prefix, added)] if !self.replaces => self.of_one(&changed, prefix, added, now),
            _ => self.of_many(&changed.said, now),
        };
        Ok((changed, said))
    }

    fn edit(&self, layers: &mut Layers, until: Option<u64>, now: u64) -> Result<Done> {
        let Layers { policy, run_time, .. } = layers;
        let lengths = policy.key_prefix;
        // What lets a source pass is not widened unasked.
        let is_widened = self.widened || self.list != List::Allow;
        let wide = |prefix: &IpNet| if is_widened { lengths.widened(*prefix) } else { *prefix };
        let prefixes = each_once(self.prefixes.iter().map(wide).collect());
        let is_narrow = |prefix: &&IpNet| wide(prefix) != **prefix;
        let widened = self.prefixes.iter().filter(is_narrow).count();
        let text = |of: &Option<String>| of.as_deref().map(Into::into);
        let all = Entry {
            until,
            reason: text(&self.reason),
            set: text(&self.set),
            ..by_user(self.list, IpNet::default(), now)
        };
        let entry = |prefix: &IpNet| Entry { prefix: *prefix, ..all.clone() };
        let entries = prefixes.iter().map(entry).collect();
        let (added, removed) = match &self.set {
            Some(set) if self.replaces => {
                let layered = Layered { policy, run_time };
                sets::check((self.list, set), layered, &prefixes, &host::read()?, now)?;
                run_time.replace(policy, (self.list, set), entries, now)?
            }
            _ => (run_time.add(policy, entries, now)?, 0),
        };
        if let ([prefix], [Added::Allowed]) = (&prefixes[..], &added[..]) {
            run_time.check_allowed(self.list, *prefix)?;
        }
        if self.list != List::Allow {
            check_own(self.session, &prefixes, layers.view(), now)?;
        }
        let added = prefixes.into_iter().zip(added).collect();
        Ok(Done { added, widened, removed, until })
    }

    /// The message on a single prefix.
    fn of_one(&self, changed: &Changed<Done>, prefix: IpNet, added: Added, now: u64) -> String {
        let name = self.list.name();
        // Whoever asked for the source knows that it is widened.
        let given = self.prefixes.first().filter(|given| **given != prefix && !self.widened);
        let given =
            given.map_or_else(String::new, |given| format!(" (the source of {})", given.addr()));
        let layered = changed.layered();
        if let Added::Already(until) = added {
            let until = until.map_or_else(
                || "for ever".to_owned(),
                |until| format!("until {}", format_instant(until)),
            );
            return format!("{name}: {prefix}{given} is on the list already, {until}");
        }
        let until = self.until_in_words(changed.said.until, now);
        let same = match added {
            Added::Replaced => ", instead of the entry that it had",
            _ => "",
        };
        // A list that is asked before this one, or an entry with a longer prefix, may decide
        // instead.
        let stated = layered.around(prefix);
        let other = decides(&stated, now).filter(|by| by.list != self.list);
        let other = other.map_or_else(String::new, |by| {
            format!("; {} in {} comes first as long as it is there", by, by.list.name())
        });
        // Its own entry holds by itself when the wider one goes.
        let wider = stated.iter().find(|it| {
            it.list == self.list && it.prefix != prefix && it.until > now && !it.is_exception()
        });
        let wider = match wider {
            Some(wider) if other.is_empty() => format!("; {wider} includes it already"),
            _ => String::new(),
        };
        format!("{name}: {prefix}{given}{until}{same}{wider}{other}")
    }

    /// The message on several prefixes, or on a set.
    fn of_many(&self, done: &Done, now: u64) -> String {
        let count = |is: fn(&Added) -> bool| done.added.iter().filter(|(_, it)| is(it)).count();
        let mut said =
            format!("{}: {} added", self.list.name(), prefixes(count(|it| *it == Added::New)));
        said += &self.until_in_words(done.until, now);
        for (number, words) in [
            (count(|it| *it == Added::Replaced), "in the place of entries that were there"),
            (count(|it| matches!(it, Added::Already(_))), "already there"),
            (done.removed, "removed that the set no longer has"),
            (
                count(|it| *it == Added::Allowed),
                "left out, as `allow` has the same prefix for ever",
            ),
        ] {
            if number > 0 {
                said += &format!("; {} {words}", grouped(number as u64));
            }
        }
        if done.widened > 0 && !self.widened {
            let narrow = prefixes(done.widened);
            said += &format!("; {narrow} narrower than a source widened to it");
        }
        said
    }

    fn until_in_words(&self, until: Option<u64>, now: u64) -> String {
        until.map_or_else(String::new, |until| {
            let left = Duration::from_secs(until.saturating_sub(now));
            let time = self.time.filter(|time| end_of(*time) >= until).unwrap_or(left);
            format!(" until {} ({})", format_instant(until), duration(time))
        })
    }
}

/// A number of prefixes, in words.
pub(super) fn prefixes(number: usize) -> String {
    match number {
        1 => "1 prefix".to_owned(),
        more => format!("{} prefixes", grouped(more as u64)),
    }
}
