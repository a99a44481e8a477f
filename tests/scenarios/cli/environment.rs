//! Commands in a bad environment: without privilege, BPF file system, disk space, a reader, or exclusive
//! access.

use std::{fs::File, io, os::fd::OwnedFd, process::Stdio, thread};

use aya::maps::{Array, MapData};
use limiter_common::abi::layout::map;
use limiter_tests::{
    process,
    sandbox::{BPFFS, Sandbox},
};

use super::{Bench, SMALL};

#[test]
fn without_privilege_the_capabilities_are_named() {
    let words = ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "hint: "];
    let fresh = Bench::new();
    let attach = format!("attach eth0 {SMALL}");
    fresh.refused_as(fresh.run(&attach).as_nobody(), 5, &words);
    let attached = Bench::attached();
    for command in [
        &attach,
        "attach eth0 --replace",
        "attach lo",
        "status",
        "limit list",
        "limit set source --rate 1kpps",
        "limit del source",
        "policy show",
        "policy confirm",
        "policy revert",
        "monitor on",
        "deny add 203.0.113.9",
        "deny list",
        "penalty list",
        "top",
        "watch --once",
        "detach eth0",
        "detach --all",
    ] {
        attached.refused_as(attached.run(command).as_nobody(), 5, &words);
    }
}

#[test]
fn a_program_of_someone_else_is_named_and_left_alone() {
    let bench = Bench::new();
    let other = format!("--bpffs {BPFFS}/other");
    bench.done(&format!("{other} attach eth0 {SMALL} --pps 1kpps"));
    let id = bench.programs()["eth0"].unwrap().to_string();
    bench.refused(&format!("attach eth0 {SMALL}"), 6, &["eth0", &id, "hint: "]);
    bench.refused(&format!("attach lo eth0 {SMALL}"), 6, &["eth0", &id]);
    bench.refused(&format!("attach eth0 --mode skb {SMALL}"), 6, &["eth0"]);
    bench.refused(&format!("attach eth0 --replace {SMALL}"), 6, &["eth0", &id]);
    bench.done(&format!("attach lo {SMALL}"));
    bench.refused("attach eth0", 6, &["eth0", &id]);
    bench.refused("detach eth0", 4, &["eth0", "lo"]);
}

#[test]
fn an_unmounted_bpffs_is_offered_to_be_mounted() {
    let bench = Bench::within(&Sandbox::without_bpffs().unwrap());
    let words = ["not on a BPF file system", "mount -t bpf bpf /sys/fs/bpf", "--mount-bpffs"];
    bench.refused(&format!("attach eth0 {SMALL}"), 1, &words);
    bench.refused(&format!("--bpffs /proc/limiter attach eth0 {SMALL}"), 1, &["/proc/limiter"]);
    bench.run("status").outcome().unwrap().assert_exit_code(4);
    // The mount exists only in the mount namespace of that command, so one shell runs all of them.
    let script = format!(
        "set -e; {0} attach eth0 {SMALL} --mount-bpffs; {0} status; {0} detach --all",
        bench.limiter.path().display()
    );
    let outcome = bench.hosts.router.command("sh").args(["-c", &script]).output().unwrap();
    let stdout = String::from_utf8(outcome.stdout).unwrap();
    assert!(outcome.status.success(), "{stdout}{}", String::from_utf8_lossy(&outcome.stderr));
    assert!(stdout.contains("mounted a BPF file system on /sys/fs/bpf"), "{stdout}");
}

#[test]
fn a_full_disk_is_told() {
    let bench = Bench::attached();
    for command in
        ["status", "status -j", "limit list", "top -j", "watch --once", "watch -j --count 2"]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = bench.run(command).to(full).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&["cannot write to stdout", "No space left"]);
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let outcome = bench.run("limit set source --rate 7/s").to(full).outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["stdout"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::attached();
    for command in [
        "status",
        "status -j",
        "limit list",
        "top",
        "watch --once",
        "watch -j --interval 50ms --count 40",
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let outcome = bench.run(command).to(OwnedFd::from(writer)).outcome().unwrap();
        outcome.assert_exit_code(0);
        assert_eq!(outcome.stderr, "", "{outcome}");
    }
}

#[test]
fn commands_at_once_are_serialised() {
    let bench = Bench::attached();
    let numbers = 0..20;
    thread::scope(|scope| {
        for number in numbers.clone() {
            let bench = &bench;
            let rate = number + 1;
            let set = format!("limit set source --src 10.0.{number}.0/24 --rate {rate}/s");
            scope.spawn(move || bench.done(&set));
        }
    });
    let source = bench.json("limit show source -j");
    let overrides = source["overrides"].as_array().unwrap();
    assert_eq!(overrides.len(), 21, "{source}");
    for number in numbers {
        let src = format!("10.0.{number}.0/24");
        let found = overrides.iter().find(|entry| entry["src"] == src.as_str()).unwrap();
        assert_eq!(found["rate_per_second"], number + 1);
    }
}

#[test]
fn interfaces_attached_and_detached_at_once_end_in_one_of_both() {
    let bench = Bench::new();
    let attach = format!("attach eth0 lo {SMALL} --pps 1kpps");
    let run = |command: &str| bench.run(command).outcome().unwrap();
    thread::scope(|scope| {
        let attaching: Vec<_> = (0..6).map(|_| scope.spawn(|| run(&attach))).collect();
        let detaching: Vec<_> = (0..6).map(|_| scope.spawn(|| run("detach --all"))).collect();
        for thread in attaching {
            thread.join().unwrap().assert_exit_code(0);
        }
        for thread in detaching {
            thread.join().unwrap().assert_exit_code(0);
        }
    });
    bench.done(&attach);
    let footprint = bench.footprint();
    assert_eq!(bench.json("status -j")["interfaces"].as_array().unwrap().len(), 2);
    bench.done("detach --all");
    footprint.assert_gone().unwrap();
    assert!(bench.programs().values().all(Option::is_none));
}

#[test]
fn a_pinned_map_of_another_layout_is_never_used() {
    let bench = Bench::attached();
    let footprint = bench.footprint();
    let router = &bench.hosts.router;
    let swap = || {
        // Room was made for a limit: the maps in use are the second ones.
        let path = format!("{BPFFS}/limiter/maps2/{}", map::SOURCES);
        std::fs::remove_file(&path).unwrap();
        Array::<MapData, u64>::create(7, 0).unwrap().pin(&path).unwrap();
    };
    router.sandbox.inside(&router.namespace, swap).unwrap();
    for command in [
        "status",
        "top",
        "limit list",
        "limit set source --rate 9/s",
        "attach lo",
        "attach eth0 --replace",
        "watch --once",
    ] {
        bench.refused(command, 1, &["layout", map::SOURCES, "detach --all", "hint: "]);
    }
    bench.done("detach --all");
    footprint.assert_gone().unwrap();
    bench.done(&format!("attach eth0 {SMALL}"));
}

#[test]
fn a_watch_ends_when_it_is_asked_to_and_leaves_the_limiter_attached() {
    let bench = Bench::attached();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut child =
            bench.run("watch --lines --interval 50ms").to(Stdio::piped()).start().unwrap();
        let mut first = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        process::signal(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(bench.json("status -j")["interfaces"][0]["name"], "eth0");
}

#[test]
fn an_attach_that_fails_attaches_nothing_even_where_an_interface_was_that_is_gone() {
    let bench = Bench::new();
    let ip = |arguments: &str| {
        let mut ip = bench.hosts.router.command("ip");
        assert!(ip.args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
    };
    let pairs = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("x{number} y{number} ")).collect()
    };
    for number in 0..33 {
        ip(&format!("link add x{number} type veth peer name y{number}"));
    }
    // Every slot is taken, some by interfaces that are gone.
    bench.done(&format!("attach {} {SMALL}", pairs(0..32).trim_end()));
    ip("link delete x1");
    let other = format!("--bpffs {BPFFS}/other");
    bench.done(&format!("{other} attach y32 {SMALL}"));
    let before = bench.programs();
    let outcome = bench.run("attach x32 y32").outcome().unwrap();
    outcome.assert_exit_code(6).assert_says(&["y32", "id "]);
    assert_eq!(bench.programs(), before, "{outcome}");
    bench.done("attach x32");
    bench.done("detach --all");
    bench.done(&format!("{other} detach --all"));
}
