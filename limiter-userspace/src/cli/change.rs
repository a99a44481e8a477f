//! Changes of the policy and the run-time lists in force.

use std::{collections::HashSet, ffi::c_void, hint::black_box, sync::Arc};

use rustix::mm::{Advice, madvise};

use super::{
    instance,
    keep_ssh::{Kept, keep},
    stderr::{
        SWITCHED, unfinished, warn, warn_of_error, warn_of_shadowed, warn_of_switch,
        warn_of_unfinished,
    },
    unix,
};
use crate::{
    datapath::{bpffs::Pins, exchange::Exchanged, instance::Instance, policy::StoredPolicy},
    error::{Error, Result},
    output::{exchanged, stream::Output},
    policy::{Layered, Layers, Session, document::check_length},
};

/// The result of a change.
pub(super) struct Changed<T> {
    /// What is in force after the change.
    in_force: Arc<StoredPolicy>,
    /// The result of the edit.
    pub(super) said: T,
    kept: Option<Kept>,
    /// Messages on entries that the change has left without effect.
    shadowed: Vec<String>,
    /// Whether nothing is dropped all the same, as the monitor switch is on.
    switched: bool,
    /// Why the run-time lists could not be written to their file.
    unkept: Option<Error>,
    /// Why an exchange that another process began could not be finished.
    unfinished: Option<Error>,
    /// What was carried over, if the tables were exchanged for larger ones first.
    exchanged: Option<Exchanged>,
}

/// Edits the policy and the run-time lists, and puts them in force. Every edit by a command or a
/// watch goes through here, so that none cuts off the SSH session of its user.
pub(super) fn change<T>(
    pins: &Pins,
    session: Option<Session>,
    mut edit: impl FnMut(&mut Layers) -> Result<T>,
) -> Result<Changed<T>> {
    keep_freed_memory();
    let (changed, exchanged) = Instance::with_room(pins, || try_change(pins, session, &mut edit))?;
    Ok(Changed { exchanged, ..changed })
}

/// The same where there is room for what the edit makes of the policy.
fn try_change<T>(
    pins: &Pins,
    session: Option<Session>,
    edit: &mut impl FnMut(&mut Layers) -> Result<T>,
) -> Result<Changed<T>> {
    let mut instance = instance(pins)?;
    let unfinished = instance.take_unfinished();
    // Lists may be long: they are copied as seldom as possible.
    let mut layers = instance.maps().settled()?;
    let known: HashSet<String> = layers.shadowed().into_iter().collect();
    let before = instance.maps().in_force()?;
    let said = edit(&mut layers)?;
    let kept = keep(session, &mut layers, Some(instance.maps()), unix())?;
    // Its lists may be long, and most edits are of the run-time lists.
    if layers.policy != before.policy {
        check_length(&layers.policy)?;
    }
    let mut shadowed = layers.shadowed();
    instance.maps_mut().put_in_force(layers, None, None)?;
    let in_force = instance.maps().in_force()?;
    let switched = instance.maps().monitoring();
    // The change is in force already. Without the file, only a restart of the machine would lose
    // it.
    let unkept = instance.keep_run_time().err();
    let switched = switched?.switch;
    shadowed.retain(|shadowed| !known.contains(shadowed));
    Ok(Changed { in_force, said, kept, shadowed, switched, unkept, unfinished, exchanged: None })
}

/// Has the allocator keep what is freed, and large pages for it. Each step of a change of long lists frees some megabytes and
/// takes as many, and pages that were given back in between would be cleared by the kernel once more.
fn keep_freed_memory() {
    /// The largest from which on an allocation has pages of its own, in bytes.
    const MAPPED_FROM: libc::c_int = 32 << 20;
    const LARGE_PAGE: usize = 2 << 20;
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_FROM),
        (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
        (libc::M_TOP_PAD, 2 * MAPPED_FROM),
    ] {
        // SAFETY: sets a parameter of the allocator, under its lock. A value that it refuses leaves the old one.
        unsafe { libc::mallopt(parameter, value) };
    }
    // SAFETY: tells the end of the heap, and moves nothing.
    let end = || unsafe { libc::sbrk(0) } as usize;
    let from = end().next_multiple_of(LARGE_PAGE);
    // The heap grows by what `M_TOP_PAD` says.
    drop(black_box(Vec::<u8>::with_capacity(LARGE_PAGE)));
    if let Some(length) = end().checked_sub(from).filter(|it| *it >= LARGE_PAGE) {
        // SAFETY: the range is of the heap, and what is written in it stays. Without large pages, nothing changes.
        let _: rustix::io::Result<()> =
            unsafe { madvise(from as *mut c_void, length, Advice::LinuxHugepage) };
    }
}

impl<T> Changed<T> {
    /// The policy and the run-time lists after the change.
    pub(super) fn layered(&self) -> Layered<'_> {
        self.in_force.layered()
    }

    /// The same result, after the monitor switch was turned off.
    pub(super) fn enforced(self) -> Self {
        Self { switched: false, ..self }
    }

    /// The side effects of the change, a message each.
    pub(super) fn besides(&self) -> Vec<String> {
        let kept = self.kept.map(|kept| kept.said("is"));
        let unkept = self.unkept.as_ref().map(|error| format!("{error}: {UNKEPT}"));
        let switched = self.switched.then(|| SWITCHED.to_owned());
        let unfinished =
            self.unfinished.as_ref().map(|error| format!("{error}: {}", unfinished(error)));
        let parts = self.made_room().into_iter().chain(kept).chain(unkept).chain(unfinished);
        parts.chain(self.shadowed.iter().cloned()).chain(switched).collect()
    }

    /// What is to be told of larger tables.
    fn made_room(&self) -> Option<String> {
        let carried = exchanged::text(self.exchanged.as_ref()?);
        Some(format!("made room for the change first; {carried}"))
    }

    /// Reports the side effects of the change, after its result.
    pub(super) fn tell(&self, output: &mut Output) -> Result<()> {
        match self.made_room() {
            Some(said) if output.is_json() => warn(&said, output),
            Some(said) => writeln!(output, "{said}")?,
            None => {}
        }
        if let Some(kept) = self.kept {
            kept.tell(output)?;
        }
        if let Some(error) = &self.unkept {
            warn_of_error(error, UNKEPT, output);
        }
        if let Some(error) = &self.unfinished {
            warn_of_unfinished(error, output);
        }
        warn_of_shadowed(&self.shadowed, output);
        if self.switched {
            warn_of_switch(output);
        }
        Ok(())
    }
}

/// The warning if the run-time lists could not be written to their file.
pub(super) const UNKEPT: &str = "the run-time lists are in force, and would be lost at a reboot";
