//! Places that vanish with the process, however it ends: network namespaces without a name, and a
//! mount namespace with a BPF file system of its own.
//!
//! Both are held by descriptors alone. When the last of them is closed, by a `drop` or by the death
//! of the process, the kernel takes down the interfaces, the BPF file system and, with the pins in
//! it, every program, map and link.

use std::{
    ffi::{CStr, OsStr},
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{fs::MetadataExt as _, process::CommandExt as _},
    },
    panic::resume_unwind,
    process::Command,
    ptr,
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};

/// Where the BPF file system of a sandbox is mounted.
pub const BPFFS: &str = "/sys/fs/bpf";
const BPFFS_C: &CStr = c"/sys/fs/bpf";

/// Where limiter keeps the run-time lists of all instances, and other programs their state.
const STATE: &str = "/var/lib";
const STATE_C: &CStr = c"/var/lib";

/// A network namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    descriptor: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes one, with a loopback interface that is down and nothing else.
    ///
    /// # Errors
    /// What the system says; it takes CAP_SYS_ADMIN.
    pub fn new() -> Result<Self> {
        let make = || {
            unshare(libc::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let file = on_thread(make).context("cannot make a network namespace")?;
        Ok(Self { descriptor: Arc::new(file.into()) })
    }

    /// Runs `work` on a thread in this namespace, and waits for it. Sockets made there stay in the
    /// namespace wherever they are used.
    ///
    /// # Errors
    /// What the system says when the thread cannot enter.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || {
            enter(self.descriptor.as_raw_fd())?;
            Ok(work())
        };
        on_thread(enter).context("cannot enter a network namespace")
    }

    /// A path of the namespace, for as long as this process has it open.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }
}

/// A mount namespace in which `/sys/fs/bpf` and `/var/lib` are nobody else's.
#[derive(Clone, Debug)]
pub struct Sandbox {
    mounts: Arc<OwnedFd>,
    inode: u64,
}

impl Sandbox {
    /// Makes one with an empty BPF file system.
    ///
    /// # Errors
    /// What the system says; it takes CAP_SYS_ADMIN.
    pub fn new() -> Result<Self> {
        Self::make(mount_bpffs).context("cannot make a mount namespace with a BPF file system")
    }

    /// Makes one in which no BPF file system is mounted on `/sys/fs/bpf`.
    ///
    /// # Errors
    /// What the system says; it takes CAP_SYS_ADMIN.
    pub fn without_bpffs() -> Result<Self> {
        Self::make(unmount_bpffs).context("cannot make a mount namespace without BPF file system")
    }

    fn make(prepare: fn() -> io::Result<()>) -> io::Result<Self> {
        let make = || {
            unshare(libc::CLONE_NEWNS)?;
            mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
            mount_state()?;
            prepare()?;
            File::open("/proc/thread-self/ns/mnt")
        };
        let file = on_thread(make)?;
        let inode = file.metadata()?.ino();
        Ok(Self { mounts: Arc::new(file.into()), inode })
    }

    /// A command in the sandbox and a network namespace. It dies with the thread that starts it.
    #[must_use]
    pub fn command(&self, namespace: &Namespace, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let (mounts, network) = (Arc::clone(&self.mounts), Arc::clone(&namespace.descriptor));
        let prepare = move || {
            enter(network.as_raw_fd())?;
            enter(mounts.as_raw_fd())?;
            // SAFETY: the call has no pointers.
            check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
        };
        // SAFETY: between fork and exec it makes system calls and nothing else.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Runs `work` on a thread in the sandbox and a network namespace, and waits for it.
    ///
    /// # Errors
    /// What the system says when the thread cannot enter.
    pub fn inside<T: Send>(
        &self,
        namespace: &Namespace,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        let enter = || {
            enter(namespace.descriptor.as_raw_fd())?;
            // A thread that shares its working directory with others cannot change its mounts.
            unshare(libc::CLONE_FS)?;
            enter(self.mounts.as_raw_fd())?;
            Ok(work())
        };
        on_thread(enter).context("cannot enter the sandbox")
    }

    /// The processes in the sandbox.
    ///
    /// # Errors
    /// What the system says of `/proc`.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Gone meanwhile, if it cannot be read.
            let namespace = fs::metadata(entry.path().join("ns/mnt"));
            if namespace.is_ok_and(|namespace| namespace.ino() == self.inode) {
                found.push(id);
            }
        }
        Ok(found)
    }
}

/// Hides the state of this machine, and has that of the sandbox vanish with it.
fn mount_state() -> io::Result<()> {
    // A guest has the bare minimum of folders.
    fs::create_dir_all(STATE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"state", STATE_C, Some(c"tmpfs"), flags)
}

fn mount_bpffs() -> io::Result<()> {
    mount(c"bpf", BPFFS_C, Some(c"bpf"), libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn unmount_bpffs() -> io::Result<()> {
    loop {
        // SAFETY: a C string.
        match check(unsafe { libc::umount2(BPFFS_C.as_ptr(), libc::MNT_DETACH) }) {
            Ok(()) => {}
            // Nothing is mounted there any more.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: C strings, or null where none is needed.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) })
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    check(unsafe { libc::unshare(flags) })
}

fn enter(namespace: RawFd) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    check(unsafe { libc::setns(namespace, 0) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs `work` on a thread of its own, whose namespaces end with it. A panic there goes on here.
fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    })
}
