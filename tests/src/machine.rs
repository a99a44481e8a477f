//! A machine with systemd and dpkg, in namespaces: what is done to it is done to a copy in memory of the
//! files of this one.

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

/// Begins in a cgroup of its own, where systemd thinks that it has all of them.
const BEGIN: &str = "set -e
mount --make-rprivate /
mount -t cgroup2 none /run
mkdir /run/$CGROUP
echo $$ > /run/$CGROUP/cgroup.procs
umount /run
exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child sh -c \"$BOOT\"";
/// Removes the cgroup, once nobody is in it.
const END: &str = "mount --make-rprivate /
mount -t cgroup2 none /run
test ! -d /run/$CGROUP || find /run/$CGROUP -depth -type d -exec rmdir {} +";
const BOOT: &str = include_str!("machine/boot.sh");

/// How long it may take to boot.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running machine, which ends with this.
#[derive(Debug)]
pub struct Machine {
    host: Host,
    process: Child,
    /// Its first process, as this machine numbers it.
    init: String,
    cgroup: String,
}

impl Machine {
    /// Boots one that has the interfaces of a host, and a folder of this machine as `/tmp/shared`. It runs
    /// nothing but what systemd starts by itself.
    ///
    /// # Errors
    /// What the system says; it takes root, the Debian package `systemd`, and a cgroup hierarchy of
    /// version 2.
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

    /// Whether it has booted.
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
        // It is a shell until it has become systemd.
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

    /// A command of a shell on the machine.
    #[must_use]
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init, "--all", "--", "/usr/bin/env", "-i"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["LC_ALL=C", "sh", "-c", line]).stdin(Stdio::null());
        command
    }

    /// How a command ended, and what it wrote.
    ///
    /// # Errors
    /// That it cannot be run.
    pub fn output(&self, line: &str) -> Result<Output> {
        self.command(line).output().context("cannot run nsenter")
    }

    /// What a command printed, which has to end well.
    ///
    /// # Errors
    /// Also all that it wrote when it fails.
    pub fn run(&self, line: &str) -> Result<String> {
        let Output { status, stdout, stderr } = self.output(line)?;
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "`{line}`: {status}\n{stdout}\n{stderr}");
        Ok(stdout.into_owned())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With it goes its first process, and with that one all others.
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
