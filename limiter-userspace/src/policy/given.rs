//! The bursts that an operator wrote, kept for commands that change only a rate.

use serde::{Deserialize, Serialize};

use super::{model::OverrideWhom, units::Burst};

/// The bursts that were written, of a limit and of its overrides, in their original form (a count or a time).
/// A burst that is not here is the default of the rate. Only limits and overrides with one layer have
/// entries.
///
/// All values are equal, so that limits that differ only in the form of a burst are equal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Given(Vec<(Option<OverrideWhom>, Burst)>);

impl Given {
    /// The written burst of the override for `whom`, or of the limit itself for `None`.
    pub fn get(&self, whom: Option<&OverrideWhom>) -> Option<Burst> {
        self.0.iter().find(|(other, _)| other.as_ref() == whom).map(|(_, burst)| *burst)
    }

    /// Stores the written burst of the override for `whom`, or of the limit itself for `None`. `burst: None`
    /// removes it.
    pub fn set(&mut self, whom: Option<&OverrideWhom>, burst: Option<Burst>) {
        self.0.retain(|(other, _)| other.as_ref() != whom);
        self.0.extend(burst.map(|burst| (whom.cloned(), burst)));
    }

    /// Whether no burst was written.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Given {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Given {}
