//! Words that people try: other names of commands, and answers to words that are no command.
//!
//! The tables are in [`table`]. They are asked when the command line is refused, and when a command refuses a
//! word as a value. An answer names the right command, with the arguments that were given.

mod said;
mod table;

use std::ffi::OsString;

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use thiserror::Error;

use self::{
    said::{Limited, Listed},
    table::{ANSWERS, COMMAND_ALIASES, DEFAULTS, OPTION_ALIASES},
};
use super::examples;
use crate::{
    error::{self, Failure},
    policy::{
        PolicyError,
        nearest::very_near,
        units::{
            Fault, Quantity, ValueError, parse_data_rate, parse_prefix, parse_rate, parse_time,
        },
    },
};

/// The most characters of what was given that are repeated to the user.
const ECHOED: usize = 512;

/// What is said of limits where the words are not understood.
const LIMITS: &str = "`limiter limit set NAME --rate RATE` sets the rate of a limit, `limiter limit add NAME --match tcp:PORT --rate \
                      RATE` makes one; `limiter limit add --help` has more";

/// A command line that was refused, or a word of it, with an answer.
#[derive(Debug, Error)]
#[error("{message}")]
struct Refusal {
    message: String,
    hint: String,
    code: u8,
}

impl Failure for Refusal {
    fn exit_code(&self) -> u8 {
        self.code
    }

    fn remedy(&self) -> Option<String> {
        Some(self.hint.clone())
    }
}

/// Adds the other names of commands and options.
pub(super) fn with_aliases(mut command: Command) -> Command {
    for &(path, names) in COMMAND_ALIASES {
        command = changed(command, path, &|below| below.aliases(names));
    }
    for &(path, option, name) in OPTION_ALIASES {
        command = changed(command, path, &|below| below.mut_arg(option, |it| it.alias(name)));
    }
    command
}

/// Changes the subcommand at a path, which has to exist.
fn changed(command: Command, path: &str, change: &dyn Fn(Command) -> Command) -> Command {
    let (first, rest) = path.split_once(' ').unwrap_or((path, ""));
    match first {
        "" => change(command),
        first => command.mut_subcommand(first, |below| changed(below, rest, change)),
    }
}

/// The words of a command line.
pub(super) struct Line {
    /// The names of the command, such as `limit set`.
    path: String,
    /// The words after them.
    rest: Vec<String>,
    /// Whether JSON is asked for.
    pub(super) json: bool,
    /// Lists the names of the interfaces of this network namespace.
    interfaces: fn() -> Vec<String>,
}

impl Line {
    /// Reads a command line, which begins with the name of the program.
    pub(super) fn new(
        arguments: &[OsString],
        root: &Command,
        interfaces: fn() -> Vec<String>,
    ) -> Self {
        let words: Vec<_> = arguments.iter().skip(1).map(|it| it.to_string_lossy()).collect();
        let options = || words.iter().take_while(|word| *word != "--");
        let json = options().any(|word| {
            let short = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            *word == "--json" || short.is_some_and(|letters| letters.contains('j'))
        });
        let (mut at, mut path, mut rest) = (root, Vec::new(), words.iter());
        let mut before = rest.clone();
        while let Some(word) = rest.next() {
            if let Some(option) = word.strip_prefix("--") {
                let arguments = root.get_arguments().chain(at.get_arguments());
                let mut named = arguments.filter(|it| it.get_long() == Some(option));
                if named.any(|it| it.get_action().takes_values()) {
                    rest.next();
                }
            } else if !word.starts_with('-') {
                let Some(below) = at.find_subcommand(word.as_ref()) else { break };
                path.push(below.get_name());
                (at, before) = (below, rest.clone());
            }
        }
        let (path, rest) = (path.join(" "), before.map(ToString::to_string).collect());
        Self { path, rest, json, interfaces }
    }

    /// The subcommand that a command shows something by, if it was given none.
    pub(super) fn default(&self, error: &clap::Error) -> Option<&'static str> {
        let missing = matches!(
            error.kind(),
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        let found = DEFAULTS.iter().find(|(path, _)| *path == self.path);
        found.filter(|_| missing).map(|(_, default)| *default)
    }

    /// The error for a command line that was refused.
    pub(super) fn refusal(&self, error: &clap::Error, root: &Command) -> error::Error {
        let text = error.to_string();
        let first = text.lines().take_while(|line| !line.trim().is_empty());
        let message = first.map(str::trim).collect::<Vec<_>>().join(" ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let word = refused(error);
        let word = word.as_deref();
        let at = self.path.split(' ').try_fold(root, |at, name| match name {
            "" => Some(at),
            name => at.find_subcommand(name),
        });
        let at = at.unwrap_or(root);
        let hint = word
            .and_then(|word| {
                self.joined(word)
                    .or_else(|| self.answer(word, false))
                    .or_else(|| self.misspelt(word, error, at))
                    .or_else(|| self.answer(word, true))
            })
            .unwrap_or_else(|| self.usage(at));
        Refusal { message: visible(message), hint, code: error.exit_code() as u8 }.into()
    }

    /// The error of a command, with the answer to the word that it refuses, if there is one.
    pub(super) fn answered(&self, error: error::Error) -> error::Error {
        let word = match (&error, error.failure::<PolicyError>()) {
            (
                error::Error::UnknownInterface { name, .. }
                | error::Error::NotAttached { name, .. },
                _,
            ) => name,
            (_, Some(PolicyError::Value(refused))) if is_no_value(refused) => &refused.value,
            (_, Some(PolicyError::UnknownLimit { name, nearest: None, .. })) => {
                name.trim_matches('"')
            }
            // Without a match, a limit is about all packets, whatever its name.
            (_, Some(PolicyError::SameLimit { limit, .. })) if !self.has("--match") => limit,
            _ => return error,
        };
        match self.joined(word).or_else(|| self.answer(word, false)) {
            Some(hint) => {
                Refusal { message: error.to_string(), hint, code: error.exit_code() }.into()
            }
            None => error,
        }
    }

    /// Whether an option was given.
    fn has(&self, option: &str) -> bool {
        self.rest.iter().any(|it| it.split('=').next() == Some(option))
    }

    /// The hint for a value that was written as two words, such as `1000 pps`.
    fn joined(&self, word: &str) -> Option<String> {
        let at = self.rest.iter().position(|it| it == word)?;
        let before = self.rest.get(at.checked_sub(1)?)?;
        let joined = format!("{before}{word}");
        let is_number = before.starts_with(|first: char| first.is_ascii_digit());
        // `10 000` is one number, `22 5/min` two.
        let begins = word.bytes().take_while(u8::is_ascii_digit).count();
        let is_number = is_number && (begins == 0 || begins == word.len() && begins == 3);
        (is_number && (is_rate(&joined) || self.is("TIME", &joined)))
            .then(|| format!("write it as one word: `{}`", visible(&joined)))
    }

    /// The hint for a word that is almost the name of a command, of an option or of a value.
    fn misspelt(&self, word: &str, error: &clap::Error, at: &Command) -> Option<String> {
        let valid = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) => valid.as_slice(),
            _ => &[],
        };
        if let Some(option) = word.strip_prefix("--") {
            let options = at.get_arguments().filter(|it| !it.is_hide_set());
            let found = very_near(option, options.filter_map(|it| it.get_long()))?;
            return Some(format!("did you mean `--{found}`?"));
        }
        if let Some(found) = very_near(word, valid.iter().map(String::as_str)) {
            return Some(format!("did you mean `{found}`?"));
        }
        let shown = at.get_subcommands().filter(|it| !it.is_hide_set());
        let names = shown.flat_map(|it| it.get_all_aliases().chain([it.get_name()]));
        let near = very_near(word, names)?;
        // With a prefix, as in `unlimit`, it is the opposite.
        if word.strip_suffix(near).is_some_and(|prefix| prefix.len() > 1) {
            return None;
        }
        let found = at.find_subcommand(near)?.get_name();
        let path = [self.path.as_str(), found].join(" ");
        let after = self.rest.iter().skip_while(|it| *it != word).skip(1);
        let rest: String = after.map(|word| format!(" {}", visible(word))).collect();
        Some(format!("did you mean `limiter {}{rest}`?", path.trim_start()))
    }

    /// The hint for a command line without a better one.
    fn usage(&self, at: &Command) -> String {
        let names: Vec<_> =
            at.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        let path = &self.path;
        match examples::of(path) {
            _ if path.is_empty() => "`limiter --help` lists the commands".to_owned(),
            _ if !names.is_empty() => format!("`limiter {path}` has {}", names.join(", ")),
            Some(example) => {
                format!("for example `{example}`; `limiter {path} --help` has all options")
            }
            None => format!("`limiter {path} --help` has all options"),
        }
    }

    /// The answer of the table to a word; `any` is for the answers to any word.
    fn answer(&self, word: &str, any: bool) -> Option<String> {
        let next = self.rest.iter().skip_while(|it| *it != word).nth(1);
        let fits = |pattern: &str| match pattern.split_once('+') {
            Some((first, then)) => {
                self.is(first, word) && next.is_some_and(|next| self.is(then, next))
            }
            None => self.is(pattern, word),
        };
        let mut answers = ANSWERS.iter().filter(|it| (it.words == "*") == any);
        let found = answers.find(|it| {
            it.commands.split('|').any(|command| command == self.path)
                && (any || it.words.split(' ').any(fits))
        });
        found.map(|it| self.filled(it.hint, word))
    }

    /// Whether a word is what a pattern of the table says: this word, or one of this class.
    fn is(&self, pattern: &str, word: &str) -> bool {
        match pattern {
            "ADDRESS" => is_address(word),
            "RATE" => is_rate(word),
            "NUMBER" => !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()),
            "TIME" => parse_time(word).is_ok(),
            "NEGATIVE" => word.strip_prefix('-').is_some_and(|it| parse_time(it).is_ok()),
            "FILE" => is_file(word),
            "DOCUMENT" => word.ends_with(".yaml") || word.ends_with(".yml"),
            "IFACE" => (self.interfaces)().iter().any(|name| name == word),
            "OF_REASON" => {
                let before = self.rest.iter().take_while(|it| *it != word);
                before.skip_while(|it| *it != "--reason").nth(1).is_some()
            }
            "LISTEN" => word.rsplit_once(':').is_some_and(|(_, port)| self.is("NUMBER", port)),
            "HOSTPORT" => word.split_once(':').is_some_and(|(host, port)| {
                is_address(host) && !host.contains('/') && self.is("NUMBER", port)
            }),
            "ASN" => word
                .get(..2)
                .is_some_and(|it| it.eq_ignore_ascii_case("as") && self.is("NUMBER", &word[2..])),
            "COUNTRY" => ["country:", "geo:", "geoip:"].iter().any(|it| word.starts_with(it)),
            "HOST" => {
                let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
                word.contains('.')
                    && word.bytes().all(letter)
                    && word.bytes().any(|byte| byte.is_ascii_alphabetic())
            }
            pattern => word.eq_ignore_ascii_case(pattern),
        }
    }

    /// The words that say what a command is to do; those before `word` are not of them if it stands for the command.
    fn after(&self, word: &str) -> &[String] {
        let at = self.rest.iter().position(|it| it == word).filter(|_| self.path.is_empty());
        self.rest.get(at.unwrap_or(0)..).unwrap_or_default()
    }

    /// The hint with the limit that is meant, if all words are understood. `is_said` is whether `word` is one of them, instead of
    /// a name for the command.
    fn limit(&self, word: &str, is_said: bool) -> String {
        self.limited(word, is_said).unwrap_or_else(|| LIMITS.to_owned())
    }

    fn limited(&self, word: &str, is_said: bool) -> Option<String> {
        let verb = self.rest.iter().position(|it| it == word).filter(|_| !is_said);
        let others = self.rest.iter().enumerate().filter(|(at, _)| Some(*at) != verb);
        let words: Vec<&str> = others.map(|(_, word)| word.as_str()).collect();
        // `rate 100` is about all sources, as `limit set` without a name is.
        let is_rate = !is_said && ["rate", "pps"].contains(&word);
        let mut said = Limited::read(&words, is_rate)?;
        if is_said && said.name.as_deref() == Some(word) {
            said.be_of_service();
        }
        let rate = said.rate();
        let Limited { name, address, protocol, .. } = &said;
        let is_iface = name.as_ref().is_some_and(|it| self.is("IFACE", it));
        let name = name.as_deref();
        Some(match (protocol, address) {
            (None, None) if is_iface => {
                let name = name.unwrap_or_default();
                format!("`limiter attach {name} --pps {rate}` sets what each source may send there")
            }
            (Some(protocol), None) if !is_iface => {
                let options = said.options(protocol);
                let name = name.unwrap_or(if said.ports.is_none() { protocol } else { "NAME" });
                format!("`limiter limit add {name} {options}` makes a limit of that name")
            }
            (None, address) if !is_iface && self.path != "limit add" => {
                let is_of_source = address.is_some() || is_rate || self.path == "limit set";
                let name = name.unwrap_or(if is_of_source { "source" } else { "NAME" });
                match address {
                    Some(src) => format!(
                        "`limiter limit set {name} --src {src} --rate {rate}` sets what that source may send"
                    ),
                    None => format!(
                        "`limiter limit set {name} --rate {rate}` sets the rate of that limit; `limiter limit list` lists the limits"
                    ),
                }
            }
            _ => return None,
        })
    }

    /// A hint, with what was given in the place of each name in braces. `{{` and `}}` stand for braces.
    fn filled(&self, hint: &str, word: &str) -> String {
        let given = |fits: &dyn Fn(&str) -> bool| {
            let mut words = self.rest.iter().filter(|it| !it.starts_with('-'));
            words.find(|it| fits(it)).cloned()
        };
        let name = || given(&|it| it != word && is_name(it));
        let other = |it: &str| !is_address(it);
        let listed = || Listed::read(self.after(word), word);
        let addresses = || {
            let all = listed().map(|said| said.addresses.join(" "));
            all.filter(|it| !it.is_empty()).unwrap_or_else(|| "ADDRESS".to_owned())
        };
        let address = |said: Listed| said.addresses.first().cloned();
        let value = |name_in_braces: &str| match name_in_braces {
            "word" => word.strip_prefix('@').unwrap_or(word).to_owned(),
            "list" => given(&other).unwrap_or_else(|| "FILE".to_owned()),
            "command" => self.path.clone(),
            "group" => self.path.split(' ').next().unwrap_or_default().to_owned(),
            "addresses" => addresses(),
            "listed" => {
                let time = listed().and_then(|said| said.time);
                addresses() + &time.map_or_else(String::new, |time| format!(" --for {time}"))
            }
            "address" => listed().and_then(address).unwrap_or_else(|| "ADDRESS".to_owned()),
            // For commands that change nothing.
            "any" => given(&is_address).unwrap_or_else(|| "ADDRESS".to_owned()),
            "limit" => self.limit(word, false),
            "named" => self.limit(word, true),
            "host" => word.split(':').next().unwrap_or_default().to_owned(),
            "time" => match listed() {
                Some(said) => said.time.unwrap_or_else(|| "1h".to_owned()),
                None => "TIME".to_owned(),
            },
            "number" => given(&|it| port(it).is_some())
                .and_then(|it| port(&it).map(str::to_owned))
                .unwrap_or_else(|| "9180".to_owned()),
            "file" => {
                given(&|it| other(it) && is_file(it)).unwrap_or_else(|| "policy.yaml".to_owned())
            }
            "burst" => given(&|it| self.is("NUMBER", it)).unwrap_or_else(|| "2k".to_owned()),
            "name" => {
                let others = || self.rest.iter().filter(|it| *it != word && !self.is("NUMBER", it));
                let is_one = others().count() == 1
                    && others().all(|it| is_name(it) && !(self.interfaces)().contains(it));
                others().next().filter(|_| is_one).map_or("NAME", |it| it).to_owned()
            }
            "after" => {
                let mut after = self.rest.iter().skip_while(|it| *it != word);
                let seconds = after.find(|it| self.is("NUMBER", it));
                seconds.map_or_else(|| "TIME".to_owned(), |seconds| format!("{seconds}s"))
            }
            "iface" => given(&|it| self.is("IFACE", it)).or_else(name).unwrap_or_else(|| {
                // Of several, none is guessed.
                let mut others = (self.interfaces)().into_iter().filter(|name| name != "lo");
                match (others.next(), others.next()) {
                    (Some(only), None) => only,
                    _ => "IFACE".to_owned(),
                }
            }),
            "rest" => {
                let after = self.rest.iter().skip_while(|it| *it != word).skip(1);
                after.map(|word| format!(" {word}")).collect()
            }
            other => other.to_uppercase(),
        };
        let mut text = String::new();
        let mut left = hint;
        while let Some(at) = left.find(['{', '}']) {
            text.push_str(&left[..at]);
            left = &left[at..];
            if left.starts_with("{{") || left.starts_with("}}") {
                text.push_str(&left[..1]);
                left = &left[2..];
            } else {
                let end = left.find('}').unwrap_or(left.len() - 1);
                text.push_str(&visible(&value(&left[1..end])));
                left = &left[end + 1..];
            }
        }
        text + left
    }
}

/// The word that is refused; of missing ones, the first, as the help has it.
fn refused(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => ContextKind::InvalidValue,
        ErrorKind::MissingRequiredArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) => words.first()?.split(' ').next().map(str::to_owned),
        _ => None,
    }
}

/// Whether a refused value is a word, instead of a value with a fault.
const fn is_no_value(refused: &ValueError) -> bool {
    matches!(
        (refused.quantity, &refused.fault),
        (Quantity::Prefix, Fault::NotAPrefix)
            | (Quantity::Duration, Fault::NotANumber | Fault::Negative)
            | (Quantity::Rate, Fault::NotANumber)
    )
}

/// Whether a word is an address or a prefix, or several between commas.
fn is_address(word: &str) -> bool {
    word.split(',').all(|one| parse_prefix(one).is_ok())
}

fn is_rate(word: &str) -> bool {
    parse_rate(word).is_ok() || parse_data_rate(word).is_ok()
}

fn is_file(word: &str) -> bool {
    let ends = [".yaml", ".yml", ".pcap", ".pcapng", ".txt", ".csv", ".gz", ".netset", ".list"];
    // As curl(1) names a file.
    let is_at = word.len() > 1 && word.starts_with('@');
    !is_address(word) && (is_at || word.contains('/') || ends.iter().any(|end| word.ends_with(end)))
}

/// Whether a word may be the name of an interface or a limit.
fn is_name(word: &str) -> bool {
    !word.starts_with('-')
        && !is_address(word)
        && !is_rate(word)
        && !is_file(word)
        && parse_time(word).is_err()
}

/// The port at the end of a word.
fn port(word: &str) -> Option<&str> {
    let end = word.rsplit(':').next()?;
    end.parse::<u16>().is_ok().then_some(end)
}

/// A text that is safe to print on a terminal, at most 512 characters of it. Quotes stay as they are.
fn visible(text: &str) -> String {
    let shown = text.chars().take(ECHOED);
    shown.fold(String::new(), |mut shown, letter| {
        match letter {
            '"' | '\'' | '\\' => shown.push(letter),
            letter => shown.extend(letter.escape_debug()),
        }
        shown
    })
}

#[cfg(test)]
mod tests;
