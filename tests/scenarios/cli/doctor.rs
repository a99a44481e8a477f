//! `limiter doctor`: whether the limiter can work here.

use aya::maps::{Array, MapData};
use limiter_common::abi::layout::map;
use limiter_tests::{
    program::typed,
    sandbox::{BPFFS, Sandbox},
};
use limiter_userspace::datapath::bpffs::Pins;
use serde_json::Value;

use super::{Bench, Document, SMALL, metrics::series};

/// The finding of a check; the last one if there are several.
#[track_caller]
fn finding<'a>(report: &'a Value, about: &str, check: &str) -> &'a Value {
    let about = if about == "host" { Value::Null } else { about.into() };
    let findings = report["findings"].as_array().unwrap().iter();
    let mut of_it = findings.filter(|it| it["interface"] == about && it["check"] == check);
    let found = of_it.next_back();
    assert!(found.is_some(), "nothing of {check} of {about} in {report}");
    found.unwrap()
}

/// Runs the doctor, which must not change anything, and returns its report.
#[track_caller]
fn report(bench: &Bench, arguments: &str, code: i32) -> Value {
    let before = bench.state();
    let outcome = bench.run(&format!("doctor -j {arguments}")).outcome().unwrap();
    outcome.assert_exit_code(code);
    assert_eq!(bench.state(), before, "something changed: {outcome}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn a_host_where_limiter_works_gets_a_clean_bill() {
    let bench = Bench::new();
    let told = report(&bench, "", 0);
    assert_eq!(told["schema"], "limiter.doctor/1");
    for check in ["kernel", "privileges", "program", "program (frags)", "bpffs", "jit"] {
        let finding = finding(&told, "host", check);
        assert_eq!((&finding["verdict"], &finding["remedy"]), (&"ok".into(), &Value::Null));
    }
    let program = finding(&told, "host", "program")["found"].as_str().unwrap();
    assert!(program.starts_with("loads"), "{program}");
    assert_eq!(finding(&told, "eth0", "mode")["found"], "veth; attaching tries native mode first");
    assert_eq!(finding(&told, "eth0", "xdp")["verdict"], "ok");
    assert_eq!(finding(&told, "eth0", "merging")["verdict"], "ok");
    let about = |it: &Value| it["interface"].as_str() == Some("lo");
    assert!(!told["findings"].as_array().unwrap().iter().any(about), "lo was not asked for");
    let told = report(&bench, "lo eth0", 0);
    let lo = finding(&told, "lo", "mode");
    // Kernels before 6.3 do not tell it.
    let words =
        "a driver without a name has no native mode; attaching takes generic mode, which is slower";
    assert_eq!((&lo["verdict"], &lo["found"]), (&"note".into(), &words.into()));
    let text = bench.done("doctor eth0").stdout;
    let title = text.lines().next().unwrap();
    assert_eq!(
        title.split_whitespace().collect::<Vec<_>>(),
        ["VERDICT", "ABOUT", "CHECK", "FOUND"]
    );
    assert!(text.lines().any(|line| line.starts_with("ok       eth0   mode")), "{text}");
}

#[test]
fn it_tells_how_it_is_attached_and_what_generic_mode_costs() {
    let bench = Bench::attached();
    bench.done("attach lo");
    let told = report(&bench, "", 0);
    assert_eq!(finding(&told, "eth0", "mode")["found"], "veth, native");
    let id = bench.programs()["eth0"].unwrap();
    assert_eq!(
        finding(&told, "eth0", "xdp")["found"],
        format!("program {id}, of this instance").as_str()
    );
    let generic = finding(&told, "lo", "mode");
    assert_eq!(generic["verdict"], "warn", "{generic}");
    assert!(generic["remedy"].as_str().unwrap().contains("limiter attach lo --mode native"));
    assert_eq!(told["verdict"], "warn");

    // A user who may not read the instance is not told that the program belongs to someone else.
    let outcome = bench.run("doctor -j").as_nobody().outcome().unwrap();
    outcome.assert_exit_code(1);
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(finding(&told, "host", "instance")["verdict"], "fail", "{told}");
    let whose = finding(&told, "eth0", "xdp");
    assert_eq!((&whose["verdict"], &whose["remedy"]), (&"note".into(), &Value::Null), "{whose}");
}

/// The setting is one of the machine, so that a file stands for it.
#[test]
fn it_tells_of_programs_that_are_hardened() {
    let bench = Bench::new();
    let mut mount = bench.hosts.router.command("mount");
    let core = "/proc/sys/net/core";
    assert!(mount.args(["-t", "tmpfs", "tmpfs", core]).status().unwrap().success());
    let told = |level: &str| {
        let mut shell = bench.hosts.router.command("sh");
        let write = format!("echo {level} > {core}/bpf_jit_harden");
        assert!(shell.args(["-ec", &write]).status().unwrap().success());
        finding(&report(&bench, "", 0), "host", "jit hardening").clone()
    };
    for level in ["0", "1"] {
        assert_eq!(told(level)["verdict"], "ok");
    }
    let hardened = told("2");
    assert_eq!(hardened["verdict"], "warn");
    assert!(hardened["remedy"].as_str().unwrap().contains("net.core.bpf_jit_harden=1"));
}

/// Tests cannot have the kernel's ticks come late, so the word that packets write is written here.
#[test]
fn it_tells_by_how_much_ticks_of_the_kernel_were_late() {
    let bench = Bench::attached();
    let set_lag = |nanoseconds: u64| {
        let router = &bench.hosts.router;
        let write = || {
            let pins = Pins::new(format!("{BPFFS}/limiter"));
            let mut lag: Array<MapData, u64> = typed(&pins, map::TICK_LAG).unwrap();
            lag.set(0, nanoseconds, 0).unwrap();
        };
        router.sandbox.inside(&router.namespace, write).unwrap();
    };
    let told = || finding(&report(&bench, "", 0), "host", "ticks").clone();
    for (nanoseconds, verdict, text, metric) in [
        (0, "ok", " 0s ", 0.0),
        (9_100_000, "ok", " 9.1ms ", 0.0091),
        (2_000_000_000, "warn", " 2s:", 2.0),
    ] {
        set_lag(nanoseconds);
        let ticks = told();
        assert_eq!(ticks["verdict"], verdict, "{ticks}");
        assert!(ticks["found"].as_str().unwrap().contains(text), "{ticks}");
        assert_eq!(series(&bench)["limiter_tick_lag_max_seconds"], metric);
    }
}

/// Forwarded packets belong to no socket of this host, so no proof for a penalty is found on a router.
#[test]
fn it_tells_of_penalties_that_a_router_begins_none_of() {
    let bench = Bench::new();
    let forward = |on: u8| {
        let set = format!("net.ipv4.ip_forward={on}");
        assert!(
            bench.hosts.router.command("sysctl").arg("-qw").arg(set).status().unwrap().success()
        );
    };
    let told = || {
        let report = report(&bench, "", 0);
        let findings = report["findings"].as_array().unwrap().iter();
        let found = findings.filter(|it| it["check"] == "penalties").collect::<Vec<_>>();
        found.first().map(|it| (it["verdict"].clone(), it["found"].as_str().unwrap().to_owned()))
    };
    let limit = |penalty: &str| {
        let rate = "key: source, rate: 9/s, penalty: {after: 1s, block: 1m";
        let document = Document::new(&format!("limits: [{{name: some, {rate}{penalty}}}}}]"));
        bench.done(&document.in_place("policy apply FILE"));
    };
    bench.done(&format!("attach eth0 {SMALL}"));
    forward(1);
    limit("");
    let (verdict, found) = told().unwrap();
    assert_eq!(verdict, "note");
    assert!(found.contains("forwards") && found.ends_with(" some"), "{found}");
    forward(0);
    assert_eq!(told(), None, "it forwards nothing");
    forward(1);
    limit(", unproven: block");
    assert_eq!(told(), None, "packets need no proof");
}

#[test]
fn the_program_of_someone_else_is_in_the_way() {
    let bench = Bench::new();
    bench.done(&format!("--bpffs {BPFFS}/other attach eth0 {SMALL}"));
    assert_eq!(report(&bench, "", 0)["verdict"], "warn", "nobody asked for eth0");
    let told = report(&bench, "eth0", 1);
    let id = bench.programs()["eth0"].unwrap();
    let found = finding(&told, "eth0", "xdp");
    assert_eq!((&told["verdict"], &found["verdict"]), (&"fail".into(), &"fail".into()));
    assert_eq!(found["found"], format!("program {id}, which is not of this instance").as_str());
    assert!(found["remedy"].as_str().unwrap().contains("ip link set dev eth0 xdp off"), "{found}");
    let outcome = bench.run("doctor eth0").outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&[
        "error: ",
        "does not work on this machine yet",
        "eth0 xdp",
    ]);
    assert!(outcome.stdout.contains("\nWhat to do:\n  eth0 xdp: "), "{outcome}");
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let bench = Bench::new();
    let outcome = bench.run("doctor -j").as_nobody().outcome().unwrap();
    outcome.assert_exit_code(1);
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let privileges = finding(&told, "host", "privileges");
    assert_eq!(privileges["verdict"], "fail");
    assert!(privileges["remedy"].as_str().unwrap().contains("CAP_BPF"), "{privileges}");
    assert_eq!(finding(&told, "host", "program")["found"], "not tried without privileges");

    let bare = Bench::within(&Sandbox::without_bpffs().unwrap());
    let outcome = bare.run("doctor -j").outcome().unwrap();
    outcome.assert_exit_code(1);
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let mount = finding(&told, "host", "bpffs");
    assert!(mount["remedy"].as_str().unwrap().contains("--mount-bpffs"), "{mount}");
    assert_eq!(finding(&told, "host", "program")["verdict"], "ok", "it needs no pins");

    bench.refused("doctor eth9", 4, &["eth9", "eth0", "hint: "]);
}
