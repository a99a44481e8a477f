//! `limiter penalty add --push` and `penalty del --push`: blocks of single sources, without another policy.

use std::{collections::BTreeSet, iter, net::IpAddr, time::Duration};

use ipnet::IpNet;
use serde::Serialize;
use thiserror::Error;

use crate::{
    cli::keep_ssh::KeepSsh,
    cli::no_instance,
    datapath::{
        bpffs::Pins,
        host,
        link::exists,
        program::Clock,
        pushes::{Owner, Pushed, Pusher},
    },
    error::{Error as Failed, Failure, Result},
    output::{
        number::{duration, grouped},
        stream::Output,
    },
    policy::guard::Harm,
    query::{self, source::source_name},
};

/// The JSON schema.
const SCHEMA: &str = "limiter.pushed/1";

/// A block cannot be pushed.
#[derive(Debug, Error)]
enum Unpushed {
    #[error("{0} is more than one source, and --push blocks single sources")]
    Wide(IpNet),
    #[error("{0} is not blocked, nor is any other: {1} is an address of this host")]
    Own(String, IpAddr),
    #[error("{0} is not blocked, nor is any other: {1} is a gateway of this host")]
    Gateway(String, IpAddr),
    #[error("{} of {} sources are not blocked: the blocks of all records run that they could take", grouped(*full as u64),
            grouped(*all as u64))]
    Full { full: usize, all: usize },
}

impl Failure for Unpushed {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Wide(_) | Self::Own(..) | Self::Gateway(..) => 2,
            Self::Full { .. } => 1,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(
            match self {
                Self::Wide(_) => "leave out --push",
                Self::Own(..) | Self::Gateway(..) => {
                    "leave it out; if its packets are forged, drop them by `limiter deny add`"
                }
                Self::Full { .. } => "block them without --push, or attach with more --buckets",
            }
            .to_owned(),
        )
    }
}

/// What became of a source, in JSON.
#[derive(Serialize)]
struct Entry {
    src: String,
    result: &'static str,
    seconds_left: u64,
}

/// Blocks sources for a time.
pub(super) fn push(
    given: &[IpNet],
    time: Duration,
    keep: &KeepSsh,
    pins: &Pins,
    output: &mut Output,
) -> Result<()> {
    let session = keep.session(output)?;
    let mut pusher = open(pins)?;
    let sources = sources(given, &pusher)?;
    let own = session.and_then(|session| sources.iter().find(|it| it.contains(&session.peer)));
    if let Some(prefix) = own {
        return Err(Failed::OwnSession { prefix: *prefix });
    }
    let host = host::read()?;
    for source in &sources {
        match host.cut_off_by(source) {
            Some(Harm::Address(address)) => {
                return Err(Unpushed::Own(source_name(*source), address).into());
            }
            Some(Harm::Gateway(address)) => {
                return Err(Unpushed::Gateway(source_name(*source), address).into());
            }
            _ => {}
        }
    }
    let length = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut entries = Vec::with_capacity(sources.len());
    for source in &sources {
        let now = query::now();
        let pushed = pusher.push(source.addr(), now.saturating_add(length))?;
        let left = |until: u64| Duration::from_nanos(until.saturating_sub(now));
        let (result, left) = match pushed {
            Pushed::Blocked => ("blocked", time),
            Pushed::Longer(until) => ("shorter", left(until)),
            Pushed::Allowed => ("allowed", Duration::ZERO),
            Pushed::Full => ("full", Duration::ZERO),
        };
        entries.push(Entry { src: source_name(*source), result, seconds_left: left.as_secs() });
    }
    let count = |result| entries.iter().filter(|it| it.result == result).count();
    let full = count("full");
    if output.is_json() {
        output.entries(SCHEMA, "sources", &entries)?;
    } else if let [Entry { src, result, seconds_left }] = &entries[..] {
        let left = duration(Duration::from_secs(*seconds_left));
        match *result {
            "blocked" => writeln!(output, "penalty: {src} is blocked for {}", duration(time))?,
            "shorter" => writeln!(output, "penalty: {src} is blocked already, for {left} more")?,
            "allowed" => writeln!(output, "penalty: {src} is not blocked: it is on `allow`")?,
            _ => {}
        }
    } else {
        let mut said =
            format!("penalty: {} blocked for {}", number(count("blocked")), duration(time));
        for (count, words) in [
            (count("shorter"), "blocked for longer already"),
            (count("allowed"), "not blocked, as `allow` has them"),
        ] {
            if count > 0 {
                said += &format!("; {} {words}", grouped(count as u64));
            }
        }
        writeln!(output, "{said}")?;
    }
    if full == 0 {
        return Ok(());
    }
    // The error that sets the exit code is printed after the output.
    output.flush()?;
    Err(Unpushed::Full { full, all: entries.len() }.into())
}

/// Ends the blocks that were pushed of sources, or all of them.
pub(super) fn lift(given: Option<&[IpNet]>, pins: &Pins, output: &mut Output) -> Result<()> {
    let mut pusher = open(pins)?;
    let given = given.map(|given| sources(given, &pusher)).transpose()?;
    let is_address = |source: &IpNet| source.prefix_len() == source.max_prefix_len();
    // Of an address alone there are no smaller sources: programs end such blocks one by one.
    let pushed: BTreeSet<IpAddr> = match &given {
        Some(given) if given.iter().all(is_address) => BTreeSet::new(),
        _ => {
            pusher.maps().pushed(Owner::Shared, query::now())?.into_iter().map(|it| it.0).collect()
        }
    };
    let sources = match given {
        Some(given) => given,
        None => {
            // Also those of sources as an earlier policy had them, which an address alone names.
            let as_it_is = |source: &IpAddr| -> Result<IpNet> {
                let now = pusher.source_of(*source)?;
                Ok(if now.addr() == *source { now } else { (*source).into() })
            };
            pushed.iter().map(as_it_is).collect::<Result<_>>()?
        }
    };
    let mut entries = Vec::with_capacity(sources.len());
    for source in &sources {
        let mut result = "not_blocked";
        // Also those of smaller sources in it, as an earlier policy had them: they would be back with that.
        let smaller = pushed.range(source.network()..=source.broadcast()).copied();
        for address in iter::once(source.network()).chain(smaller) {
            if pusher.lift(address)? {
                result = "lifted";
            }
        }
        entries.push(Entry { src: source_name(*source), result, seconds_left: 0 });
    }
    if output.is_json() {
        return Ok(output.entries(SCHEMA, "sources", &entries)?);
    }
    let lifted = entries.iter().filter(|it| it.result == "lifted").count();
    match &entries[..] {
        [] => writeln!(output, "penalty: no push blocks anybody")?,
        [Entry { src, .. }] if lifted == 0 => writeln!(output, "penalty: no push blocks {src}")?,
        [Entry { src, .. }] => writeln!(output, "penalty: the pushed block of {src} is ended")?,
        _ => writeln!(output, "penalty: the pushed blocks of {} are ended", number(lifted))?,
    }
    Ok(())
}

fn open(pins: &Pins) -> Result<Pusher> {
    let opened = if exists(pins)? { Pusher::open(pins, Clock::Monotonic)? } else { None };
    opened.ok_or_else(|| no_instance(pins))
}

/// The sources that prefixes are, or are part of, each once.
fn sources(given: &[IpNet], pusher: &Pusher) -> Result<Vec<IpNet>> {
    let source = |prefix: &IpNet| -> Result<IpNet> {
        let source = pusher.source_of(prefix.addr())?;
        match prefix.prefix_len() < source.prefix_len() {
            true => Err(Unpushed::Wide(*prefix).into()),
            false => Ok(source),
        }
    };
    Ok(super::given::each_once(given.iter().map(source).collect::<Result<_>>()?))
}

fn number(sources: usize) -> String {
    match sources {
        1 => "1 source".to_owned(),
        more => format!("{} sources", grouped(more as u64)),
    }
}
