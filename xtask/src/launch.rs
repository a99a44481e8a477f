//! Builds the binaries, and runs the demonstration and the benchmark.

use std::{ffi::OsString, os::unix::process::CommandExt as _};

use anyhow::{Context as _, Result};

use crate::{
    capability, child,
    privilege::Privilege,
    setup,
    step::{self, Extent, Use},
    unpacked::NGINX,
    workspace,
};

/// The environment variable with the path of the built `limiter`, for tests, demonstration and benchmark.
pub(crate) const BINARY: &str = "LIMITER_BIN";

/// Builds `limiter` and prints its path.
pub(crate) fn build(release: bool) -> Result<()> {
    let toolchain = setup::setup(&[Use::Build], Extent::Install)?;
    step::heading("build");
    let mut cargo = toolchain.cargo();
    cargo.args(["build", "--package", "limiter-userspace", "--bin", "limiter"]);
    if release {
        cargo.arg("--release");
    }
    child::run(&mut cargo)?;
    println!("{}", workspace::binary("limiter", release)?.display());
    Ok(())
}

/// Builds everything in release mode, then replaces this process by a binary of `limiter-tests`, so that exit
/// code and signals are those of the binary.
pub(crate) fn launch(binary: &str, arguments: &[OsString]) -> Result<()> {
    let mut uses = vec![Use::Build, Use::Traffic];
    // Requests are asked about by nginx.
    if arguments.iter().any(|argument| argument == "--l7") {
        uses.push(Use::Nginx);
    }
    let toolchain = setup::setup(&uses, Extent::Install)?;
    let privilege = Privilege::get("BPF programs are loaded and network namespaces made")?;
    capability::require(privilege)?;
    step::heading("build");
    if !workspace::binary(binary, true)?.exists() {
        println!(
            "  The first optimised build takes 5 to 10 minutes on two CPUs; later ones are short."
        );
    }
    let mut cargo = toolchain.cargo();
    cargo.args(["build", "--release", "--package", "limiter-userspace", "--bin", "limiter"]);
    cargo.args(["--package", "limiter-tests", "--bin", binary]);
    child::run(&mut cargo)?;
    let limiter = workspace::binary("limiter", true)?;
    let limiter =
        limiter.to_str().with_context(|| format!("the path {} is not UTF-8", limiter.display()))?;
    let nginx = NGINX.folder();
    let nginx =
        nginx.to_str().with_context(|| format!("the path {} is not UTF-8", nginx.display()))?;
    let variables = [(BINARY, limiter), (NGINX.variable, nginx)];
    let mut command = privilege.command(workspace::binary(binary, true)?, &variables);
    command.args(arguments);
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run `{}`", child::show(&command)))
}
