//! Builds the BPF programs of `limiter-ebpf` into `OUT_DIR`, one object per binary.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context as _, Result, bail};
use aya_build::{Package, Toolchain};

/// The rustup toolchain to take; `cargo xtask` reads it too.
const VARIABLE: &str = "LIMITER_BPF_TOOLCHAIN";

/// The feature that adds an object with debug messages, as cargo tells it.
const MESSAGES: &str = "CARGO_FEATURE_DATAPATH_LOG";

/// The condition that cargo-fuzz compiles with, as cargo tells it.
const FUZZING: &str = "CARGO_CFG_FUZZING";

/// Debian's compiler, as `cargo xtask setup` links it into rustup.
const DISTRO: &str = "distro-bpf";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
    if let Err(error) = build() {
        println!("cargo::error={error:#}");
        process::exit(1);
    }
}

fn build() -> Result<()> {
    if env::var_os(FUZZING).is_some() {
        return without_programs();
    }
    let messages = env::var_os(MESSAGES).is_some();
    if messages && env::var("PROFILE").as_deref() != Ok("debug") {
        bail!("the feature `datapath-log` is for debug builds: a release has no messages");
    }
    // Of this run, as the script may have been built in a checkout that was copied since.
    let package =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("cargo names no package")?);
    let workspace = package.parent().context("limiter-userspace is not in a workspace")?;
    let toolchain = match env::var(VARIABLE) {
        Ok(name) if !name.is_empty() => name,
        _ if sysroot(DISTRO).is_some() => DISTRO.to_owned(),
        _ => "nightly".to_owned(),
    };
    let rustlib = sysroot(&toolchain).unwrap_or_default().join("lib/rustlib");
    if !["bpfel-unknown-none", "src/rust/library/core"]
        .iter()
        .any(|core| rustlib.join(core).is_dir())
    {
        bail!("toolchain {toolchain} has no `core` for BPF: run `cargo xtask setup`");
    }
    let path = search_path(&toolchain, &workspace.join("target/tools/bin"))?;
    let Some(linker) =
        env::split_paths(&path).map(|folder| folder.join("bpf-linker")).find(|file| file.is_file())
    else {
        bail!("bpf-linker is not there: run `cargo xtask setup`");
    };
    println!("cargo::rerun-if-changed={}", linker.display());
    // SAFETY: this program has a single thread.
    unsafe {
        env::set_var("PATH", path);
        // aya-build makes a warning of every line that cargo prints; those of the compiler remain.
        env::set_var("CARGO_TERM_QUIET", "true");
    }

    let root_dir = workspace.join("limiter-ebpf");
    let root_dir = root_dir
        .to_str()
        .with_context(|| format!("the path {} is not UTF-8", root_dir.display()))?;
    let objects = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    let shared = Shared::lock(workspace.join("target/bpf"))?;
    let build = |features| {
        let package = Package { name: "limiter-ebpf", root_dir, features, ..Package::default() };
        aya_build::build_ebpf([package], Toolchain::Custom(&toolchain))
    };
    if messages {
        build(&["messages"])?;
        // The object that ships has this name, too.
        shared.copy("datapath", &objects.join("datapath-messages"))?;
    }
    build(&[])?;
    for object in ["datapath", "load"] {
        shared.copy(object, &objects.join(object))?;
    }
    // Through `links` in Cargo.toml the crates that depend on this one find the objects as
    // `DEP_LIMITER_BPF_OBJECTS`.
    println!("cargo::metadata=OBJECTS={}", objects.display());
    Ok(())
}

/// Where the BPF target is built, for every profile and every set of features of the host: cargo runs this script for
/// each of them, and to build the programs takes longest.
struct Shared {
    folder: PathBuf,
    /// Locked until it is closed. Another script would put its objects in the place of these.
    _lock: File,
}

impl Shared {
    /// Waits for the folder, and has aya-build build in it.
    fn lock(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("lock");
        let lock = File::create(&path).and_then(|file| file.lock().map(|()| file));
        let lock = lock.with_context(|| format!("cannot lock {}", path.display()))?;
        // SAFETY: this program has a single thread.
        unsafe { env::set_var("OUT_DIR", &folder) };
        Ok(Self { folder, _lock: lock })
    }

    /// Copies an object that is built.
    fn copy(&self, object: &str, to: &Path) -> Result<()> {
        let from = self.folder.join(object);
        fs::copy(&from, to)
            .map(drop)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    }
}

/// What is fuzzed loads no program, and the flags of a fuzzer are not for the BPF target: an empty object stands for it.
fn without_programs() -> Result<()> {
    let folder = env::var_os("OUT_DIR").context("OUT_DIR is not set")?;
    let object = Path::new(&folder).join("datapath");
    fs::write(&object, []).with_context(|| format!("cannot write {}", object.display()))
}

/// `PATH` with the bpf-linker of `cargo xtask setup`: before all others for the compiler that it was
/// built for, after them for any other.
fn search_path(toolchain: &str, tools: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let position = if toolchain == DISTRO { 0 } else { folders.len() };
    folders.insert(position, tools.to_path_buf());
    env::join_paths(folders).context("the folder of the workspace cannot be put on the PATH")
}

fn sysroot(toolchain: &str) -> Option<PathBuf> {
    let output = Command::new("rustup")
        .args(["run", toolchain, "rustc", "--print", "sysroot"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}
