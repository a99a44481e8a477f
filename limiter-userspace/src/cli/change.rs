//! Changing the policy in force.

use std::collections::HashSet;

use super::{
    instance,
    keep_ssh::{Kept, keep},
    stderr::{SWITCHED, warn_of_shadowed, warn_of_switch},
    unix,
};
use crate::{
    datapath::bpffs::Pins,
    error::Result,
    output::stream::Output,
    policy::{Policy, Session, spec::check_length},
};

/// What came of a change.
pub(super) struct Changed<T> {
    /// The policy as it is now.
    pub(super) policy: Policy,
    /// What the edit says.
    pub(super) said: T,
    kept: Option<Kept>,
    /// What decides nothing any more, as it is told.
    shadowed: Vec<String>,
    /// Whether nothing is dropped all the same, by the switch.
    switched: bool,
}

/// Changes the policy in force: every edit of it comes by here, so that none cuts off the session that
/// it is given over.
pub(super) fn change<T>(
    pins: &Pins,
    session: Option<Session>,
    edit: impl FnOnce(&mut Policy) -> Result<T>,
) -> Result<Changed<T>> {
    let mut instance = instance(pins)?;
    let before = instance.maps().settled()?;
    let mut policy = before.clone();
    let said = edit(&mut policy)?;
    let kept = keep(session, &mut policy, &before, Some(instance.maps()), unix())?;
    check_length(&policy)?;
    instance.maps_mut().apply(&policy)?;
    let known: HashSet<String> = before.shadowed().iter().map(ToString::to_string).collect();
    let mut shadowed: Vec<_> = policy.shadowed().iter().map(ToString::to_string).collect();
    shadowed.retain(|shadowed| !known.contains(shadowed));
    let switched = instance.maps().monitoring()?.switch;
    Ok(Changed { policy, said, kept, shadowed, switched })
}

impl<T> Changed<T> {
    /// The same, after the switch was taken back.
    pub(super) fn enforced(self) -> Self {
        Self { switched: false, ..self }
    }

    /// What else came of it than what was asked for, a part each.
    pub(super) fn besides(&self) -> Vec<String> {
        let kept = self.kept.map(|kept| kept.said("is"));
        let switched = self.switched.then(|| SWITCHED.to_owned());
        kept.into_iter().chain(self.shadowed.iter().cloned()).chain(switched).collect()
    }

    /// Tells what else came of it than what was asked for, after that.
    pub(super) fn tell(&self, output: &mut Output) -> Result<()> {
        if let Some(kept) = self.kept {
            kept.tell(output)?;
        }
        warn_of_shadowed(&self.shadowed, output);
        if self.switched {
            warn_of_switch(output);
        }
        Ok(())
    }
}
