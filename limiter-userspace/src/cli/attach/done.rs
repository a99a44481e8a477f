//! What `limiter attach` did with each interface.

use serde_json::json;

use crate::datapath::{instance::Outcome, interface::Interface, mode::Mode};

/// What was done with an interface.
pub(super) enum Done {
    Attached(Outcome),
    Replaced(Mode),
    /// Its table and its main program were exchanged, as those of all interfaces were.
    Exchanged(Mode),
    Nothing(Mode),
}

impl Done {
    /// In a line. `changed` says that the policy was changed.
    pub(super) fn text(&self, name: &str, changed: bool) -> String {
        match self {
            Self::Attached(Outcome { mode, fallback }) => {
                let cost = match mode {
                    Mode::Native => "",
                    Mode::Generic => ", which is slower and counts packets after they were merged",
                };
                let reason = fallback.as_ref().map_or_else(String::new, |reason| {
                    format!("; the driver refused native mode: {reason}")
                });
                format!("{name}: attached in {mode} mode{cost}{reason}")
            }
            Self::Replaced(mode) => {
                format!("{name}: replaced the program, still in {mode} mode; all state was kept")
            }
            Self::Exchanged(mode) => format!(
                "{name}: attached already, still in {mode} mode; table and main program were exchanged"
            ),
            Self::Nothing(mode) if changed => format!("{name}: attached already, in {mode} mode"),
            Self::Nothing(mode) => {
                format!("{name}: attached already, in {mode} mode; nothing was changed")
            }
        }
    }

    /// As `attach -j` prints it.
    pub(super) fn json((interface, done): (&Interface, &Self)) -> serde_json::Value {
        let (action, mode, fallback) = match done {
            Self::Attached(Outcome { mode, fallback }) => ("attached", mode, fallback.as_ref()),
            Self::Replaced(mode) => ("replaced", mode, None),
            Self::Exchanged(mode) => ("exchanged", mode, None),
            Self::Nothing(mode) => ("unchanged", mode, None),
        };
        json!({
            "name": interface.name,
            "mode": mode.name(),
            "action": action,
            "fallback": fallback.map(ToString::to_string),
        })
    }
}
