//! Unpacks Prometheus and promtool, which test the shipped files. Debian's package would start a service, so
//! it is not installed.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    apt::Apt,
    step::{Extent, Step},
    workspace,
};

/// The environment variable that tells the tests the folder of both programs.
pub(crate) const FOLDER: &str = "LIMITER_PROMETHEUS";

const PACKAGE: &str = "prometheus";
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];
const WHY: &str = "scrapes what is limited, and checks rules and dashboard; it is not installed";

/// The folder of the programs: where they are installed, or where they are unpacked.
pub(crate) fn folder() -> PathBuf {
    let folder_of = |program: &&str| Some(workspace::find_program(program)?.parent()?.to_owned());
    let [server, tool] = PROGRAMS.each_ref().map(folder_of);
    server.filter(|folder| tool.as_ref() == Some(folder)).unwrap_or_else(ours)
}

fn ours() -> PathBuf {
    workspace::tools().join(PACKAGE).join("usr/bin")
}

/// Unpacks the programs if they are missing; returns the number of things still missing.
pub(crate) fn provide(extent: Extent) -> Result<usize> {
    let step = Step::new(PACKAGE, WHY);
    let folder = folder();
    if PROGRAMS.iter().all(|program| folder.join(program).is_file()) {
        step.there();
        return Ok(0);
    }
    step.missing();
    if extent == Extent::Report {
        return Ok(1);
    }
    let apt = Apt::new(workspace::tools())?;
    apt.unpack(&mut apt.get(&["download", PACKAGE]), PACKAGE, WHY)?;
    Ok(0)
}
