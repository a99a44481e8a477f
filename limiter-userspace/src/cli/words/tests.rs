use std::{ffi::OsString, fs};

use super::{table::Answer, *};
use crate::cli::{command, parse};

/// Command lines that people try, each with its answer.
const TRIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/words/command-lines.txt");

fn interfaces() -> Vec<String> {
    ["lo", "eth0"].map(str::to_owned).to_vec()
}

/// Splits a line into words. Single quotes keep a word together.
fn words(line: &str) -> Vec<OsString> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.into_iter().map(OsString::from).collect()
}

/// What a command line is taken for: a command, or an error with a hint.
fn taken(line: &str) -> Result<String, (String, String)> {
    let arguments = words(line);
    let line = Line::new(&arguments, &command(), interfaces);
    match parse(arguments, &line) {
        Ok(cli) => Ok(format!("{:?}", cli.command)),
        Err(error) if !error.use_stderr() => Ok("help or version".to_owned()),
        Err(error) => {
            let error = line.refusal(&error, &command());
            assert_eq!(error.exit_code(), 2);
            Err((error.to_string(), error.remedy().unwrap()))
        }
    }
}

/// Command lines of a hint that should be valid.
fn command_lines(hint: &str) -> impl Iterator<Item = String> {
    let quoted = hint.split('`').skip(1).step_by(2);
    let commands = quoted.filter(|it| it.starts_with("limiter ") && !it.contains(['>', '|']));
    commands.map(|it| it.replace("ADDRESS", "192.0.2.77"))
}

#[test]
fn command_lines_that_people_try_are_answered() {
    let tried = fs::read_to_string(TRIED).unwrap();
    let mut told = String::new();
    for line in tried.lines().filter_map(|line| line.strip_prefix("$ ")) {
        told.push_str(&format!("\n$ {line}\n"));
        match taken(line) {
            Ok(command) => {
                let meant = tried.split_once(&format!("$ {line}\n= ")).map_or("", |it| it.1);
                let meant = meant.lines().next().unwrap_or_default();
                let same = taken(meant).as_ref() == Ok(&command);
                told.push_str(&if same { format!("= {meant}\n") } else { command + "\n" });
            }
            Err((message, hint)) => told.push_str(&format!("error: {message}\nhint: {hint}\n")),
        }
    }
    if std::env::var_os("LIMITER_BLESS").is_some() {
        fs::write(TRIED, told.trim_start()).unwrap();
        return;
    }
    for (told, tried) in told.trim_start().lines().zip(tried.lines()) {
        assert_eq!(told, tried);
    }
    assert_eq!(told.trim_start().lines().count(), tried.lines().count());
}

#[test]
fn commands_in_hints_are_valid() {
    let tried = fs::read_to_string(TRIED).unwrap();
    for hint in tried.lines().filter_map(|line| line.strip_prefix("hint: ")) {
        for line in command_lines(hint) {
            assert!(taken(&line).is_ok(), "{line}: {:?}", taken(&line));
        }
    }
    for Answer { commands, words: patterns, hint } in ANSWERS {
        for path in commands.split('|') {
            // A command line with nothing but the word, which is a name where the table has a class.
            let word = patterns.split([' ', '+']).next().unwrap();
            let word = if word.bytes().all(|it| it.is_ascii_uppercase()) { "eth0" } else { word };
            let line = Line::new(&words(&format!("limiter {path} {word}")), &command(), interfaces);
            assert_eq!(line.path, *path, "{path} is no command");
            for line in command_lines(&line.filled(hint, word)) {
                let line = line.replace("-n eth0", "-n 5");
                // What comes after a command of `policy` is what was given, which is nothing here.
                let is_rest = hint.contains("{rest}");
                assert!(is_rest || taken(&line).is_ok(), "{line}: {:?}", taken(&line));
            }
        }
    }
}

#[test]
fn a_refused_value_is_answered_too() {
    let answered = |line: &str, error: error::Error| {
        let line = Line::new(&words(line), &command(), interfaces);
        let before = (error.to_string(), error.exit_code());
        let error = line.answered(error);
        assert_eq!((error.to_string(), error.exit_code()), before);
        error.remedy().unwrap()
    };
    let prefix = |text: &str| PolicyError::from(parse_prefix(text).unwrap_err()).into();
    let interface = |name: &str| error::Error::UnknownInterface {
        name: name.to_owned(),
        existing: "lo, eth0".to_owned(),
    };
    for (line, error, hint) in [
        ("limiter get eth0", prefix("eth0"), "`limiter status` shows interfaces; "),
        ("limiter get source", prefix("source"), "`limiter limit show source` shows the limit; "),
        (
            "limiter deny add 1.2.3.4 1h",
            prefix("1h"),
            "a time has its option: `limiter deny add 1.2.3.4 --for 1h`",
        ),
        (
            "limiter deny add 1.2.3.4 for 1h",
            prefix("for"),
            "a time has its option: `limiter deny add 1.2.3.4 --for 1h`",
        ),
        (
            "limiter deny add 1.2.3.4 192.0.2.9 for 2 days",
            prefix("for"),
            "a time has its option: `limiter deny add 1.2.3.4 192.0.2.9 --for 2days`",
        ),
        (
            "limiter penalty add 1.2.3.4 --for 1h 30m",
            prefix("30m"),
            "say for how long: `limiter penalty add 1.2.3.4 --for 1h30m`",
        ),
        (
            "limiter penalty add 1.2.3.4 --for forever",
            PolicyError::from(parse_time("forever").unwrap_err()).into(),
            "`limiter deny add 1.2.3.4` drops it until it is deleted",
        ),
        (
            "limiter penalty add 1.2.3.4 --push --for -1s",
            PolicyError::from(parse_time("-1s").unwrap_err()).into(),
            "`limiter deny add 1.2.3.4` drops it until it is deleted",
        ),
        (
            "limiter deny add 1.2.3.4 --for -1s",
            PolicyError::from(parse_time("-1s").unwrap_err()).into(),
            "without `--for` it does not end",
        ),
        (
            "limiter penalty add 1.2.3.4 --for 1h --reason ssh brute",
            prefix("brute"),
            "an option takes one word: put several in quotes, such as `--reason 'ssh brute force'`",
        ),
        ("limiter deny add AS13335", prefix("AS13335"), "give its prefixes; "),
        ("limiter deny add country:CN", prefix("country:CN"), "give its prefixes; "),
        (
            "limiter deny add 1.2.3.4:80",
            prefix("1.2.3.4:80"),
            "a list is about addresses, a limit about ports: `limiter limit add NAME --match src:1.2.3.4 tcp:80 ",
        ),
        (
            "limiter deny add example.com",
            prefix("example.com"),
            "names are not looked up; give an address, as `getent ahosts example.com`",
        ),
        (
            "limiter deny add drop.txt",
            prefix("drop.txt"),
            "a list comes by the standard input: `limiter deny add - < drop.txt`",
        ),
        (
            "limiter deny add @drop",
            prefix("@drop"),
            "a list comes by the standard input: `limiter deny add - < drop`",
        ),
        (
            "limiter penalty add drop.txt --for 2h",
            prefix("drop.txt"),
            "a list comes by the standard input: `limiter penalty add - --for 2h < drop.txt`",
        ),
        ("limiter deny add /mnt/bad", prefix("/mnt/bad"), "a list comes by the standard input"),
        ("limiter attach eth0 --pps 10 000", interface("000"), "write it as one word: `10000`"),
        (
            "limiter attach eth0 100pps",
            interface("100pps"),
            "a rate has its option: `--pps 100pps`",
        ),
        (
            "limiter attach dev eth0",
            interface("dev"),
            "an interface is named alone: `limiter attach eth0`",
        ),
        (
            "limiter attach eth0 --pps unlimited",
            PolicyError::from(parse_rate("unlimited").unwrap_err()).into(),
            "`limiter attach eth0` limits nothing until a limit is set",
        ),
        ("limiter attach help", interface("help"), "`limiter attach --help` explains the command"),
        ("limiter attach eth7", interface("eth7"), "this network namespace has lo, eth0"),
    ] {
        let told = answered(line, error);
        assert!(told.starts_with(hint), "{line}: {told}");
    }
}

proptest::proptest! {
    /// A command in a hint that could be run as it is says all that was said.
    #[test]
    fn a_hint_leaves_out_nothing_that_narrows(
        command in proptest::sample::select(vec![
            "ban", "block", "trust", "deny", "penalty", "penalty add", "limit", "limit set", "limit add x", "limit change", "ratelimit", "set",
        ]),
        given in proptest::collection::vec(proptest::sample::select(vec![
            "tcp", "udp", "port", "dport", "sport", "22", "80,443", "100/s", "100", "pps", "10", "minutes", "1h", "192.0.2.9",
            "10.0.0.0/8", "except", "source", "eth0", "for", "rate", "--rate", "--src", "--for", "-i", "ssh",
        ]), 1..7),
    ) {
        let line = format!("limiter {command} {}", given.join(" "));
        let Err((_, hint)) = taken(&line) else { return Ok(()) };
        let adds = ["penalty add", "allow add", "limit set", "limit add", "attach"];
        let commands = command_lines(&hint).filter(|_| !hint.starts_with("for example"));
        for told in commands.filter(|it| adds.iter().any(|add| it.contains(add))) {
            if ["NAME", "RATE", "PORT", "TIME", "192.0.2.77", "--help"].iter().all(|it| !told.contains(it)) {
                let narrows = |it: &&&str| it.contains(|it: char| it.is_ascii_digit()) || ["tcp", "udp", "except", "sport", "-i"].contains(it);
                for word in given.iter().filter(narrows) {
                    proptest::prop_assert!(told.contains(word), "{line}: {hint}");
                }
            }
        }
    }
}

#[test]
fn what_was_given_cannot_write_to_the_terminal() {
    for line in ["limiter \u{1b}[2J", "limiter deny \u{1b}[2J", "limiter limit \u{202e}x 5/s"] {
        let (message, hint) = taken(line).unwrap_err();
        assert!(!(message + &hint).contains(['\u{1b}', '\u{202e}']), "{line}");
    }
}
