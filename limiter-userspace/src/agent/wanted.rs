//! Which interfaces an agent is to attach, and which of those it waits for.

use std::{collections::BTreeSet, time::Instant};

use super::{event::Event, faults::News};
use crate::{
    datapath::{
        instance::Attached,
        interface::{Interface, wanted},
    },
    policy::interfaces::{is_pattern, listed, select},
};

/// What the words that name interfaces to an agent mean.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The interfaces that are there.
    pub(super) here: Vec<Interface>,
    /// The words that mean none, and none that is attached in another network namespace.
    pub(super) waiting: BTreeSet<String>,
}

impl Wanted {
    /// What they mean among these interfaces, when these are attached.
    pub(super) fn of(words: &[String], interfaces: &[Interface], attached: &[Attached]) -> Self {
        let mut found = Self::default();
        let away: Vec<&Attached> = attached.iter().filter(|it| it.exists && !it.present).collect();
        for word in words {
            let meant = wanted(word, interfaces);
            let is_away =
                || away.iter().any(|it| select(word, std::slice::from_ref(*it)).len() == 1);
            if meant.is_empty() && !is_away() {
                found.waiting.insert(word.clone());
            }
            for interface in meant {
                if found.here.iter().all(|it| it.index != interface.index) {
                    found.here.push(interface);
                }
            }
        }
        found
    }

    /// The interfaces by the names that metrics have: those that are there by their own, others as they are
    /// called. A pattern that means none is no interface.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let here = self.here.iter().map(|interface| interface.name.as_str());
        here.chain(self.waiting.iter().map(String::as_str).filter(|word| !is_pattern(word)))
            .collect()
    }
}

/// What an agent waits for, told once and not with each look.
#[derive(Debug, Default)]
pub(super) struct Waits {
    news: News,
}

impl Waits {
    /// What is to be told of it, where `interfaces` are there and nothing is attached, or something is.
    pub(super) fn news(
        &mut self,
        words: &[String],
        wanted: &Wanted,
        interfaces: &[Interface],
        is_attached: bool,
        now: Instant,
    ) -> Vec<Event> {
        /// No word has a space in it.
        const NONE: &str = " ";
        let mut waiting = wanted.waiting.clone();
        if words.is_empty() && !is_attached {
            waiting.insert(NONE.to_owned());
        }
        let existing: Vec<String> = interfaces.iter().map(|it| it.name.clone()).collect();
        let event = |word: String| Event::Waiting {
            interface: Some(word).filter(|word| word != NONE),
            existing: existing.clone(),
        };
        self.news.of(&waiting, now).into_iter().map(event).collect()
    }
}

/// What a service manager shows of an agent.
pub(super) fn status(
    words: &[String],
    wanted: &Wanted,
    attached: &[Attached],
    failing: u64,
) -> String {
    let names = |presence: bool| {
        let with = |it: &&Attached| it.present == presence && it.exists;
        attached.iter().filter(with).map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    for (what, of) in [
        ("attached to", names(true)),
        ("in another network namespace", names(false)),
        ("waiting for", wanted.waiting.iter().cloned().collect()),
    ] {
        if !of.is_empty() {
            parts.push(format!("{what} {}", listed(&of)));
        }
    }
    if parts.is_empty() {
        parts.push(if words.is_empty() {
            "nothing is attached, and no interface is named".to_owned()
        } else {
            "nothing is attached".to_owned()
        });
    }
    if failing > 0 {
        parts.push(format!("{failing} failing: see the journal"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::datapath::mode::Mode;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn attached(name: &str, present: bool) -> Attached {
        Attached {
            slot: 0,
            name: name.to_owned(),
            alternatives: Vec::new(),
            link: 1,
            index: 3,
            mode: Mode::Native,
            present,
            exists: true,
        }
    }

    #[test]
    fn a_word_that_means_no_interface_is_waited_for() {
        let lo = [Interface::find("lo").unwrap()];
        let asked = words(&["lo", &format!("if{}", lo[0].index), "vdd", "veth*", "away0"]);
        let away = [attached("away0", false)];
        let found = Wanted::of(&asked, &lo, &away);
        assert_eq!(found.here.len(), 1);
        assert_eq!(found.waiting.iter().collect::<Vec<_>>(), ["vdd", "veth*"]);
        assert_eq!(found.names().into_iter().collect::<Vec<_>>(), ["lo", "vdd"]);
        assert_eq!(
            status(&asked, &found, &away, 0),
            "in another network namespace away0; waiting for vdd, veth*"
        );
        let both = [attached("lo", true), attached("away0", false)];
        assert_eq!(
            status(&asked, &found, &both, 2),
            "attached to lo; in another network namespace away0; waiting for vdd, veth*; 2 failing: see the \
             journal"
        );
        assert_eq!(
            status(&[], &Wanted::default(), &[], 0),
            "nothing is attached, and no interface is named"
        );
    }

    #[test]
    fn what_is_waited_for_is_told_once_and_again_when_it_went() {
        let lo = [Interface::find("lo").unwrap()];
        let begun = Instant::now();
        let mut waits = Waits::default();
        let mut told = |second, asked: &[&str], is_attached| {
            let asked = words(asked);
            let found = Wanted::of(&asked, &lo, &[]);
            let now = begun + Duration::from_secs(second);
            let events = waits.news(&asked, &found, &lo, is_attached, now);
            events.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let missing = "waiting for vdd: no interface has this name; this network namespace has lo";
        assert_eq!(told(0, &["vdd", "lo"], false), [missing]);
        assert!(told(1, &["vdd", "lo"], true).is_empty());
        assert!(told(2, &["lo"], true).is_empty(), "it came");
        assert_eq!(told(60, &["vdd", "lo"], true), [missing]);
        let none = told(61, &[], false);
        assert!(none[0].contains("no interface is named"), "{none:?}");
        assert!(told(62, &[], false).is_empty());
        assert!(told(90, &[], true).is_empty());
    }
}
