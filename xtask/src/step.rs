//! A row of the set-up: its name, state, time and reason.

use std::{
    collections::VecDeque,
    env,
    io::{IsTerminal as _, Write as _, stdout},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::child;

/// Lines of the output of a failed command that are shown.
const TAIL: usize = 40;

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const CYAN: &str = "36";

/// Something to install or to do.
pub(crate) struct Step {
    /// The name.
    pub(crate) name: String,
    /// The reason, for the user.
    pub(crate) why: &'static str,
}

impl Step {
    pub(crate) fn new(name: impl Into<String>, why: &'static str) -> Self {
        Self { name: name.into(), why }
    }

    /// Prints that the thing is present already.
    pub(crate) fn there(&self) {
        println!("{}", self.row(GREEN, "already there", "", self.why));
    }

    /// Prints that the thing is missing.
    pub(crate) fn missing(&self) {
        println!("{}", self.row(YELLOW, "missing", "", self.why));
    }

    /// Runs the command that installs it. On a terminal the row shows the last line of output meanwhile. If
    /// the command fails, the end of its output is printed, and the error contains `remedy`.
    pub(crate) fn run(&self, command: &mut Command, remedy: &str) -> Result<()> {
        let start = Instant::now();
        let live = stdout().is_terminal();
        if !live {
            println!("{}", self.row(CYAN, "in progress", "", self.why));
        }
        let mut tail = VecDeque::with_capacity(TAIL);
        let mut latest = self.why.to_owned();
        let status = child::watch(command, |line| {
            if let Some(line) = line {
                line.trim().clone_into(&mut latest);
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            if live {
                let row = self.row(CYAN, "in progress", &seconds(start.elapsed()), &latest);
                // Without automatic wrapping, the terminal cuts a long line at its width.
                print!("\r\x1b[2K\x1b[?7l{row}\x1b[?7h");
                let _ = stdout().flush();
            }
        })?;
        if live {
            print!("\r\x1b[2K");
        }
        let took = seconds(start.elapsed());
        if !status.success() {
            println!("{}", self.row(RED, "failed", &took, self.why));
            for line in tail {
                println!("    {line}");
            }
            bail!("{}: `{}` failed ({status}); {remedy}", self.name, child::show(command));
        }
        println!("{}", self.row(GREEN, "done", &took, self.why));
        Ok(())
    }

    fn row(&self, colour: &str, state: &str, took: &str, note: &str) -> String {
        let state = paint(colour, &format!("{state:<13}"));
        format!("  {:<25}  {state}  {took:>7}  {note}", self.name)
    }
}

/// A duration in seconds, with one decimal.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Prints a heading.
pub(crate) fn heading(text: &str) {
    println!("\n{}", paint("1", &format!("== {text}")));
}

/// The text in a colour, if standard output is a terminal and NO_COLOR is not set.
pub(crate) fn paint(colour: &str, text: &str) -> String {
    if stdout().is_terminal() && env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// The tasks that need something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Building the binaries and the BPF object.
    Build,
    /// Format and clippy.
    Lint,
    /// Real packets: tests, demonstration and benchmark.
    Traffic,
    /// Packages: releases, and tests of them.
    Dist,
    /// The trial of a package on other roots.
    Trial,
    /// Prometheus, CrowdSec, proxies and schemathesis: tests of the command line.
    Servers,
    /// nginx alone: the demonstration of requests.
    Nginx,
    /// Building and running the fuzz targets.
    Fuzz,
    /// Other kernels, and the emulator that boots them.
    Kernels,
}

/// What the set-up may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Install missing things.
    Install,
    /// Report missing things.
    Report,
}
