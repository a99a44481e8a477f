//! `limiter agent`.

use std::path::PathBuf;

use clap::Args;
use limiter_common::rate::Rate;

use super::unix;
use crate::{
    agent::{self, Options, scrape::Address},
    datapath::{bpffs::Pins, privilege},
    error::Result,
    output::stream::{Output, OutputError},
    policy::units::parse_rate,
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
    /// How many events about sources are told in the long run: a rate, as 100/min, or none
    #[arg(long, value_name = "RATE", default_value = "10/s", value_parser = events)]
    events: Events,
}

/// What `--events` says.
type Events = Option<Rate>;

fn events(text: &str) -> Result<Events, String> {
    if text == "none" {
        return Ok(None);
    }
    parse_rate(text).map(Some).map_err(|error| error.to_string())
}

impl Agent {
    pub(super) fn run(self, pins: Pins, output: &mut Output) -> Result<()> {
        privilege::check()?;
        let Self { interfaces, policy, listen, events } = self;
        let options = Options { interfaces, policy, listen, events };
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
