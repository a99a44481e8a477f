//! `limiter monitor`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{change, keep_ssh::KeepSsh, maps};
use crate::{
    datapath::bpffs::Pins, error::Result, output::stream::Output, policy::model::GlobalMode,
};

#[derive(Debug, Args)]
pub(super) struct Monitor {
    /// on: nothing is dropped, what would be is counted; off: as each limit says [default: tell
    /// which it is]
    #[arg(value_enum)]
    switch: Option<Switch>,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Monitor {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let changed = self.switch.map(|switch| {
            change(pins, self.keep.session()?, |policy| {
                policy.mode = switch.mode();
                Ok(())
            })
        });
        let changed = changed.transpose()?;
        let mode = match &changed {
            None => maps(pins)?.policy()?.mode,
            Some(changed) => changed.policy.mode,
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
            output.json(&json!({ "mode": name }))?;
        } else {
            writeln!(output, "{said}")?;
        }
        changed.map_or(Ok(()), |changed| changed.tell(output))
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
