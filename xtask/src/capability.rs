//! Checks that tests with real BPF programs and namespaces can run here.

use std::{
    fs, io,
    mem::size_of_val,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{child, privilege::Privilege};

/// The effective capabilities that are needed, by their bit.
const NEEDED: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN"), (39, "CAP_BPF")];

/// Runs [`check`] in a process with root's rights, before anything depends on it.
pub(crate) fn require(privilege: Privilege) -> Result<()> {
    let xtask = std::env::current_exe().context("cannot find the path of xtask")?;
    let status = privilege
        .command(xtask, &[])
        .arg("capability")
        .status()
        .context("cannot run xtask with root's rights")?;
    if !status.success() {
        bail!("real packets cannot be tested here, for the reason above");
    }
    Ok(())
}

/// Checks that this process has the capabilities, that the kernel loads and runs an XDP program, and that a
/// network namespace with a veth pair and a BPF file system can be made.
pub(crate) fn check() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status")
        .context("cannot read /proc/self/status for the capabilities of this process")?;
    let missing = missing(&status);
    if !missing.is_empty() {
        bail!(
            "this process lacks {} even as root: outside a container this works, and a container \
             must be started with these capabilities",
            missing.join(", ")
        );
    }
    run_program().context(
        "the kernel does not load and run an XDP program for root: it must be 5.13 or newer with \
         CONFIG_BPF_SYSCALL, not locked down, and the container's seccomp profile must let bpf(2) \
         through",
    )?;
    for (namespace, command, what) in [
        ("--net", "ip link add limiter-a type veth peer name limiter-b", "a veth pair"),
        ("--mount", "mount -t bpf bpf /mnt", "a BPF file system"),
    ] {
        // The namespace, with all in it, ends with the command.
        child::run(Command::new("unshare").args([namespace, "sh", "-c", command]))
            .with_context(|| format!("root cannot have {what} in a new namespace"))?;
    }
    Ok(())
}

/// The needed capabilities that are missing in the line `CapEff:` of `/proc/PID/status`.
fn missing(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let lacking = NEEDED.iter().filter(|(bit, _)| effective >> bit & 1 == 0);
    lacking.map(|(_, name)| *name).collect()
}

/// A BPF instruction (`struct bpf_insn`).
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The first members of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes the rest as zero.
#[repr(C)]
struct LoadProgram {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// The first members of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
struct TestRun {
    program: u32,
    return_value: u32,
    input_size: u32,
    output_size: u32,
    input: u64,
    output: u64,
    repeat: u32,
    duration: u32,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_PROG_TYPE_XDP: u32 = 6;
const XDP_PASS: u8 = 2;

/// Loads the shortest XDP program and runs it once on a packet of zeros.
fn run_program() -> io::Result<()> {
    let program = [
        // r0 = XDP_PASS; exit
        Instruction { code: 0xb7, registers: 0, offset: 0, immediate: i32::from(XDP_PASS) },
        Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 },
    ];
    let mut load = LoadProgram {
        program_type: BPF_PROG_TYPE_XDP,
        instruction_count: 2,
        instructions: program.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
    };
    let descriptor = bpf(BPF_PROG_LOAD, &mut load)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else holds it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let packet = [0_u8; 64];
    let mut run = TestRun {
        program: descriptor.as_raw_fd().cast_unsigned(),
        return_value: 0,
        input_size: 64,
        output_size: 0,
        input: packet.as_ptr() as u64,
        output: 0,
        repeat: 1,
        duration: 0,
    };
    bpf(BPF_PROG_TEST_RUN, &mut run)?;
    if run.return_value == u32::from(XDP_PASS) {
        Ok(())
    } else {
        Err(io::Error::other(format!("the program returned {}", run.return_value)))
    }
}

fn bpf<T>(operation: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let size = size_of_val(attributes);
    // SAFETY: the kernel reads and writes no more than `size` bytes of the attributes, and the
    // addresses in them belong to values that the callers keep alive over the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, operation, attributes, size) };
    libc::c_int::try_from(result)
        .ok()
        .filter(|result| *result >= 0)
        .ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert!(missing("CapEff:\t000001ffffffffff\n").is_empty());
        assert_eq!(missing("CapEff:\t000001fffffff000\n"), Vec::<&str>::new());
        assert_eq!(missing("CapEff:\t0000000000003000\n"), ["CAP_SYS_ADMIN", "CAP_BPF"]);
        assert_eq!(missing("Name:\tx\n").len(), NEEDED.len());
    }
}
