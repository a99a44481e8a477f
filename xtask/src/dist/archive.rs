//! The archive, for machines that are not Debian.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::stage::Stage;
use crate::child;

/// Packs the files into a tar.gz. The same files give the same archive, byte for byte.
pub(super) fn pack(stage: &Stage, output: &Path, version: &str, time: u64) -> Result<PathBuf> {
    let name = format!("limiter-{version}-x86_64");
    let tar = output.join(format!("{name}.tar"));
    let packed = output.join(format!("{name}.tar.gz"));
    if packed.exists() {
        fs::remove_file(&packed).with_context(|| format!("cannot remove {}", packed.display()))?;
    }
    let mut command = Command::new("tar");
    command.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    command.args(["--format=gnu", &format!("--mtime=@{time}")]);
    command.args([&format!("--transform=s,^\\.,{name},"), "--file"]).arg(&tar);
    command.arg("--directory").arg(stage.root()).arg(".");
    child::run(&mut command)?;
    child::run(Command::new("gzip").arg("-9n").arg(&tar))?;
    Ok(packed)
}
