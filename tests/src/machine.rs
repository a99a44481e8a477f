//! Boots a machine with systemd and dpkg in namespaces. Its files are an overlay in memory over those of this
//! machine, so nothing that a test changes outlives it.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{process, topology::Host};

/// Starts the machine in a new cgroup, which systemd then sees as the root of the hierarchy.
const BEGIN: &str = "set -e
mount --make-rprivate /
mount -t cgroup2 none /run
mkdir /run/$CGROUP
echo $$ > /run/$CGROUP/cgroup.procs
umount /run
exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child sh -c \"$BOOT\"";
/// Removes the cgroup and its children; fails while a process is left in them.
const END: &str = "mount --make-rprivate /
mount -t cgroup2 none /run
test ! -d /run/$CGROUP || find /run/$CGROUP -depth -type d -exec rmdir {} +";
const BOOT: &str = include_str!("machine/boot.sh");

/// How long booting, and removing the cgroup, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running machine; dropping it kills all its processes.
#[derive(Debug)]
pub struct Machine {
    host: Host,
    process: Child,
    /// The process id of its init process in the namespace of this process.
    init: String,
    cgroup: String,
}

impl Machine {
    /// Boots a machine with the network interfaces of `host`, and with the folder `shared` of this machine as
    /// `/tmp/shared`. It starts no units except those that systemd starts by itself.
    ///
    /// # Errors
    /// Fails if a system call fails or the machine is not up after 60 s. Needs root, the Debian package
    /// `systemd`, and cgroup version 2.
    pub fn boot(host: &Host, shared: &Path) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("limiter-test-{}-{number}", std::process::id());
        let mut begin = host.command("unshare");
        begin.args(["--mount", "sh", "-c", BEGIN]);
        begin.env("CGROUP", &cgroup).env("BOOT", BOOT).env("SHARED", shared);
        begin.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = begin.spawn().context("cannot run unshare")?;
        let mut machine = Self { host: host.clone(), process, init: String::new(), cgroup };
        let start = Instant::now();
        while !machine.is_up()? {
            ensure!(start.elapsed() < PATIENCE, "no machine within {} s", PATIENCE.as_secs());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(machine)
    }

    /// Whether systemd reports that booting has ended. A unit that failed does not matter.
    fn is_up(&mut self) -> Result<bool> {
        if self.process.try_wait()?.is_some() {
            let mut said = String::new();
            if let Some(mut stderr) = self.process.stderr.take() {
                std::io::Read::read_to_string(&mut stderr, &mut said)?;
            }
            bail!("cannot boot a machine: {}", said.trim());
        }
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        // The first child is a shell until it executes systemd.
        let is_systemd = |id: &str| {
            fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "systemd\n")
        };
        match children.split_whitespace().next() {
            Some(init) if is_systemd(init) => self.init = init.to_owned(),
            _ => return Ok(false),
        }
        let state = self.output("systemctl is-system-running")?;
        Ok(["running\n", "degraded\n"].contains(&&*String::from_utf8_lossy(&state.stdout)))
    }

    /// Builds a command that runs a shell line on the machine.
    #[must_use]
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--all", "--", "/usr/bin/env", "-i"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["LC_ALL=C", "sh", "-c", line]).stdin(Stdio::null());
        command
    }

    /// Runs a shell line on the machine and returns its exit status and output.
    ///
    /// # Errors
    /// Fails if `nsenter` cannot be run.
    pub fn output(&self, line: &str) -> Result<Output> {
        self.command(line).output().context("cannot run nsenter")
    }

    /// Runs a shell line that has to succeed, and returns its standard output.
    ///
    /// # Errors
    /// As for [`output`](Self::output), and with all output if the exit code is not 0.
    pub fn run(&self, line: &str) -> Result<String> {
        let Output { status, stdout, stderr } = self.output(line)?;
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "`{line}`: {status}\n{stdout}\n{stderr}");
        Ok(stdout.into_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Killing `unshare` kills the init process (`--kill-child`), and with that all processes of its PID
        // namespace.
        process::kill(&mut self.process);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut end = self.host.command("unshare");
            end.args(["--mount", "sh", "-c", END]).env("CGROUP", &self.cgroup);
            if end.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}
