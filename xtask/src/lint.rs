//! Formatting, clippy and documentation, with warnings denied.

use std::{env, process::Command};

use anyhow::Result;

use crate::{
    child, step,
    toolchain::{self, Toolchain},
    workspace::{self, HOST_CRATES, MESSAGES},
};

/// Runs every check; gives how many there are and how many failed.
pub(crate) fn run(toolchain: &Toolchain) -> Result<(usize, usize)> {
    let checks = [
        ("format", format()),
        ("format, fuzz targets", format_fuzz()),
        (
            "clippy, host, with debug messages",
            clippy_host(toolchain, &MESSAGES, &["--all-targets"]),
        ),
        // As it ships: what the documentation is made of, so that the crates that it needs are checked once.
        ("clippy, host", clippy_host(toolchain, &[], &[])),
        ("documentation", documentation(toolchain)),
        ("clippy, BPF target", clippy_bpf(toolchain, &[])),
        (
            "clippy, BPF target, with debug messages",
            clippy_bpf(toolchain, &["--features=messages"]),
        ),
    ];
    let count = checks.len();
    let mut failed = 0;
    for (name, mut command) in checks {
        step::heading(name);
        if let Err(error) = child::run(&mut command) {
            println!("{error:#}");
            failed += 1;
        }
    }
    Ok((count, failed))
}

fn format() -> Command {
    let mut cargo = child::cargo();
    cargo.args(["fmt", "--all", "--check"]);
    cargo
}

/// The fuzz targets are a workspace of their own.
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
    // Another compiler: in the same folder each would throw away what the other has built.
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
