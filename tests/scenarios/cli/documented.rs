//! Runs every command in the README, the pages of `docs` and the manual pages as it is shown.

mod form;
mod links;
mod metrics;
mod output;
mod shell;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use limiter_tests::command::Outcome;

use super::{Bench, Document, SMALL, inquiry::pcap};

/// Commands that run for long or for ever. They are ended after their first output.
const LONG: [&str; 4] = ["agent", "bridge", "drops", "watch"];

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
        // Pages show what is printed where no control group limits memory.
        let mut mount = bench.hosts.router.command("mount");
        assert!(mount.args(["-t", "tmpfs", "none", "/sys/fs/cgroup"]).status().unwrap().success());
        let document = Document::new(&policy());
        fs::write(document.path().with_file_name("capture.pcap"), pcap(&[])).unwrap();
        Self { bench, document }
    }

    /// The arguments of a shown command, with file names replaced by files of this test.
    fn arguments(&self, line: &str) -> String {
        let folder = self.document.path().parent().unwrap().display().to_string();
        let words = line.split_whitespace().skip_while(|word| *word != "limiter").skip(1);
        let ratelimit = root().join("fuzz/seeds/ratelimit/all.yaml").display().to_string();
        // What is behind it is of the shell.
        let words = words.take_while(|word| *word != ">");
        let words = words.map(|word| match word {
            "/etc/ratelimit/config" => ratelimit.clone(),
            "policy.yaml" | "/etc/limiter/policy.yaml" => format!("{folder}/policy.yaml"),
            "drops.pcap" => format!("{folder}/drops.pcap"),
            "capture.pcap" | "FILE" => format!("{folder}/capture.pcap"),
            word => word.to_owned(),
        });
        let mut arguments = words.collect::<Vec<_>>().join(" ");
        if arguments == "policy save" {
            // The default file may exist on this machine.
            arguments.push_str(&format!(" {folder}/saved.yaml"));
        }
        if arguments.starts_with("bridge config") {
            // So may the policy of the package, or not.
            arguments.push_str(&format!(" --policy {folder}/policy.yaml"));
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
            ["bridge" | "completion", ..] | ["policy", "check" | "schema", ..] => return,
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
            ["limit", "del", name, "--all"] => {
                // It may be there, with another rate.
                let _: Outcome = self.outcome(&format!("limit add {name} --match tcp --rate 7/s"));
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
        if LONG.contains(&word) && !arguments.starts_with("bridge config") {
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A page, by its path in the workspace.
fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The paths of the README, and of all pages in and below `docs`.
fn pages() -> Vec<String> {
    let all = links::all_pages().into_iter();
    let paths = all.map(|page| page.strip_prefix(root()).unwrap().display().to_string());
    paths.filter(|path| path == "README.md" || path.starts_with("docs/")).collect()
}

/// The documents that a page shows.
fn documents(page: &str) -> Vec<String> {
    let blocks = page.split("\n```yaml\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// The first policy of the page about policies, without its version.
fn policy() -> String {
    let first = documents(&page("docs/policy.md")).swap_remove(0);
    first.strip_prefix("version: 1\n").unwrap().to_owned()
}

/// The command of limiter on a line that a page shows, if there is one.
fn command(line: &str) -> Option<&str> {
    let is_command = line.starts_with("limiter ") || line.starts_with("sudo limiter ");
    is_command.then(|| line.split('#').next().unwrap().trim())
}

#[test]
fn pages_show_commands_that_work() {
    let shown = Shown::new();
    let pages: Vec<String> = pages().iter().map(|path| page(path)).collect();
    let blocks = pages.iter().flat_map(|page| shell::blocks(page));
    let lines: BTreeSet<&str> = blocks.flatten().filter_map(command).collect();
    assert!(lines.len() > 30, "{lines:?}");
    for line in lines {
        shown.run(line);
    }
}

#[test]
fn pages_show_documents_that_are_right() {
    let bench = Bench::new();
    let mut checked = 0;
    for path in pages() {
        for text in documents(&page(&path)) {
            let document = Document::new(text.strip_prefix("version: 1\n").unwrap());
            for set in ["blocked.txt", "drop.txt"] {
                fs::write(document.path().with_file_name(set), "192.0.2.0/28\n").unwrap();
            }
            let outcome = bench
                .run(&format!("policy check {}", document.path().display()))
                .outcome()
                .unwrap();
            assert_eq!(outcome.code, 0, "{path}: {outcome}\n{text}");
            checked += 1;
        }
    }
    assert!(checked >= 5, "{checked}");
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
