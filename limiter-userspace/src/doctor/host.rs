//! What limiter needs of the host.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use aya::programs::ProgramInfo;

use super::finding::{Finding, Verdict};
use crate::{
    datapath::{
        bpffs::Pins, exchange::is_left, instance::Attached, main_program, maps::Maps, privilege,
        program::Program,
    },
    error::{Error, Result},
    output::number::{grouped, memory, wait},
    policy::{caveats::asking_for_proof, units::printable},
};

/// Clocks that are read by an instruction or two, without leaving the kernel.
const FAST_CLOCKS: [&str; 6] =
    ["tsc", "tsc-early", "kvm-clock", "xen", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// Whether this network namespace forwards packets.
const FORWARDING: [&str; 2] =
    ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"];

/// Names of checks that look at the maps.
const PENALTIES: &str = "penalties";
const TICKS: &str = "ticks";

/// Memory that is enough for an instance of the default size, 402 MiB, and something beside it, in bytes.
const ENOUGH: u64 = 512 << 20;

/// Checks the host, given what the instance is attached to.
pub(super) fn examine(pins: &Pins, ours: &Result<Vec<Attached>>) -> Vec<Finding> {
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let mut findings = vec![Finding::ok("kernel", kernel)];
    match privilege::check() {
        Ok(()) => {
            findings.push(Finding::ok("privileges", "programs and maps can be loaded"));
            findings.extend(program("program", false));
            findings.extend(program("program (frags)", true));
        }
        Err(error) => {
            findings.push(failed("privileges", &error));
            findings.push(Finding::new("program", Verdict::Note, "not tried without privileges"));
        }
    }
    findings.push(match privilege::check_sysfs() {
        Ok(()) => Finding::ok("sysfs", "the number of CPUs can be read"),
        Err(error) => failed("sysfs", &error),
    });
    findings.push(file_system(pins));
    match ours {
        Ok(ours) if ours.is_empty() => findings.extend(room()),
        Ok(ours) => {
            let found = format!("attached to {}", grouped(ours.len() as u64));
            findings.push(Finding::ok("instance", found));
            findings.extend(main_program(pins, ours));
            match Maps::open(pins) {
                Ok(maps) => {
                    findings.extend(penalties(&maps));
                    findings.push(ticks(&maps));
                }
                Err(error) => findings.extend([PENALTIES, TICKS].map(|it| failed(it, &error))),
            }
        }
        Err(error) => findings.push(failed("instance", error)),
    }
    findings.extend(exchange(pins));
    findings.extend(clock());
    findings.extend(hardening());
    findings
}

/// Whether an exchange of table and program was interrupted.
fn exchange(pins: &Pins) -> Option<Finding> {
    const CHECK: &str = "exchange";
    match is_left(pins) {
        Ok(false) => None,
        Ok(true) => {
            let found = "that of table and program was interrupted: there are two tables";
            let remedy = "limiter attach IFACE, for one that is attached, finishes it, or tells why that cannot be";
            Some(Finding::new(CHECK, Verdict::Warn, found).with_remedy(remedy))
        }
        // The check of the instance says so.
        Err(_) => None,
    }
}

/// Whether the kernel hardens programs that are compiled against their own constants, those of root too. Only root can
/// read that, and only in the first network namespace.
fn hardening() -> Option<Finding> {
    const CHECK: &str = "jit hardening";
    const ALL: &str = "2";
    let level = read("/proc/sys/net/core/bpf_jit_harden")?;
    if level != ALL {
        return Some(Finding::ok(CHECK, format!("level {level}: not for programs of root")));
    }
    let found =
        "level 2: constants are blinded in all programs, and a packet takes 3 to 5 times as long";
    Some(Finding::new(CHECK, Verdict::Warn, found).with_remedy(
        "sysctl -w net.core.bpf_jit_harden=1 hardens programs of users without rights alone; then limiter attach IFACE \
         --replace",
    ))
}

/// What failed; where that has no remedy, attaching fails of it too and tells the whole of it.
fn failed(check: &'static str, error: &Error) -> Finding {
    let finding = Finding::failed(check, error);
    match finding.remedy {
        Some(_) => finding,
        None => finding.with_remedy("`limiter attach` prints the whole error"),
    }
}

/// Has the kernel verify a program, as attaching it would, and tells whether it is compiled then.
fn program(check: &'static str, frags: bool) -> Vec<Finding> {
    let begun = Instant::now();
    let loaded = Program::try_out(frags).and_then(|mut program| {
        let took = begun.elapsed();
        Ok((program.xdp()?.info().ok(), took))
    });
    let (info, took) = match loaded {
        Ok(loaded) => loaded,
        // Packets in several pieces come with large frames alone.
        Err(error) if frags => {
            return vec![Finding { verdict: Verdict::Note, ..failed(check, &error) }];
        }
        Err(error) => return vec![failed(check, &error)],
    };
    let took = wait(took);
    let verified = info.as_ref().and_then(ProgramInfo::verified_instruction_count);
    let found = match verified {
        Some(number) => {
            format!("loads: {} instructions verified in {took}", grouped(number.into()))
        }
        None => format!("loads in {took}"),
    };
    let mut findings = vec![Finding::ok(check, found)];
    if let Some(info) = info.filter(|_| !frags) {
        findings.push(if info.size_jitted() > 0 {
            Finding::ok("jit", "programs are compiled")
        } else {
            Finding::new("jit", Verdict::Warn, "off: programs are interpreted, many times slower")
                .with_remedy("sysctl -w net.core.bpf_jit_enable=1")
        });
    }
    findings
}

/// Whether pins have a place.
fn file_system(pins: &Pins) -> Finding {
    let directory = pins.directory().display();
    match pins.check() {
        Ok(()) => Finding::ok("bpffs", format!("{directory} is on a BPF file system")),
        Err(error) => failed("bpffs", &error),
    }
}

/// Whether the packets of each interface find a main program.
fn main_program(pins: &Pins, ours: &[Attached]) -> Vec<Finding> {
    const CHECK: &str = "main program";
    let mut findings = Vec::new();
    for attached in ours.iter().filter(|it| it.exists) {
        let name = printable(&attached.name, 16);
        match main_program::is_missing(pins, attached.slot) {
            Ok(false) => {}
            Ok(true) => {
                let found = format!("{name} finds none: all its packets pass as `unloaded`");
                let remedy = format!("limiter attach {name} --replace");
                findings.push(Finding::new(CHECK, Verdict::Fail, found).with_remedy(remedy));
            }
            Err(error) => findings.push(failed(CHECK, &error)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "the packets of each interface find it"));
    }
    findings
}

/// Whether penalties can block the sources of what this host passes on.
fn penalties(maps: &Maps) -> Option<Finding> {
    let in_force = match maps.in_force() {
        Ok(in_force) => in_force,
        Err(error) => return Some(failed(PENALTIES, &error)),
    };
    let limits = asking_for_proof(&in_force.policy);
    let forwards = |path: &str| read(path).is_some_and(|value| value != "0");
    if limits.is_empty() || !FORWARDING.into_iter().any(forwards) {
        return None;
    }
    let found = format!(
        "this host forwards packets, and packets to other hosts have no source blocked by {}",
        limits.join(", ")
    );
    Some(Finding::new(PENALTIES, Verdict::Note, found).with_remedy(
        "if forged sources may be blocked too, write `unproven: block` into the penalty",
    ))
}

/// By how much ticks of the kernel were late, by which most limits go.
fn ticks(maps: &Maps) -> Finding {
    /// From here on it is told: a few ticks of any kernel, in which more passes than many bursts hold.
    const LONG: Duration = Duration::from_millis(20);
    match maps.tick_lag() {
        Ok(lag) if lag < LONG => Finding::ok(TICKS, format!("late by {} at most", wait(lag))),
        Ok(lag) => {
            let found = format!(
                "late by up to {}: limits admitted what their rates bring in that time besides",
                wait(lag)
            );
            Finding::new(TICKS, Verdict::Warn, found).with_remedy(
                "ticks of a virtual CPU that was not run are late: see the stolen time in `vmstat 1`; a limit with \
                 `precise: true` goes by the clock",
            )
        }
        Err(error) => failed(TICKS, &error),
    }
}

/// What the clock is, which packets with limits read.
fn clock() -> Option<Finding> {
    const DIRECTORY: &str = "/sys/devices/system/clocksource/clocksource0";
    let name = read(format!("{DIRECTORY}/current_clocksource"))?;
    if FAST_CLOCKS.contains(&name.as_str()) {
        return Some(Finding::ok("clock", name));
    }
    let others = read(format!("{DIRECTORY}/available_clocksource")).unwrap_or_default();
    let faster = others.split(' ').find(|other| FAST_CLOCKS.contains(other));
    let finding = Finding::new("clock", Verdict::Warn, format!("{name} is slow to read"));
    Some(match faster {
        Some(faster) => finding.with_remedy(format!("echo {faster} > {DIRECTORY}/current_clocksource")),
        None => finding.with_remedy(
            "limits whose burst lasts some seconds read it less often; see why the kernel has no faster \
             one: dmesg | grep -i clocksource",
        ),
    })
}

/// Memory that maps can be made of: what the host has, and what this control group may take.
fn room() -> Option<Finding> {
    let available = read("/proc/meminfo")?.lines().find_map(|line| {
        let kibibytes = line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?;
        kibibytes.parse::<u64>().ok()?.checked_mul(1024)
    })?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limit = control_groups(&groups).iter().filter_map(|group| least_of(group)).min();
    // Without a limit, version 1 has a number that is larger than any memory.
    let found = match limit.filter(|limit| *limit < available) {
        Some(limit) => {
            format!("{} available, {} left to this control group", memory(available), memory(limit))
        }
        None => format!("{} available", memory(available)),
    };
    let least = limit.map_or(available, |limit| limit.min(available));
    Some(if least >= ENOUGH {
        Finding::ok("memory", found)
    } else {
        Finding::new("memory", Verdict::Warn, found).with_remedy(
            "make a smaller instance, by --sources, --buckets, --wide-states and --overrides of `limiter attach`",
        )
    })
}

/// The directories of the control groups of this process that limit memory, of both versions.
fn control_groups(groups: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            some if some.split(',').any(|it| it == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => return None,
        };
        Some(root.join(group.trim_start_matches('/')))
    };
    groups.lines().filter_map(of).collect()
}

/// The least that a control group, and those that it is in, may take still; `None` if there is no limit.
fn least_of(group: &Path) -> Option<u64> {
    /// The limit and what is taken of it, of versions 2 and 1.
    const FILES: [[&str; 2]; 2] =
        [["memory.max", "memory.current"], ["memory.limit_in_bytes", "memory.usage_in_bytes"]];
    let number = |path: PathBuf| read(path)?.parse::<u64>().ok();
    let left = |directory: &Path| {
        let of = |[limit, taken]: [&str; 2]| {
            let limit = number(directory.join(limit))?;
            Some(limit.saturating_sub(number(directory.join(taken)).unwrap_or(0)))
        };
        FILES.into_iter().find_map(of)
    };
    group.ancestors().filter_map(left).min()
}

/// The text of a file, without the white space around it.
fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let groups = "12:cpu,cpuacct:/a\n9:memory:/x/y\n1:name=systemd:/\n0::/user.slice\n";
        assert_eq!(
            control_groups(groups),
            [Path::new("/sys/fs/cgroup/memory/x/y"), Path::new("/sys/fs/cgroup/user.slice")]
        );
        assert_eq!(control_groups("0::/\n"), [Path::new("/sys/fs/cgroup/")]);
        assert!(control_groups("nothing\n7:memory\n").is_empty());
    }

    #[test]
    fn the_tightest_limit_counts() {
        let root = std::env::temp_dir().join(format!("limiter-groups-{}", std::process::id()));
        let inner = root.join("x/y");
        fs::create_dir_all(&inner).unwrap();
        let write = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        assert_eq!(least_of(&inner), None);
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("x/memory.limit_in_bytes", "314572800\n");
        write("x/memory.usage_in_bytes", "1000000\n");
        assert_eq!(least_of(&inner), Some(313_572_800));
        write("x/y/memory.max", "max\n");
        write("memory.max", "200000000\n");
        assert_eq!(least_of(&inner), Some(200_000_000));
        fs::remove_dir_all(&root).unwrap();
    }
}
