//! `limiter detach`.

use clap::Args;
use serde_json::json;

use super::{maps, no_instance, stderr::warn_of_unfinished, test::not_attached};
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, Instance, attached},
        interface::resolve,
    },
    error::{Error, Result},
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

/// What was done.
#[derive(Default)]
struct Done {
    /// The interfaces that were detached.
    detached: Vec<String>,
    /// The interfaces that were named and had nothing to detach.
    free: Vec<String>,
    /// The interfaces that stay attached; `None` if there was no instance.
    left: Option<usize>,
}

impl Detach {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let Done { detached, free, left } =
            if self.all { remove(pins)? } else { self.detach(pins, output)? };
        if output.is_json() {
            let entries: Vec<_> = detached.iter().map(|name| json!({ "name": name })).collect();
            return Ok(output.entries("limiter.detach/1", "interfaces", &entries)?);
        }
        for name in &detached {
            writeln!(output, "{name}: detached")?;
        }
        for name in &free {
            writeln!(output, "{name}: not attached; nothing was changed")?;
        }
        match left {
            None if free.is_empty() => writeln!(output, "Nothing is attached.")?,
            Some(0) => {
                writeln!(
                    output,
                    "Nothing of this instance is left; its policy and state are gone."
                )?;
                if pins.state().exists() {
                    let file = pins.state().display();
                    writeln!(
                        output,
                        "The next attach restores its run-time lists from {file}; delete that to forget them."
                    )?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Detaches from the interfaces that were named. Nothing is done if one of them does not exist.
    fn detach(&self, pins: &Pins, output: &Output) -> Result<Done> {
        let Some(mut instance) = Instance::open_to_attach(pins)? else {
            // What is there is no instance: part of one, or something else.
            if pins.exist()? {
                return Err(no_instance(pins));
            }
            let mut free = Vec::new();
            for word in &self.interfaces {
                free.extend(not_attached_here(word, &[])?);
            }
            return Ok(Done { free, ..Done::default() });
        };
        let all = instance.attached()?;
        let (here, gone): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|it| it.present);
        let (mut found, mut free) = (Vec::<&Attached>::new(), Vec::new());
        for word in &self.interfaces {
            // A word that means an interface in this network namespace does not mean one that is
            // gone or elsewhere.
            let meant = Some(select(word, &here)).filter(|meant| !meant.is_empty());
            let meant = meant.unwrap_or_else(|| select(word, &gone));
            if meant.is_empty() {
                free.extend(not_attached_here(word, &all)?);
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
        let detached = found.iter().map(|attached| attached.name.clone()).collect();
        Ok(Done { detached, free, left: Some(left) })
    }
}

/// The interfaces that a word means, of which none is attached to this instance.
///
/// # Errors
/// [`Error::UnknownInterface`] if there is none, and
/// [`Error::NotAttached`] if one has the program of another instance, or of somebody
/// else, which would stay.
fn not_attached_here(word: &str, attached: &[Attached]) -> Result<Vec<String>> {
    let free = resolve(word)?;
    if free.iter().any(|interface| interface.seen.is_some()) {
        return Err(not_attached(word, attached));
    }
    Ok(free.into_iter().map(|interface| interface.name).collect())
}

/// Removes the instance with everything in it.
fn remove(pins: &Pins) -> Result<Done> {
    // The names are left out if they cannot be read, as from the pins of another version.
    let names = maps(pins).and_then(|maps| attached(pins, &maps)).unwrap_or_default();
    match Instance::remove(pins) {
        Ok(()) => {
            let detached = names.into_iter().map(|attached| attached.name).collect();
            Ok(Done { detached, left: Some(0), ..Done::default() })
        }
        Err(Error::NoInstance { .. }) => Ok(Done::default()),
        Err(error) => Err(error),
    }
}
