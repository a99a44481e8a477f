//! `limiter monitor`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{change::change, instance, keep_ssh::KeepSsh, maps};
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
        let (mode, changed) = match self.switch {
            None => (maps(pins)?.policy()?.mode, None),
            Some(Switch::On) => {
                // Whatever else waits: this is for when too much is dropped.
                let mut instance = instance(pins)?;
                instance.maps_mut().monitor()?;
                (instance.maps().policy()?.mode, None)
            }
            Some(Switch::Off) => {
                let changed = change(pins, self.keep.session(output)?, |policy| {
                    policy.mode = GlobalMode::Enforce;
                    Ok(())
                })?;
                (changed.policy.mode, Some(changed))
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
            output.json(&json!({ "mode": name }))?;
        } else {
            writeln!(output, "{said}")?;
        }
        changed.map_or(Ok(()), |changed| changed.tell(output))
    }
}
