//! What failed and takes long to try: it is tried again ever more rarely, and its error is told meanwhile.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use super::backoff::Backoff;
use crate::{
    datapath::{instance::Attached, interface::Interface},
    error::{Error, Result},
};

/// What loads programs or makes maps, whether it succeeds or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// To bring an instance of an older layout to this version.
    Upgrade,
    /// To make room for the policy of the document.
    Room,
    /// To open the instance, or to make one, for interfaces that are to be attached.
    Open,
    /// To attach the interface with this index.
    Attach(u32),
    /// To replace the programs behind the link with this number.
    Replace(u32),
}

/// What failed when it was tried last.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<Work, (Backoff, Arc<Error>)>);

impl Retries {
    /// Whether something may be tried now.
    ///
    /// # Errors
    /// Why the last try failed, if it may not.
    pub(super) fn check(&self, work: Work, now: Instant) -> Result<()> {
        match self.0.get(&work) {
            Some((backoff, cause)) if !backoff.is_due(now) => Err(Error::Again(Arc::clone(cause))),
            _ => Ok(()),
        }
    }

    /// Leaves those that may be tried now, and adds why the others may not.
    pub(super) fn retain_due<T>(
        &self,
        all: &mut Vec<T>,
        work: impl Fn(&T) -> Work,
        now: Instant,
        errors: &mut Vec<Error>,
    ) {
        all.retain(|it| {
            let failed = self.check(work(it), now).err();
            let is_due = failed.is_none();
            errors.extend(failed);
            is_due
        });
    }

    /// Notes how a try ended, and returns that.
    ///
    /// # Errors
    /// Why it failed. What waits for another process is no failure, and may be tried at once.
    pub(super) fn noted<T>(&mut self, work: Work, now: Instant, result: Result<T>) -> Result<T> {
        match result {
            Ok(done) => {
                self.0.remove(&work);
                Ok(done)
            }
            Err(error @ (Error::Busy { .. } | Error::Unconfirmed { .. })) => Err(error),
            Err(error) => {
                let cause = Arc::new(error);
                let mut backoff = self.0.remove(&work).map_or_else(Backoff::default, |it| it.0);
                backoff.tried(now);
                self.0.insert(work, (backoff, Arc::clone(&cause)));
                Err(Error::Again(cause))
            }
        }
    }

    /// Forgets all failures: something changed that may have been the cause.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets interfaces that are not among those which are here.
    pub(super) fn keep_attaching(&mut self, here: &[Interface]) {
        self.0.retain(|work, _| match work {
            Work::Attach(index) => here.iter().any(|it| it.index == *index),
            _ => true,
        });
    }

    /// Forgets links that are not among those which are there.
    pub(super) fn keep_replacing(&mut self, running: &[Attached]) {
        self.0.retain(|work, _| match work {
            Work::Replace(link) => running.iter().any(|it| it.link == *link),
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WORK: Work = Work::Replace(7);

    /// The seconds of 100 in which work is tried that fails each time.
    fn tries(retries: &mut Retries, begin: Instant) -> Vec<u64> {
        let mut tries = Vec::new();
        for second in 0..100 {
            let now = begin + Duration::from_secs(second);
            let done = retries.check(WORK, now).and_then(|()| {
                tries.push(second);
                retries.noted(WORK, now, Err::<(), _>(Error::NoSlot))
            });
            assert_eq!(done.unwrap_err().to_string(), Error::NoSlot.to_string());
        }
        tries
    }

    #[test]
    fn what_fails_is_tried_ever_more_rarely_and_told_all_the_time() {
        let (mut retries, begin) = (Retries::default(), Instant::now());
        assert_eq!(tries(&mut retries, begin), [0, 5, 15, 35, 75]);
        retries.check(Work::Replace(8), begin).unwrap();
        retries.clear();
        assert_eq!(tries(&mut retries, begin), [0, 5, 15, 35, 75]);
        retries.noted(WORK, begin, Ok(())).unwrap();
        assert_eq!(tries(&mut retries, begin), [0, 5, 15, 35, 75]);
    }

    #[test]
    fn who_waits_for_another_process_tries_again_at_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let trial = Error::Unconfirmed { left: Duration::from_secs(1) };
        let error = retries.noted(WORK, now, Err::<(), _>(trial)).unwrap_err();
        assert!(matches!(error, Error::Unconfirmed { .. }));
        retries.check(WORK, now).unwrap();
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        for work in [Work::Attach(3), Work::Replace(7), Work::Upgrade] {
            retries.noted(work, now, Err::<(), _>(Error::NoSlot)).unwrap_err();
        }
        let (mut all, mut errors) = (vec![6, 7, 8], Vec::new());
        retries.retain_due(&mut all, |link| Work::Replace(*link), now, &mut errors);
        assert_eq!((all, errors.len()), (vec![6, 8], 1));
        retries.keep_attaching(&[]);
        retries.keep_replacing(&[]);
        retries.check(Work::Attach(3), now).unwrap();
        retries.check(Work::Replace(7), now).unwrap();
        retries.check(Work::Upgrade, now).unwrap_err();
    }
}
