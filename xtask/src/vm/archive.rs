//! Debian packages that are unpacked below the target folder instead of installed.
//!
//! Users do not want an emulator and other kernels installed, and they may conflict with installed packages.
//! apt finds, verifies and downloads them with lists of its own, so root's rights are not needed either.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::kernel::Kernel;
use crate::{
    apt::Apt,
    step::{Extent, Step},
    workspace,
};

const EMULATOR: &str = "qemu-system-x86";
const PROGRAM: &str = "qemu-system-x86_64";
const BUSYBOX: &str = "busybox-static";

/// The folder of unpacked packages, which is kept between runs.
fn folder() -> PathBuf {
    workspace::root().join("target/vm")
}

/// The folder of an unpacked package or kernel.
pub(super) fn unpacked(name: &str) -> PathBuf {
    folder().join(name)
}

pub(super) fn busybox() -> PathBuf {
    unpacked(BUSYBOX).join("bin/busybox")
}

/// The emulator: the installed one, or the unpacked one with its libraries.
pub(super) fn emulator() -> Command {
    if let Some(installed) = workspace::find_program(PROGRAM) {
        return Command::new(installed);
    }
    let root = unpacked(EMULATOR);
    let mut command = Command::new(root.join("usr/bin").join(PROGRAM));
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
    if let Ok(path) = env::join_paths(libraries.map(|folder| root.join(folder))) {
        command.env("LD_LIBRARY_PATH", path);
    }
    for data in ["qemu", "seabios"] {
        command.arg("-L").arg(root.join("usr/share").join(data));
    }
    command
}

/// The image of an unpacked kernel.
pub(super) fn image(kernel: Kernel) -> Result<PathBuf> {
    let root = unpacked(&kernel.prefix());
    image_in(&root).with_context(|| format!("{} has no kernel: remove the folder", root.display()))
}

/// The image in an unpacked package: `boot/vmlinuz-V`, or `usr/lib/modules/V/vmlinuz` since 7.2.
fn image_in(root: &Path) -> Option<PathBuf> {
    let entries = |folder: &str| fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let in_boot =
        entries("boot").filter(|file| file.file_name().to_string_lossy().starts_with("vmlinuz-"));
    let beside_modules = entries("usr/lib/modules").map(|folder| folder.path().join("vmlinuz"));
    in_boot.map(|file| file.path()).chain(beside_modules).find(|path| path.is_file())
}

/// Unpacks the emulator and the kernels that are missing; returns the number of those still missing.
pub(crate) fn provide(kernels: &[Kernel], extent: Extent) -> Result<usize> {
    let emulator = Step::new(EMULATOR, "boots other kernels, on a machine without KVM too");
    let busybox = Step::new(BUSYBOX, "starts the tests there, and makes the archive they come in");
    let mut rows = vec![
        (emulator, EMULATOR.to_owned(), Wanted::Emulator),
        (busybox, BUSYBOX.to_owned(), Wanted::Package(BUSYBOX)),
    ];
    rows.extend(kernels.iter().map(|kernel| {
        let step = Step::new(format!("{}.*-cloud", kernel.prefix()), kernel.why());
        (step, kernel.prefix(), Wanted::Kernel(*kernel))
    }));
    let mut missing = Vec::new();
    for (step, name, wanted) in rows {
        let installed =
            matches!(wanted, Wanted::Emulator) && workspace::find_program(PROGRAM).is_some();
        if installed || unpacked(&name).is_dir() {
            step.there();
        } else {
            step.missing();
            missing.push(wanted);
        }
    }
    if extent == Extent::Install && !missing.is_empty() {
        fetch(&missing)?;
        return Ok(0);
    }
    Ok(missing.len())
}

/// A thing to download.
enum Wanted {
    /// The emulator with all dependencies that are not installed.
    Emulator,
    /// A package without dependencies.
    Package(&'static str),
    /// The newest package of a kernel, without dependencies.
    Kernel(Kernel),
}

fn fetch(missing: &[Wanted]) -> Result<()> {
    let apt = Apt::new(folder())?;
    for wanted in missing {
        match wanted {
            Wanted::Emulator => {
                let mut install = apt.get(&["install", "--download-only", "--yes"]);
                install.args(["--no-install-recommends", EMULATOR]);
                apt.unpack(&mut install, EMULATOR, "the emulator and its libraries")?;
            }
            Wanted::Package(name) => {
                apt.unpack(&mut apt.get(&["download", name]), name, "one static program")?;
            }
            Wanted::Kernel(kernel) => match kernel.release() {
                None => unpack_kernel(&apt, *kernel)?,
                Some(release) => unpack_kernel(&Apt::of_release(release, &apt)?, *kernel)?,
            },
        }
    }
    Ok(())
}

/// Downloads and unpacks the newest package of a kernel.
fn unpack_kernel(apt: &Apt, kernel: Kernel) -> Result<()> {
    let prefix = format!("{}.", kernel.prefix());
    let names = apt.names(&prefix)?;
    let newest = kernel.newest(names.lines()).with_context(|| {
        format!(
            "apt's sources have no package {prefix}*-cloud-amd64: it is in {}, or its security \
             updates",
            kernel.release().unwrap_or("Debian 12")
        )
    })?;
    apt.unpack(&mut apt.get(&["download", newest]), &kernel.prefix(), kernel.why())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_where_each_release_has_it() {
        let root = env::temp_dir().join(format!("limiter-image-{}", std::process::id()));
        let places =
            ["boot/vmlinuz-7.1.13-cloud-amd64", "usr/lib/modules/7.3.4-cloud-amd64/vmlinuz"];
        for (place, other) in places.into_iter().zip([
            "boot/config-7.1.13-cloud-amd64",
            "usr/lib/modules/7.3.4-cloud-amd64/modules.order",
        ]) {
            for file in [other, place] {
                assert_eq!(image_in(&root), None, "{file}");
                let file = root.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            assert_eq!(image_in(&root), Some(root.join(place)));
            fs::remove_dir_all(&root).unwrap();
        }
    }
}
