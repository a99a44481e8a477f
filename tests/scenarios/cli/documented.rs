//! Runs every command in the README, the runbooks and the manual pages as it is shown.

mod form;
mod output;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use limiter_tests::command::Outcome;

use super::{Bench, Document, SMALL, inquiry::pcap};

/// Commands that run for long or for ever. They are ended after their first output.
const LONG: [&str; 2] = ["agent", "watch"];

/// A router with everything that the shown commands refer to.
struct Shown {
    bench: Bench,
    document: Document,
}

impl Shown {
    fn new() -> Self {
        let bench = Bench::new();
        bench.hosts.router.ip("link add eth1 type veth peer name other").unwrap();
        bench.hosts.router.ip("link set lo up").unwrap();
        let document = Document::new(&policy());
        fs::write(document.path().with_file_name("capture.pcap"), pcap(&[])).unwrap();
        Self { bench, document }
    }

    /// The arguments of a shown command, with file names replaced by files of this test.
    fn arguments(&self, line: &str) -> String {
        let folder = self.document.path().parent().unwrap().display().to_string();
        let words = line.split_whitespace().skip_while(|word| *word != "limiter").skip(1);
        let words = words.map(|word| match word {
            "policy.yaml" | "/etc/limiter/policy.yaml" => format!("{folder}/policy.yaml"),
            "capture.pcap" | "FILE" => format!("{folder}/capture.pcap"),
            word => word.to_owned(),
        });
        let mut arguments = words.collect::<Vec<_>>().join(" ");
        if arguments == "policy save" {
            // The default file may exist on this machine.
            arguments.push_str(&format!(" {folder}/saved.yaml"));
        }
        arguments
    }

    fn outcome(&self, arguments: &str) -> Outcome {
        self.bench.run(arguments).outcome().unwrap()
    }

    /// Sets up what a command acts on.
    fn prepare(&self, arguments: &str) {
        let words: Vec<&str> = arguments.split(' ').collect();
        let trial = self.arguments("limiter policy apply policy.yaml --confirm 60s");
        // A policy on trial blocks other changes.
        let _: Outcome = self.outcome("policy revert");
        match words[..] {
            ["attach", ..] if !arguments.contains("--replace") => {
                let _: Outcome = self.outcome("detach --all");
                return;
            }
            ["completion", ..] | ["policy", "check" | "schema", ..] => return,
            _ if self.outcome("status").code != 0 => {
                self.bench.done(&format!("attach eth0 {SMALL} --pps 1kpps --syn 100/s"));
            }
            _ => {}
        }
        match words[..] {
            ["policy", "confirm" | "revert"] => {
                // Without a difference, no policy is put on trial.
                self.bench.done("limit set connection --rate 9/s");
                self.bench.done(&trial);
            }
            ["limit", "show" | "del", name, ref rest @ ..] => {
                let rest = rest.join(" ");
                self.bench.done(format!("limit set {name} --rate 7/s {rest}").trim_end());
            }
            [list @ ("allow" | "deny" | "penalty"), "del", whom] => {
                let time = if list == "penalty" { " --for 1h" } else { "" };
                self.bench.done(&format!("{list} add {whom}{time}"));
            }
            _ => {}
        }
    }

    /// Runs a command as it is shown.
    fn run(&self, line: &str) {
        let arguments = self.arguments(line);
        self.prepare(&arguments);
        let word = arguments.split(' ').next().unwrap();
        if LONG.contains(&word) {
            let mut process = self.bench.run(&arguments).to(Stdio::piped()).start().unwrap();
            let mut printed = String::new();
            let mut stdout = BufReader::new(process.stdout.take().unwrap());
            stdout.read_line(&mut printed).unwrap();
            process.kill().unwrap();
            process.wait().unwrap();
            assert!(!printed.is_empty(), "{line}");
            return;
        }
        let outcome = self.outcome(&arguments);
        let fits = match word {
            // The source is unknown, which is reported after the limits that would apply.
            "get" => [0, 4].contains(&outcome.code),
            // The doctor reports what is wrong with this machine.
            "doctor" => [0, 1].contains(&outcome.code) && !outcome.stdout.is_empty(),
            _ => outcome.code == 0,
        };
        assert!(fits, "{line}\n{outcome}");
    }
}

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

/// The policy in the README, without its first line.
fn policy() -> String {
    let readme = readme();
    let (_, document) = readme.split_once("\n    version: 1\n").unwrap();
    let lines = document.lines().take_while(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", &line[4..])).collect()
}

/// The command on a line of the README; `None` if there is none.
fn command(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ")?;
    let is_command = line.starts_with("limiter ") || line.starts_with("sudo limiter ");
    is_command.then(|| line.split('#').next().unwrap().trim())
}

/// The text of all runbooks.
fn runbooks() -> String {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks");
    let pages = fs::read_dir(pages).unwrap();
    pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap()).collect()
}

#[test]
fn the_readme_and_the_runbooks_show_commands_that_work() {
    let shown = Shown::new();
    let readme = readme();
    let lines: Vec<&str> = readme.lines().filter_map(command).collect();
    assert!(lines.len() > 20, "{lines:?}");
    for line in &lines {
        shown.run(line);
    }
    let runbooks = runbooks();
    let others: BTreeSet<&str> =
        runbooks.lines().filter_map(command).filter(|line| !lines.contains(line)).collect();
    assert!(others.len() > 5, "{others:?}");
    for line in others {
        shown.run(line);
    }
}

#[test]
fn the_manual_shows_commands_that_work() {
    let shown = Shown::new();
    let folder = shown.document.path().with_file_name("man");
    shown.bench.done(&format!("man {}", folder.display()));
    let mut pages: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let mut commands = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let Some((_, examples)) = text.split_once("\n.SH EXAMPLES\n") else { continue };
        let lines = examples.lines().take_while(|line| !line.starts_with(".SH"));
        for line in lines.filter_map(|line| line.strip_prefix("\\fBlimiter ")) {
            let line = line.trim_end_matches("\\fR").replace("\\-", "-");
            shown.run(&format!("limiter {line}"));
            commands += 1;
        }
    }
    assert!(commands > 50, "{commands}");
}
