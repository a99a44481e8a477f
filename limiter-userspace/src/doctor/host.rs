//! What limiter needs of the host.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use aya::programs::ProgramInfo;

use super::finding::{Finding, Verdict};
use crate::{
    datapath::{
        bpffs::Pins, diag, exchange::is_left, instance::Attached, main_program, maps::Maps, memory,
        privilege, program::Program, sizes::Sizes,
    },
    error::{Error, Result},
    output::number::{grouped, memory as size, wait},
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
    findings.push(connections());
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

/// Whether connections can be looked up, which prove the blocks that other processes ask the agent for.
fn connections() -> Finding {
    const CHECK: &str = "connections";
    match diag::check() {
        Ok(()) => Finding::ok(CHECK, "TCP connections can be looked up"),
        // Limits on packets need none.
        Err(error) => Finding { verdict: Verdict::Warn, ..Finding::failed(CHECK, &error) },
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

/// Memory that maps can be made of: what the host has, and what its control groups leave this process.
fn room() -> Option<Finding> {
    let (available, limit) = (memory::available()?, memory::left());
    let found = match limit {
        Some(limit) => {
            format!("{} available, {} left to this control group", size(available), size(limit))
        }
        None => format!("{} available", size(available)),
    };
    let sources = Sizes::for_host().sources;
    let found =
        format!("{found}; `limiter attach` makes room for {} sources", grouped(sources.into()));
    let least = limit.map_or(available, |limit| limit.min(available));
    Some(if least >= Sizes::for_host().bytes_here() {
        Finding::ok("memory", found)
    } else {
        Finding::new("memory", Verdict::Warn, found).with_remedy(
            "free some memory, raise the limit of the control group, or make a smaller instance, by --sources of \
             `limiter attach`",
        )
    })
}

/// The text of a file, without the white space around it.
fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
