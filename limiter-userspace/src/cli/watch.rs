//! `limiter watch`.

mod data_source;

use std::path::PathBuf;

use clap::Args;

use super::{
    bridge::{SOCKET, unix_socket},
    keep_ssh::KeepSsh,
};
use crate::{
    cli::watch::data_source::Watched,
    datapath::bpffs::Pins,
    error::Result,
    output::stream::Output,
    policy::{PolicyError, units::parse_time},
    watch::{options::Options, session},
};

const HELP: &str = "\
On a terminal, `?` lists the keys. Those that change something ask first, and do what `limiter deny \
add`, `limiter allow add` and `limiter limit set --action` do.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Watch {
    /// Time between two readings, 50ms to 1d
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    interval: String,
    /// End after this number of intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// Print one line, over one interval, and end
    #[arg(long, conflicts_with_all = ["count", "length"])]
    once: bool,
    /// Print lines instead of drawing a screen
    #[arg(long)]
    lines: bool,
    /// Ignore the keys that change something
    #[arg(long)]
    read_only: bool,
    /// Socket of the bridge, which knows the limits on requests of a source
    #[arg(long, value_name = "ADDRESS", default_value = SOCKET, value_parser = unix_socket)]
    bridge: PathBuf,
    #[command(flatten)]
    keep: KeepSsh,
}

impl Watch {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let interval = parse_time(&self.interval).map_err(PolicyError::from)?;
        let length =
            self.length.as_deref().map(parse_time).transpose().map_err(PolicyError::from)?;
        let options = if self.once {
            Options::once(interval)
        } else {
            Options {
                interval,
                count: self.count,
                length,
                lines: self.lines,
                read_only: self.read_only,
            }
        };
        let watched = Watched::new(pins, (!self.read_only).then_some(&self.keep), &self.bridge)?;
        session::run(&options, output, watched)
    }
}
