//! Formatting, clippy and documentation, with warnings denied.

use std::{env, panic::resume_unwind, process::Command, thread, time::Instant};

use anyhow::{Result, bail};

use crate::{
    child,
    libtest::Counts,
    outcome::Outcome,
    step,
    toolchain::{self, Toolchain},
    workspace::{self, HOST_CRATES, MESSAGES},
};

/// Runs every check.
pub(crate) fn run(toolchain: &Toolchain) -> Outcome {
    let start = Instant::now();
    let host = [
        ("format", format()),
        ("format, fuzz targets", format_fuzz()),
        (
            "clippy, host, with debug messages",
            clippy_host(toolchain, &MESSAGES, &["--all-targets"]),
        ),
        // With the same features as the documentation, so that dependencies are checked once.
        ("clippy, host", clippy_host(toolchain, &[], &[])),
        ("documentation", documentation(toolchain)),
    ];
    let bpf = [
        ("clippy, BPF target", clippy_bpf(toolchain, &[])),
        (
            "clippy, BPF target, with debug messages",
            clippy_bpf(toolchain, &["--features=messages"]),
        ),
    ];
    let count = host.len() + bpf.len();
    // The checks of the host wait for BPF objects, which one CPU links. Meanwhile the checks of the BPF half
    // run; their output is shown afterwards.
    let failures = thread::scope(|scope| {
        let bpf = scope.spawn(|| bpf.map(|(name, command)| (name, captured(command))));
        let mut failures = Vec::new();
        let mut fail = |name: &str, result: Result<()>| {
            failures.extend(result.err().map(|error| format!("{name}: {error:#}")));
        };
        for (name, mut command) in host {
            step::heading(name);
            fail(name, child::run(&mut command));
        }
        for (name, (lines, result)) in bpf.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            step::heading(name);
            lines.iter().for_each(|line| println!("{line}"));
            fail(name, result);
        }
        failures
    });
    let failed = failures.len();
    let counts = Counts { passed: count - failed, failed, ignored: 0 };
    Outcome { failures, ..Outcome::new("lint", counts, start) }
}

/// The output of a command, and whether it succeeds.
fn captured(mut command: Command) -> (Vec<String>, Result<()>) {
    let mut lines = Vec::new();
    let status = child::watch(&mut command, |line| lines.extend(line));
    let result = status.and_then(|status| match status.success() {
        true => Ok(()),
        false => bail!("`{}` failed ({status})", child::show(&command)),
    });
    (lines, result)
}

fn format() -> Command {
    let mut cargo = child::cargo();
    cargo.args(["fmt", "--all", "--check"]);
    cargo
}

/// The fuzz targets are in a workspace of their own.
fn format_fuzz() -> Command {
    let mut cargo = child::cargo();
    cargo.args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]);
    cargo
}

fn clippy_host(toolchain: &Toolchain, features: &[&str], targets: &[&str]) -> Command {
    let mut cargo = toolchain.cargo();
    cargo.arg("clippy").args(HOST_CRATES).args(features).args(targets);
    cargo.args(["--", "-D", "warnings"]);
    cargo
}

fn clippy_bpf(toolchain: &Toolchain, features: &[&str]) -> Command {
    let mut cargo = child::rustup_run(toolchain.name(), "cargo");
    cargo.args(["clippy", "--package", "limiter-ebpf", "--lib", "--bins", "--release"]);
    cargo.args(features).args(["--target", toolchain::target()]);
    if toolchain::is_nightly(toolchain.name()) {
        cargo.arg("-Zbuild-std=core");
    }
    // A folder of its own: two compilers would overwrite each other's results.
    cargo.arg("--target-dir").arg(workspace::root().join("target/bpf-clippy"));
    cargo.args(["--", "-D", "warnings"]);
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH));
    cargo
}

fn documentation(toolchain: &Toolchain) -> Command {
    let mut cargo = toolchain.cargo();
    cargo.arg("doc").args(HOST_CRATES).arg("--no-deps");
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    cargo
}
