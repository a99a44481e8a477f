//! The interface between a watch and the limiter.

use std::fmt::Display;

use ipnet::IpNet;

use super::{action::Action, opened::Details, standing::Standing, view::Reading};
use crate::{datapath::survey::Search, query::dropped::Dropped};

/// A limiter that is watched. An error of [`read`](Self::read) ends the watch, unless it
/// [passes](Self::passes). Other errors are shown as a message.
pub trait DataSource {
    /// An error of a reading.
    type Error: Display;

    /// Whether the cause of an error passes by itself. If so, the reading is tried again, and the
    /// watch goes on.
    fn passes(error: &Self::Error) -> bool;

    /// Reads the counters, and scans the sources if a search is given.
    ///
    /// # Errors
    /// The counters or the sources cannot be read.
    fn read(&mut self, search: Option<&Search>) -> Result<Reading, Self::Error>;

    /// Reads the standings of sources, in the same order.
    ///
    /// # Errors
    /// A message of one line, if they cannot be read.
    fn standings(&mut self, sources: &[IpNet]) -> Result<Vec<Standing>, String>;

    /// Reads the details of a source.
    ///
    /// # Errors
    /// A message of one line, if they cannot be read.
    fn details(&mut self, source: IpNet) -> Result<Details, String>;

    /// Reads the packets that were dropped since the last call, in the order in which they came; or ends that, if they are
    /// not `wanted` any more.
    ///
    /// # Errors
    /// A message of one line, if they cannot be read.
    fn drops(&mut self, wanted: bool) -> Result<Vec<Dropped>, String>;

    /// Changes the policy in force. Returns a message of one line on the result.
    ///
    /// # Errors
    /// A message of one line, if nothing was changed.
    fn act(&mut self, action: &Action) -> Result<String, String>;
}
