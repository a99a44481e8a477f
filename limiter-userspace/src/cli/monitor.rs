//! `limiter monitor`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{change, maps};
use crate::{
    datapath::bpffs::Pins, error::Result, output::stream::Output, policy::model::GlobalMode,
};

#[derive(Debug, Args)]
pub(super) struct Monitor {
    /// on: nothing is dropped, what would be is counted; off: as each limit says [default: tell
    /// which it is]
    #[arg(value_enum)]
    switch: Option<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Monitor {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let mode = match self.switch {
            None => maps(pins)?.policy()?.mode,
            Some(switch) => {
                let mode = switch.mode();
                change(pins, |policy| {
                    policy.mode = mode;
                    Ok(())
                })?;
                mode
            }
        };
        let (name, said) = match mode {
            GlobalMode::Monitor => {
                ("monitor", "monitor: on; nothing is dropped, what would be is counted")
            }
            GlobalMode::Enforce => {
                ("enforce", "monitor: off; limits are enforced as each one says")
            }
        };
        if output.is_json() {
            return Ok(output.json(&json!({ "mode": name }))?);
        }
        Ok(writeln!(output, "{said}")?)
    }
}

impl Switch {
    const fn mode(self) -> GlobalMode {
        match self {
            Self::On => GlobalMode::Monitor,
            Self::Off => GlobalMode::Enforce,
        }
    }
}
