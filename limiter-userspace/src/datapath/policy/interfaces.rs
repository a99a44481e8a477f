//! Whether what was compiled is for the interfaces that are attached.

use limiter_common::abi::interface::Interface as Record;

use super::{
    super::{
        instance::{Attached, attached},
        interface::recorded,
        maps::Maps,
        object::object,
    },
    StoredPolicy,
};
use crate::{
    error::{Error, Result},
    policy::{Policy, interfaces::Port},
};

impl Maps {
    /// The words of limits of a policy that mean no interface which is attached.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn absent_interfaces(&self, policy: &Policy) -> Result<Vec<String>> {
        Ok(self.in_force()?.held.absent(policy, &self.ports()?))
    }

    /// The interfaces that are in slots, with all names that can be seen.
    pub(crate) fn ports(&self) -> Result<Vec<Port>> {
        let attached = attached(&self.pins, self)?;
        let mut ports = Vec::new();
        for (slot, record) in (0..).zip(self.interfaces.iter()) {
            let record: Record = record.map_err(|error| object("read the interfaces", &error))?;
            if record.namespace == 0 {
                continue;
            }
            let seen = attached.iter().find(|attached| attached.slot == slot).map(Attached::port);
            ports.push(seen.unwrap_or_else(|| Port::new(slot, &recorded(&record.name), 0)));
        }
        Ok(ports)
    }

    /// Whether the policy in force was compiled for the interfaces that are attached, as far as its
    /// limits ask for them.
    ///
    /// # Errors
    /// As [`policy`](Self::policy).
    pub fn fits_interfaces(&self) -> Result<bool> {
        let in_force = self.in_force()?;
        Ok(in_force.held.fits(&in_force.policy, &self.ports()?))
    }

    /// Checks that, while a policy waits to be confirmed, both it and the one that would be back were
    /// compiled for the interfaces that are attached: nobody compiles that one again when its time
    /// comes. The caller holds the lock.
    ///
    /// # Errors
    /// [`Error::Unconfirmed`], or as [`policy`](Self::policy).
    pub fn check_interfaces(&self) -> Result<()> {
        let Some(left) = self.unconfirmed()? else { return Ok(()) };
        let ports = self.ports()?;
        for half in [0, 1] {
            let StoredPolicy { policy, held, .. } = StoredPolicy::read(&self.document(half)?)?;
            if !held.fits(&policy, &ports) {
                return Err(Error::Unconfirmed { left });
            }
        }
        Ok(())
    }
}
