//! `limiter get`.

use clap::Args;

use super::maps;
use crate::{
    datapath::bpffs::Pins,
    error::Result,
    output::{source, stream::Output},
    policy::{PolicyError, units::parse_prefix},
    query::{Inquiry, InquiryError, now},
};

const HELP: &str = "\
Nothing is changed. For a source of which nothing is known, the limits that would apply to it are shown, \
and the exit code is 4.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Get {
    /// Address, or the prefix that makes a source, as `limiter top` prints it
    address: String,
}

impl Get {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let asked = parse_prefix(&self.address).map_err(PolicyError::from)?;
        let maps = maps(pins)?;
        let now = now();
        let report = Inquiry::new(&maps, now)?.source(asked, now)?;
        source::print(output, &report)?;
        if report.known {
            return Ok(());
        }
        // The error that sets the exit code is printed after the output.
        output.flush()?;
        Err(InquiryError::Unknown { name: report.name() }.into())
    }
}
