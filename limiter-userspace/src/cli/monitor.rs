//! `limiter monitor`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    change::change,
    keep_ssh::{KeepSsh, keep},
    maps, unix,
};
use crate::{
    datapath::{bpffs::Pins, maps::Maps, monitoring::Monitoring},
    error::Result,
    output::stream::Output,
    policy::{Session, model::GlobalMode},
};

#[derive(Debug, Args)]
pub(super) struct Monitor {
    /// on: drop nothing under this and any later policy, and count would-be drops; off: enforce limits
    /// again, each by its `action` [default: show the present state]
    #[arg(value_enum)]
    switch: Option<Switch>,
    #[command(flatten)]
    keep: KeepSsh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    #[value(aliases = ["true", "yes", "1", "enable", "start"])]
    On,
    #[value(aliases = ["false", "no", "0", "disable", "stop"])]
    Off,
}

impl Monitor {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        match self.switch {
            None => {
                let monitoring = maps(pins)?.monitoring()?;
                tell(monitoring, said(monitoring), output)
            }
            Some(Switch::On) => on(pins, output),
            Some(Switch::Off) => off(pins, self.keep.session(output)?, output),
        }
    }
}

/// Turns the monitor switch on, so that nothing is dropped. An operator needs it when too much is
/// dropped: it takes no lock, and after the switch is on only the output can fail.
fn on(pins: &Pins, output: &mut Output) -> Result<()> {
    let maps = throw(pins, true)?;
    let monitoring = maps.monitoring().unwrap_or_default();
    let monitoring = Monitoring { switch: true, ..monitoring };
    tell(monitoring, said(monitoring), output)?;
    if maps.policy().is_ok_and(|policy| !policy.on_requests.is_empty()) && !output.is_json() {
        let own = "Limits on requests go on: `mode: monitor` in the document of the bridge has them only count.";
        writeln!(output, "{own}")?;
    }
    Ok(())
}

/// Turns the monitor switch off, and takes `mode: monitor` out of the policy, so that limits are
/// enforced.
fn off(pins: &Pins, session: Option<Session>, output: &mut Output) -> Result<()> {
    let maps = maps(pins)?;
    let policy = maps.monitoring()?.policy;
    // While the switch was on, a policy may have come into force that would drop the session.
    let endangered =
        session.is_some() && { keep(session, &mut maps.layers()?, Some(&maps), unix())?.is_some() };
    let mut changed = None;
    if policy == GlobalMode::Monitor || endangered {
        changed = Some(change(pins, session, |layers| {
            layers.policy.mode = GlobalMode::Enforce;
            Ok(())
        })?);
    }
    // Last, so that nothing is enforced if the change of the policy was refused.
    let monitoring = throw(pins, false)?.monitoring()?;
    let text = match policy {
        GlobalMode::Monitor => {
            "monitor: off; limits are enforced, each by its `action`: `mode: monitor` was taken out of the \
             policy"
        }
        GlobalMode::Enforce => said(monitoring),
    };
    tell(monitoring, text, output)?;
    changed.map_or(Ok(()), |changed| changed.enforced().tell(output))
}

/// Throws the switch of the maps in use. As no lock is held, they may be exchanged, or removed and made anew, meanwhile.
fn throw(pins: &Pins, on: bool) -> Result<Maps> {
    loop {
        let mut maps = maps(pins)?;
        maps.switch_monitor(on)?;
        if maps.are_pinned(pins).unwrap_or(true) {
            return Ok(maps);
        }
    }
}

/// The state of monitor mode, on one line.
const fn said(monitoring: Monitoring) -> &'static str {
    match monitoring {
        Monitoring { switch: true, policy: GlobalMode::Enforce } => {
            "monitor: on; nothing is dropped, only counted, until `limiter monitor off`"
        }
        Monitoring { switch: true, policy: GlobalMode::Monitor } => {
            "monitor: on, and the policy has `mode: monitor`; nothing is dropped, only counted, \
             until `limiter monitor off`"
        }
        Monitoring { switch: false, policy: GlobalMode::Monitor } => {
            "monitor: off, but the policy has `mode: monitor`; nothing is dropped, only counted, \
             until `limiter monitor off`"
        }
        Monitoring { switch: false, policy: GlobalMode::Enforce } => {
            "monitor: off; limits are enforced, each by its `action`"
        }
    }
}

fn tell(monitoring: Monitoring, text: &str, output: &mut Output) -> Result<()> {
    if !output.is_json() {
        return Ok(writeln!(output, "{text}")?);
    }
    let Monitoring { switch, policy } = monitoring;
    let value = json!({ "mode": monitoring.mode(), "switch": switch, "policy": policy });
    Ok(output.shape("limiter.monitor/1", &value)?)
}
