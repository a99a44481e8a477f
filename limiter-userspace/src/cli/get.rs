//! `limiter get`.

use std::path::PathBuf;

use clap::Args;

use super::{
    bridge::{SOCKET, unix_socket},
    maps,
};
use crate::{
    bridge::{answer::RequestFill, lookup::requests_of},
    datapath::bpffs::Pins,
    error::Result,
    output::{source, stream::Output},
    policy::{PolicyError, units::parse_prefix},
    query::{Inquiry, InquiryError, now},
};

const HELP: &str = "\
Nothing is changed. For a source of which nothing is known, the limits that would apply to it are shown, \
and the exit code is 4. If a bridge answers, the limits on requests that count by the source alone are shown too. A source that \
one of them has charged is known.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Get {
    /// Address, or the prefix that makes a source, as `limiter top` prints it
    address: String,
    /// Socket of the bridge, which knows the limits on requests
    #[arg(long, value_name = "ADDRESS", default_value = SOCKET, value_parser = unix_socket)]
    bridge: PathBuf,
}

impl Get {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let asked = parse_prefix(&self.address).map_err(PolicyError::from)?;
        let maps = maps(pins)?;
        let now = now();
        let mut report = Inquiry::new(&maps, now)?.source(asked, now)?;
        let requests = requests_of(&self.bridge, report.source.addr());
        // The bridge may know a source whose packets this host does not see, as behind a CDN.
        report.known |= requests.iter().flatten().any(RequestFill::is_charged);
        source::print_with_requests(output, &report, requests.as_deref())?;
        if report.known {
            return Ok(());
        }
        // The error that sets the exit code is printed after the output.
        output.flush()?;
        Err(InquiryError::Unknown { name: report.name() }.into())
    }
}
