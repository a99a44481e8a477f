//! The meters of a policy.

use std::collections::HashMap;

use limiter_common::algorithm::{binding::Binding, meter::Meter};

use crate::policy::error::{METERS, PolicyError};

/// The distinct meters, numbered in the order in which they were met.
pub(super) struct Meters {
    pub(super) meters: Vec<Meter>,
    numbers: HashMap<Meter, u32>,
}

impl Default for Meters {
    fn default() -> Self {
        let none = Meter::default();
        Self { meters: vec![none], numbers: HashMap::from([(none, 0)]) }
    }
}

impl Meters {
    /// The number of a meter; a new one if no equal meter has one.
    pub(super) fn number(&mut self, meter: Meter) -> Result<u32, PolicyError> {
        if let Some(&number) = self.numbers.get(&meter) {
            return Ok(number);
        }
        let number = number(self.meters.len(), METERS)?;
        self.meters.push(meter);
        self.numbers.insert(meter, number);
        Ok(number)
    }

    /// The meter with a number.
    pub(super) fn get(&self, number: u32) -> Option<&Meter> {
        self.meters.get(number as usize)
    }
}

/// The number of the next of `what`, after `count` of them, if it fits into a [`Binding`].
pub(super) fn number(count: usize, what: &'static str) -> Result<u32, PolicyError> {
    u32::try_from(count)
        .ok()
        .filter(|&number| number < Binding::PROFILES)
        .ok_or(PolicyError::TooManyNumbers { what, most: Binding::PROFILES })
}
