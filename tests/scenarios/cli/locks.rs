//! Locks: a ban does not wait for an attach, and no command waits for a stopped process.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{process, sandbox::BPFFS};

use super::{Bench, Document, SMALL};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a command that waits for a stopped process may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Stops a process with SIGSTOP, and waits until it has stopped.
#[track_caller]
fn stop(child: &Child) {
    process::signal(child, libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", child.id());
    until("it stops", || fs::read_to_string(&stat).unwrap().contains(") T "));
}

/// The number of files that a process holds a lock on.
fn locks(child: &Child) -> usize {
    let process = child.id().to_string();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let is_of = |line: &&str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        fields.get(1) == Some(&"FLOCK") && fields.get(4) == Some(&process.as_str())
    };
    locks.lines().filter(is_of).count()
}

#[test]
fn bans_wait_for_no_attach_and_are_kept_by_it() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip("link add one type veth peer name two").unwrap();
    router.ip("link add three type veth peer name four").unwrap();
    let document = Document::new(
        "limits: [{name: some, match: {interface: two}, key: source, rate: 10/s, burst: 10}]",
    );
    let attach = document.in_place(&format!("attach one two three four {SMALL} --policy FILE"));
    let mut attach = bench.run(&attach).to(Stdio::null()).start().unwrap();
    // The first interface is attached; others are not yet.
    until("one is attached", || bench.run("status").outcome().unwrap().code == 0);
    // While it changes what is in force, it holds that lock too, as everybody does for a moment.
    until("it holds the lock of attaching alone", || {
        stop(&attach);
        let alone = locks(&attach) == 1;
        if !alone {
            process::signal(&attach, libc::SIGCONT);
        }
        alone
    });
    let begin = Instant::now();
    let banned = bench.done("deny add 203.0.113.9");
    assert!(banned.stderr.is_empty() && begin.elapsed() < SOON, "{banned}");
    bench.done("limit set syn --rate 9/s");
    // A command that attaches or detaches names the process that it waits for, and gives up soon.
    let number = attach.id().to_string();
    let words = [
        number.as_str(),
        "limiter attach one two three four",
        "`, stopped) has the lock",
        "kill -CONT",
        "waiting for",
    ];
    bench.refused("attach eth0", 6, &words);
    bench.refused("detach one", 6, &words[..4]);
    assert!(begin.elapsed() < 3 * SOON);
    process::signal(&attach, libc::SIGCONT);
    assert!(attach.wait().unwrap().success());
    let denied = bench.json("deny list -j").to_string();
    assert!(denied.contains("203.0.113.9"), "{denied}");
    let limits = bench.json("limit list -j").to_string();
    assert!(limits.contains("\"some\"") && limits.contains("\"syn\""), "{limits}");
    // The policy was compiled again for the interfaces that were attached after the change.
    let shown = bench.done("policy show").stdout.replace("version: 1\n", "");
    let again = bench.done(&Document::new(&shown).in_place("policy apply FILE"));
    assert_eq!(again.stdout, "no difference\n", "{shown}");
    assert_eq!(bench.done("deny add 203.0.113.10").stderr, "");
    bench.done("detach --all");
}

/// Writing the file of the lists may take any time on a slow disk.
#[test]
fn no_ban_waits_for_the_file_of_another() {
    let bench = Bench::attached();
    bench.done("deny add 203.0.113.1 --reason 203.0.113.1");
    let mut flock = bench.hosts.router.command("flock");
    let mut flock = flock.args(["-F", "/var/lib/limiter", "sleep", "600"]).spawn().unwrap();
    until("it has the lock", || locks(&flock) == 1);
    let add = |source: &str| {
        let command = bench.run(&format!("deny add {source} --reason {source}"));
        let command = command.to(Stdio::null()).start().unwrap();
        until("it is banned", || bench.done("deny list").stdout.contains(source));
        command
    };
    let mut commands = ["203.0.113.2", "203.0.113.3", "203.0.113.4"].map(add);
    // Longer than a command waits for the lock of the instance.
    thread::sleep(Duration::from_secs(4));
    for command in &mut commands {
        assert!(command.try_wait().unwrap().is_none(), "it writes, so that it can say it did");
    }
    process::kill(&mut flock);
    for command in &mut commands {
        assert!(command.wait().unwrap().success());
    }
    let mut cat = bench.hosts.router.command("cat");
    let kept = cat.arg("/var/lib/limiter/run-time.json").output().unwrap().stdout;
    let kept = String::from_utf8(kept).unwrap();
    for source in ["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"] {
        assert!(kept.contains(source), "{kept}");
    }
}

#[test]
fn nobody_waits_long_for_a_process_that_hangs_with_the_lock() {
    let bench = Bench::attached();
    let mut flock = bench.hosts.router.command("flock");
    let flock = flock.args(["-F", &format!("{BPFFS}/limiter/maps"), "sleep", "60"]);
    let mut flock = flock.spawn().unwrap();
    until("it has the lock", || locks(&flock) == 1);
    let number = flock.id().to_string();
    let begin = Instant::now();
    let kill = format!("kill -KILL {number}");
    let holder = format!("process {number} (`sleep 60`)");
    let words = [&holder, &kill, "waiting for process", "limiter monitor on"];
    bench.refused("deny add 203.0.113.9", 6, &words);
    stop(&flock);
    let told = bench.run("deny add 203.0.113.9 -j").outcome().unwrap();
    told.assert_exit_code(6).assert_says(&[&number, "`, stopped) has the lock"]);
    for line in told.stderr.lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
    assert!(begin.elapsed() < 2 * SOON, "it took {:?}", begin.elapsed());
    // Switching to monitor mode is for emergencies, and reading is for diagnosis, so neither waits.
    bench.done("monitor on");
    bench.done("status");
    process::kill(&mut flock);
    bench.done("deny add 203.0.113.9");
}
