//! What fails, told once and not with each try.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::event::Event;
use crate::error::Error;

/// What fails again sooner than this after it did is no news: one that comes and goes would be told for ever.
const NEWS: Duration = Duration::from_secs(10);

/// What is so at each look, and is told when it begins.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Each by its words, and when it was there last.
    told: BTreeMap<String, Instant>,
}

impl News {
    /// Takes in all that is so at a look, and gives what of it is to be told.
    pub(super) fn of(&mut self, all: &BTreeSet<String>, now: Instant) -> BTreeSet<String> {
        self.told.retain(|_, last| now.saturating_duration_since(*last) < NEWS);
        let news = all.iter().filter(|what| !self.told.contains_key(*what)).cloned().collect();
        self.told.extend(all.iter().map(|what| (what.clone(), now)));
        news
    }
}

/// What failed at the last looks.
#[derive(Debug, Default)]
pub(super) struct Faults {
    news: News,
    failing: u64,
}

impl Faults {
    /// Takes in all that failed at a look, and says what of it is to be told.
    pub(super) fn news(&mut self, errors: Vec<Error>, now: Instant) -> Vec<Event> {
        let mut failing = BTreeMap::new();
        for error in errors {
            let what = match &error {
                // How long it is waited for is another time with each look.
                Error::Unconfirmed { .. } => "a trial".to_owned(),
                // What has the lock may be another process with each look.
                Error::Busy { .. } => "a lock".to_owned(),
                error => error.to_string(),
            };
            failing.entry(what).or_insert(error);
        }
        self.failing = failing.len() as u64;
        let news = self.news.of(&failing.keys().cloned().collect(), now);
        news.into_iter().filter_map(|what| failing.remove(&what)).map(Event::Failed).collect()
    }

    /// How many things failed at the last look.
    pub(super) const fn failing(&self) -> u64 {
        self.failing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_once_however_often_it_is_met() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let taken = |program| Error::ForeignProgram { interface: "eth0".into(), program };
        let trial = |seconds| Error::Unconfirmed { left: Duration::from_secs(seconds) };
        let mut faults = Faults::default();
        let mut met = |second, errors: Vec<Error>| {
            let news = faults.news(errors, at(second)).len();
            (news, faults.failing())
        };
        assert_eq!(met(0, vec![taken(1), Error::NoSlot, taken(1)]), (2, 2));
        for second in 1..100 {
            assert_eq!(
                met(second, vec![taken(1), trial(600 - second)]),
                (u8::from(second == 1).into(), 2)
            );
        }
        // It comes and goes.
        for second in 100..200 {
            let errors = if second % 5 == 0 { vec![taken(1)] } else { vec![] };
            let failing = errors.len() as u64;
            assert_eq!(met(second, errors), (0, failing), "{second}");
        }
        assert_eq!(met(200, vec![taken(2)]), (1, 1), "it is another one");
        assert_eq!(met(205, vec![]), (0, 0));
        assert_eq!(met(215, vec![taken(1)]), (1, 1), "it was over for long");
    }
}
