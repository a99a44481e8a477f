//! What a policy is compiled for, beside the policy itself.

use limiter_common::algorithm::rate::SECOND;

use crate::policy::interfaces::Port;

/// The circumstances that a policy is compiled for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The epoch that the policy will have.
    pub epoch: u32,
    /// The wall clock, in seconds of Unix time.
    pub unix: u64,
    /// The monotonic clock at the time `unix`, in nanoseconds.
    pub monotonic: u64,
    /// The length of a kernel tick in nanoseconds; 0 if there are no ticks, so that every packet is charged
    /// at the exact time.
    pub tick: u64,
    /// The number of CPUs that process packets; 0 if it is unknown, which counts as 1.
    pub cpus: u64,
    /// The inline limits that the entry of a source has room for; 0 if that is unknown, which counts as all.
    pub places: usize,
    /// The attached interfaces.
    pub interfaces: Vec<Port>,
}

impl Context {
    /// Converts seconds of Unix time to nanoseconds of the monotonic clock; 0 for a time that has passed,
    /// [`u64::MAX`] for ever.
    pub(crate) fn until(&self, unix: u64) -> u64 {
        match unix {
            u64::MAX => u64::MAX,
            unix if unix <= self.unix => 0,
            unix => self.monotonic.saturating_add((unix - self.unix).saturating_mul(SECOND)),
        }
    }
}
