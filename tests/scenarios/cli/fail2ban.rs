//! Debian's fail2ban with the shipped actions.

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

use super::{Bench, Document, SMALL, agent::Agent, json::send};

/// How long anything may take; fail2ban reads its log once a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shipped actions, by their names in a jail.
const ACTIONS: [(&str, &str); 2] =
    [("limiter", "fail2ban.conf"), ("limiter-push", "fail2ban-push.conf")];

/// A running fail2ban with one jail; it is killed when this is dropped.
struct Fail2ban<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    process: Child,
}

impl<'b> Fail2ban<'b> {
    /// Starts fail2ban with its files in a folder. Its jail `some` has this action, and bans for this time.
    fn start(bench: &'b Bench, folder: &Path, action: &str, time: &str) -> Self {
        let folder = folder.join("fail2ban");
        for name in ["action.d", "filter.d"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("fail2ban.conf", "[Definition]\nloglevel = INFO\ndbfile = None\n");
        write("filter.d/some.conf", "[Definition]\nfailregex = bad login from <HOST>$\n");
        for (name, file) in ACTIONS {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file);
            fs::copy(file, folder.join(format!("action.d/{name}.conf"))).unwrap();
        }
        write("log", "");
        let log = folder.join("log");
        let jail = "backend = polling\nusedns = no\nmaxretry = 1\nfindtime = 1h";
        write(
            "jail.conf",
            &format!(
                "[some]\nenabled = true\nfilter = some\nlogpath = {}\n{jail}\n\
                 bantime = {time}\naction = {action}\n",
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

    /// Has fail2ban lift a ban.
    #[track_caller]
    fn unban(&self, address: &str) {
        let mut client = Self::command(self.bench, &self.folder, "fail2ban-client");
        let unbanned = client.args(["set", "some", "unbanip", address]).output().unwrap();
        assert!(unbanned.status.success(), "{unbanned:?}\n{}", self.told());
    }

    /// The log of fail2ban, for the message of a failed test.
    fn told(&self) -> String {
        fs::read_to_string(self.folder.join("told")).unwrap_or_default()
    }

    /// Waits until exactly these sources are on the run-time list `deny`.
    #[track_caller]
    fn wait_for(&self, sources: &[&str]) -> Value {
        self.wait_until("deny list -j", |entries| denied_at_run_time(entries) == sources)
    }

    /// Waits until exactly these sources are blocked.
    #[track_caller]
    fn wait_for_blocks(&self, sources: &[&str]) -> Value {
        self.wait_until("penalty list -j", |entries| {
            let entries = entries.as_array().unwrap().iter();
            let mut blocked: Vec<_> = entries.map(|entry| entry["src"].as_str().unwrap()).collect();
            blocked.sort_unstable();
            blocked == sources
        })
    }

    /// Waits until the entries that a command prints are as they have to be, and returns them.
    #[track_caller]
    fn wait_until(&self, list: &str, are_right: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let entries = self.bench.json(list)["entries"].take();
            if are_right(&entries) {
                return entries;
            }
            assert!(start.elapsed() < PATIENCE, "{entries}\n{}", self.told());
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
    let fail2ban =
        Fail2ban::start(&bench, document.path().parent().unwrap(), "limiter[name=some]", "1h");
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

    fail2ban.unban("192.0.2.61");
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

/// A jail that pushes bans for this time, and the seconds that a ban has left at most.
fn a_pushed_ban_ends_by_fail2ban(time: &str, most: u64) {
    let (bench, document) = (Bench::new(), Document::new(""));
    bench.done(&format!("attach eth0 {SMALL}"));
    let folder = document.path().parent().unwrap().to_owned();
    let fail2ban = Fail2ban::start(&bench, &folder, "limiter-push", time);
    fail2ban.bad_login("192.0.2.61");
    fail2ban.bad_login("2001:db8:7::9");
    let entries = fail2ban.wait_for_blocks(&["192.0.2.61", "2001:db8:7::/64"]);
    for entry in entries.as_array().unwrap() {
        let left = entry["seconds_left"].as_u64().unwrap();
        assert!((most - 100..=most).contains(&left), "{entry}");
    }
    let dropped = || bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
    send(&bench, [192, 0, 2, 61], 20);
    assert_eq!(dropped(), 20);
    fail2ban.unban("192.0.2.61");
    fail2ban.wait_for_blocks(&["2001:db8:7::/64"]);
    send(&bench, [192, 0, 2, 61], 20);
    assert_eq!(dropped(), 20, "it is free");
    // Somebody ended the other one already.
    bench.done("penalty del --all --push");
    process::signal(&fail2ban.process, libc::SIGTERM);
    let start = Instant::now();
    while !fail2ban.told().contains("Exiting Fail2ban") {
        assert!(start.elapsed() < PATIENCE, "{}", fail2ban.told());
        thread::sleep(Duration::from_millis(200));
    }
    let told = fail2ban.told();
    assert!(!told.contains("ERROR"), "{told}");
}

#[test]
fn a_pushed_ban_ends_with_that_of_fail2ban() {
    a_pushed_ban_ends_by_fail2ban("1h", 3_600);
}

#[test]
fn a_pushed_ban_for_ever_lasts_as_long_as_a_block_may() {
    a_pushed_ban_ends_by_fail2ban("-1", 366 * 24 * 3_600);
}
