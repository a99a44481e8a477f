//! The policy of an attach: from a document, in monitor mode, and about interfaces by name.

use std::{fs, thread, time::Duration};

use limiter_userspace::datapath::{interface::Interface, mode::Mode, refusal::words};
use serde_json::{Value, json};

use super::{Bench, Document, SMALL, json::send};

/// The number of frames counted under a reason.
fn counted(bench: &Bench, reason: &str) -> u64 {
    bench.json("status -j")["reasons"][reason].as_u64().unwrap()
}

#[test]
fn a_policy_is_applied_on_the_way_and_not_to_what_is_attached_already() {
    let bench = Bench::new();
    let first = Document::new("limits: [{name: first, key: source, rate: 7/s}]");
    let other = Document::new("limits: [{name: other, key: source, rate: 7/s}]");
    bench.done(&first.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.done(&first.in_place("policy diff FILE")).stdout, "no difference\n");
    let outcome = bench.done(&other.in_place("attach eth0 --policy FILE"));
    assert!(
        outcome.stdout.contains("as it was; change it with `limiter policy apply`"),
        "{outcome}"
    );
    assert_eq!(bench.done(&first.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.done("deny add 203.0.113.0/24");
    let outcome = bench.done(&other.in_place("attach lo --policy FILE"));
    assert_eq!(bench.json("deny list -j")["entries"].as_array().map(Vec::len), Some(1));
    for line in ["- limits.first", "+ limits.other: key: source, "] {
        assert!(outcome.stdout.lines().any(|it| it.starts_with(line)), "no {line} in {outcome}");
    }
    assert_eq!(bench.done(&other.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.refused(&other.in_place("attach lo --policy FILE --pps 5/s"), 2, &["--pps"]);
}

#[test]
fn a_policy_for_a_new_instance_leaves_one_that_runs_as_it_is() {
    let bench = Bench::new();
    let limit = "limits: [{name: some, match: {protocol: udp}, key: source, rate: 7/s}]";
    let document = Document::new(limit);
    let outcome =
        bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy-if-new FILE")));
    assert!(!outcome.stdout.contains("changed"), "{outcome}");
    assert_eq!(bench.done(&document.in_place("policy diff FILE")).stdout, "no difference\n");
    bench.done("deny add 203.0.113.0/24");
    bench.done("limit set some --rate 9/s");
    let running = bench.json("policy show -j");
    let outcome = bench.json(&document.in_place("attach lo --policy-if-new FILE -j"));
    assert_eq!(outcome["interfaces"][0]["policy_changes"], Value::Array(Vec::new()));
    assert_eq!(bench.json("policy show -j"), running);
    bench.done("detach lo");
    // The file is not needed, so its content does not matter.
    for file in ["/nowhere/policy.yaml", "/proc/self/mem"] {
        let outcome = bench.done(&format!("attach lo --policy-if-new {file}"));
        assert!(outcome.stderr.contains(file), "{outcome}");
        assert_eq!(bench.json("policy show -j"), running);
        bench.done("detach lo");
        let outcome = bench.done(&format!("attach lo --policy-if-new {file} -j"));
        let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
        let cause = &told["warning"]["cause"];
        assert!(
            told["warning"]["message"].as_str().unwrap().contains("the document is not used"),
            "{told}"
        );
        assert!(cause["faults"][0]["file"] == file && cause["message"].is_string(), "{told}");
        bench.done("detach lo");
    }
    // Limits given as options are applied and reported as well.
    let outcome = bench.json("attach lo --pps 5kpps -j");
    let changes = outcome["interfaces"][0]["policy_changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["path"]), (1, &"limits.source".into()), "{outcome}");
}

#[test]
fn of_an_exchanged_table_it_says_what_was_done_with_the_interface() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --wide-states 1024 --pps 1kpps"));
    let said = bench.done("attach eth0 --new-seed").stdout;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "There is room for 4,096 sources, 4,096 buckets, 1,024 wide states and 64 overrides now, hashed by another \
             seed; 0 debts were carried over.",
            "eth0: attached already, still in native mode; table and main program were exchanged",
        ]
    );
    let told = bench.json("attach eth0 --overrides 128 -j");
    assert_eq!(told["interfaces"][0]["action"], "exchanged", "{told}");
    assert_eq!(told["interfaces"][0]["carried_over"]["left_behind"], false, "{told}");
    let said = bench.done("attach eth0").stdout;
    assert_eq!(said, "eth0: attached already, in native mode; nothing was changed\n");
}

#[test]
fn what_is_hardly_meant_so_is_told_beside_the_output() {
    let document = Document::new(
        "sets: {nobody: {cidrs: []}}\nlimits: [{name: some, key: source, rate: 7/s}]",
    );
    let bench = Bench::new();
    let outcome = bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert!(outcome.stderr.contains("warning: set `nobody`: there are no"), "{outcome}");
    let outcome = bench.done(&document.in_place("attach lo --policy FILE -j"));
    let told: Value = serde_json::from_str(&outcome.stderr).unwrap();
    let warning = &told["warning"];
    assert!(warning["message"].as_str().unwrap().contains("there are no prefixes"), "{told}");
    assert!(warning["line"].is_u64() && warning["hint"].is_string(), "{told}");
}

#[test]
fn an_interface_is_attached_while_a_policy_waits_to_be_confirmed() {
    let bench = Bench::attached();
    let document = Document::new("limits: [{name: some, key: source/24, rate: 7/s}]");
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    bench.done(&document.in_place("attach lo --policy-if-new FILE"));
    bench.done("detach lo");
    bench.refused("attach lo --pps 5kpps", 6, &["limiter policy confirm"]);
    bench.done("attach lo");
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 2);
    bench.done("policy confirm");
}

#[test]
fn a_policy_that_only_monitors_drops_nothing_until_it_is_told_to() {
    let bench = Bench::new();
    let outcome = bench.done(&format!("attach eth0 {SMALL} --pps 10/s --burst 10 --monitor"));
    assert!(outcome.stdout.contains("limiter monitor off"), "{outcome}");
    for command in ["limit list", "limit show source", "status", "top"] {
        let text = bench.done(command).stdout;
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("Nothing is dropped, ") && last.contains("`mode: monitor`"),
            "{text}"
        );
    }
    // The mode of the limit itself is not changed.
    assert_eq!(bench.json("limit show source -j")["mode"], "enforce");
    assert_eq!(bench.json("status -j")["mode"], "monitor");
    send(&bench, [192, 0, 2, 1], 300);
    let (monitored, dropped) = (counted(&bench, "monitor"), counted(&bench, "exceed"));
    assert!(monitored >= 280 && dropped == 0, "{monitored} {dropped}");

    assert!(bench.done("monitor").stdout.starts_with("monitor: off, but the policy has `mode: "));
    let asked = bench.json("monitor -j");
    let shape = "limiter.monitor/1";
    let told = json!({ "schema": shape, "mode": "monitor", "switch": false, "policy": "monitor" });
    assert_eq!(asked, told);
    let outcome = bench.done("monitor off");
    assert!(outcome.stdout.contains("`mode: monitor` was taken out of the policy"), "{outcome}");
    assert_eq!(bench.json("monitor -j")["mode"], "enforce");
    assert!(!bench.done("limit list").stdout.contains("Nothing is dropped"));
    send(&bench, [192, 0, 2, 2], 300);
    assert!(counted(&bench, "exceed") >= 280);
}

#[test]
fn a_limit_about_an_interface_holds_once_that_is_attached() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: some, match: {interface: eth0}, key: source, rate: 10/s, burst: 10}]",
    );
    bench.done(&document.in_place(&format!("attach lo {SMALL} --policy FILE")));
    bench.done("attach eth0");
    send(&bench, [192, 0, 2, 1], 300);
    assert!(counted(&bench, "exceed") >= 280, "{}", bench.done("status").stdout);
    // Another interface in the slot of the first one is not limited.
    bench.done("detach eth0");
    bench.done("detach lo");
    let other = document.in_place(&format!("attach eth0 {SMALL} --policy FILE"));
    bench.done(&other);
    send(&bench, [192, 0, 2, 1], 300);
    assert!(counted(&bench, "exceed") >= 280, "the first one too");
    bench.done("detach --all");
    let lo = Document::new(
        "limits: [{name: some, match: {interface: lo}, key: source, rate: 10/s, burst: 10}]",
    );
    bench.done(&lo.in_place(&format!("attach eth0 lo {SMALL} --policy FILE")));
    send(&bench, [192, 0, 2, 1], 300);
    assert_eq!(counted(&bench, "exceed"), 0);
}

#[test]
fn a_limit_of_bytes_is_set_and_shown_in_bytes() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: some, key: source, count: bytes, rate: 1MB/s}]");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let outcome = bench.done("limit set some --rate 2Mbit/s --burst 64kB");
    assert_eq!(outcome.stdout, "some limit: 250kB/s after a burst of 64kB\n");
    bench.done("limit set some --rate 1GB/h --src 203.0.113.0/24");
    let some = bench.json("limit show some -j");
    assert_eq!((&some["count"], &some["rate_per_second"]), (&"bytes".into(), &250_000.into()));
    assert_eq!((&some["burst"], &some["algorithm"]), (&64_000.into(), &"token_bucket".into()));
    let list = bench.done("limit list").stdout;
    for part in ["250kB/s", "64kB", "1GB/h"] {
        assert!(list.contains(part), "no {part} in\n{list}");
    }
    assert!(bench.done("status").stdout.contains("250kB/s"));
    bench.refused("limit set some --rate 1kpps", 2, &["this limit counts bytes", "2Mbit/s"]);
    bench.refused("limit set some --rate 1kB/s --burst 20B", 2, &["20B", "at least 34B"]);
    bench.refused("limit set source --rate 1kB/s", 2, &["this limit counts packets"]);
}

#[test]
fn interfaces_that_are_attached_together_share_the_policy() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: some, key: interface, rate: 10/s, burst: 10}]");
    let attached =
        bench.json(&document.in_place(&format!("attach eth0 lo {SMALL} --policy FILE -j")));
    assert_eq!(attached["interfaces"].as_array().map(Vec::len), Some(2));
    assert_eq!(attached["interfaces"][0]["action"], Value::from("attached"));
    for last in 1..=3 {
        send(&bench, [192, 0, 2, last], 100);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(counted(&bench, "exceed") >= 270);
}

#[test]
fn a_driver_says_why_it_refuses() {
    let bench = Bench::new();
    let words = "Underlying driver does not support XDP in native mode (Operation not supported";
    bench.refused(&format!("attach lo {SMALL} --mode native"), 1, &["lo does not take XDP", words]);
    let outcome = bench.done(&format!("attach lo {SMALL}"));
    assert!(outcome.stdout.contains(&format!("refused native mode: {words}")), "{outcome}");
    bench.done("detach lo");
    let told = bench.json(&format!("attach lo {SMALL} -j"));
    let fallback = told["interfaces"][0]["fallback"].as_str().unwrap();
    assert!(fallback.starts_with(words), "{told}");
}

#[test]
fn nothing_is_left_of_the_question_to_a_driver_that_takes_programs() {
    let bench = Bench::new();
    let [veth, lo] = ["eth0", "lo"].map(|name| {
        let ask = || words(&Interface::find(name).unwrap(), Mode::Native);
        bench.hosts.router.namespace.inside(ask).unwrap()
    });
    assert_eq!(veth, None);
    assert!(lo.unwrap().contains("does not support XDP"));
    assert!(bench.programs().values().all(Option::is_none), "{:?}", bench.programs());
    bench.done(&format!("attach eth0 {SMALL} --mode native"));
}

#[test]
fn with_programs_for_several_pieces_the_mtu_can_be_raised() {
    let bench = Bench::new();
    // The driver looks at the MTU of the other end of the pair.
    let raise = || bench.hosts.client.ip("link set eth0 mtu 9000");
    let lower = || bench.hosts.client.ip("link set eth0 mtu 1500").unwrap();
    bench.done(&format!("attach eth0 {SMALL} --pps 1kpps"));
    raise().unwrap_err();
    let said = bench.done("attach eth0 --replace --mode native-frags").stdout;
    assert!(said.starts_with("eth0: replaced the program, still in native mode"), "{said}");
    raise().unwrap();
    lower();
    // It stays so.
    bench.done("attach eth0 --replace");
    raise().unwrap();
    lower();
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 1_000);
    bench.done("detach eth0");
    bench.done(&format!("attach eth0 {SMALL} --mode native-frags"));
    raise().unwrap();
    assert_eq!(bench.json("status -j")["interfaces"][0]["mode"], "native");
    bench.refused("attach lo --mode native-frags", 1, &["lo does not take XDP in native mode"]);
}

#[test]
fn a_port_and_its_bridge_are_told_to_count_twice() {
    let bench = Bench::new();
    let lines = "link add br0 type bridge\nlink set eth0 master br0\nlink set br0 up";
    bench.hosts.router.ip(lines).unwrap();
    let twice = |outcome: &str| outcome.matches("are counted twice").count();
    let outcome = bench.done(&format!("attach eth0 {SMALL}"));
    assert_eq!(twice(&outcome.stderr), 0, "{outcome}");
    let outcome = bench.done("attach br0");
    assert_eq!(twice(&outcome.stderr), 1, "{outcome}");
    assert!(outcome.stderr.contains("warning: eth0 passes packets on to br0; "), "{outcome}");
    assert!(outcome.stderr.contains("limiter detach br0"), "{outcome}");
    assert_eq!(twice(&bench.done("attach eth0 br0 lo").stderr), 0, "neither is new");
    let report = bench.json("doctor -j");
    let findings = report["findings"].as_array().unwrap().iter();
    let found: Vec<_> = findings.filter(|it| it["check"] == "twice").collect();
    assert!(found.len() == 1 && found[0]["interface"] == "eth0", "{report}");
    assert_eq!((&found[0]["verdict"], report["verdict"].as_str()), (&"warn".into(), Some("warn")));
}

#[test]
fn what_native_mode_on_veth_costs_is_told_once() {
    let bench = Bench::new();
    let seen = |arguments: &str| bench.on_terminal(arguments);
    let text = seen(&format!("attach eth0 {SMALL}"));
    assert!(text.contains("warning: eth0: native mode ends segmentation offload"), "{text}");
    assert!(text.contains("eth0: attached in native mode"), "{text}");
    assert!(text.contains("loading the program and making the tables ..."), "{text}");
    assert!(text.contains("warning: eth0: the MTU can be raised to about 3,500"), "{text}");
    assert!(!seen("attach eth0 --replace").contains("segmentation"));
    let told = |command: &str| bench.done(command).stdout.contains("ends segmentation offload");
    assert!(told("doctor eth0"));
    // The kernel changes no mode: `--mode` is not left undone in silence.
    for command in ["attach eth0 --mode generic", "attach eth0 --mode generic --replace"] {
        bench.refused(command, 1, &["attached in native mode already", "`limiter detach eth0`"]);
    }
    bench.done("attach eth0 --mode native");
    bench.done("detach eth0");
    let text = seen(&format!("attach eth0 {SMALL} --mode native-frags"));
    assert!(text.contains("attached in native mode") && !text.contains("MTU"), "{text}");
    bench.done("detach eth0");
    let text = seen(&format!("attach eth0 {SMALL} --mode generic"));
    assert!(text.contains("attached in generic mode") && !text.contains("segmentation"), "{text}");
    assert!(!told("doctor eth0"));
    // A script is not told by `attach`.
    bench.done("detach eth0");
    assert_eq!(bench.done(&format!("attach eth0 {SMALL}")).stderr, "");
}

#[test]
fn without_sysfs_the_cause_is_named() {
    let bench = Bench::new();
    let run = |command: &str| {
        let script = format!(
            "mkdir -p /var/lib/bpf && mount -t bpf bpf /var/lib/bpf && umount -l /sys && \
             exec \"$0\" --bpffs /var/lib/bpf/limiter {command}; exit 99"
        );
        let mut shell = bench.hosts.router.command("unshare");
        shell.args(["-m", "sh", "-c", &script]).arg(bench.limiter.path());
        let output = shell.env_remove("LIMITER_BPFFS").output().unwrap();
        let [text, errors] =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (output.status.code(), text, errors)
    };
    let (code, text, errors) = run(&format!("attach eth0 {SMALL}"));
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(errors.contains("/sys/devices/system/cpu/possible: No such file"), "{errors}");
    assert!(errors.contains("hint: mount sysfs with `mount -t sysfs sysfs /sys`"), "{errors}");
    let (code, text, errors) = run("doctor eth0");
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.lines().any(|it| it.starts_with("fail ") && it.contains(" sysfs ")), "{text}");
}

#[test]
fn a_preset_is_put_in_force_and_its_limits_are_printed() {
    for (preset, limit) in [
        ("web", "web-connections"),
        ("ssh", "ssh-network"),
        ("dns", "queries"),
        ("game", "players"),
        ("host", "ping"),
    ] {
        let bench = Bench::new();
        let attached = bench.done(&format!("attach eth0 {SMALL} --preset {preset}")).stdout;
        assert!(
            attached.contains(&format!("The limits of the preset `{preset}`:\nLIMIT ")),
            "{attached}"
        );
        assert!(attached.lines().any(|line| line.starts_with(limit)), "{attached}");
        assert!(attached.contains("`limiter limit set NAME --rate RATE`"), "{attached}");
        let example = bench.done(&format!("policy example {preset}")).stdout;
        let document = Document::new("");
        fs::write(document.path(), &example).unwrap();
        let diff = bench.done(&document.in_place("policy diff FILE")).stdout;
        assert!(diff.contains("no difference"), "{diff}");
        let check = bench.done(&document.in_place("policy check FILE"));
        assert_eq!(check.stderr, "", "{check}");
    }
    let bench = Bench::new();
    let wrong = bench.refused(&format!("attach eth0 {SMALL} --preset nonsense"), 2, &["nonsense"]);
    for name in ["web", "ssh", "dns", "game", "host"] {
        assert!(wrong.stderr.contains(name), "{wrong}");
        assert!(bench.done("policy example").stdout.contains(name));
    }
    let attached = bench.done(&format!("attach eth0 {SMALL} --preset host --monitor")).stdout;
    assert!(attached.contains("Nothing is dropped, only counted"), "{attached}");
    assert_eq!(bench.json("status -j")["mode"], "monitor");
}

/// How many sources are tracked goes by the memory of the host, unless a number is asked for.
#[test]
fn the_number_of_sources_that_was_chosen_is_told() {
    let bench = Bench::new();
    let attached = bench.done("attach eth0").stdout;
    let capacity = bench.json("status -j")["sources"]["capacity"].as_u64().unwrap();
    let line = attached.lines().find(|line| line.starts_with("There is room for ")).unwrap();
    let sources = line.split(' ').nth(4).unwrap().replace(',', "");
    assert_eq!(sources, capacity.to_string(), "{attached}");
    // Tests may run in a control group.
    assert!(line.contains("MiB, by the memory of "), "{line}");
    assert!(line.contains("`--sources N`"), "{line}");
    let memory = bench.json("status -j")["memory_bytes"].as_u64().unwrap();
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
    assert!(memory <= total / 32 || capacity == 1_024, "{memory} of {total}");
    let again = bench.done("attach eth0").stdout;
    assert!(!again.contains("There is room"), "{again}");
    bench.done("detach --all");
    let small = SMALL.replace("--sources 4096", "--sources 4.096k");
    let attached = bench.done(&format!("attach eth0 {small}")).stdout;
    assert!(!attached.contains("There is room"), "{attached}");
    assert_eq!(bench.json("status -j")["sources"]["capacity"], 4_096);
}

/// Files stand for the control group, which the tests may not be free to make.
#[test]
fn in_a_control_group_its_memory_decides() {
    let bench = Bench::new();
    let shell = |line: &str| {
        let mut shell = bench.hosts.router.command("sh");
        assert!(shell.args(["-ec", line]).status().unwrap().success(), "{line}");
    };
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let limit = |bytes: u64| shell(&format!("echo {bytes} > '/sys/fs/cgroup{group}/memory.max'"));
    shell(&format!("mount -t tmpfs none /sys/fs/cgroup && mkdir -p '/sys/fs/cgroup{group}'"));
    limit(512 << 20);
    let told = bench.done("doctor eth0").stdout;
    assert!(told.contains(" available, 512MiB left to this control group; "), "{told}");
    let attached = bench.done("attach eth0").stdout;
    let line = attached.lines().find(|line| line.starts_with("There is room for ")).unwrap();
    assert!(line.contains("MiB, by the memory of the control group; `--sources N`"), "{line}");
    assert!(bench.json("status -j")["memory_bytes"].as_u64().unwrap() <= (512 << 20) / 32);
    bench.done("detach eth0");
    limit(8 << 20);
    let told = bench.done("doctor eth0").stdout;
    assert!(told.contains("raise the limit of the control group"), "{told}");
}
