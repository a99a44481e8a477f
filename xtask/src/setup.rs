//! Installs what a task needs: packages, toolchain, bpf-linker, components.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    cargo_fuzz, checkout, child, linker, packages,
    step::{self, Extent, Step, Use},
    toolchain::{self, Toolchain},
    unpacked::{NGINX, UNPACKED},
    vm::{archive, kernel::Kernel},
    wheels::WHEELS,
};

/// Installs everything that these uses need, and returns the toolchain for the BPF half. With
/// [`Extent::Report`] nothing is changed, and a missing thing is an error.
pub(crate) fn setup(uses: &[Use], extent: Extent) -> Result<Toolchain> {
    toolchain::require_rustup()?;
    step::heading("set-up");
    if extent == Extent::Install {
        checkout::adopt()?;
    }
    let (toolchain, why) = toolchain::choose();
    println!("  BPF toolchain: {why}");
    let mut missing = packages::provide(uses, &toolchain, extent)?;
    if uses.contains(&Use::Lint) {
        missing += provide_components(&toolchain, extent)?;
    }
    if uses.contains(&Use::Build) {
        missing += toolchain::provide(&toolchain, extent)?;
        missing += linker::provide(&toolchain, extent)?;
    }
    if uses.contains(&Use::Servers) {
        for unpacked in UNPACKED {
            missing += unpacked.provide(extent)?;
        }
        for wheels in WHEELS {
            missing += wheels.provide(extent)?;
        }
    }
    if uses.contains(&Use::Nginx) {
        missing += NGINX.provide(extent)?;
    }
    if uses.contains(&Use::Fuzz) {
        missing += cargo_fuzz::provide(extent)?;
    }
    if uses.contains(&Use::Kernels) {
        missing += archive::provide(&Kernel::DEFAULT, extent)?;
    }
    match missing {
        0 => Ok(toolchain),
        1 => bail!("1 thing is missing: run `cargo xtask setup`"),
        _ => bail!("{missing} things are missing: run `cargo xtask setup`"),
    }
}

/// Installs the components that are not in rustup's minimal profile.
fn provide_components(toolchain: &Toolchain, extent: Extent) -> Result<usize> {
    let mut missing = provide_component("rustfmt", "fmt", "checks the formatting", None, extent)?;
    missing += provide_component("clippy", "clippy", "checks the host crates", None, extent)?;
    if let Toolchain::Rustup(name) = toolchain {
        let why = "checks the BPF half";
        missing += provide_component("clippy", "clippy", why, Some(name), extent)?;
    }
    Ok(missing)
}

fn provide_component(
    component: &str,
    subcommand: &str,
    why: &'static str,
    toolchain: Option<&str>,
    extent: Extent,
) -> Result<usize> {
    let (name, mut cargo) = match toolchain {
        Some(toolchain) => {
            (format!("{component} of {toolchain}"), child::rustup_run(toolchain, "cargo"))
        }
        None => (component.to_owned(), child::cargo()),
    };
    let step = Step::new(name, why);
    if child::query(cargo.args([subcommand, "--version"])).is_some() {
        step.there();
        return Ok(0);
    }
    if extent == Extent::Report {
        step.missing();
        return Ok(1);
    }
    let mut add = Command::new("rustup");
    add.args(["component", "add", component]);
    if let Some(toolchain) = toolchain {
        add.args(["--toolchain", toolchain]);
    }
    step.run(&mut add, "check the network")?;
    Ok(0)
}
