//! `limiter doctor`.

use clap::Args;

use super::progress::Progress;
use crate::{
    datapath::bpffs::Pins,
    doctor::{Finding, Verdict, examine},
    error::{Error, Result},
    output::{findings, stream::Output},
};

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Interfaces to check [default: the attached ones, or all if there are none]
    #[arg(value_name = "IFACE")]
    interfaces: Vec<String>,
}

impl Doctor {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let found = {
            let _progress = Progress::of("loading programs, as attaching would");
            examine(pins, &self.interfaces)?
        };
        findings::print(output, &found)?;
        let failed = found.iter().filter(|finding| finding.verdict == Verdict::Fail);
        let name = |finding: &Finding| match &finding.interface {
            Some(interface) => format!("{interface} {}", finding.check),
            None => finding.check.to_owned(),
        };
        match failed.map(name).collect::<Vec<_>>() {
            failed if failed.is_empty() => Ok(()),
            failed => Err(Error::Unfit { failed }),
        }
    }
}
