//! What is there now, to be offered as a value: interfaces, limits, sources, entries of lists.
//!
//! Candidates are read without a lock and without a message. Whoever may not read them, or waits too long for them, is
//! offered none.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use clap_complete::{ArgValueCompleter, CompletionCandidate};

use crate::{
    cli::{interface_names, list, maps},
    datapath::{
        bpffs::{self, Pins},
        instance::attached,
        maps::Maps,
    },
    error::Result,
    output::top,
    policy::{List, document::KEYS, model::OverrideWhom},
};

/// The longest time that a completion waits for candidates.
const LONGEST: Duration = Duration::from_secs(1);

/// The most candidates that are offered.
const MOST: usize = 50;

/// Lists candidates.
type Source = fn(&Pins) -> Result<Vec<String>>;

/// Commands, the names of a value or the id of an argument of theirs, and its candidates. `|` stands between several.
const TABLE: &[(&str, &str, Source)] = &[
    ("attach|doctor|agent", "IFACE", interfaces),
    ("detach|test|drops|policy explain", "IFACE", attached_interfaces),
    ("limit show|limit set|limit del", "name", limits),
    ("drops", "limit", limits),
    ("drops", "PREFIX", sources),
    ("limit add", "KEY", |_| Ok(KEYS.map(str::to_owned).to_vec())),
    ("limit del", "src", overrides),
    ("allow add|deny add|penalty add", "PREFIX|ADDRESS", sources),
    ("allow del", "PREFIX", |pins| entries(pins, List::Allow)),
    ("deny del", "PREFIX", |pins| entries(pins, List::Deny)),
    ("penalty del", "PREFIX|ADDRESS", blocked),
    ("allow add|allow del|allow flush", "SET", |pins| sets(pins, List::Allow)),
    ("deny add|deny del|deny flush", "SET", |pins| sets(pins, List::Deny)),
    ("penalty add|penalty del|penalty flush", "SET", |pins| sets(pins, List::Penalty)),
    ("get", "address", sources),
    ("limit set", "src", sources),
    ("test", "src", sources),
    ("policy explain", "target", sources),
];

/// Adds the candidates to the arguments that have some.
pub(super) fn added_to(mut command: clap::Command) -> clap::Command {
    for (paths, value, source) in TABLE {
        for path in paths.split('|') {
            command = add(command, path, value, *source);
        }
    }
    command
}

fn add(command: clap::Command, path: &str, value: &str, source: Source) -> clap::Command {
    let (first, rest) = path.split_once(' ').unwrap_or((path, ""));
    if !first.is_empty() {
        return command.mut_subcommand(first, |below| add(below, rest, value, source));
    }
    command.mut_args(|argument| {
        if !is(&argument, value) {
            return argument;
        }
        argument.add(ArgValueCompleter::new(move |typed: &OsStr| offered(typed, source)))
    })
}

/// Whether an argument has one of these ids, or a value of such a name.
fn is(argument: &clap::Arg, values: &str) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    values
        .split('|')
        .any(|value| argument.get_id() == value || names.iter().any(|name| name.as_str() == value))
}

/// The candidates that begin with what was typed.
fn offered(typed: &OsStr, source: Source) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let (to, found) = mpsc::channel();
    let pins = Pins::new(directory(env::args_os()));
    // The thread ends with this process.
    thread::spawn(move || to.send(source(&pins).unwrap_or_default()));
    let found = found.recv_timeout(LONGEST).unwrap_or_default();
    let fits = found.into_iter().filter(|candidate| candidate.starts_with(typed));
    fits.take(MOST).map(CompletionCandidate::new).collect()
}

/// The option with the directory of an instance.
const OPTION: &str = "--bpffs";

/// The directory of the instance that a command line is about.
fn directory(arguments: impl Iterator<Item = OsString>) -> PathBuf {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(OPTION.as_bytes());
    let mut arguments = arguments.skip_while(|word| !is_option(word));
    let given = arguments.next().and_then(|option| {
        match option.as_encoded_bytes().get(OPTION.len()..)? {
            [] => arguments.next(),
            [b'=', directory @ ..] => Some(OsStr::from_bytes(directory).to_owned()),
            _ => None,
        }
    });
    let given = given.or_else(|| env::var_os("LIMITER_BPFFS"));
    given.filter(|given| !given.is_empty()).map_or_else(|| bpffs::DEFAULT.into(), PathBuf::from)
}

fn interfaces(_: &Pins) -> Result<Vec<String>> {
    Ok(interface_names())
}

fn attached_interfaces(pins: &Pins) -> Result<Vec<String>> {
    let maps = maps(pins)?;
    Ok(attached(pins, &maps)?.into_iter().map(|attached| attached.name).collect())
}

fn limits(pins: &Pins) -> Result<Vec<String>> {
    Ok(maps(pins)?.policy()?.listed_names())
}

/// The prefixes of all overrides.
fn overrides(pins: &Pins) -> Result<Vec<String>> {
    let policy = maps(pins)?.policy()?;
    let overrides = policy.limits.iter().flat_map(|limit| limit.overrides.iter());
    let mut prefixes: Vec<String> = overrides
        .filter_map(|it| match it.whom {
            OverrideWhom::Prefix(prefix) => Some(prefix.to_string()),
            _ => None,
        })
        .collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    Ok(prefixes)
}

/// The sources with the most drops.
fn sources(pins: &Pins) -> Result<Vec<String>> {
    let (talkers, _) = maps(pins)?.talkers(MOST)?;
    Ok(talkers.iter().map(|talker| top::name(talker.address, talker.prefix)).collect())
}

/// The entries of a list that were set at run time.
fn entries(pins: &Pins, list: List) -> Result<Vec<String>> {
    let layers = maps(pins)?.layers()?;
    Ok(layers.run_time.list(list).map(|entry| entry.prefix.to_string()).collect())
}

/// The sets that the run-time entries of a list belong to.
fn sets(pins: &Pins, list: List) -> Result<Vec<String>> {
    let layers = maps(pins)?.layers()?;
    let names: BTreeSet<&str> =
        layers.run_time.list(list).filter_map(|entry| entry.set.as_deref()).collect();
    Ok(names.into_iter().map(str::to_owned).collect())
}

/// The sources that are blocked, by hand or by a limit.
fn blocked(pins: &Pins) -> Result<Vec<String>> {
    let maps: Maps = maps(pins)?;
    Ok(list::blocked(&maps)?.into_iter().map(|blocked| blocked.entry.src).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn every_row_is_about_an_argument() {
        for (paths, value, _) in TABLE {
            for path in paths.split('|') {
                let root = command();
                let found = path.split(' ').try_fold(&root, |at, name| at.find_subcommand(name));
                let found = found.unwrap_or_else(|| panic!("no command {path}"));
                assert!(found.get_arguments().any(|it| is(it, value)), "{path} has no {value}");
            }
        }
    }

    #[test]
    fn the_instance_is_that_of_the_command_line() {
        let of = |line: &str| directory(line.split(' ').map(OsString::from));
        for line in ["--bpffs /run/b get", "--bpffs=/run/b get", "get --bpffs=/run/b"] {
            assert_eq!(
                of(&format!("limiter -- limiter {line}")),
                PathBuf::from("/run/b"),
                "{line}"
            );
        }
        if env::var_os("LIMITER_BPFFS").is_none() {
            assert_eq!(of("limiter -- limiter get"), PathBuf::from(bpffs::DEFAULT));
        }
    }
}
