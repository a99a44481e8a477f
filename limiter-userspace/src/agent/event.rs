//! What an agent tells of.

use std::{fmt, path::PathBuf};

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::{
    datapath::mode::Mode,
    error::Error,
    output::number::grouped,
    policy::{reading::name, spec::Warnings},
};

/// The name of the form that events have in JSON.
pub const SCHEMA: &str = "limiter.agent/1";

/// Something that an agent did, or could not do.
#[derive(Debug)]
pub enum Event {
    /// It sees to things from now on.
    Started,
    /// An interface was attached.
    Attached {
        /// The interface.
        interface: String,
        /// How the program runs on it.
        mode: Mode,
    },
    /// The program of this version was put in the place of the one that ran.
    Replaced {
        /// The interface.
        interface: String,
    },
    /// The policy of a document was put in force.
    Applied {
        /// The document.
        document: PathBuf,
        /// How many lines of it differ from what was in force.
        changes: usize,
    },
    /// The policy of a document is in force already.
    Unchanged {
        /// The document.
        document: PathBuf,
    },
    /// A document is applied, and is hardly meant so.
    Warned(Warnings),
    /// A document is not used; the policy in force stays.
    Rejected(Error),
    /// Something else did not work, and is tried again.
    Failed(Error),
    /// It was asked to end; everything stays attached.
    Stopped,
}

impl Event {
    /// Its name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Attached { .. } => "attached",
            Self::Replaced { .. } => "replaced",
            Self::Applied { .. } => "applied",
            Self::Unchanged { .. } => "unchanged",
            Self::Warned(_) => "warned",
            Self::Rejected(_) => "rejected",
            Self::Failed(_) => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => write!(f, "started"),
            Self::Attached { interface, mode } => {
                write!(f, "{interface}: attached, {}", mode.name())
            }
            Self::Replaced { interface } => write!(f, "{interface}: program replaced"),
            Self::Applied { document, changes } => {
                let changes = match changes {
                    1 => "1 change".to_owned(),
                    more => format!("{} changes", grouped(*more as u64)),
                };
                write!(f, "{}: applied: {changes}", name(document))
            }
            Self::Unchanged { document } => write!(f, "{}: in force already", name(document)),
            Self::Warned(warnings) => write!(f, "{}", warnings.to_string().trim_end()),
            Self::Rejected(error) => {
                write!(f, "{error}\nwhat is in force stays, until the document is right")
            }
            Self::Failed(error) => {
                write!(f, "error: {error}")?;
                match error.remedy() {
                    Some(remedy) => write!(f, "\nhint: {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Stopped => write!(f, "stopped; what is attached stays attached"),
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", SCHEMA)?;
        map.serialize_entry("event", self.name())?;
        match self {
            Self::Attached { interface, mode } => {
                map.serialize_entry("interface", interface)?;
                map.serialize_entry("mode", mode.name())?;
            }
            Self::Replaced { interface } => map.serialize_entry("interface", interface)?,
            Self::Applied { document, changes } => {
                map.serialize_entry("document", &name(document))?;
                map.serialize_entry("changes", changes)?;
            }
            Self::Unchanged { document } => map.serialize_entry("document", &name(document))?,
            Self::Warned(warnings) => map.serialize_entry("message", &warnings.to_string())?,
            Self::Rejected(error) | Self::Failed(error) => {
                map.serialize_entry("message", &error.to_string())?;
                map.serialize_entry("hint", &error.remedy())?;
            }
            Self::Started | Self::Stopped => {}
        }
        map.end()
    }
}
