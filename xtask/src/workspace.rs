//! Paths in this workspace.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context as _, Result};

/// Selects the host crates, because the BPF half does not build for the host. Commands that share build
/// results select the same crates, because the selection determines the features of dependencies.
pub(crate) const HOST_CRATES: [&str; 3] = ["--workspace", "--exclude", "limiter-ebpf"];

/// Switches on the debug messages of the datapath, which no release has.
pub(crate) const MESSAGES: [&str; 1] = ["--features=limiter-tests/datapath-log"];

/// The folder of this package when it was built.
pub(crate) const BUILT_IN: &str = env!("CARGO_MANIFEST_DIR");

/// The root folder of the workspace.
///
/// `cargo run` sets the folder of the package. The one of the build is of another checkout where
/// this one was copied with its build results, as cargo takes these to be fresh.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let built_in = || BUILT_IN.into();
        let xtask = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in));
        xtask.parent().map(Path::to_path_buf).unwrap_or(xtask)
    })
}

/// The folder of tools that are built for this workspace alone. The build script of `limiter-userspace`
/// searches it too.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

/// The path of a binary of this workspace, built or not.
pub(crate) fn binary(name: &str, release: bool) -> Result<PathBuf> {
    Ok(target()?.join(if release { "release" } else { "debug" }).join(name))
}

/// The target folder of cargo.
pub(crate) fn target() -> Result<PathBuf> {
    // Cargo puts xtask itself into `TARGET/debug`, wherever TARGET is.
    let xtask = env::current_exe().context("cannot find the path of xtask")?;
    let target = xtask.parent().and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .with_context(|| format!("{} is not in a target folder of cargo", xtask.display()))
}

/// `PATH` with the folders of system programs, which the `PATH` of a plain user lacks.
pub(crate) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// The first file with this name on the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_manifest_of_the_workspace() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.starts_with("[workspace]"), "{manifest}");
    }
}
