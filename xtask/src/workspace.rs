//! Where things are in this workspace.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Selects the host crates: the BPF half does not build for the host. Commands that share what they
/// build all select the same crates, because the selection decides on the features of dependencies.
pub(crate) const HOST_CRATES: [&str; 3] = ["--workspace", "--exclude", "limiter-ebpf"];

/// Has the host crates have the debug messages of the datapath, which nothing that ships has.
pub(crate) const MESSAGES: [&str; 1] = ["--features=limiter-tests/datapath-log"];

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The folder of the tools that are built for this workspace alone. The build script of
/// `limiter-userspace` looks here too.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// The path of a binary of this workspace once it is built.
pub(crate) fn binary(name: &str, release: bool) -> Result<PathBuf> {
    Ok(target()?.join(if release { "release" } else { "debug" }).join(name))
}

/// The folder that cargo builds in.
pub(crate) fn target() -> Result<PathBuf> {
    // Cargo puts xtask itself into `TARGET/debug`, whatever TARGET is configured to be.
    let xtask = env::current_exe().context("cannot find the path of xtask")?;
    let target = xtask.parent().and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .with_context(|| format!("{} is not in a target folder of cargo", xtask.display()))
}

/// `PATH` and the folders of the administrator's programs, which a plain user's `PATH` lacks.
pub(crate) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// The first executable of this name on the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|file| file.is_file())
}
