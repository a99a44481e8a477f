//! Running `limiter`.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::topology::Host;

/// The variable with the path of the binary.
pub const VARIABLE: &str = "LIMITER_BIN";

/// The binary to run: what [`VARIABLE`] says, otherwise what was built beside this executable.
///
/// # Errors
/// That there is none.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .with_context(|| format!("there is no {}, which {VARIABLE} names", path.display()));
    }
    let own = env::current_exe().context("cannot find the path of this executable")?;
    // Tests are in a folder below the one of binaries.
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("limiter"));
    found.into_iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "there is no limiter beside {}: build it with `cargo build --bin limiter`, or name one \
             in {VARIABLE}",
            own.display()
        )
    })
}

/// `limiter` on a host.
#[derive(Clone, Debug)]
pub struct Limiter {
    host: Host,
    binary: PathBuf,
}

impl Limiter {
    /// The binary that was built, on this host.
    ///
    /// # Errors
    /// That there is none.
    pub fn new(host: &Host) -> Result<Self> {
        Ok(Self { host: host.clone(), binary: binary()? })
    }

    /// The path of the binary.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.binary
    }

    /// A command with these arguments, separated by spaces.
    #[must_use]
    pub fn run(&self, arguments: &str) -> LimiterCommand {
        self.with(arguments.split_whitespace())
    }

    /// A command with these arguments.
    #[must_use]
    pub fn with<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> LimiterCommand {
        let mut command = self.host.sandbox.command(&self.host.namespace, &self.binary);
        // Nothing of the operator's own instance or taste.
        command.env_remove("LIMITER_BPFFS").env_remove("NO_COLOR");
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        command.args(&arguments).stdin(Stdio::null());
        LimiterCommand { command, arguments }
    }
}

/// A `limiter` command that was not run yet.
#[derive(Debug)]
pub struct LimiterCommand {
    command: Command,
    arguments: Vec<OsString>,
}

impl LimiterCommand {
    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Says where its standard output goes, instead of to [`Outcome::stdout`].
    #[must_use]
    pub fn to(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// Runs it as a user without any privilege, wherever the binary is.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        // SAFETY: between fork and exec it makes system calls and nothing else. It runs after the
        // one that enters the sandbox, which was added before.
        unsafe { self.command.pre_exec(become_nobody) };
        self
    }

    /// Starts it with its output where [`to`](Self::to) said, or to this process's, and its messages
    /// to a pipe. The thread that starts it has to outlive it.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(mut self) -> Result<Child> {
        self.command.stderr(Stdio::piped());
        self.command.spawn().with_context(|| format!("cannot run {}", self.line()))
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// That it cannot be run, was ended by a signal, or wrote what is not UTF-8.
    pub fn outcome(mut self) -> Result<Outcome> {
        let line = self.line();
        let Output { status, stdout, stderr } =
            self.command.output().with_context(|| format!("cannot run {line}"))?;
        let code = status.code().with_context(|| format!("{line} was ended: {status}"))?;
        let text = |bytes| String::from_utf8(bytes).with_context(|| format!("{line}: not UTF-8"));
        let (stdout, stderr) = (text(stdout)?, text(stderr)?);
        Ok(Outcome { line, code, stdout, stderr })
    }

    /// Runs it to its end, which has to be a good one.
    ///
    /// # Errors
    /// Also what it says when it fails.
    pub fn done(self) -> Result<Outcome> {
        let outcome = self.outcome()?;
        let Outcome { line, code, stderr, .. } = &outcome;
        ensure!(*code == 0, "{line} failed with exit code {code}:\n{}", stderr.trim_end());
        Ok(outcome)
    }

    /// Runs it to a good end, and reads what it printed as JSON.
    ///
    /// # Errors
    /// Also that it printed no JSON, or more than one value.
    pub fn json(self) -> Result<Value> {
        let Outcome { line, stdout, .. } = self.done()?;
        serde_json::from_str(&stdout).with_context(|| format!("{line} printed no JSON: {stdout}"))
    }

    fn line(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| argument.to_string_lossy());
        let words = std::iter::once("limiter".into()).chain(arguments);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Gives up all privilege but that of finding the binary in a folder that is closed to others; the
/// exec that follows gives up that one too.
fn become_nobody() -> io::Result<()> {
    const UNTRACKED: libc::uid_t = 65534;
    /// `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        process: i32,
    }
    /// `struct __user_cap_data_struct`.
    #[repr(C)]
    struct Capabilities {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_DAC_READ_SEARCH: u32 = 1 << 2;
    let header = Header { version: VERSION_3, process: 0 };
    let capabilities = [
        Capabilities {
            effective: CAP_DAC_READ_SEARCH,
            permitted: CAP_DAC_READ_SEARCH,
            inheritable: 0,
        },
        Capabilities { effective: 0, permitted: 0, inheritable: 0 },
    ];
    // SAFETY: calls without pointers, but for an empty list of groups, and for a header and the two
    // elements that this version of it stands for.
    let given_up = unsafe {
        libc::prctl(libc::PR_SET_KEEPCAPS, 1) == 0
            && libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(UNTRACKED) == 0
            && libc::setuid(UNTRACKED) == 0
            && libc::syscall(libc::SYS_capset, &raw const header, capabilities.as_ptr()) == 0
    };
    if given_up { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How a command ended and what it wrote.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command.
    pub line: String,
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

impl Outcome {
    /// Asserts how it ended.
    ///
    /// # Panics
    /// With all that the command wrote.
    #[track_caller]
    pub fn assert_exit_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "exit code of {self}");
        self
    }

    /// Asserts that all of these are in what it said, in any case.
    ///
    /// # Panics
    /// With all that the command wrote.
    #[track_caller]
    pub fn assert_says(&self, words: &[&str]) -> &Self {
        let said = self.stderr.to_lowercase();
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "no `{word}` in the messages of {self}");
        }
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, code, stdout, stderr } = self;
        write!(f, "`{line}`: exit code {code}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}
