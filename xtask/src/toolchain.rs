//! The compiler for the BPF half: which one is used, and what it lacks.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    child,
    step::{Extent, Step},
    tools, workspace,
};

/// The environment variable with the rustup toolchain to use. The build script of `limiter-userspace` reads
/// it too.
pub(crate) const VARIABLE: &str = "LIMITER_BPF_TOOLCHAIN";

/// The name under which Debian's compiler is linked into rustup.
const DISTRO: &str = "distro-bpf";

/// The LLVM version of Debian's `rustc-web` and of the bpf-linker installed here.
const DISTRO_LLVM: &str = "22";

/// A compiler for the BPF half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// Debian's `rustc-web`, with `core` for BPF from a package.
    Distro,
    /// A rustup toolchain: nightly with `rust-src`, or one with a built `core` for BPF.
    Rustup(String),
}

impl Toolchain {
    /// Its name in rustup.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Distro => DISTRO,
            Self::Rustup(name) => name,
        }
    }

    /// The cargo command for the host crates, whose build script builds the BPF half with this toolchain.
    ///
    /// By default the build script prefers the linked Debian compiler to nightly. The variable is set only if
    /// that would be wrong, because cargo rebuilds whenever it changes.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = child::cargo();
        if let Self::Rustup(name) = self
            && sysroot(DISTRO).is_some()
        {
            cargo.env(VARIABLE, name);
        }
        cargo
    }
}

/// What is present on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// rustup has a toolchain named `nightly`.
    pub(crate) nightly: bool,
    /// This toolchain has the sources of `core`.
    pub(crate) rust_src: bool,
    /// bpf-linker is on the `PATH`.
    pub(crate) bpf_linker: bool,
}

impl Found {
    fn look() -> Self {
        let sysroot = sysroot("nightly");
        Self {
            nightly: sysroot.is_some(),
            rust_src: sysroot.is_some_and(|sysroot| has_sources(&sysroot)),
            bpf_linker: tools::on_path().is_some(),
        }
    }
}

/// The toolchain for the BPF half, and the reason for the choice.
pub(crate) fn choose() -> (Toolchain, String) {
    let wanted = env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    decide(wanted.as_deref(), Found::look())
}

fn decide(wanted: Option<&str>, found: Found) -> (Toolchain, String) {
    if let Some(name) = wanted {
        let toolchain =
            if name == DISTRO { Toolchain::Distro } else { Toolchain::Rustup(name.to_owned()) };
        return (toolchain, format!("{name}, because {VARIABLE} says so."));
    }
    let lacking: Vec<&str> = [
        (found.nightly, "the toolchain itself"),
        (found.rust_src, "its component rust-src"),
        (found.bpf_linker, "bpf-linker on the PATH"),
    ]
    .into_iter()
    .filter_map(|(there, what)| (!there).then_some(what))
    .collect();
    if lacking.is_empty() {
        let why = "rustup's nightly, because rust-src and bpf-linker are there too; Debian's \
                   packages for BPF are not needed.";
        (Toolchain::Rustup("nightly".to_owned()), why.to_owned())
    } else {
        let why = format!(
            "Debian's rustc-web, known to rustup as {DISTRO}; rustup's nightly would be taken \
             instead, but lacks {}.",
            lacking.join(" and ")
        );
        (Toolchain::Distro, why)
    }
}

/// Makes the toolchain available in rustup and able to compile for BPF; returns the number of things still
/// missing.
pub(crate) fn provide(toolchain: &Toolchain, extent: Extent) -> Result<usize> {
    match toolchain {
        Toolchain::Distro => link_distro(extent),
        Toolchain::Rustup(name) => check_rustup(name, extent),
    }
}

fn link_distro(extent: Extent) -> Result<usize> {
    let step = Step::new(
        format!("toolchain {DISTRO}"),
        "Debian's compiler under a name of rustup, which the build script runs",
    );
    if sysroot(DISTRO).is_some() {
        step.there();
    } else if extent == Extent::Report {
        step.missing();
        return Ok(1);
    } else {
        let mut link = Command::new("rustup");
        link.args(["toolchain", "link", DISTRO, "/usr"]);
        step.run(&mut link, "see `rustup toolchain list -v`")?;
    }
    let version = child::query(child::rustup_run(DISTRO, "rustc").arg("-vV"))
        .with_context(|| format!("`rustup run {DISTRO} rustc -vV` fails: is rustc-web there?"))?;
    match llvm_major(&version) {
        Some(DISTRO_LLVM) => Ok(0),
        other => bail!(
            "the rustc of toolchain {DISTRO} is built on LLVM {}, and bpf-linker here on LLVM \
             {DISTRO_LLVM}: bring rustc-web up to date from Debian's security updates",
            other.unwrap_or("of an unknown version")
        ),
    }
}

fn check_rustup(name: &str, extent: Extent) -> Result<usize> {
    let step = Step::new(format!("toolchain {name}"), "compiles the BPF half, `core` included");
    let remedy = match sysroot(name) {
        Some(sysroot) if compiles_bpf(name, &sysroot) => {
            step.there();
            return Ok(0);
        }
        Some(_) => format!("`rustup component add rust-src --toolchain {name}`, on a nightly"),
        None => format!("`rustup toolchain install {name} --component rust-src`, for a nightly"),
    };
    step.missing();
    if extent == Extent::Report {
        return Ok(1);
    }
    bail!("toolchain {name} cannot compile for BPF: {remedy}; or unset {VARIABLE}")
}

/// aya-build compiles `core` itself if and only if the compiler is a nightly.
fn compiles_bpf(name: &str, sysroot: &Path) -> bool {
    if is_nightly(name) {
        has_sources(sysroot)
    } else {
        sysroot.join("lib/rustlib").join(target()).is_dir()
    }
}

/// Whether cargo compiles `core` for BPF with this toolchain.
pub(crate) fn is_nightly(name: &str) -> bool {
    child::query(child::rustup_run(name, "rustc").arg("--version"))
        .is_some_and(|version| version.contains("-nightly"))
}

/// The target of BPF programs, in the byte order of this machine.
pub(crate) fn target() -> &'static str {
    if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" }
}

fn sysroot(toolchain: &str) -> Option<PathBuf> {
    child::query(child::rustup_run(toolchain, "rustc").args(["--print", "sysroot"]))
        .map(PathBuf::from)
}

fn has_sources(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core").is_dir()
}

/// The number `N` in the line `LLVM version: N.x.y` of `rustc -vV`.
fn llvm_major(version: &str) -> Option<&str> {
    let full = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    full.split('.').next()
}

/// Fails if rustup is not installed.
pub(crate) fn require_rustup() -> Result<()> {
    if workspace::find_program("rustup").is_none() {
        bail!("rustup is not on the PATH: install Rust from https://rustup.rs and run this again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Found = Found { nightly: true, rust_src: true, bpf_linker: true };

    #[test]
    fn a_complete_nightly_is_taken() {
        let (toolchain, why) = decide(None, ALL);
        assert_eq!(toolchain, Toolchain::Rustup("nightly".to_owned()));
        assert!(why.contains("not needed"), "{why}");
    }

    #[test]
    fn an_incomplete_nightly_gives_way_to_debian_and_says_what_it_lacks() {
        let (toolchain, why) = decide(None, Found { rust_src: false, ..ALL });
        assert_eq!(toolchain, Toolchain::Distro);
        assert!(why.ends_with("lacks its component rust-src."), "{why}");

        let (toolchain, why) = decide(None, Found { bpf_linker: false, ..ALL });
        assert_eq!(toolchain, Toolchain::Distro);
        assert!(why.ends_with("lacks bpf-linker on the PATH."), "{why}");

        let nothing = Found { nightly: false, rust_src: false, bpf_linker: false };
        let (toolchain, why) = decide(None, nothing);
        assert_eq!(toolchain, Toolchain::Distro);
        assert!(why.contains("the toolchain itself and its component rust-src"), "{why}");
    }

    #[test]
    fn the_variable_overrides_what_is_there() {
        let (toolchain, why) = decide(Some("nightly-2026-05-20"), ALL);
        assert_eq!(toolchain, Toolchain::Rustup("nightly-2026-05-20".to_owned()));
        assert!(why.contains(VARIABLE), "{why}");
        assert_eq!(decide(Some(DISTRO), ALL).0, Toolchain::Distro);
    }

    #[test]
    fn the_major_version_of_llvm_is_read() {
        assert_eq!(llvm_major("rustc 1.96.0\nhost: x\nLLVM version: 22.1.8\n"), Some("22"));
        assert_eq!(llvm_major("rustc 1.96.0\n"), None);
    }
}
