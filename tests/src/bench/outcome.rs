//! The expected outcome of the frames of a case.

use anyhow::{Result, ensure};
use limiter_common::packet::reason::Reason;

/// The reasons under which the frames of a case are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All frames have this reason.
    Each(Reason),
    /// More than half of the frames have one of the first reasons; the others have one of the second.
    Most(&'static [Reason], &'static [Reason]),
    /// Every frame has one of these reasons, and each reason occurs.
    Both([Reason; 2]),
}

impl Outcome {
    /// All reasons that a frame may have.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        match self {
            Self::Each(reason) => vec![*reason],
            Self::Most(most, others) => [*most, *others].concat(),
            Self::Both(both) => both.to_vec(),
        }
    }

    /// Checks the count of each reason, `counted`, against this outcome. Up to `strays` of the `received`
    /// frames may have another reason.
    pub(crate) fn check(
        &self,
        name: &str,
        received: u64,
        counted: impl Fn(Reason) -> u64,
        strays: u64,
    ) -> Result<()> {
        let sum = |reasons: &[Reason]| reasons.iter().map(|reason| counted(*reason)).sum::<u64>();
        let names = |reasons: &[Reason]| {
            reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>().join(" or ")
        };
        let reasons = self.reasons();
        let expected = sum(&reasons);
        let is_other = |reason: &Reason| !reasons.contains(reason) && counted(*reason) > 0;
        let others: Vec<_> = Reason::ALL.into_iter().filter(is_other).collect();
        ensure!(
            received - expected <= strays,
            "{name}: of {received} frames only {expected} were counted as {}, and others as {}",
            names(&reasons),
            names(&others)
        );
        match self {
            Self::Each(_) => {}
            Self::Most(most, _) => {
                let counted = sum(most);
                ensure!(
                    counted > received / 2,
                    "{name}: of {received} frames only {counted} were counted as {}, which should be most",
                    names(most)
                );
            }
            Self::Both(both) => {
                for reason in both {
                    let name_of = reason.name();
                    ensure!(counted(*reason) > 0, "{name}: no frame was counted as {name_of}");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_other_reasons_fail_a_case() {
        let counted = |conform: u64, exceed: u64| {
            move |reason| match reason {
                Reason::Conform => conform,
                Reason::Exceed => exceed,
                _ => 0,
            }
        };
        let is_met = |outcome: Outcome, conform, exceed, strays| {
            outcome.check("it", 100, counted(conform, exceed), strays).is_ok()
        };
        let each = Outcome::Each(Reason::Conform);
        assert!(is_met(each, 100, 0, 0) && is_met(each, 99, 1, 1) && !is_met(each, 99, 1, 0));
        let most = Outcome::Most(&[Reason::Conform], &[Reason::Exceed]);
        assert!(is_met(most, 51, 49, 0) && !is_met(most, 50, 50, 0) && !is_met(most, 51, 48, 0));
        let both = Outcome::Both([Reason::Conform, Reason::Exceed]);
        assert!(is_met(both, 1, 99, 0) && !is_met(both, 0, 100, 0));
    }
}
