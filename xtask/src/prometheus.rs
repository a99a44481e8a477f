//! Prometheus and its promtool, which check what is shipped for them. Debian's package would start a
//! service, so it is unpacked and not installed.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    apt::Apt,
    step::{Extent, Step},
    workspace,
};

/// The variable that tells the tests the folder of both programs.
pub(crate) const FOLDER: &str = "LIMITER_PROMETHEUS";

const PACKAGE: &str = "prometheus";
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];
const WHY: &str = "scrapes what is limited, and checks rules and dashboard; it is not installed";

/// The folder of the programs: of those that are installed, or of ours.
pub(crate) fn folder() -> PathBuf {
    let folder_of = |program: &&str| Some(workspace::find_program(program)?.parent()?.to_owned());
    let [server, tool] = PROGRAMS.each_ref().map(folder_of);
    server.filter(|folder| tool.as_ref() == Some(folder)).unwrap_or_else(ours)
}

fn ours() -> PathBuf {
    workspace::tools().join(PACKAGE).join("usr/bin")
}

/// Sees to the programs; gives the number of things still missing.
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
