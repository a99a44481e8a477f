//! What can be changed from a watch.

use std::time::Duration;

use ipnet::IpNet;

use crate::{
    output::number::duration,
    policy::{List, model::Mode},
    query::source::source_name,
};

/// A change of the policy in force, as one of the command line would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Puts a source on a list for a time.
    Put {
        /// `allow` or `deny`.
        list: List,
        /// The source.
        source: IpNet,
        /// For how long.
        time: Duration,
    },
    /// Has a limit drop, or only count.
    Switch {
        /// Its name.
        limit: String,
        /// What it is to do.
        mode: Mode,
    },
}

impl Action {
    /// What is going to be done, for a question.
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
