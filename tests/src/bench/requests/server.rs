//! The bridge that is measured.

use std::{
    env, fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::{
    command::binary,
    process::terminate,
    sandbox::{Namespace, Sandbox},
};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// A limit that lets all requests of the known sources pass.
pub(super) const POLICY: &str = "version: 1
limits:
  - { name: known, on: requests, key: source, rate: 1000000/s, burst: 1000000 }
";

/// A folder for sockets and files of servers, which is removed when this is dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// With this name among those of this process, and with the document of a policy.
    pub(super) fn new(name: &str, policy: &str) -> Result<Self> {
        let path = env::temp_dir().join(format!("limiter-bench-{}-{name}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let folder = Self(path);
        folder.write("policy.yaml", policy)?;
        Ok(folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        let _: std::io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

/// What the scheduler did with threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scheduled {
    /// How long they ran.
    pub(super) ran: Duration,
    /// How long they could have run, and had no CPU.
    pub(super) waited: Duration,
}

impl Scheduled {
    /// Reads it of a thread, from its `schedstat`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let mut times = text.split(' ').map(|it| it.parse().map(Duration::from_nanos));
        match (times.next(), times.next()) {
            (Some(Ok(ran)), Some(Ok(waited))) => Ok(Self { ran, waited }),
            _ => bail!("{} does not tell two times: {text}", path.display()),
        }
    }

    /// Reads it of this thread.
    pub(super) fn of_this_thread() -> Result<Self> {
        Self::read(Path::new("/proc/thread-self/schedstat"))
    }
}

/// A server whose threads are known.
pub(super) trait Scheduling {
    /// What the scheduler did with all of its threads.
    fn scheduled(&self) -> Result<Scheduled>;
}

/// A server on the CPU that this thread had when it started it; it is stopped when this is dropped.
pub(super) struct Server(Child);

impl Server {
    /// Starts a server and waits until it answers.
    pub(super) fn start(command: &mut Command, answers: impl Fn() -> bool) -> Result<Self> {
        let mut server =
            Self(command.stdin(Stdio::null()).spawn().context("cannot start a server")?);
        let begin = Instant::now();
        while !answers() {
            let ended = server.0.try_wait().context("cannot wait for a server")?;
            ensure!(ended.is_none(), "a server ended: {command:?}");
            ensure!(begin.elapsed() < PATIENCE, "a server does not answer: {command:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its memory, in bytes.
    pub(super) fn resident(&self) -> Result<u64> {
        resident(self.0.id())
    }
}

impl Scheduling for Server {
    fn scheduled(&self) -> Result<Scheduled> {
        let mut all = Scheduled::default();
        for task in fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let Scheduled { ran, waited } = Scheduled::read(&task?.path().join("schedstat"))?;
            all = Scheduled { ran: all.ran + ran, waited: all.waited + waited };
        }
        Ok(all)
    }
}

/// The memory of a process, in bytes.
pub(super) fn resident(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(1_024 * kibibytes.with_context(|| format!("{path} does not tell VmRSS"))?)
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            // There is nobody to tell.
            let _: std::io::Result<_> = terminate(&mut self.0);
        }
    }
}

/// Starts a bridge that answers in this folder, with more options.
pub(super) fn bridge(
    sandbox: &Sandbox,
    network: &Namespace,
    folder: &Folder,
    options: &[&str],
) -> Result<Server> {
    let mut command = sandbox.command(network, binary()?);
    command.arg("bridge").arg("--policy").arg(folder.path("policy.yaml")).args(options);
    for (option, name) in SOCKETS {
        command.arg(option).arg(format!("unix:{}", folder.path(name).display()));
    }
    command.stdout(Stdio::null());
    let answers = || SOCKETS.iter().all(|(_, name)| UnixStream::connect(folder.path(name)).is_ok());
    Server::start(&mut command, answers)
}

/// Where it answers by HTTP.
pub(super) const HTTP: &str = "bridge.sock";
/// Where it answers by gRPC.
pub(super) const GRPC: &str = "grpc.sock";
/// Where it answers by SPOP.
pub(super) const SPOP: &str = "spop.sock";
const SOCKETS: [(&str, &str); 3] = [("--listen", HTTP), ("--grpc", GRPC), ("--spop", SPOP)];
