//! Debian's CrowdSec: its API, which the agent asks, and `crowdsec-custom-bouncer`, which calls the shipped program.

mod bouncer;

use std::{
    env,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use limiter_tests::process;

use super::{Bench, Document, fail2ban::denied_at_run_time};

/// How long anything may take; the bouncer asks once a second.
const PATIENCE: Duration = Duration::from_secs(60);

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/crowdsec.sh");

/// An API of CrowdSec, and what asks it, on the router; all are killed when this is dropped.
struct CrowdSec<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl<'b> CrowdSec<'b> {
    /// Starts the API, with a machine and no bouncer.
    fn start(bench: &'b Bench, folder: &Path) -> Self {
        let folder = folder.join("crowdsec");
        for name in ["data", "hub", "plugins"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let at = folder.display();
        write("hub/.index.json", "{}");
        write("simulation.yaml", "simulation: off\n");
        write("profiles.yaml", "name: none\nfilters: ['false']\n");
        write(
            "config.yaml",
            &format!(
                "common: {{daemonize: false, log_media: stdout, log_level: info}}\n\
                 config_paths: {{config_dir: {at}, data_dir: {at}/data, hub_dir: {at}/hub, \
                 simulation_path: {at}/simulation.yaml, index_path: {at}/hub/.index.json, \
                 notification_dir: {at}/plugins, plugin_dir: {at}/plugins}}\n\
                 crowdsec_service: {{enable: false}}\n\
                 cscli: {{output: raw}}\n\
                 db_config: {{type: sqlite, db_path: {at}/data/crowdsec.db}}\n\
                 api:\n  client: {{credentials_path: {at}/credentials.yaml}}\n  \
                 server: {{listen_uri: '127.0.0.1:8080', profiles_path: {at}/profiles.yaml}}\n\
                 prometheus: {{enabled: false}}\n"
            ),
        );
        bench.hosts.router.ip("link set lo up").unwrap();
        let mut crowdsec = Self { bench, folder, processes: Vec::new() };
        let credentials = crowdsec.folder.join("credentials.yaml").display().to_string();
        crowdsec.cscli(&["machines", "add", "--auto", "--force", "--file", &credentials]);
        crowdsec.serve();
        crowdsec
    }

    /// Starts the API again.
    fn serve(&mut self) {
        self.spawn("crowdsec", "config.yaml", &["-no-cs"]);
        // A bouncer ends if nobody listens yet.
        let start = Instant::now();
        while !fs::read_to_string(self.log("crowdsec")).unwrap().contains("Local API listening") {
            assert!(start.elapsed() < PATIENCE, "{}", self.told());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills the API, and whoever was started after it.
    fn stop(&mut self) {
        self.processes.iter_mut().for_each(process::kill);
        self.processes.clear();
    }

    /// A key for another bouncer.
    fn key(&self, name: &str) -> String {
        self.cscli(&["bouncers", "add", name]).trim().to_owned()
    }

    /// The key that the page about lists has a reader make.
    fn key_as_shown(&self) -> String {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/lists.md");
        let page = fs::read_to_string(page).unwrap();
        let line = page.lines().find_map(|line| line.trim().strip_prefix("sudo cscli ")).unwrap();
        let (arguments, _) = line.split_once(" > ").unwrap();
        self.cscli(&arguments.split(' ').collect::<Vec<_>>()).trim().to_owned()
    }

    /// Starts `crowdsec-custom-bouncer`.
    fn start_custom_bouncer(&mut self) {
        fs::create_dir(self.folder.join("bin")).unwrap();
        let program = self.folder.join("bin/limiter-crowdsec");
        fs::copy(PROGRAM, &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            self.folder.join("bouncer.yaml"),
            format!(
                "bin_path: {program}\npiddir: {at}/\nupdate_frequency: 1s\n\
                 cache_retention_duration: 1s\ndaemonize: false\nlog_mode: stdout\n\
                 log_level: info\napi_url: http://127.0.0.1:8080/\napi_key: {key}\n\
                 prometheus: {{enabled: false}}\n",
                program = program.display(),
                at = self.folder.display(),
                key = self.key("custom")
            ),
        )
        .unwrap();
        self.spawn("crowdsec-custom-bouncer", "bouncer.yaml", &[]);
    }

    /// A program with its configuration.
    fn command(&self, program: &str, configuration: &str) -> Command {
        let unpacked = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/crowdsec/usr/bin");
        let folder = env::var("LIMITER_CROWDSEC").unwrap_or_else(|_| unpacked.to_owned());
        let folder = Path::new(&folder).canonicalize();
        let folder = folder.context("CrowdSec is not there: run `cargo xtask setup`").unwrap();
        let mut command = self.bench.hosts.router.command(folder.join(program).to_str().unwrap());
        command.arg("-c").arg(self.folder.join(configuration)).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", folder.join("../lib/x86_64-linux-gnu"));
        let limiter = self.bench.limiter.path().parent().unwrap().display().to_string();
        command.env("PATH", format!("{limiter}:{}", env::var("PATH").unwrap()));
        command
    }

    fn log(&self, program: &str) -> PathBuf {
        self.folder.join(program).with_extension("log")
    }

    fn spawn(&mut self, program: &str, configuration: &str, arguments: &[&str]) {
        let log = File::create(self.log(program)).unwrap();
        let mut command = self.command(program, configuration);
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap());
    }

    /// Runs `cscli` and returns what it prints.
    fn cscli(&self, arguments: &[&str]) -> String {
        let output = self.command("cscli", "config.yaml").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What both programs wrote, for the message of a failed test.
    fn told(&self) -> String {
        let read = |program| fs::read_to_string(self.log(program)).unwrap_or_default();
        ["crowdsec", "crowdsec-custom-bouncer"].map(read).concat()
    }

    /// Waits until exactly these sources are on the run-time list `deny`.
    #[track_caller]
    fn wait_for(&self, sources: &[&str]) {
        let start = Instant::now();
        loop {
            let entries = self.bench.json("deny list -j")["entries"].take();
            if denied_at_run_time(&entries) == sources {
                let reasons = entries.as_array().unwrap().iter().map(|entry| &entry["reason"]);
                let all = |reason: &serde_json::Value| {
                    reason.as_str().is_some_and(|reason| reason.starts_with("crowdsec "))
                };
                assert!(reasons.clone().all(all), "{entries}");
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{sources:?}: {entries}\n{}", self.told());
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for CrowdSec<'_> {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(process::kill);
    }
}

#[test]
fn decisions_about_addresses_and_ranges_are_bans_until_they_are_deleted() {
    let bench = Bench::new();
    bench.done("attach eth0 --sources 1024");
    let document = Document::new("");
    let mut crowdsec = CrowdSec::start(&bench, document.path().parent().unwrap());
    crowdsec.start_custom_bouncer();
    crowdsec.cscli(&["decisions", "add", "--ip", "192.0.2.5", "--duration", "1h"]);
    // Two letters that are hexadecimal digits.
    crowdsec.cscli(&["decisions", "add", "--scope", "Country", "--value", "DE"]);
    crowdsec.cscli(&["decisions", "add", "--range", "198.51.100.0/24", "--duration", "2h"]);
    crowdsec.cscli(&["decisions", "add", "--ip", "2001:db8::7", "--duration", "1h"]);
    crowdsec.wait_for(&["192.0.2.5/32", "198.51.100.0/24", "2001:db8::/64"]);
    crowdsec.cscli(&["decisions", "delete", "--ip", "192.0.2.5"]);
    crowdsec.cscli(&["decisions", "delete", "--ip", "2001:db8::7"]);
    crowdsec.wait_for(&["198.51.100.0/24"]);
    let told = crowdsec.told();
    assert!(!told.contains("level=error") && !told.contains("level=fatal"), "{told}");
}
