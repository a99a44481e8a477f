//! `limiter watch` on a terminal, driven by keys, while traffic is limited.

mod kinds;
mod terminal;

use std::{process::Command, thread, time::Duration};

use limiter_tests::{
    packet::Frame,
    traffic::{Sender, Stop, send_together},
};
use serde_json::Value;

use self::terminal::Terminal;
use super::{Bench, Document, SMALL, bridge::Bridge, json::send};

const MINUTE: Duration = Duration::from_secs(60);
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const TAB: &str = "\t";
const DOWN: &str = "\x1b[B";

/// Makes these sources send while `meanwhile` runs, each at its rate in packets per second.
pub(super) fn while_sending<T>(
    bench: &Bench,
    sources: &[([u8; 4], u64)],
    meanwhile: impl FnOnce() -> T,
) -> T {
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let mut senders: Vec<Sender> = sources
        .iter()
        .map(|&(source, rate)| {
            let frame = Frame::udp(source, to.v4, 1, 9).payload(18).macs(from.mac, to.mac).build();
            Sender::new(&bench.hosts.client.namespace, from, rate, frame).unwrap()
        })
        .collect();
    // Also when `meanwhile` panics.
    struct Stopping(Stop);
    impl Drop for Stopping {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = Stop::default();
    thread::scope(|scope| {
        let stopping = Stopping(stop.clone());
        scope.spawn(|| send_together(&mut senders, 5 * MINUTE, &stop).unwrap());
        let result = meanwhile();
        drop(stopping);
        result
    })
}

fn start(bench: &Bench, arguments: &str, variables: &[(&str, &str)]) -> Terminal {
    let mut command = bench.hosts.router.command(bench.limiter.path().to_str().unwrap());
    command.args(arguments.split(' '));
    in_environment(&mut command, variables);
    Terminal::start(command, 80, 24)
}

/// Sets these variables, and otherwise those of an ordinary terminal.
fn in_environment(command: &mut Command, variables: &[(&str, &str)]) {
    for variable in ["LIMITER_BPFFS", "NO_COLOR", "SSH_CONNECTION", "LC_ALL", "LC_CTYPE"] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    command.envs(variables.iter().copied());
}

/// With many windows open, each says of which host it is.
#[test]
fn the_first_line_has_the_name_of_the_host() {
    let bench = Bench::attached();
    let limiter = bench.limiter.path().to_str().unwrap();
    let named = format!("echo gw7.example.org > /proc/sys/kernel/hostname; exec '{limiter}' watch");
    let mut command = bench.hosts.router.command("unshare");
    command.args(["--uts", "sh", "-c", &named]);
    in_environment(&mut command, &[]);
    let mut screen = Terminal::start(command, 80, 24);
    let text = screen.wait_for("eth0");
    let line = text.lines().next().unwrap();
    assert!(line.starts_with(" limiter on gw7  eth0 native "), "{line}");
    screen.press(&["q"]);
    assert!(screen.end().success());
}

/// Everything that keys could change.
fn changeable(bench: &Bench) -> Value {
    bench.json("policy show -j")
}

/// The mode of a limit.
fn mode(bench: &Bench, name: &str) -> Value {
    bench.json(&format!("limit show {name} -j"))["mode"].take()
}

#[test]
fn keys_find_a_source_open_it_and_deny_it() {
    let bench = Bench::attached();
    let sources = [([192, 0, 2, 7], 3_000), ([192, 0, 2, 8], 300), ([198, 51, 100, 9], 6_000)];
    while_sending(&bench, &sources, || {
        let mut screen = start(&bench, "watch --interval 300ms", &[]);
        let modes = screen.modes_before();
        screen.wait("every source", |text| {
            ["192.0.2.7 ", "192.0.2.8 ", "198.51.100.9 "].iter().all(|it| text.contains(it))
        });
        assert_eq!(screen.is_taken(), [true; 3]);
        screen.wait_for("over connection");
        assert!(screen.has_colour());

        screen.press(&["/", "192.0.2.0/24", ENTER]);
        let text = screen.wait_for("filter 192.0.2.0/24");
        assert!(text.contains("2 SOURCES by") && !text.contains("198.51.100.9"), "{text}");

        screen.press(&["p"]);
        let halves = |text: &str| {
            let (line, rest) = text.split_once('\n').unwrap();
            (line.to_owned(), rest.to_owned())
        };
        let is_frozen = |text: &str| halves(text).0.contains("frozen, ");
        let (age, frozen) = halves(&screen.wait("its age", is_frozen));
        let text = screen.wait("its age, later", |it| is_frozen(it) && halves(it).0 != age);
        assert_eq!(halves(&text).1, frozen, "it moves");
        screen.press(&["p"]);
        screen.wait("what moves", |text| !text.contains("frozen"));

        screen.press(&[DOWN, ENTER]);
        let text = screen.wait_for("source 192.0.2.7\n");
        assert!(text.contains("if flags"), "{text}");
        screen.wait_for("192.0.2.7:1 > ");

        // Nothing happens by accident: not by another key, by pasted text, or by a key that comes too soon.
        let before = changeable(&bench);
        screen.press(&["d", ENTER]);
        screen.wait_for("deny 192.0.2.7 for 10m 00s: drop all of it?");
        screen.press(&["n"]);
        screen.wait_for("Nothing was changed.");
        screen.write("\x1b[200~d\ry\x1b[201~");
        screen.write("d\ryyy");
        screen.wait_for("deny 192.0.2.7 for 10m 00s: drop all of it?");
        screen.press(&[ESCAPE]);
        assert_eq!(changeable(&bench), before);

        screen.press(&["d", "5m", ENTER]);
        screen.confirm("deny 192.0.2.7 for 5m 00s: drop all of it?");
        screen.wait_for("deny: 192.0.2.7/32 until 20");
        screen.wait_for("is dropped here, and no limit\n is asked");
        screen.wait_for("a packet now: drop (deny)");
        let list = bench.json("deny list -j");
        let entry = &list["entries"][0];
        let left = entry["seconds_left"].as_u64().unwrap();
        assert!(entry["src"] == "192.0.2.7/32" && (240..=301).contains(&left), "{list}");

        screen.press(&[ESCAPE]);
        screen.wait_for("denied 4m 5");
        screen.press(&["s"]);
        screen.wait_for("SOURCES by passed/s");
        screen.press(&["q"]);
        assert_eq!(screen.end().code(), Some(0));
        assert_eq!((screen.is_taken(), screen.modes()), ([false; 3], modes));
        assert!(screen.text().contains("limiter is still attached to eth0"), "{}", screen.text());
    });
    assert!(bench.json("status -j")["reasons"]["deny"].as_u64().unwrap() > 0);
}

/// Of both floors, where a bridge answers.
#[test]
fn an_open_source_shows_its_limits_on_requests() {
    let limits = "limits: [{name: login, on: requests, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 5}]";
    let (bench, document) = (Bench::attached(), Document::new(limits));
    let bridge = Bridge::start(&bench, &document, "");
    assert_eq!(bridge.ask("GET /v1/auth", &["X-Real-IP: 192.0.2.7"]).status, 204);
    while_sending(&bench, &[([192, 0, 2, 7], 300)], || {
        let socket = document.path().with_file_name("bridge.sock");
        let watch = format!("watch --interval 300ms --bridge unix:{}", socket.display());
        let mut screen = start(&bench, &watch, &[]);
        screen.wait_for("192.0.2.7 ");
        screen.press(&[DOWN, ENTER]);
        screen.wait_for("source 192.0.2.7\n");
        let text = screen.wait_for("LIMIT ON REQUESTS");
        let row = text.lines().find(|line| line.starts_with(" login ")).unwrap();
        let cells: Vec<_> = row.split_whitespace().take(5).collect();
        assert_eq!(cells, ["login", "source", "enforce", "5", "4"], "{text}");
    });
}

#[test]
fn keys_switch_a_limit_and_errors_are_told() {
    let bench = Bench::attached();
    while_sending(&bench, &[([192, 0, 2, 7], 3_000)], || {
        let mut screen = start(&bench, "watch --interval 300ms", &[]);
        screen.wait_for("192.0.2.7 ");
        screen.press(&[TAB, DOWN, DOWN, "m"]);
        screen.wait_for(">source");
        screen.wait_for("monitor limit source: count what is over it, and drop none?");
        assert_eq!(mode(&bench, "source"), "enforce");
        screen.confirm("monitor limit source: ");
        screen.wait_for("source limit: monitor");
        assert_eq!(mode(&bench, "source"), "monitor");
        let policy = bench.done("policy show").stdout;
        assert!(policy.contains("action: monitor"), "{policy}");
        screen.press(&["m"]);
        screen.confirm("enforce limit source: drop what is over it?");
        screen.wait_for("source limit: enforce");
        assert_eq!(mode(&bench, "source"), "enforce");

        // A policy that waits to be confirmed cannot be changed from here either.
        let document = Document::new("limits: [{name: source, key: source, rate: 50/s}]");
        bench.done(&document.in_place("policy apply FILE --confirm 60s"));
        let before = changeable(&bench);
        screen.press(&["m"]);
        screen.confirm("monitor limit source: count what is over it, and drop none?");
        let text = screen.wait_for("error: ");
        assert!(text.contains("limiter policy confirm"), "{text}");
        assert_eq!(changeable(&bench), before);

        screen.resize(200, 60);
        let text = screen.wait("both columns", |text| {
            text.lines().any(|line| line.contains("INTERFACE") && line.contains("SOURCE by"))
        });
        assert!(text.lines().any(|line| line.contains("peak ")), "{text}");
        screen.press(&["?"]);
        screen.wait_for("switch a limit between monitor and enforce");
        screen.press(&[ENTER, "\x0c"]);
        screen.wait_for("INTERFACE");
        screen.press(&["\x03"]);
        assert_eq!(screen.end().code(), Some(0));
        assert_eq!(screen.is_taken(), [false; 3]);
    });
}

#[test]
fn a_terminal_without_colours_over_a_slow_link_is_put_back_by_any_end() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 100/s --burst 100"));
    let sources: Vec<_> = (1..=20).map(|last| ([192, 0, 2, last], 300)).collect();
    while_sending(&bench, &sources, || {
        let variables = [("NO_COLOR", "1")];
        let mut screen = start(&bench, "watch --interval 200ms --read-only", &variables);
        screen.wait_for("over source");
        assert!(!screen.has_colour());
        screen.press(&[DOWN]);
        let text = screen.wait_for("Enter open");
        assert!(!text.contains("d deny"), "{text}");
        screen.press(&["d"]);
        screen.wait_for("error: nothing is changed from a watch with --read-only");
        assert_eq!(bench.json("deny list -j")["entries"], Value::Array(Vec::new()));
        // All numbers change, and a frame still takes less than half of the bytes of a full screen.
        let before = screen.bytes();
        thread::sleep(Duration::from_secs(4));
        let each = (screen.bytes() - before) / 20;
        assert!((1..80 * 24).contains(&each), "{each} bytes for a picture");
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
            let mut screen = start(&bench, "watch", &variables);
            let modes = screen.modes_before();
            screen.wait_for("watching");
            assert_ne!(screen.modes(), modes);
            screen.signal(signal);
            assert_eq!(screen.end().code(), Some(0));
            assert_eq!((screen.is_taken(), screen.modes()), ([false; 3], modes));
        }
    });
}

#[test]
fn what_sends_now_is_told_by_two_readings() {
    let bench = Bench::attached();
    // It sent most, and sends no more.
    send(&bench, [192, 0, 2, 99], 5_000);
    while_sending(&bench, &[([192, 0, 2, 7], 800), ([192, 0, 2, 8], 10)], || {
        let once = bench.done("watch --once").stdout;
        let line = once.lines().nth(1).unwrap();
        assert!(line.contains(" 192.0.2.7 ") && line.ends_with("/s"), "{once}");

        let by = |what: &str| bench.json(&format!("top -j --by {what} --interval 500ms"));
        assert_eq!(by("dropped")["sources"][0]["source"], "192.0.2.99");
        let by_rate = by("rate");
        let first = &by_rate["sources"][0];
        let rate = |name: &str| first[name].as_f64().unwrap();
        let sum = rate("passed_per_second") + rate("dropped_per_second");
        assert!(first["source"] == "192.0.2.7" && (200.0..2_000.0).contains(&sum), "{by_rate}");
        let text = bench.done("top --by rate -n 1").stdout;
        assert!(text.starts_with("SOURCE     DROPPED/S  PASSED/S "), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("192.0.2.7 "), "{text}");
    });
}

/// Starts a shell with this script; `$0` is the path of limiter.
fn start_shell(bench: &Bench, script: &str) -> Terminal {
    let mut shell = bench.hosts.router.command("bash");
    shell.args(["-c", script]).arg(bench.limiter.path());
    in_environment(&mut shell, &[]);
    Terminal::start(shell, 80, 24)
}

#[test]
fn a_watch_gives_the_terminal_back_while_it_is_stopped() {
    // Job control as in an interactive shell.
    const BEGIN: &str = "set -m\n\"$0\" watch --interval 200ms\n";
    const STOPPED: &str = "echo \"stopped by $(($? - 128))\"\nread -r\nclear\nfg\n";
    let script = [BEGIN, &STOPPED.repeat(4), "echo ended"].concat();
    let bench = Bench::attached();
    let mut screen = start_shell(&bench, &script);
    let modes = screen.modes_before();
    let taken = |screen: &Terminal| {
        screen.wait("a picture that moves", |text| text.contains("watching "));
        screen.wait_until("it is taken over", |screen| {
            screen.is_taken() == [true; 3] && screen.modes() != modes
        });
    };
    let given_back = |screen: &Terminal| {
        screen.wait_until("it is given back", |screen| {
            screen.is_taken() == [false; 3] && screen.modes() == modes
        });
    };
    taken(&screen);
    // The key may be pressed several times before the watch stops.
    for keys in ["\x1a", "\x1a\x1a\x1a"] {
        screen.press(&[keys]);
        screen.wait_for("stopped by 20");
        given_back(&screen);
        screen.press(&[ENTER]);
        taken(&screen);
    }
    // Another process stops the watch: with a signal that it can catch, and with one that it cannot.
    screen.signal_job(libc::SIGTSTP);
    screen.wait_for("stopped by 20");
    given_back(&screen);
    screen.press(&[ENTER]);
    taken(&screen);
    screen.signal_job(libc::SIGSTOP);
    screen.wait_for("stopped by 19");
    screen.press(&["\n"]);
    taken(&screen);
    screen.press(&["q"]);
    screen.wait_for("ended");
    given_back(&screen);
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn a_watch_that_is_stopped_can_be_ended() {
    const SCRIPT: &str = r#"set -m
        "$0" watch --interval 200ms
        echo "stopped by $(($? - 128))"
        read -r
        job=$(jobs -p)
        kill %1
        while kill -0 "$job"; do sleep 0.1; done 2> /dev/null
        echo ended"#;
    let bench = Bench::attached();
    let mut screen = start_shell(&bench, SCRIPT);
    let modes = screen.modes_before();
    screen.wait_for("watching ");
    screen.press(&["\x1a"]);
    screen.wait_for("stopped by 20");
    screen.press(&[ENTER]);
    let text = screen.wait_for("ended\n");
    // The prompt is on the terminal of the shell, which the watch has given back. The shell may write in
    // between.
    for words in ["stopped by 20", "limiter is still attached to "] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!((screen.is_taken(), screen.modes()), ([false; 3], modes));
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn a_watch_goes_on_where_nobody_would_continue_it() {
    // A script that ignores SIGTSTP would not notice that its child has stopped. Without a shell, the kernel
    // does not stop an orphaned process group.
    const IGNORING: &str = r#"set -m
        bash -c 'trap "" TSTP; "$0" watch --interval 200ms; echo ended' "$0"
        echo "the shell goes on""#;
    let bench = Bench::attached();
    for script in [IGNORING, "exec \"$0\" watch"] {
        let mut screen = start_shell(&bench, script);
        let modes = screen.modes_before();
        screen.wait_for("watching ");
        screen.press(&["\x1a", "s"]);
        screen.wait_for(" by passed/s");
        screen.wait_until("it is taken over", |screen| {
            screen.is_taken() == [true; 3] && screen.modes() != modes
        });
        screen.press(&["q"]);
        assert_eq!(screen.end().code(), Some(0));
        assert_eq!((screen.is_taken(), screen.modes()), ([false; 3], modes));
    }
}

#[test]
fn dropped_packets_are_shown_until_their_key_is_pressed_again() {
    let bench = Bench::attached();
    while_sending(&bench, &[([192, 0, 2, 7], 3_000)], || {
        let mut screen = start(&bench, "watch --interval 300ms", &[]);
        screen.wait_for("192.0.2.7 ");
        screen.press(&["x"]);
        screen.wait_for("192.0.2.7:1 > ");
        let text = screen.wait_for("9/udp 100.0%");
        assert!(text.contains("dropped packets shown; x closes this"), "{text}");
        bench.refused("drops --for 1s", 6, &["reads the dropped packets"]);
        screen.press(&["x"]);
        screen.wait("the sources", |text| !text.contains("dropped packets shown"));
        bench.done("drops --for 100ms");
    });
}
