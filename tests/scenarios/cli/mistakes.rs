//! Wrong input: a message with the object, the cause and the remedy, the right exit code, and nothing
//! changed.

use serde_json::Value;

use super::{Bench, SMALL};

#[test]
fn an_unknown_interface_is_named_with_those_that_exist() {
    let bench = Bench::new();
    bench.refused(&format!("attach eth7 {SMALL}"), 4, &["eth7", "eth0", "lo", "hint: "]);
    bench.refused(&format!("attach eth0 eth7 {SMALL}"), 4, &["eth7"]);
    bench.refused(&format!("attach averylonginterfacename0 {SMALL}"), 4, &["averylong"]);
    let bench = Bench::attached();
    bench.refused("attach eth7", 4, &["eth7"]);
    bench.refused("detach eth7", 4, &["eth7", "eth0"]);
    bench.refused("detach eth0 eth7", 4, &["eth7"]);
}

#[test]
fn commands_before_attach_say_to_attach() {
    let bench = Bench::new();
    for command in [
        "status",
        "status -j",
        "limit list",
        "limit show source",
        "limit set source --rate 1kpps",
        "limit set source --src 203.0.113.0/24 --rate 1kpps",
        "limit del source",
        "policy show",
        "policy confirm",
        "policy revert",
        "policy save",
        "monitor",
        "monitor on",
        "allow add 203.0.113.9",
        "deny del 203.0.113.9",
        "penalty list",
        "watch --once",
        "watch -j --count 1",
        "top",
    ] {
        let outcome = bench.run(command).outcome().unwrap();
        outcome.assert_exit_code(4).assert_says(&["not attached", "limiter attach"]);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    let bench = Bench::attached();
    for (rate, words) in [
        ("0", &["zero", "limit del"][..]),
        ("0pps", &["zero"]),
        ("-5", &["negative"]),
        ("-1kpps", &["negative", "10kpps"]),
        ("2Gpps", &["2Gpps", "1000000000", "limit del"]),
        ("1e12", &["1e12"]),
        ("99999999999999999999999999", &["above"]),
        ("10Mbps", &["10Mbps", "megabits", "megabytes", "10Mbit/s", "10MB/s"]),
        ("10kbps", &["kilobits", "kilobytes", "10kbit/s"]),
        ("1Mbit/s", &["data", "packets"]),
        ("fast", &["fast", "number", "10kpps"]),
        ("", &["empty"]),
        ("10 kpsp", &["kpsp"]),
        ("NaN", &["NaN"]),
        ("1/1000years", &["1/1000years"]),
    ] {
        for arguments in [
            &["limit", "set", "source", "--rate", rate][..],
            &["limit", "set", "syn", "--src", "203.0.113.0/24", "--rate", rate],
            &["attach", "lo", "--pps", rate],
            &["attach", "lo", "--syn", rate],
        ] {
            // A limit that has a match drops all of that.
            let is_zero = words[0] == "zero" && arguments[..3] == ["limit", "set", "source"];
            let (code, words) = match is_zero {
                true => (3, &["would drop every packet", "limit del source"][..]),
                false => (2, words),
            };
            let words = [words, &["hint: "]].concat();
            bench.refused_as(bench.limiter.with(arguments), code, &words);
        }
    }
}

#[test]
fn limits_that_are_not_there_are_answered_with_what_was_meant() {
    let bench = Bench::attached();
    for (name, hint) in [
        ("src", "did you mean source?"),
        ("sources", "did you mean source?"),
        (
            "ip",
            "each source address has the limit `source`; `limiter limit set source --rate 5/s` sets",
        ),
        ("udp", "`limiter limit add udp --match udp --rate 5/s` makes a limit of that name"),
        ("icmp", "`limiter limit add icmp --match icmp --rate 5/s` makes a limit of that name"),
        (
            "ssh",
            "`limiter limit add ssh --match tcp:ssh --count connections --rate 5/s --burst 5` makes a limit of that name",
        ),
    ] {
        let no_limit = format!("there is no limit \"{name}\"");
        let words = [&*no_limit, &*format!("hint: {hint}")];
        bench.refused(&format!("limit set {name} --rate 5/s"), 4, &words);
    }
    let unlimited = "hint: `limiter attach lo` limits nothing until a limit is set";
    bench.refused("attach lo --pps unlimited", 2, &["rate \"unlimited\"", unlimited]);
}

#[test]
fn bursts_that_make_no_sense_are_refused() {
    let bench = Bench::attached();
    for burst in ["0", "-3", "lots", "1.5", "64kB", "", "99999999999999999999"] {
        let arguments = ["limit", "set", "source", "--rate", "1kpps", "--burst", burst];
        bench.refused_as(bench.limiter.with(arguments), 2, &["burst", "hint: "]);
    }
    let largest = ["limit", "set", "source", "--rate", "1/day", "--burst", "1M"];
    bench.refused_as(bench.limiter.with(largest), 2, &["1000000", "largest burst"]);
}

#[test]
fn prefixes_that_are_none_are_refused() {
    let bench = Bench::attached();
    for (prefix, words) in [
        ("203.0.113.9/24", &["host bits", "203.0.113.0/24", "203.0.113.9/32"][..]),
        ("2001:db8::1/32", &["host bits", "2001:db8::/32"]),
        ("203.0.113.0/33", &["203.0.113.0/33", "32 bits"]),
        ("2001:db8::/129", &["128 bits"]),
        ("203.0.113", &["neither"]),
        ("example.org", &["neither"]),
        ("", &["empty"]),
        ("::ffff:203.0.113.9/120", &["host bits", "203.0.113.0/24"]),
        ("fe80::1%eth0", &["zone"]),
        ("203.0.113.0/-1", &["203.0.113.0/-1"]),
    ] {
        for arguments in [
            &["limit", "set", "source", "--rate", "1kpps", "--src", prefix][..],
            &["limit", "del", "source", "--src", prefix],
        ] {
            bench.refused_as(bench.limiter.with(arguments), 2, words);
        }
    }
    // IPv6 sources are keyed by /64.
    let arguments = "limit set source --rate 1kpps --src 2001:db8::1";
    let outcome = bench.run(arguments).outcome().unwrap();
    outcome.assert_says(&["2001:db8::1", "/64", "--ipv6-prefix"]);
    assert!([2, 3].contains(&outcome.code), "{outcome}");
}

#[test]
fn unknown_limits_bring_the_nearest_name() {
    let bench = Bench::attached();
    for (name, nearest) in
        [("sorce", "source"), ("Syn", "syn"), ("synn", "syn"), ("conection", "connection")]
    {
        for command in ["set", "show", "del"] {
            let rate = if command == "set" { "--rate 1kpps" } else { "" };
            let arguments = format!("limit {command} {name} {rate}");
            bench.refused(&arguments, 4, &[name, &format!("did you mean {nearest}?")]);
        }
    }
    bench.refused("limit show bandwidth", 4, &["bandwidth", "connection, syn, source"]);
}

#[test]
fn what_is_not_there_is_deleted_already_unless_it_was_mistyped() {
    let bench = Bench::attached();
    let before = bench.json("policy show -j");
    let said = |arguments: &str| bench.done(arguments).stdout;
    assert_eq!(
        said("limit del source --src 198.51.100.0/24"),
        "source limit: no override for 198.51.100.0/24; its overrides are 203.0.113.0/24\n"
    );
    assert_eq!(
        said("limit del syn --src 198.51.100.0/24"),
        "syn limit: no override for 198.51.100.0/24; it has no overrides at all\n"
    );
    for arguments in ["limit del bandwidth", "limit del bandwidth --all"] {
        assert_eq!(said(arguments), "bandwidth limit: not there\n");
    }
    assert_eq!(bench.json("policy show -j"), before);
    bench.done("limit del syn");
    assert_eq!(said("limit del syn"), "syn limit: off already\n");
    bench.done("limit del source");
    let left = said("limit del source");
    assert!(left.starts_with("source limit: off already, but for 1 overrides; "), "{left}");
    bench.refused("limit del sorce", 4, &["sorce", "did you mean source?"]);
    bench.refused("limit del 192.0.2.1", 4, &["192.0.2.1"]);
}

#[test]
fn usage_errors_end_with_2_and_change_nothing() {
    let bench = Bench::attached();
    let usage = |arguments: &str, words: &[&str]| {
        bench.refused(arguments, 2, words);
    };
    usage("frobnicate", &["frobnicate"]);
    usage("atach eth0", &["attach"]);
    usage("attach", &["IFACE"]);
    usage("detach", &["IFACE"]);
    usage("detach eth0 --all", &["--all"]);
    usage("attach eth0 --mode fast", &["fast", "native", "generic"]);
    usage("attach eth0 --burst 5", &["--pps"]);
    usage("limit set source", &["--rate"]);
    usage("limit set", &["--rate"]);
    usage("top -n many", &["many"]);
    usage("watch --interval 0s --count 1", &["0s"]);
    usage("watch --interval fast", &["fast", "500ms"]);
    usage("attach eth0 --sources 0", &["--sources"]);
    usage("attach eth0 --sources 1000", &["--sources 1000 is out of range"]);
    usage("attach eth0 --sources -1", &["-1"]);
    usage("attach lo --ipv4-prefix 33", &["33"]);
    for arguments in ["ban 192.0.2.9 1h", "-j ban 192.0.2.9 1h", "ban 192.0.2.9 1h --json"] {
        let outcome = bench.run(arguments).outcome().unwrap();
        outcome.assert_exit_code(2).assert_says(&["`limiter penalty add 192.0.2.9 --for 1h`"]);
        if arguments.contains('j') {
            let error: Value = serde_json::from_str(&outcome.stderr).unwrap();
            assert_eq!(error["error"]["message"], "unrecognized subcommand 'ban'");
            assert!(error["error"]["hint"].is_string(), "{error}");
        } else {
            assert!(outcome.stderr.starts_with("error: unrecognized subcommand 'ban'\nhint: "));
        }
    }
    usage("deny add AS13335", &["AS13335", "sets: { name: { file: PATH } }"]);
    bench.refused("attach eth0 --pps 10 000", 4, &["000", "write it as one word: `10000`"]);
    let outcome = bench.run("").outcome().unwrap();
    outcome.assert_exit_code(2).assert_says(&["usage: limiter", "attach", "status", "watch"]);
}

#[test]
fn other_names_of_commands_mean_the_same() {
    let bench = Bench::attached();
    for (other, command) in [
        ("blacklist", "deny list"),
        ("whitelist show", "allow list"),
        ("penalty", "penalty list"),
        ("limit", "limit list"),
        ("policy", "policy show"),
        ("policy export", "policy show"),
        ("version", "--version"),
    ] {
        assert_eq!(bench.done(other).stdout, bench.done(command).stdout, "{other}");
    }
    assert_eq!(bench.json("version -j")["version"], env!("CARGO_PKG_VERSION"));
    bench.done("blacklist add 198.51.100.7");
    bench.done("deny rm 198.51.100.7");
    bench.done("limit set source --pps 7/s");
    assert_eq!(bench.json("stats -j")["schema"], "limiter.status/1");
}

#[test]
fn values_from_outside_cannot_write_to_the_terminal() {
    let bench = Bench::attached();
    let evil = "\u{1b}[2J\u{7}";
    for arguments in [
        &["attach", evil][..],
        &["detach", evil],
        &["limit", "set", evil, "--rate", "1"],
        &["limit", "set", "source", "--rate", evil],
        &["limit", "set", "source", "--rate", "1", "--src", evil],
        &["limit", "set", "source", "--rate", "1", "--burst", evil],
    ] {
        let outcome = bench.limiter.with(arguments).outcome().unwrap();
        assert_ne!(outcome.code, 0, "{arguments:?}");
        assert!(!outcome.stderr.contains('\u{1b}'), "{arguments:?}: {:?}", outcome.stderr);
    }
}
