//! How bursts were written, for commands that change a rate.

use serde::{Deserialize, Serialize};

use super::{model::OverrideWhom, units::Burst};

/// The bursts of a limit and of its overrides that were written, as they were: of others, the rate
/// decides. It is only about limits and overrides of one rate.
///
/// It says nothing of what is admitted: limits that differ in this alone are equal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Given(Vec<(Option<OverrideWhom>, Burst)>);

impl Given {
    /// The burst of an override, or of the limit itself, if it was written.
    pub fn get(&self, whom: Option<&OverrideWhom>) -> Option<Burst> {
        self.0.iter().find(|(other, _)| other.as_ref() == whom).map(|(_, burst)| *burst)
    }

    /// Says how it is written, or that it is not.
    pub fn set(&mut self, whom: Option<&OverrideWhom>, burst: Option<Burst>) {
        self.0.retain(|(other, _)| other.as_ref() != whom);
        self.0.extend(burst.map(|burst| (whom.cloned(), burst)));
    }

    /// Whether none was written.
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
