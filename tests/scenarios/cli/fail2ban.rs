//! Debian's fail2ban with the shipped action, next to an agent whose document is edited.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::process;
use serde_json::Value;

use super::{Bench, Document, agent::Agent, json::send};

/// How long anything may take; fail2ban reads its log once a second.
const PATIENCE: Duration = Duration::from_secs(60);

const ACTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/fail2ban.conf");

/// A running fail2ban with one jail; it is killed when this is dropped.
struct Fail2ban<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    process: Child,
}

impl<'b> Fail2ban<'b> {
    /// Starts fail2ban with its files in a folder.
    fn start(bench: &'b Bench, folder: &Path) -> Self {
        let folder = folder.join("fail2ban");
        for name in ["action.d", "filter.d"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("fail2ban.conf", "[Definition]\nloglevel = INFO\ndbfile = None\n");
        write("filter.d/some.conf", "[Definition]\nfailregex = bad login from <HOST>$\n");
        fs::copy(ACTION, folder.join("action.d/limiter.conf")).unwrap();
        write("log", "");
        let log = folder.join("log");
        let jail = "backend = polling\nusedns = no\nmaxretry = 1\nfindtime = 1h\nbantime = 1h";
        write(
            "jail.conf",
            &format!(
                "[some]\nenabled = true\nfilter = some\nlogpath = {}\n{jail}\n\
                 action = limiter[name=some]\n",
                log.display()
            ),
        );
        let mut server = Self::command(bench, &folder, "fail2ban-server");
        server.args(["-f", "-x", "--logtarget"]).arg(folder.join("told")).arg("start");
        let process = server.stdout(Stdio::null()).spawn().unwrap();
        Self { bench, folder, process }
    }

    fn command(bench: &Bench, folder: &Path, program: &str) -> Command {
        let mut command = bench.hosts.router.command(program);
        command.arg("-c").arg(folder).arg("-s").arg(folder.join("socket"));
        command.arg("-p").arg(folder.join("pid")).stdin(Stdio::null());
        let binaries = bench.limiter.path().parent().unwrap().display().to_string();
        command.env("PATH", format!("{binaries}:{}", env::var("PATH").unwrap()));
        command
    }

    /// Appends a line about an address to the log that the jail reads, with the current time.
    fn bad_login(&self, address: &str) {
        let date = Command::new("date").arg("+%F %T").output().unwrap();
        let date = String::from_utf8(date.stdout).unwrap();
        let mut log = fs::OpenOptions::new().append(true).open(self.folder.join("log")).unwrap();
        writeln!(log, "{} bad login from {address}", date.trim_end()).unwrap();
    }

    /// The log of fail2ban, for the message of a failed test.
    fn told(&self) -> String {
        fs::read_to_string(self.folder.join("told")).unwrap_or_default()
    }

    /// Waits until exactly these sources are on the run-time list `deny`.
    #[track_caller]
    fn wait_for(&self, sources: &[&str]) -> Value {
        let start = Instant::now();
        loop {
            let entries = self.bench.json("deny list -j")["entries"].take();
            if denied_at_run_time(&entries) == sources {
                return entries;
            }
            assert!(start.elapsed() < PATIENCE, "{sources:?}: {entries}\n{}", self.told());
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Fail2ban<'_> {
    fn drop(&mut self) {
        process::kill(&mut self.process);
    }
}

/// The sources on the run-time list `deny`, sorted.
pub(super) fn denied_at_run_time(entries: &Value) -> Vec<&str> {
    let entries = entries.as_array().unwrap().iter();
    let mut sources: Vec<_> = entries
        .filter(|entry| entry["layer"] == "run_time" && entry["exception"] == false)
        .map(|entry| entry["src"].as_str().unwrap())
        .collect();
    sources.sort_unstable();
    sources
}

#[test]
fn a_ban_outlives_edits_of_the_document_agents_and_the_instance_and_ends_by_fail2ban() {
    const BOTH: &[&str] = &["192.0.2.61/32", "2001:db8:7::/64"];
    let bench = Bench::new();
    let document = Document::new("deny: [198.51.100.0/24]");
    let arguments = "-i eth0 --policy FILE --events none";
    let agent = Agent::start(&bench, &document, arguments);
    agent.expect("attached");
    agent.expect("unchanged");
    let fail2ban = Fail2ban::start(&bench, document.path().parent().unwrap());
    fail2ban.bad_login("192.0.2.61");
    fail2ban.bad_login("2001:db8:7::9");
    let entries = fail2ban.wait_for(BOTH);
    assert_eq!(entries[0]["layer"], "document", "{entries}");
    let reasons: Vec<_> = [1, 2].map(|at| entries[at]["reason"].as_str().unwrap()).into();
    assert_eq!(reasons, ["fail2ban some"; 2], "{entries}");
    // The ban has an end even if fail2ban is killed and never lifts it.
    let left = [1, 2].map(|at| entries[at]["seconds_left"].as_u64().unwrap());
    assert!(left.iter().all(|left| (3_500..=3_601).contains(left)), "{entries}");
    let is_dropped = |when: &str| {
        let denied = || bench.json("status -j")["reasons"]["deny"].as_u64().unwrap();
        let before = denied();
        send(&bench, [192, 0, 2, 61], 20);
        assert_eq!(denied(), before + 20, "{when}");
    };
    is_dropped("it was just banned");

    document.write("limits: [{name: some, key: source, rate: 1k pps}]");
    agent.expect("applied");
    fail2ban.wait_for(BOTH);
    is_dropped("the document was edited");
    agent.end();
    let agent = Agent::start(&bench, &document, arguments);
    loop {
        // An event about the version of the program may come first.
        if agent.next_within(PATIENCE)["event"] == "unchanged" {
            break;
        }
    }
    fail2ban.wait_for(BOTH);
    // As after a boot: the kernel holds no state.
    bench.done("detach --all");
    loop {
        if agent.next_within(PATIENCE)["event"] == "attached" {
            break;
        }
    }
    fail2ban.wait_for(BOTH);
    is_dropped("the instance was made anew");

    let mut client = Fail2ban::command(&bench, &fail2ban.folder, "fail2ban-client");
    let unbanned = client.args(["set", "some", "unbanip", "192.0.2.61"]).output().unwrap();
    assert!(unbanned.status.success(), "{unbanned:?}\n{}", fail2ban.told());
    fail2ban.wait_for(&["2001:db8:7::/64"]);
    let top = || bench.json("status -j")["reasons"]["deny"].as_u64().unwrap();
    let before = top();
    send(&bench, [192, 0, 2, 61], 20);
    assert_eq!(top(), before, "it is free");
    // When fail2ban ends, it lifts the other bans.
    process::signal(&fail2ban.process, libc::SIGTERM);
    fail2ban.wait_for(&[]);
    let told = fail2ban.told();
    assert!(!told.contains("ERROR"), "{told}");
    agent.end();
}
