//! The RPM.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{debian, files, stage::Stage};
use crate::{child, workspace};

/// Packs the files into an RPM without dependencies. The same files give the same RPM, byte for byte.
pub(super) fn pack(stage: &Stage, output: &Path, version: &str, time: u64) -> Result<PathBuf> {
    let spec = workspace::root().join("packaging/limiter.spec");
    let mut text = fs::read_to_string(&spec)
        .with_context(|| format!("cannot read {}", spec.display()))?
        .replace("@VERSION@", version)
        .replace("@ROOT@", &stage.root().display().to_string())
        .replace("@FILES@", &listed(stage)?);
    for script in debian::SCRIPTS {
        let body = debian::source(script)?.replace("#!/bin/sh\n", "");
        text = text.replace(&format!("@{}@", script.to_uppercase()), body.trim());
    }
    let build = output.join("rpm");
    fs::create_dir_all(&build).with_context(|| format!("cannot make {}", build.display()))?;
    let spec = build.join("limiter.spec");
    fs::write(&spec, text).with_context(|| format!("cannot write {}", spec.display()))?;

    let mut command = Command::new("rpmbuild");
    command.args(["-bb", "--quiet", "--target", "x86_64"]).arg(&spec);
    for (name, value) in [
        ("_topdir", build.display().to_string()),
        ("_rpmdir", output.display().to_string()),
        ("_rpmfilename", "limiter-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".to_owned()),
        ("_buildhost", "localhost".to_owned()),
        ("_binary_payload", "w3.zstdio".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        // Nothing of what was built is changed.
        ("__os_install_post", "%{nil}".to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        ("_build_id_links", "none".to_owned()),
    ] {
        command.arg("--define").arg(format!("{name} {value}"));
    }
    command.env("SOURCE_DATE_EPOCH", time.to_string());
    child::run(&mut command).context("an RPM is made by rpmbuild (Debian package rpm)")?;
    fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    Ok(output.join(format!("limiter-{version}-1.x86_64.rpm")))
}

/// The section `%files`: all that is staged.
fn listed(stage: &Stage) -> Result<String> {
    let line = |file: PathBuf| match file.starts_with("etc") {
        true => format!("%config(noreplace) %attr(-, root, root) /{}", file.display()),
        false => format!("%attr(-, root, root) /{}", file.display()),
    };
    Ok(files(stage.root())?.into_iter().map(line).collect::<Vec<_>>().join("\n"))
}
