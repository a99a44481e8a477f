//! `limiter detach`.

use clap::Args;
use serde_json::json;

use super::{maps, no_instance, stderr::warn_of_unfinished, test::not_attached};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, Instance, attached},
    },
    error::Result,
    output::stream::Output,
    policy::interfaces::select,
};

#[derive(Debug, Args)]
#[command(
    override_usage = "limiter detach [OPTIONS] <IFACE>...\n       limiter detach [OPTIONS] --all"
)]
pub(super) struct Detach {
    /// Interfaces to detach from, named as for `limiter attach`
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "IFACE")]
    interfaces: Vec<String>,
    /// Detach from all interfaces, and remove all that is pinned, also by another version
    #[arg(long)]
    all: bool,
}

impl Detach {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let (detached, left) = if self.all { remove(pins)? } else { self.detach(pins, output)? };
        if output.is_json() {
            let entries: Vec<_> = detached.iter().map(|name| json!({ "name": name })).collect();
            return Ok(output.entries("limiter.detach/1", "interfaces", &entries)?);
        }
        for name in &detached {
            writeln!(output, "{name}: detached")?;
        }
        if left == 0 {
            writeln!(output, "Nothing of this instance is left; its policy and state are gone.")?;
            if pins.state().exists() {
                let file = pins.state().display();
                writeln!(output, "The next attach restores its run-time lists, from {file}.")?;
            }
        }
        Ok(())
    }

    /// Detaches from the interfaces that were named. All of them have to be attached. Returns their
    /// names, and the number of interfaces that stay attached.
    fn detach(&self, pins: &Pins, output: &Output) -> Result<(Vec<String>, usize)> {
        let mut instance = Instance::open_to_attach(pins)?.ok_or_else(|| no_instance(pins))?;
        let all = instance.attached()?;
        let (here, gone): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|it| it.present);
        let mut found: Vec<&Attached> = Vec::new();
        for word in &self.interfaces {
            // A word that means an interface in this network namespace does not mean one that is
            // gone or elsewhere.
            let meant = Some(select(word, &here)).filter(|meant| !meant.is_empty());
            let meant = meant.unwrap_or_else(|| select(word, &gone));
            if meant.is_empty() {
                return Err(not_attached(word, &all));
            }
            for attached in meant {
                if !found.contains(&attached) {
                    found.push(attached);
                }
            }
        }
        for attached in &found {
            instance.detach(attached.slot)?;
        }
        let left = instance.attached()?.iter().filter(|attached| attached.exists).count();
        let unfinished = instance.take_unfinished();
        instance.close_detached()?;
        if let Some(error) = unfinished.filter(|_| left != 0) {
            warn_of_unfinished(&error, output);
        }
        Ok((found.iter().map(|attached| attached.name.clone()).collect(), left))
    }
}

/// Removes the instance with everything in it. Returns the names of its interfaces.
fn remove(pins: &Pins) -> Result<(Vec<String>, usize)> {
    // The names are left out if they cannot be read, as from the pins of another version.
    let names = maps(pins).and_then(|maps| attached(pins, &maps)).unwrap_or_default();
    Instance::remove(pins)?;
    Ok((names.into_iter().map(|attached| attached.name).collect(), 0))
}
