//! Environments that vanish with the process, however it ends: network namespaces without a name, and mount
//! namespaces with a BPF file system of their own.
//!
//! They are held by file descriptors alone. When the last of these is closed, by a drop or by the death of
//! the process, the kernel removes the interfaces and the BPF file system. With the pins go all programs,
//! maps and links.

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

/// The mount point of the BPF file system in a sandbox.
pub const BPFFS: &str = "/sys/fs/bpf";
const BPFFS_C: &CStr = c"/sys/fs/bpf";

/// The folder where limiter keeps the run-time lists of all instances. In a sandbox it is a file system in
/// memory.
const STATE: &str = "/var/lib";
const STATE_C: &CStr = c"/var/lib";

/// A network namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    descriptor: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes a network namespace with only a loopback interface, which is down.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_SYS_ADMIN.
    pub fn new() -> Result<Self> {
        let make = || {
            unshare(libc::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let file = on_thread(make).context("cannot make a network namespace")?;
        Ok(Self { descriptor: Arc::new(file.into()) })
    }

    /// Runs `work` on a thread in this namespace, and waits for it. A socket stays in the namespace that it
    /// was made in, whichever thread uses it.
    ///
    /// # Errors
    /// Fails if the thread cannot enter the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let enter = || {
            enter(self.descriptor.as_raw_fd())?;
            Ok(work())
        };
        on_thread(enter).context("cannot enter a network namespace")
    }

    /// A path to the namespace, valid while this process holds it open.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }
}

/// A mount namespace with a BPF file system at `/sys/fs/bpf` and a folder `/var/lib` of its own.
#[derive(Clone, Debug)]
pub struct Sandbox {
    mounts: Arc<OwnedFd>,
    inode: u64,
}

impl Sandbox {
    /// Makes a sandbox with an empty BPF file system.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_SYS_ADMIN.
    pub fn new() -> Result<Self> {
        Self::make(mount_bpffs).context("cannot make a mount namespace with a BPF file system")
    }

    /// Makes a sandbox without a BPF file system at `/sys/fs/bpf`.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_SYS_ADMIN.
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

    /// Builds a command that runs in the sandbox and in a network namespace. It is killed when the thread
    /// that starts it ends.
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
        // SAFETY: between fork and exec it only makes system calls.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Runs `work` on a thread in the sandbox and in a network namespace, and waits for it.
    ///
    /// # Errors
    /// Fails if the thread cannot enter the namespaces.
    pub fn inside<T: Send>(
        &self,
        namespace: &Namespace,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        let enter = || {
            enter(namespace.descriptor.as_raw_fd())?;
            // The kernel lets a thread enter a mount namespace only if it shares its working directory with
            // no other.
            unshare(libc::CLONE_FS)?;
            enter(self.mounts.as_raw_fd())?;
            Ok(work())
        };
        on_thread(enter).context("cannot enter the sandbox")
    }

    /// Lists the ids of the processes in the sandbox.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process that cannot be read has ended meanwhile.
            let namespace = fs::metadata(entry.path().join("ns/mnt"));
            if namespace.is_ok_and(|namespace| namespace.ino() == self.inode) {
                found.push(id);
            }
        }
        Ok(found)
    }
}

/// Mounts a file system in memory over `/var/lib`, so that the state of this machine is hidden and that of
/// the sandbox vanishes with it.
fn mount_state() -> io::Result<()> {
    // The folder is missing in the virtual machines that tests run in.
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

/// Runs `work` on a new thread, which leaves its namespaces when it ends. A panic is passed on to the caller.
fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    })
}
