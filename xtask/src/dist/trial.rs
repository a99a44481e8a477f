//! `cargo xtask dist --try`: the package on roots of Debian that debootstrap makes.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    apt::Apt,
    child,
    step::{self, Step},
    workspace,
};

/// The releases that the package is for.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];

const SCRIPT: &str = include_str!("trial.sh");

/// Installs the package `old` on each release, upgrades it to `new` while it limits, and purges it.
pub(super) fn run(old: &Path, new: &Path) -> Result<()> {
    step::heading("try");
    let roots = workspace::tools().join("roots");
    fs::create_dir_all(&roots).with_context(|| format!("cannot make {}", roots.display()))?;
    let mirror = Apt::new(workspace::tools())?.mirror()?;
    for release in RELEASES {
        let root = roots.join(release);
        // debootstrap leaves a half-made root where it fails.
        if !root.join("usr/bin/dpkg").exists() || root.join("debootstrap").exists() {
            let mut bootstrap = Command::new("debootstrap");
            bootstrap.args(["--variant=minbase", release]).arg(&root).arg(&mirror);
            Step::new(release, "a root of that release, some minutes the first time")
                .run(&mut bootstrap, "check the network, and run as root")?;
        }
        let mut trial = Command::new("unshare");
        trial.args(["--net", "--mount", "--pid", "--fork", "sh", "-c", SCRIPT, "trial"]);
        trial.arg(&root).arg(old).arg(new);
        child::run(&mut trial)
            .with_context(|| format!("the package does not pass its trial on {release}"))?;
        println!("  installed, run, upgraded and purged on {release}");
    }
    Ok(())
}
