//! Installs cargo-fuzz, which builds the fuzz targets.

use crate::{
    child,
    step::{Extent, Step},
    workspace,
};
use anyhow::Result;
use std::process::Command;

pub(crate) const VERSION: &str = "0.13.2";

/// Installs cargo-fuzz if it is missing; returns the number of things still missing.
pub(crate) fn provide(extent: Extent) -> Result<usize> {
    let step = Step::new(format!("cargo-fuzz {VERSION}"), "builds the fuzz targets");
    let program = workspace::tools().join("bin/cargo-fuzz");
    if child::query(Command::new(program).args(["fuzz", "--version"]))
        .is_some_and(|version| version == format!("cargo-fuzz {VERSION}"))
    {
        step.there();
        return Ok(0);
    }
    if extent == Extent::Report {
        step.missing();
        return Ok(1);
    }
    let mut install = child::cargo();
    // An unoptimised build takes half the time, and cargo-fuzz itself does little work.
    install.args(["install", "cargo-fuzz", "--locked", "--version", VERSION, "--force", "--debug"]);
    step.run(install.arg("--root").arg(workspace::tools()), "check the network")?;
    Ok(0)
}
