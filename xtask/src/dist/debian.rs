//! The Debian package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{files, stage::Stage};
use crate::{child, workspace};

/// The scripts that dpkg runs. RPM runs the same.
pub(super) const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs the files into a package without dependencies. The same files give the same package, byte for byte.
pub(super) fn pack(stage: &Stage, output: &Path, version: &str, time: u64) -> Result<PathBuf> {
    stage.write("usr/share/doc/limiter/copyright", copyright()?.as_bytes(), 0o644)?;
    write_changelog(stage, version, time)?;
    // Debian has this licence in /usr/share/common-licenses.
    let apache = stage.root().join("usr/share/doc/limiter/LICENSE-APACHE");
    fs::remove_file(&apache).with_context(|| format!("cannot remove {}", apache.display()))?;

    let packed = files(stage.root())?;
    let mut size = 0;
    for file in &packed {
        size += fs::metadata(stage.root().join(file))?.len().div_ceil(1024);
    }
    // Control files and configuration files have no checksum.
    let plain = packed.iter().filter(|file| !file.starts_with("etc"));
    let mut sums = Command::new("md5sum");
    let sums = child::query(sums.args(plain).current_dir(stage.root()))
        .context("cannot run md5sum (Debian package coreutils)")?;
    stage.write("DEBIAN/md5sums", format!("{sums}\n").as_bytes(), 0o644)?;
    let control = source("control")?.replace("@VERSION@", version);
    let control = control.replace("@SIZE@", &size.to_string());
    stage.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    stage.write("DEBIAN/conffiles", source("conffiles")?.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        stage.write(Path::new("DEBIAN").join(script), source(script)?.as_bytes(), 0o755)?;
    }
    let package = output.join(format!("limiter_{version}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "-z1", "--build"]).arg(stage.root()).arg(&package);
    build.env("SOURCE_DATE_EPOCH", time.to_string()).stdout(std::process::Stdio::null());
    child::run(&mut build).context("a Debian package is made by dpkg-deb (package dpkg)")?;
    Ok(package)
}

/// The copyright file, with the text of the licence that Debian does not have.
fn copyright() -> Result<String> {
    let licence = workspace::root().join("LICENSE-MIT");
    let text = fs::read_to_string(&licence)
        .with_context(|| format!("cannot read {}", licence.display()))?;
    let lines: Vec<String> = text
        .trim()
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    Ok(source("copyright")?.replace("@MIT@", &lines.join("\n")))
}

/// Writes the changelog that Debian asks for, which names the version and the page with the changes.
fn write_changelog(stage: &Stage, version: &str, time: u64) -> Result<()> {
    let mut date = Command::new("date");
    let date = child::query(date.args(["--utc", "--rfc-email", &format!("--date=@{time}")]))
        .context("cannot run date (Debian package coreutils)")?;
    let control = source("control")?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("the control file names no maintainer")?;
    let text = format!(
        "limiter ({version}) unstable; urgency=medium\n\n  \
         * What changed is in /usr/share/doc/limiter/CHANGELOG.md.gz.\n\n \
         -- {maintainer}  {date}\n"
    );
    stage.write("usr/share/doc/limiter/changelog", text.as_bytes(), 0o644)?;
    for name in ["changelog", "CHANGELOG.md"] {
        let file = stage.root().join("usr/share/doc/limiter").join(name);
        child::run(Command::new("gzip").arg("-9n").arg(file))?;
    }
    Ok(())
}

pub(super) fn source(name: &str) -> Result<String> {
    let path = workspace::root().join("packaging/debian").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
