//! Runs the `limiter` command and checks what it prints.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{self, Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::topology::Host;

/// The environment variable with the path of the `limiter` binary to test.
pub const VARIABLE: &str = "LIMITER_BIN";

/// Returns the path of the `limiter` binary: that in [`VARIABLE`], else `limiter` beside or above this
/// executable.
///
/// # Errors
/// Fails if there is no such file.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .with_context(|| format!("there is no {}, which {VARIABLE} names", path.display()));
    }
    let own = env::current_exe().context("cannot find the path of this executable")?;
    // Cargo puts test executables in `deps`, one folder below the binaries.
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join("limiter"));
    found.into_iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "there is no limiter beside {}: build it with `cargo build --bin limiter`, or name one \
             in {VARIABLE}",
            own.display()
        )
    })
}

/// The `limiter` binary, run in the namespaces of one host.
#[derive(Clone, Debug)]
pub struct Limiter {
    host: Host,
    binary: PathBuf,
}

impl Limiter {
    /// Finds the [`binary`] and binds it to `host`.
    ///
    /// # Errors
    /// Fails if there is no binary.
    pub fn new(host: &Host) -> Result<Self> {
        Ok(Self { host: host.clone(), binary: binary()? })
    }

    /// The path of the binary.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.binary
    }

    /// Builds a command from arguments that are separated by white space.
    #[must_use]
    pub fn run(&self, arguments: &str) -> LimiterCommand {
        self.with(arguments.split_whitespace())
    }

    /// Builds a command from a list of arguments.
    #[must_use]
    pub fn with<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> LimiterCommand {
        let mut command = self.host.sandbox.command(&self.host.namespace, &self.binary);
        // The operator's own instance and colour setting must not change the output.
        command.env_remove("LIMITER_BPFFS").env_remove("NO_COLOR");
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        command.args(&arguments).stdin(Stdio::null());
        LimiterCommand { command, arguments }
    }
}

/// A `limiter` command that has not been run yet.
#[derive(Debug)]
pub struct LimiterCommand {
    pub(crate) command: Command,
    arguments: Vec<OsString>,
}

impl LimiterCommand {
    /// Sets an environment variable of the command.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives the command a text on standard input, which is otherwise empty.
    ///
    /// # Errors
    /// Fails if the text cannot be kept in a file.
    pub fn input(mut self, text: &[u8]) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("limiter-input-{}-{number}", process::id()));
        let kept = fs::write(&path, text).and_then(|()| fs::File::open(&path));
        fs::remove_file(&path).and(kept).map(|file| self.command.stdin(file))?;
        Ok(self)
    }

    /// Redirects the standard output, which is otherwise kept in [`Outcome::stdout`].
    #[must_use]
    pub fn to(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// Gives the command a standard input, which is otherwise empty.
    #[must_use]
    pub fn reading(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Runs the command as `nobody`, even if the binary lies in a folder that only root may read.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        // SAFETY: between fork and exec it only makes system calls. It runs after the hook that enters the
        // sandbox, which was added first.
        unsafe { self.command.pre_exec(become_nobody) };
        self
    }

    /// Starts the command without waiting for it. Standard output goes where [`to`](Self::to) said, else to
    /// that of this process; standard error goes to a pipe. The command is killed when the thread that
    /// started it ends.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn start(mut self) -> Result<Child> {
        self.command.stderr(Stdio::piped());
        self.command.spawn().with_context(|| format!("cannot run {}", self.line()))
    }

    /// Runs the command and waits for its end.
    ///
    /// # Errors
    /// Fails if the command cannot be run, is killed by a signal, or writes output that is not UTF-8.
    pub fn outcome(mut self) -> Result<Outcome> {
        let line = self.line();
        let Output { status, stdout, stderr } =
            self.command.output().with_context(|| format!("cannot run {line}"))?;
        let code = status.code().with_context(|| format!("{line} was ended: {status}"))?;
        let text = |bytes| String::from_utf8(bytes).with_context(|| format!("{line}: not UTF-8"));
        let (stdout, stderr) = (text(stdout)?, text(stderr)?);
        Ok(Outcome { line, code, stdout, stderr })
    }

    /// Runs the command and expects exit code 0.
    ///
    /// # Errors
    /// As for [`outcome`](Self::outcome), and if the exit code is not 0.
    pub fn done(self) -> Result<Outcome> {
        let outcome = self.outcome()?;
        let Outcome { line, code, stderr, .. } = &outcome;
        ensure!(*code == 0, "{line} failed with exit code {code}:\n{}", stderr.trim_end());
        Ok(outcome)
    }

    /// Runs the command, expects exit code 0, and parses its standard output as JSON.
    ///
    /// # Errors
    /// As for [`done`](Self::done), and if standard output is not exactly one JSON value.
    pub fn json(self) -> Result<Value> {
        let Outcome { line, stdout, .. } = self.done()?;
        serde_json::from_str(&stdout).with_context(|| format!("{line} printed no JSON: {stdout}"))
    }

    pub(crate) fn line(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| argument.to_string_lossy());
        let words = std::iter::once("limiter".into()).chain(arguments);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Gives up all privileges except `CAP_DAC_READ_SEARCH`, with which exec finds a binary in a folder that is
/// closed to others. The exec drops that one too.
fn become_nobody() -> io::Result<()> {
    const NOBODY: libc::uid_t = 65534;
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
    // SAFETY: calls without pointers, except for an empty list of groups, a header, and the two elements of
    // capability data that version 3 of the header announces.
    let given_up = unsafe {
        libc::prctl(libc::PR_SET_KEEPCAPS, 1) == 0
            && libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(NOBODY) == 0
            && libc::setuid(NOBODY) == 0
            && libc::syscall(libc::SYS_capset, &raw const header, capabilities.as_ptr()) == 0
    };
    if given_up { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The exit code and the output of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command line, as it is shown in messages.
    pub line: String,
    /// Its exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// Asserts the exit code.
    ///
    /// # Panics
    /// If it differs, with all output of the command.
    #[track_caller]
    pub fn assert_exit_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "exit code of {self}");
        self
    }

    /// Asserts that every one of `words` occurs in standard error; upper and lower case are the same.
    ///
    /// # Panics
    /// If one is missing, with all output of the command.
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
