//! Whether limiter can work here, and what keeps it from working well.
//!
//! Nothing is changed: what a check needs of the kernel is made without a name, and goes with it.

mod driver;
mod finding;
mod host;
mod port;

pub(crate) use self::driver::{cost, interruption};
pub use self::finding::{Finding, Verdict};
use self::port::Owner;
use crate::{
    datapath::{
        bpffs::Pins,
        instance::{Attached, attached},
        interface::{Interface, list, resolve},
        link::exists,
        maps::Maps,
        stacked,
    },
    error::Result,
    policy::units::printable,
};

/// Checks the host, and the interfaces of these names; of none, those that limiter is attached to, or
/// else all that are up and that it could be attached to.
///
/// # Errors
/// [`Error::UnknownInterface`](crate::error::Error::UnknownInterface), or what the system says where it cannot be checked at all.
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
        for mut finding in port::examine(pins, interface, &state, is_ours(interface)) {
            finding.interface = Some(printable(&interface.name, 16));
            // Nobody asked for this one to be attached.
            if names.is_empty() && finding.verdict == Verdict::Fail {
                finding.verdict = Verdict::Warn;
            }
            findings.push(finding);
        }
    }
    findings.extend(twice(ours.as_deref().unwrap_or_default())?);
    Ok(findings)
}

/// The pairs of attached interfaces that count packets twice.
fn twice(ours: &[Attached]) -> Result<Vec<Finding>> {
    let all = list()?;
    let is_ours = |it: &&Interface| ours.iter().any(|ours| ours.present && ours.index == it.index);
    let attached: Vec<_> = all.iter().filter(is_ours).collect();
    let finding = |[below, above]: [&Interface; 2]| {
        let (found, remedy) = stacked::twice(below, above);
        Finding {
            interface: Some(printable(&below.name, 16)),
            ..Finding::new("twice", Verdict::Warn, found).with_remedy(remedy)
        }
    };
    Ok(stacked::stacked(&attached).into_iter().map(finding).collect())
}

/// What the instance is attached to; nothing if there is none.
fn ours(pins: &Pins) -> Result<Vec<Attached>> {
    if !exists(pins)? {
        return Ok(Vec::new());
    }
    attached(pins, &Maps::open(pins)?)
}
