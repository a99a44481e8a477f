//! A guest: a kernel in the emulator, which is only seen through its console.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::Path,
    process::{self, Child, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::archive;
use crate::child;

/// All features of the emulator except fast string moves (`erms`). Kernels copy and clear memory with these,
/// and the emulator moves one byte at a time; verifying a program would take twice as long.
const CPU: &str = "max,-erms";
/// Two CPUs, because some tests need two.
const CPUS: &str = "2";
/// Megabytes of memory, which also holds the tests.
const MEMORY: &str = "2048";
/// The console is the only output; a kernel panic ends the emulator; and a kernel whose timer is late,
/// because this machine is busy, continues.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 no_timer_check";

/// How long a kernel may boot: usually seconds, but minutes on a busy machine.
const BOOT: Duration = Duration::from_secs(900);

/// What a kernel in trouble says; the first of these lines tells the most. Otherwise, the last line does.
const TROUBLE: [&str; 3] = ["Oops", "BUG:", "Kernel panic"];

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The commands ran, with this exit status.
    Ran { kernel: String, status: i32 },
    /// The guest failed before that; the text says how.
    Broke(String),
}

/// Boots a kernel with an initramfs, passes its output to `line`, and ends it after `limit`.
pub(super) fn boot(
    kernel: &Path,
    initramfs: &File,
    limit: Duration,
    mut line: impl FnMut(&str),
) -> Result<End> {
    let begin = Instant::now();
    let (mut emulator, lines) = start(kernel, initramfs)?;
    let (mut release, mut status) = (None, None);
    let mut said = "nothing".to_owned();
    loop {
        let limit = if release.is_none() { BOOT } else { limit };
        match lines.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(text) => {
                // The console ends lines with CR LF.
                let text = text.trim_end_matches('\r');
                if let Some(kernel) = text.strip_prefix("guest kernel: ") {
                    release = Some(kernel.to_owned());
                } else if let Some(code) = text.strip_prefix("guest exit status: ") {
                    status = code.parse().ok();
                } else {
                    if !text.trim().is_empty() && !TROUBLE.iter().any(|it| said.contains(it)) {
                        text.clone_into(&mut said);
                    }
                    line(text);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let what = if release.is_none() { "boot" } else { "come to an end" };
                let limit = limit.as_secs();
                return Ok(End::Broke(format!("did not {what} within {limit} s; it said: {said}")));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let emulator = emulator.0.wait().context("cannot wait for the emulator")?;
    Ok(match (release, status) {
        (Some(kernel), Some(status)) => End::Ran { kernel, status },
        (Some(kernel), None) => {
            End::Broke(format!("{kernel} ended before the tests did ({emulator}); it said: {said}"))
        }
        (None, _) => End::Broke(format!("did not boot ({emulator}); it said: {said}")),
    })
}

/// The process of the emulator; dropping this kills it.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // By its id, which is valid until it is waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kernel: &Path, initramfs: &File) -> Result<(Emulator, Receiver<String>)> {
    let mut command = archive::emulator();
    // The translator of qemu (TCG) is slow, but works on every machine. One thread runs both CPUs. With a thread
    // for each, a CPU may hit a breakpoint that another one has taken out again of code that the kernel patches.
    // About one guest of 100 died of it while it booted.
    command.args(["-accel", "tcg,thread=single", "-cpu", CPU, "-smp", CPUS, "-m", MEMORY]);
    command.args(["-nodefaults", "-no-user-config", "-nic", "none", "-display", "none"]);
    command.args(["-no-reboot", "-serial", "stdio", "-append", COMMAND_LINE]);
    // The file has no other name.
    let initramfs = format!("/proc/{}/fd/{}", process::id(), initramfs.as_raw_fd());
    command.arg("-kernel").arg(kernel).args(["-initrd", &initramfs]);
    let die_with_us = || {
        // SAFETY: the call has no pointers.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes a system call and nothing else.
    unsafe { command.pre_exec(die_with_us) };
    let shown = child::show(&command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let stdout = child.stdout.take();
    let emulator = Emulator(child);
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = stdout {
        child::forward_lines(stdout, sender);
    }
    Ok((emulator, lines))
}
