//! Runs other programs.

use std::{
    env,
    ffi::OsString,
    io::{BufRead as _, BufReader, Read},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// How often [`watch`] calls `report` while the child prints nothing.
const TICK: Duration = Duration::from_millis(200);

/// The cargo that runs xtask, started in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(workspace::root());
    command
}

/// A program of a rustup toolchain, started in the root of the workspace.
pub(crate) fn rustup_run(toolchain: &str, program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, program]).current_dir(workspace::root());
    command
}

/// The trimmed standard output of a command; `None` if it cannot be run or fails.
pub(crate) fn query(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a command on the terminal of xtask. Fails if its exit code is not 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and passes each line of its standard output and standard error to `report`, and `None`
/// whenever [`TICK`] has passed without a line.
pub(crate) fn watch(
    command: &mut Command,
    mut report: impl FnMut(Option<String>),
) -> Result<ExitStatus> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        forward_lines(stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        forward_lines(stderr, sender);
    }
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => report(Some(line)),
            Err(RecvTimeoutError::Timeout) => report(None),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    child.wait().with_context(|| format!("cannot wait for `{shown}`"))
}

/// The command line, for messages.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Sends every line of a stream to `sender` from a thread of its own, until the stream or the receiver ends.
pub(crate) fn forward_lines(stream: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
}
