//! The packages on a machine with systemd: install, upgrade under traffic, and removal.

use std::{
    thread,
    time::{Duration, Instant},
};

use limiter_tests::machine::Machine;

use super::{Net, assert_admitted, v4};
use crate::cli::package::{Packages, unit_lines};

const SECOND: Duration = Duration::from_secs(1);
const OLD: &str = "1.0.0";
const NEW: &str = "1.1.0";

const SETPCAP: u64 = 1 << 8;
const NET_ADMIN: u64 = 1 << 12;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// The user of a process, and its sets of capabilities: effective, permitted, inheritable, ambient and bounding.
fn rights(machine: &Machine, process: &str) -> (String, [u64; 5]) {
    let status = machine.run(&format!("cat /proc/{process}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let set = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
    (field("Uid:"), ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:", "CapBnd:"].map(set))
}

/// Waits until the service has another main process than `before`, which is ready.
fn restarted(machine: &Machine, before: &str) {
    let start = Instant::now();
    let show = "systemctl show --property MainPID --property ActiveState limiter";
    loop {
        let now = machine.run(show).unwrap();
        let says = |line: &str| now.lines().any(|it| it == line);
        if says("ActiveState=active") && !says(&format!("MainPID={before}")) {
            return;
        }
        assert!(start.elapsed() < 20 * SECOND, "{now}");
        thread::sleep(SECOND / 20);
    }
}

fn all_pass(net: &Net, number: u8) {
    let mut senders = [net.sender(10_000, net.udp(v4(number)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND / 2, |_| {});
    assert_eq!(arrivals.from(v4(number)).packets, sent[0].packets);
}

#[test]
fn it_is_installed_upgraded_under_traffic_and_removed() {
    let packages = Packages::make(&[OLD, NEW]);
    let net = Net::new();
    let machine = Machine::boot(&net.hosts.router, packages.folder()).unwrap();
    let run = |line: &str| machine.run(line).unwrap();
    let status = |field: &str| {
        let status = run("limiter status -j");
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status[field].clone()
    };
    let process = || run("systemctl show --property MainPID --value limiter").trim().to_owned();

    run(&format!("dpkg --install /tmp/shared/limiter_{OLD}_amd64.deb"));
    let files = run("dpkg --listfiles limiter");
    assert_eq!(run("dpkg --verify limiter"), "");
    run("! systemctl is-enabled limiter && ! systemctl is-active limiter");
    // The package attaches nothing and creates no instance.
    run("test ! -e /sys/fs/bpf/limiter");
    all_pass(&net, 9);

    run("sed -i 's/^LIMITER_INTERFACES=.*/LIMITER_INTERFACES=eth0/' /etc/default/limiter");
    run("sed -i 's/^#LIMITER_LISTEN/LIMITER_LISTEN/' /etc/default/limiter");
    // The minimal boot target has not started the journal.
    run("systemctl start systemd-journald.service");
    run("systemctl enable --now limiter");
    assert_eq!(status("interfaces")[0]["name"], "eth0");
    all_pass(&net, 10);
    let ask =
        "exec 3<>/dev/tcp/127.0.0.1/9180; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let answer = run(&format!("bash -c \"{ask}\""));
    assert!(answer.contains("\nlimiter_attached{interface=\"eth0\""), "{answer}");
    // Commands of root act on the same instance.
    run("limiter attach lo");
    run("limiter limit set source --rate 1kpps --burst 200");
    run("limiter deny add 198.18.0.11");
    // The agent can write the file of the run-time lists after root did.
    run("test \"$(stat -c %U:%a /var/lib/limiter/run-time.json)\" = limiter:600");
    // The entries of earlier sources are behind the policy now; the scrape needs no other capabilities for
    // that.
    run("sleep 1.1");
    let answer = run(&format!("bash -c \"{ask}\""));
    assert!(answer.contains(" 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\nlimiter_agent_failing 0\n"), "{answer}");
    // The bridge is another service, with another user and no capability. Its state outlives it.
    run("! systemctl is-enabled limiter-bridge && ! systemctl is-active limiter-bridge");
    run("systemd-analyze verify limiter-bridge.service");
    run("systemctl enable --now limiter-bridge");
    let socket = "stat -c %U:%G:%a /run/limiter-bridge/bridge.sock";
    assert_eq!(run(socket), "limiter-bridge:limiter-bridge:660\n");
    let state = || run("stat -c %i:%a /run/limiter-bridge/state");
    let before = state();
    let bridge =
        || run("systemctl show --property MainPID --value limiter-bridge").trim().to_owned();
    let user = run("id --user limiter-bridge").trim().to_owned();
    assert_eq!(rights(&machine, &bridge()), (user, [0; 5]));
    run("systemctl reload limiter-bridge && systemctl restart limiter-bridge");
    run("systemctl stop limiter-bridge && systemctl start limiter-bridge");
    assert_eq!(state(), before);
    // An event is a journal entry with fields.
    let entries = run("journalctl --output json LIMITER_EVENT=attached");
    let entry: serde_json::Value = serde_json::from_str(entries.lines().next().unwrap()).unwrap();
    assert_eq!((&entry["PRIORITY"], &entry["LIMITER_INTERFACE"]), (&"6".into(), &"eth0".into()));
    assert_eq!(entry["SYSLOG_IDENTIFIER"], "limiter");
    run("limiter policy save");
    let limits = run("limiter limit list");
    run("limiter detach lo");
    let owner = run("id --user limiter").trim().to_owned();
    let agent = process();
    let kept = BPF | NET_ADMIN;
    assert_eq!(rights(&machine, &agent), (owner.clone(), [kept, kept, 0, 0, 0]));
    let loader = run(&format!("cat /proc/{agent}/task/{agent}/children"));
    let of_loader = kept | PERFMON;
    assert_eq!(rights(&machine, loader.trim()), (owner, [of_loader, of_loader, 0, 0, 0]));
    // The unit gives what these two need, and what empties the bounding set.
    assert_eq!(named_in_the_unit(), of_loader | SETPCAP);
    run("systemd-analyze verify limiter.service");

    let mut senders = [net.sender(20_000, net.udp(v4(12))), net.sender(100, net.udp(v4(11)))];
    let mut programs = vec![program(&net)];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        let (before, bridge_before) = (process(), bridge());
        run(&format!("dpkg --install /tmp/shared/limiter_{NEW}_amd64.deb"));
        restarted(&machine, &before);
        assert_ne!(bridge(), bridge_before);
        programs.push(program(&net));
        assert_eq!(run("limiter limit list").lines().count(), limits.lines().count());
        run("systemctl reload limiter");
        let before = process();
        run("systemctl kill --signal=KILL limiter");
        restarted(&machine, &before);
        programs.push(program(&net));
        run("systemctl stop limiter");
        // Root starts an agent by hand on the instance of the service.
        run("timeout --preserve-status 10 limiter agent -i eth0");
        programs.push(program(&net));
        stop.stop();
    });
    assert_admitted("meanwhile", arrivals.from(v4(12)).packets, &sent[0], 1e3, 200);
    assert_eq!(arrivals.from(v4(11)).packets, 0, "who is denied passed");
    // Each agent replaced the program of the one before.
    let different = |pair: &[Option<u64>]| pair[0].is_some() && pair[0] != pair[1];
    assert!(programs.windows(2).all(different) && programs[3].is_some(), "{programs:?}");
    assert_eq!(run("dpkg-query --show --showformat '${Version}' limiter"), NEW);

    run("systemctl start limiter");
    // The agent attaches again what is detached by hand, until the package is removed.
    run("limiter detach --all && timeout 20 sh -c 'until limiter status; do sleep 0.1; done'");
    run("dpkg --remove limiter");
    all_pass(&net, 13);
    assert_eq!(program(&net), None);
    run("test ! -e /sys/fs/bpf/limiter");
    let kept = ["/etc/default/limiter", "/etc/limiter/policy.yaml"];
    let left = |files: &str| {
        let exists = "while read file; do test ! -f \"$file\" || echo \"$file\"; done";
        run(&format!("echo '{files}' | {exists}"))
    };
    assert_eq!(left(&files).lines().collect::<Vec<_>>(), kept);
    run("! systemctl is-active limiter && ! systemctl is-enabled limiter");
    run("! systemctl is-active limiter-bridge");
    run("dpkg --purge limiter");
    assert_eq!(left(&files), "");
    run("test ! -e /etc/limiter && test ! -e /run/limiter && test ! -e /run/limiter-bridge");
}

/// The machine is of Debian: its rpm has to be told that it is meant, and knows no package that has a shell.
#[test]
fn an_rpm_is_installed_upgraded_and_erased() {
    let packages = Packages::make(&[OLD, NEW]);
    let net = Net::new();
    let machine = Machine::boot(&net.hosts.router, packages.folder()).unwrap();
    let run = |line: &str| machine.run(line).unwrap();
    let rpm = |what: &str| run(&format!("rpm --force-debian --nodeps {what}"));
    let file = |version: &str| format!("/tmp/shared/limiter-{version}-1.x86_64.rpm");
    let process = || run("systemctl show --property MainPID --value limiter").trim().to_owned();
    let users = "getent passwd limiter && getent passwd limiter-bridge && id -nG limiter";

    run("! getent passwd limiter");
    rpm(&format!("--install {}", file(OLD)));
    assert!(run(users).ends_with("limiter limiter-bridge\n"));
    run("test \"$(stat -c %U:%G:%a /usr/sbin/limiter)\" = root:root:755");
    run("! systemctl is-enabled limiter && ! systemctl is-active limiter");
    run("test ! -e /sys/fs/bpf/limiter");
    run("sed -i 's/^LIMITER_INTERFACES=.*/LIMITER_INTERFACES=eth0/' /etc/default/limiter");
    run("systemctl start systemd-journald.service");
    run("systemctl enable --now limiter");
    run("limiter limit set source --rate 1kpps --burst 200");
    let (before, first) = (process(), program(&net));
    assert!(first.is_some());

    rpm(&format!("--upgrade {}", file(NEW)));
    restarted(&machine, &before);
    let second = program(&net);
    assert!(second.is_some() && second != first, "{first:?} {second:?}");
    assert!(run("limiter limit list").contains("1 kpps"));
    run("grep -q LIMITER_INTERFACES=eth0 /etc/default/limiter");
    assert_eq!(run("rpm --query limiter"), format!("limiter-{NEW}-1.x86_64\n"));

    rpm("--erase limiter");
    assert_eq!(program(&net), None);
    all_pass(&net, 13);
    run("test ! -e /sys/fs/bpf/limiter && test ! -e /usr/sbin/limiter");
    run("! systemctl is-active limiter");
    // What was edited is kept under another name.
    run("grep -q LIMITER_INTERFACES=eth0 /etc/default/limiter.rpmsave");
    run("test ! -e /etc/limiter/policy.yaml");
    run(users);
}

/// The id of the XDP program on the limited interface.
fn program(net: &Net) -> Option<u64> {
    let link = net.hosts.router.ip_json(&["link", "show", "dev", "eth0"]).unwrap();
    link[0]["xdp"]["prog"]["id"].as_u64()
}

/// The capabilities in the unit, as a bit set.
fn named_in_the_unit() -> u64 {
    const SETS: [(&str, u64); 4] = [
        ("CAP_SETPCAP", SETPCAP),
        ("CAP_NET_ADMIN", NET_ADMIN),
        ("CAP_PERFMON", PERFMON),
        ("CAP_BPF", BPF),
    ];
    let lines = unit_lines("AmbientCapabilities");
    let names = lines.iter().flat_map(|line| line.split(' '));
    names.fold(0, |set, name| {
        let (_, bit) = SETS.iter().find(|(it, _)| *it == name).unwrap();
        set | bit
    })
}
