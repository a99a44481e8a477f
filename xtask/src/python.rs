//! Programs of PyPI, each in an environment of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    step::{Extent, Step},
    workspace,
};

/// Schemathesis and all that it depends on, by version.
const SCHEMATHESIS: &str = include_str!("schemathesis.txt");

/// Installs schemathesis if it is missing, or if it is of other versions; returns the number of things still missing.
pub(crate) fn provide(extent: Extent) -> Result<usize> {
    let step = Step::new("schemathesis", "asks the bridge what its OpenAPI document describes");
    let folder = workspace::tools().join("schemathesis");
    // It is written last.
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|versions| versions == SCHEMATHESIS) {
        step.there();
        return Ok(0);
    }
    if extent == Extent::Report {
        step.missing();
        return Ok(1);
    }
    let wanted = folder.join("wanted.txt");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&wanted, SCHEMATHESIS))
        .with_context(|| format!("cannot write {}", wanted.display()))?;
    let mut make = Command::new("python3");
    step.run(
        make.args(["-m", "venv", "--clear"]).arg(environment(&folder)),
        "install python3-venv",
    )?;
    let mut install = Command::new(environment(&folder).join("bin/pip"));
    install.args(["install", "--no-deps", "--requirement"]).arg(&wanted);
    step.run(&mut install, "check the network")?;
    fs::write(&installed, SCHEMATHESIS)
        .with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(0)
}

/// The environment in a folder of a tool.
fn environment(folder: &Path) -> PathBuf {
    folder.join("environment")
}
