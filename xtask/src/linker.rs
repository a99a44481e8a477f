//! Installs bpf-linker, which turns LLVM bitcode into a BPF object.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::{
    child,
    step::{Extent, Step},
    toolchain::Toolchain,
    tools::on_path,
    workspace,
};

const VERSION: &str = "0.13.0";

/// The folder of Debian's `llvm-22-dev`. Without it the build of bpf-linker only searches `/usr/lib`.
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// Installs a bpf-linker that fits the toolchain if it is missing; returns the number of things still
/// missing.
pub(crate) fn provide(toolchain: &Toolchain, extent: Extent) -> Result<usize> {
    let step = Step::new(
        format!("bpf-linker {VERSION}"),
        "links the BPF half into one object with BTF, on the compiler's own LLVM",
    );
    let ours = workspace::tools().join("bin/bpf-linker");
    let there = match toolchain {
        // A bpf-linker on the PATH may be built with another LLVM.
        Toolchain::Distro => is_current(&ours),
        Toolchain::Rustup(_) => on_path().is_some() || is_current(&ours),
    };
    if there {
        step.there();
        return Ok(0);
    }
    if extent == Extent::Report {
        step.missing();
        return Ok(1);
    }
    if *toolchain != Toolchain::Distro {
        step.missing();
        bail!(
            "bpf-linker is not on the PATH: install it on the LLVM of toolchain {} \
             (`cargo binstall bpf-linker`)",
            toolchain.name()
        );
    }
    println!("  The next step compiles bpf-linker, which takes about 3 minutes on two CPUs, once.");
    let mut install = child::cargo();
    // An unoptimised build takes half the time. The work is done in LLVM, which is already built.
    install
        .args(["install", "bpf-linker", "--locked", "--version", VERSION, "--force", "--debug"])
        .args(["--no-default-features", "--features", "llvm-22", "--root"])
        .arg(workspace::tools())
        .env("LLVM_PREFIX", LLVM_PREFIX);
    step.run(&mut install, "check the network, and that llvm-22-dev is wholly installed")?;
    Ok(0)
}

/// Runs it, because a bpf-linker whose LLVM library is gone does not count.
fn is_current(linker: &Path) -> bool {
    child::query(Command::new(linker).arg("--version"))
        .is_some_and(|version| version == format!("bpf-linker {VERSION}"))
}
