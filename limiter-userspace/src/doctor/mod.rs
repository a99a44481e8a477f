//! Whether limiter can work here, and what keeps it from working well.
//!
//! Nothing is changed: what a check needs of the kernel is made without a name, and goes with it.

mod host;
mod port;

use serde::Serialize;

use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, attached, exists},
        interface::{Interface, list, resolve},
        maps::Maps,
    },
    error::{Error, Result},
    policy::units::printable,
};

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
    fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { interface: None, check, verdict, found: found.into(), remedy: None }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found)
    }

    /// What kept a check from ending well, with its remedy if it has one.
    fn failed(check: &'static str, error: &Error) -> Self {
        // The lines after the first are what the verifier has to say.
        let text = error.to_string();
        let found = text.lines().next().unwrap_or_default();
        Self { remedy: error.remedy(), ..Self::new(check, Verdict::Fail, found) }
    }

    fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// Checks the host, and the interfaces of these names; of none, those that limiter is attached to, or
/// else all that are up and that it could be attached to.
///
/// # Errors
/// [`Error::UnknownInterface`], or what the system says where it cannot be checked at all.
pub fn examine(pins: &Pins, names: &[String]) -> Result<Vec<Finding>> {
    let mut named: Vec<Interface> = Vec::new();
    for word in names {
        named.extend(resolve(word)?);
    }
    let ours = ours(pins);
    let mut findings = host::examine(pins, &ours);
    let is_ours = |interface: &Interface| match &ours {
        Ok(ours) => match ours.iter().find(|it| it.present && it.index == interface.index) {
            Some(attached) => Owner::Ours(attached),
            None => Owner::NotOurs,
        },
        Err(_) => Owner::Unknown,
    };
    let mut interfaces = named;
    let mut only_up = false;
    if names.is_empty() {
        interfaces = list()?;
        let any_is_ours = interfaces.iter().any(|it| matches!(is_ours(it), Owner::Ours(_)));
        interfaces.retain(|it| match any_is_ours {
            true => matches!(is_ours(it), Owner::Ours(_)),
            false => it.name != "lo" && it.check_ethernet().is_ok(),
        });
        only_up = !any_is_ours;
    }
    for interface in &interfaces {
        let state = interface.state();
        if only_up && !state.as_ref().is_ok_and(|state| state.is_up) {
            continue;
        }
        for mut finding in port::examine(interface, &state, is_ours(interface)) {
            finding.interface = Some(printable(&interface.name, 16));
            // Nobody asked for this one to be attached.
            if names.is_empty() && finding.verdict == Verdict::Fail {
                finding.verdict = Verdict::Warn;
            }
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// Whose an interface is.
#[derive(Clone, Copy, Debug)]
enum Owner<'a> {
    Ours(&'a Attached),
    NotOurs,
    /// What there is of an instance cannot be read.
    Unknown,
}

/// What the instance is attached to; nothing if there is none.
fn ours(pins: &Pins) -> Result<Vec<Attached>> {
    if !exists(pins)? {
        return Ok(Vec::new());
    }
    attached(pins, &Maps::open(pins)?)
}
