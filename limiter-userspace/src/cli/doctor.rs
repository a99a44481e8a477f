//! `limiter doctor`.

use clap::Args;

use crate::{
    datapath::bpffs::Pins,
    doctor::{Verdict, examine},
    error::{Error, Result},
    output::{findings, stream::Output},
};

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Interfaces to check [default: those that are attached, or else all]
    #[arg(value_name = "IFACE")]
    interfaces: Vec<String>,
}

impl Doctor {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let found = examine(pins, &self.interfaces)?;
        findings::print(output, &found)?;
        let failed = found.iter().filter(|finding| finding.verdict == Verdict::Fail);
        match failed.map(|finding| finding.check).collect::<Vec<_>>() {
            failed if failed.is_empty() => Ok(()),
            failed => Err(Error::Unfit { failed }),
        }
    }
}
