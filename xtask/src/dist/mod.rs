//! `cargo xtask dist`: a Debian package, an RPM and an archive with the same files, and their checksums.

mod archive;
mod debian;
mod elf;
mod rpm;
mod stage;
mod trial;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::stage::Stage;
use crate::{
    child, setup,
    step::{self, Extent, Use},
    workspace,
};

/// The target that packages are made for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The version from which a trial upgrades.
const BEFORE: &str = "0.0.1";

/// What is packed.
#[derive(Args)]
pub(crate) struct Dist {
    /// Pack this binary instead of building one
    #[arg(long, value_name = "FILE", hide = true)]
    binary: Option<PathBuf>,
    /// The version of the packages, if it is not that of the workspace
    #[arg(long, value_name = "VERSION", hide = true)]
    version: Option<String>,
    /// Where they go to [default: target/dist]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Also install, run, upgrade and purge the Debian package on roots of Debian 12 and 13, as root
    #[arg(long = "try")]
    is_tried: bool,
}

impl Dist {
    pub(crate) fn run(self) -> Result<()> {
        let binary = match self.binary {
            Some(binary) => binary,
            None => build()?,
        };
        step::heading("pack");
        let version = self.version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
        let output = self.output.unwrap_or_else(|| workspace::root().join("target/dist"));
        let time = time()?;
        let stage = Stage::make(&output.join("files"), &binary)?;
        let archive = archive::pack(&stage, &output, &version, time)?;
        let rpm = rpm::pack(&stage, &output, &version, time)?;
        // Last: it changes what is staged.
        let deb = debian::pack(&stage, &output, &version, time)?;
        stage.remove()?;
        if self.is_tried {
            setup::setup(&[Use::Dist, Use::Trial], Extent::Install)?;
            let folder = output.join("before");
            let stage = Stage::make(&folder.join("files"), &binary)?;
            trial::run(&debian::pack(&stage, &folder, BEFORE, time)?, &deb)?;
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let packages = [archive, rpm, deb];
        let sums = checksums(&output, &packages)?;
        for file in packages.iter().chain([&sums]) {
            println!("{}", file.display());
        }
        Ok(())
    }
}

/// Builds the binary statically, so that it needs no library of the machine that it runs on.
fn build() -> Result<PathBuf> {
    let toolchain = setup::setup(&[Use::Build, Use::Dist], Extent::Install)?;
    step::heading("build");
    let root = workspace::root().to_str().context("the path of the workspace is not UTF-8")?;
    let mut cargo = toolchain.cargo();
    cargo.args(["build", "--release", "--target", TARGET]);
    cargo.args(["--package", "limiter-userspace", "--bin", "limiter"]);
    // Flags for this target only: build scripts, which run on this machine, are not static.
    let mut flags = format!("-Ctarget-feature=+crt-static --remap-path-prefix={root}=limiter");
    // Backtraces must not show local paths.
    if let Some(home) = cargo_home() {
        flags.push_str(&format!(" --remap-path-prefix={home}=cargo"));
    }
    cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", flags);
    child::run(&mut cargo)?;
    let binary = workspace::target()?.join(TARGET).join("release/limiter");
    if !elf::is_static(&binary)? {
        bail!("{} is not linked statically", binary.display());
    }
    Ok(binary)
}

/// Writes the checksums of the packages, in the form that `sha256sum --check` reads.
fn checksums(output: &Path, packages: &[PathBuf]) -> Result<PathBuf> {
    let names = packages.iter().filter_map(|package| package.file_name());
    let mut sums = Command::new("sha256sum");
    let sums = child::query(sums.args(names).current_dir(output))
        .context("cannot run sha256sum (Debian package coreutils)")?;
    let file = output.join("SHA256SUMS");
    std::fs::write(&file, format!("{sums}\n"))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// The folder where cargo keeps the sources of crates.
fn cargo_home() -> Option<String> {
    env::var("CARGO_HOME").or_else(|_| Ok::<_, env::VarError>(env::var("HOME")? + "/.cargo")).ok()
}

/// The modification time of packed files, in Unix seconds: that of the last commit, so that the same sources
/// give the same packages.
fn time() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"]).current_dir(workspace::root());
            child::query(&mut git)
                .context("the time of the last commit is not known: set SOURCE_DATE_EPOCH to one")?
        }
    };
    text.parse().with_context(|| format!("`{text}` is no time in seconds (SOURCE_DATE_EPOCH)"))
}

/// The files below a folder, as sorted paths relative to it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let read = || format!("cannot list {}", next.display());
        for entry in std::fs::read_dir(&next).with_context(read)? {
            let path = entry.with_context(read)?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}
