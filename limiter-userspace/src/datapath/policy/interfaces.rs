//! Whether what was compiled is for the interfaces that are attached.

use super::{super::maps::Maps, InForce};
use crate::{
    error::{Error, Result},
    policy::Policy,
};

impl Maps {
    /// The interfaces that limits of a policy ask for and that are not attached.
    ///
    /// # Errors
    /// What the system says.
    pub fn absent_interfaces(&self, policy: &Policy) -> Result<Vec<String>> {
        let slots = self.slots()?;
        let absent = |name: &&str| slots.iter().all(|(_, attached)| attached != name);
        Ok(policy.interfaces().into_iter().filter(absent).map(str::to_owned).collect())
    }

    /// Whether the policy in force was compiled for the interfaces that are attached, as far as its
    /// limits ask for them.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn fits_interfaces(&self) -> Result<bool> {
        let in_force = self.in_force()?;
        Ok(in_force.held.fits(&in_force.policy, &self.slots()?))
    }

    /// Checks that, while a policy waits to be confirmed, both it and the one that would be back were
    /// compiled for the interfaces that are attached: nobody compiles that one again when its time
    /// comes. The caller holds the lock.
    ///
    /// # Errors
    /// [`Error::Unconfirmed`], or as [`policy`](Self::policy).
    pub fn check_interfaces(&self) -> Result<()> {
        let Some(left) = self.unconfirmed()? else { return Ok(()) };
        let slots = self.slots()?;
        for half in [0, 1] {
            let InForce { policy, held, .. } = InForce::read(&self.document(half)?)?;
            if !held.fits(&policy, &slots) {
                return Err(Error::Unconfirmed { left });
            }
        }
        Ok(())
    }
}
