//! `limiter agent`.

use std::path::PathBuf;

use clap::Args;

use super::unix;
use crate::{
    agent::{self, Options, scrape::Address},
    datapath::{bpffs::Pins, privilege},
    error::Result,
    output::stream::{Output, OutputError},
};

#[derive(Debug, Args)]
pub(super) struct Agent {
    /// Interfaces to attach whenever they are there
    #[arg(short, long = "interface", value_name = "IFACE")]
    interfaces: Vec<String>,
    /// Policy document to follow: it is applied whenever it changes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Serve metrics for Prometheus: on a loopback address, as 127.0.0.1:9180, or on unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
}

impl Agent {
    pub(super) fn run(self, pins: Pins, output: &mut Output) -> Result<()> {
        privilege::check()?;
        let options =
            Options { interfaces: self.interfaces, policy: self.policy, listen: self.listen };
        agent::run(options, pins, unix, |event| {
            let told = match output.is_json() {
                true => output.json(event),
                false => writeln!(output, "{event}"),
            };
            // A full disk is no reason to see to nothing any more.
            let _: Result<(), OutputError> = told.and_then(|()| output.flush());
        })
    }
}
