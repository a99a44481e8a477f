//! Debian packages that are unpacked and not installed, because each would start a service.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    apt::Apt,
    step::{Extent, Step},
    workspace,
};

/// Packages that are unpacked together.
pub(crate) struct Unpacked {
    /// The environment variable that tells the tests the folder of the programs.
    pub(crate) variable: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    /// Where the packages have the programs.
    place: &'static str,
    why: &'static str,
}

/// nginx.
pub(crate) const NGINX: Unpacked = Unpacked {
    variable: "LIMITER_NGINX",
    packages: &["nginx"],
    programs: &["nginx"],
    place: "usr/sbin",
    why: "asks the bridge about requests; it is not installed",
};

/// All of them.
pub(crate) const UNPACKED: [Unpacked; 4] = [
    Unpacked {
        variable: "LIMITER_PROMETHEUS",
        packages: &["prometheus"],
        programs: &["prometheus", "promtool"],
        place: "usr/bin",
        why: "scrapes what is limited, and checks rules and dashboard; it is not installed",
    },
    Unpacked {
        variable: "LIMITER_CROWDSEC",
        packages: &["crowdsec", "crowdsec-custom-bouncer", "libsqlite3-0"],
        programs: &["crowdsec", "cscli", "crowdsec-custom-bouncer"],
        place: "usr/bin",
        why: "has limiter ban what a test decides; it is not installed",
    },
    NGINX,
    Unpacked {
        variable: "LIMITER_HAPROXY",
        packages: &["haproxy", "libopentracing-c-wrapper0", "libopentracing1", "liblua5.3-0"],
        programs: &["haproxy"],
        place: "usr/sbin",
        why: "another proxy that asks the bridge; it is not installed",
    },
];

impl Unpacked {
    /// The folder of the programs: where they are installed, or where they are unpacked.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder_of =
            |program: &&str| Some(workspace::find_program(program)?.parent()?.to_owned());
        let installed = self.programs.first().and_then(folder_of);
        let has_all = |folder: &PathBuf| {
            self.programs.iter().all(|program| folder_of(program).as_ref() == Some(folder))
        };
        let ours = || workspace::tools().join(self.name()).join(self.place);
        installed.filter(has_all).unwrap_or_else(ours)
    }

    /// The name of the first package, by which the others go.
    fn name(&self) -> &'static str {
        self.packages[0]
    }

    /// Unpacks the programs if they are missing; returns the number of things still missing.
    pub(crate) fn provide(&self, extent: Extent) -> Result<usize> {
        let step = Step::new(self.name(), self.why);
        let folder = self.folder();
        if self.programs.iter().all(|program| folder.join(program).is_file()) {
            step.there();
            return Ok(0);
        }
        step.missing();
        if extent == Extent::Report {
            return Ok(1);
        }
        let apt = Apt::new(workspace::tools())?;
        let mut fetch = apt.get(&["download"]);
        apt.unpack(fetch.args(self.packages), self.name(), self.why)?;
        Ok(0)
    }
}
