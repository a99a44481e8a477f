//! The command line: standard output, messages, exit codes, and what a command must not change.

pub(crate) mod agent;
mod attach;
mod bridge;
mod commands;
mod completion;
mod confirm;
mod control;
mod crowdsec;
mod doctor;
mod documented;
mod drops;
mod environment;
mod events;
mod fail2ban;
mod inquiry;
mod interfaces;
mod json;
mod limit_add;
mod lists;
mod locks;
mod metrics;
mod mistakes;
mod monitor;
mod names;
pub(crate) mod package;
mod penalties;
mod policy;
mod progress;
mod prometheus;
mod ssh;
mod values;
mod watch;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use limiter_tests::{
    command::{Limiter, LimiterCommand, Outcome},
    leak::Footprint,
    sandbox::{BPFFS, Sandbox},
    topology::Topology,
};
use serde_json::Value;

/// Options for small maps, which are created faster.
const SMALL: &str = "--sources 4096 --buckets 4096 --overrides 64";

/// A router with `eth0` and `lo`, and the limiter on it.
struct Bench {
    hosts: Topology,
    limiter: Limiter,
}

impl Bench {
    /// A router with nothing attached.
    fn new() -> Self {
        Self::within(&Sandbox::new().unwrap())
    }

    fn within(sandbox: &Sandbox) -> Self {
        let hosts = Topology::new(sandbox).unwrap();
        let limiter = Limiter::new(&hosts.router).unwrap();
        Self { hosts, limiter }
    }

    /// A router with the limiter attached to `eth0`, every built-in limit set, and one override.
    fn attached() -> Self {
        let bench = Self::new();
        bench.done(&format!("attach eth0 {SMALL} --pps 1kpps --burst 200 --syn 50/s"));
        bench.done("limit set connection --rate 500/s");
        bench.done("limit set source --src 203.0.113.0/24 --rate 5/min");
        bench
    }

    fn run(&self, arguments: &str) -> LimiterCommand {
        self.limiter.run(arguments)
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    fn done(&self, arguments: &str) -> Outcome {
        self.run(arguments).done().unwrap()
    }

    /// Everything that a command writes to a terminal. `<` and a file may follow.
    fn on_terminal(&self, arguments: &str) -> String {
        let command = format!("'{}' {arguments}", self.limiter.path().display());
        let mut script = self.hosts.router.command("script");
        script.args(["-qec", &command, "/dev/null"]).env_remove("LIMITER_BPFFS");
        let output = script.env("TERM", "xterm").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn json(&self, arguments: &str) -> Value {
        self.run(arguments).json().unwrap()
    }

    /// Runs a command that has to fail: with this exit code, with all of `words` in its messages, with an
    /// empty standard output, and without changing anything.
    #[track_caller]
    fn refused(&self, arguments: &str, code: i32, words: &[&str]) -> Outcome {
        self.refused_as(self.run(arguments), code, words)
    }

    #[track_caller]
    fn refused_as(&self, command: LimiterCommand, code: i32, words: &[&str]) -> Outcome {
        let before = self.state();
        let outcome = command.outcome().unwrap();
        outcome.assert_exit_code(code).assert_says(words).assert_says(&["error: "]);
        assert_eq!(outcome.stdout, "", "{outcome}");
        assert_eq!(self.state(), before, "something changed: {outcome}");
        outcome
    }

    fn footprint(&self) -> Footprint {
        Footprint::of(&self.hosts.router, format!("{BPFFS}/limiter")).unwrap()
    }

    /// Everything that a command could change: pins, programs on interfaces, and limits.
    fn state(&self) -> String {
        let mut find = self.hosts.router.command("find");
        let pins = find.arg(BPFFS).output().unwrap().stdout;
        let mut pins: Vec<_> = std::str::from_utf8(&pins).unwrap().lines().collect();
        pins.sort_unstable();
        let limits = self.run("limit list -j").outcome().unwrap();
        format!("{pins:?} {:?} {}", self.programs(), limits.stdout)
    }

    /// The interfaces of the router, each with the id of its XDP program.
    fn programs(&self) -> BTreeMap<String, Option<u64>> {
        let links = self.hosts.router.ip_json(&["link", "show"]).unwrap();
        let links = links.as_array().unwrap().iter();
        links
            .map(|link| {
                let name = link["ifname"].as_str().unwrap().to_owned();
                (name, link["xdp"]["prog"]["id"].as_u64())
            })
            .collect()
    }
}

/// A policy document in a folder of its own, which is removed when this is dropped.
pub(crate) struct Document {
    folder: PathBuf,
}

impl Document {
    /// Writes a document; `text` follows the version.
    pub(crate) fn new(text: &str) -> Self {
        // In memory, as the state of a bridge has to be.
        Self::below(Path::new("/dev/shm"), text)
    }

    /// Writes a document into a folder of its own below this one.
    pub(crate) fn below(folder: &Path, text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = folder.join(format!("limiter-cli-{}-{number}", process::id()));
        fs::create_dir(&folder).unwrap();
        let document = Self { folder };
        document.write(text);
        document
    }

    /// Replaces the document.
    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), format!("version: 1\n{text}\n")).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.join("policy.yaml")
    }

    /// Replaces `FILE` in a command by the path of the document.
    pub(crate) fn in_place(&self, arguments: &str) -> String {
        arguments.replace("FILE", self.path().to_str().unwrap())
    }
}

impl Drop for Document {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
