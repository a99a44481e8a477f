//! `limiter watch`.

use clap::Args;

use super::{limit::rows, maps, no_instance, statistics::scan, unix};
use crate::{
    datapath::{bpffs::Pins, instance::attached},
    error::Result,
    output::stream::Output,
    policy::{PolicyError, units::parse_duration},
    watch::{
        session::{self, Options},
        view::Reading,
    },
};

/// Sources that are kept in sight, to find those that are dropped fastest.
const CANDIDATES: usize = 1000;

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// Time between two readings
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    interval: String,
    /// End after so many intervals
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
}

impl Watch {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let interval = parse_duration(&self.interval).map_err(PolicyError::from)?;
        let length =
            self.length.as_deref().map(parse_duration).transpose().map_err(PolicyError::from)?;
        let options = if self.once {
            Options::once(interval)
        } else {
            Options { interval, count: self.count, length, lines: self.lines }
        };
        let mut maps = maps(pins)?;
        session::run(&options, output, |sources| {
            // The instance may have been removed, and made anew.
            if !maps.are_pinned(pins)? {
                maps = super::maps(pins)?;
            }
            let attached = attached(pins, &maps)?;
            if attached.is_empty() {
                return Err(no_instance(pins));
            }
            Ok(Reading {
                snapshot: maps.snapshot(&attached)?,
                limits: rows(&maps.in_force()?.policy, unix()),
                scan: if sources { Some(scan(&maps, CANDIDATES)?) } else { None },
            })
        })
    }
}
