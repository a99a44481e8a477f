//! What a watch asks of a limiter.

use std::fmt::Display;

use ipnet::IpNet;

use super::{action::Action, opened::Details, standing::Standing, view::Reading};
use crate::datapath::survey::Search;

/// A limiter that is watched. What fails in [`read`](Self::read), and does not [pass](Self::passes), ends
/// the watch; what fails elsewhere is told in a line.
pub trait DataSource {
    /// Why it cannot be read.
    type Error: Display;

    /// Whether what a reading failed by passes by itself: it is tried again then, and the watch goes on.
    fn passes(error: &Self::Error) -> bool;

    /// Reads the counters, and looks for these sources if that is asked for.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&mut self, search: Option<&Search>) -> Result<Reading, Self::Error>;

    /// How sources stand to the policy, in their order.
    ///
    /// # Errors
    /// Why that cannot be told, in a line.
    fn standings(&mut self, sources: &[IpNet]) -> Result<Vec<Standing>, String>;

    /// All that is known of a source, and what decides about its packets.
    ///
    /// # Errors
    /// Why that cannot be told, in a line.
    fn details(&mut self, source: IpNet) -> Result<Details, String>;

    /// Changes the policy in force, and says what came of it.
    ///
    /// # Errors
    /// Why nothing was changed, in a line.
    fn act(&mut self, action: &Action) -> Result<String, String>;
}
