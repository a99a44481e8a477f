//! The changes of the policy that a watch can make.

use std::time::Duration;

use ipnet::IpNet;

use crate::{
    output::number::duration,
    policy::{List, model::Mode},
    query::source::source_name,
};

/// A change of the policy in force, like that of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Puts a source on a list for a time.
    Put {
        /// `allow` or `deny`.
        list: List,
        /// The source.
        source: IpNet,
        /// How long the entry lasts.
        time: Duration,
    },
    /// Sets the mode of a limit.
    Switch {
        /// The name of the limit.
        limit: String,
        /// The new mode.
        mode: Mode,
    },
}

impl Action {
    /// The words for the change, as a question for its confirmation.
    pub fn described(&self) -> String {
        match self {
            Self::Put { list, source, time } => {
                let (source, time) = (source_name(*source), duration(*time));
                match list {
                    List::Allow => format!("allow {source} for {time}: no limit is asked"),
                    _ => format!("{} {source} for {time}: drop all of it", list.name()),
                }
            }
            Self::Switch { limit, mode } => match mode {
                Mode::Enforce => format!("enforce limit {limit}: drop what is over it"),
                _ => format!("monitor limit {limit}: count what is over it, and drop none"),
            },
        }
    }
}
