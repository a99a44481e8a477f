//! The policy of a document that waits to be accepted.

use super::event::Event;
use crate::{
    datapath::policy::Origin,
    error::Error,
    policy::{Policy, guard::Refusal, shadowed::FromFiles},
};

/// How often a refusal is told again, in seconds.
const AGAIN: u64 = 3600;

/// A policy of a document.
#[derive(Debug)]
pub(super) struct Good {
    pub(super) policy: Policy,
    pub(super) origin: Origin,
}

/// A policy that was read and is judged before it is used.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) good: Good,
    /// The sets and tenants that have files.
    pub(super) files: FromFiles,
    /// Whether somebody asked to have the document read.
    pub(super) reload: bool,
    /// By which instance and epoch it was judged last: by another policy in force it is judged anew.
    pub(super) judged: Option<Option<(u32, u32)>>,
    /// The refusal that was told last.
    pub(super) told: Option<Told>,
}

/// A refusal that was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    document: String,
    refusal: Refusal,
    /// When, in seconds of Unix time.
    at: u64,
}

impl Told {
    fn error(&self) -> Error {
        Error::ChangeRefused { document: self.document.clone(), refusal: self.refusal.to_string() }
    }
}

impl Offer {
    /// Notes that it is refused; gives what is to be told, unless that was told within the hour.
    pub(super) fn refuse(&mut self, document: String, refusal: Refusal, now: u64) -> Option<Event> {
        if !self.reload && self.told.as_ref().is_some_and(|told| told.refusal == refusal) {
            return self.again(now);
        }
        self.reload = false;
        let error = self.told.insert(Told { document, refusal, at: now }).error();
        Some(Event::Refused { error, again: false })
    }

    /// The refusal, if it is an hour since it was told. The clock may have been set back meanwhile.
    pub(super) fn again(&mut self, now: u64) -> Option<Event> {
        let told = self.told.as_mut().filter(|told| told.at.abs_diff(now) >= AGAIN)?;
        told.at = now;
        Some(Event::Refused { error: told.error(), again: true })
    }

    /// Why it is refused, in a line; nothing if it was not.
    pub(super) fn refused(&self) -> Option<String> {
        self.told.as_ref().map(|told| told.error().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        document::parse_with_files,
        guard::{Host, guard},
    };

    #[test]
    fn a_refusal_is_told_each_hour() {
        let document = b"version: 1\nsets: {a: {file: f}}\ndeny: [a]";
        let (policy, _, files) =
            parse_with_files("p", document, 0, &mut |_| Ok("0.0.0.0/0\n".into())).unwrap();
        let refusal =
            guard(Some(&Policy::default()), &policy, &files, &Host::default()).unwrap_err();
        let good = Good { origin: Origin::of(&policy).unwrap(), policy };
        let mut offer = Offer { good, files, reload: false, judged: None, told: None };
        let told = |event: Option<Event>| match event {
            None => None,
            Some(Event::Refused { again, .. }) => Some(again),
            Some(other) => panic!("{other}"),
        };
        let refuse =
            |offer: &mut Offer, now| told(offer.refuse("p".to_owned(), refusal.clone(), now));
        assert_eq!(refuse(&mut offer, 10_000), Some(false));
        assert_eq!(refuse(&mut offer, 13_599), None);
        assert_eq!(told(offer.again(13_599)), None);
        assert_eq!(told(offer.again(13_600)), Some(true));
        assert_eq!(told(offer.again(13_601)), None);
        // The clock was set back.
        assert_eq!(told(offer.again(1_000)), Some(true));
        // Somebody asked.
        offer.reload = true;
        assert_eq!(refuse(&mut offer, 1_001), Some(false));
        assert!(offer.refused().unwrap().starts_with("p is not used: the file of set `a`"));
    }
}
