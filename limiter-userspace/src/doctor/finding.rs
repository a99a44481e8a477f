//! What a check found.

use serde::Serialize;

use crate::error::Error;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Limits work, but not everybody expects this.
    Note,
    /// It costs speed, or limits see less than there is.
    Warn,
    /// Limiter does not work so.
    Fail,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The interface that it is about; none if it is about the host.
    pub interface: Option<String>,
    /// What was checked.
    pub check: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { interface: None, check, verdict, found: found.into(), remedy: None }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found)
    }

    /// What kept a check from ending well, with its remedy if it has one.
    pub(super) fn failed(check: &'static str, error: &Error) -> Self {
        // The lines after the first are what the verifier has to say.
        let text = error.to_string();
        let found = text.lines().next().unwrap_or_default();
        Self { remedy: error.remedy(), ..Self::new(check, Verdict::Fail, found) }
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}
