//! Edits of many run-time entries at once.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::{Entry, Layers, NEVER, Removed, RunTime};
use crate::policy::{
    error::PolicyError,
    lists::List,
    model::{Policy, Whom},
};

/// What became of a prefix that was to be added to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It has a new entry.
    New,
    /// The entry that it had was replaced, by one that ends later or says something else.
    Replaced,
    /// The list has it already, until this time (seconds of Unix time; `None`: for ever), which is not earlier.
    Already(Option<u64>),
    /// It was not added: this layer allows the same prefix for ever.
    Allowed,
}

impl RunTime {
    /// Adds entries of one list. An entry never gets shorter by that: of two ends, the later one counts.
    /// Entries of other sets, and those without a set, stay beside them. Entries that have ended at `now`
    /// (seconds of Unix time) are removed.
    ///
    /// # Errors
    /// [`PolicyError::Value`] for a prefix with host bits, [`PolicyError::OverrideTooNarrow`] for one that is
    /// narrower than a source. Nothing is changed on an error.
    pub fn add(
        &mut self,
        policy: &Policy,
        entries: Vec<Entry>,
        now: u64,
    ) -> Result<Vec<Added>, PolicyError> {
        for entry in &entries {
            policy.key_prefix.check_source(entry.prefix)?;
        }
        self.drop_over(now);
        let allowed: HashSet<IpNet> =
            self.list(List::Allow).filter(|it| it.allows_for_ever()).map(|it| it.prefix).collect();
        // The list may be long, and what is added to it short.
        let wanted: HashSet<IpNet> = entries.iter().map(|entry| entry.prefix).collect();
        let there = self.entries.iter().enumerate();
        let there = there.filter(|(_, it)| wanted.contains(&it.prefix));
        let mut places: HashMap<_, _> = there.map(|(at, it)| (it.place(), at)).collect();
        let added = entries.into_iter().map(|entry| {
            if entry.list != List::Allow && allowed.contains(&entry.prefix) {
                return Added::Allowed;
            }
            if let Some(before) =
                places.get(&entry.place()).and_then(|at| self.entries.get_mut(*at))
            {
                return before.extend(entry);
            }
            places.insert(entry.place(), self.entries.len());
            self.entries.push(entry);
            Added::New
        });
        Ok(added.collect())
    }

    /// Has a list contain exactly these entries of a set, beside entries of other origin: removes those of the
    /// set that are not among them, and adds the others. Returns also how many were removed.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn replace(
        &mut self,
        policy: &Policy,
        (list, set): (List, &str),
        entries: Vec<Entry>,
        now: u64,
    ) -> Result<(Vec<Added>, usize), PolicyError> {
        let wanted: HashSet<IpNet> = entries.iter().map(|entry| entry.prefix).collect();
        let before = self.clone();
        self.drop_over(now);
        let removed = self.remove_if(|it| {
            it.list == list && it.set.as_deref() == Some(set) && !wanted.contains(&it.prefix)
        });
        match self.add(policy, entries, now) {
            Ok(added) => Ok((added, removed)),
            Err(error) => {
                *self = before;
                Err(error)
            }
        }
    }

    /// Removes the entries of a list that belong to a set; returns how many.
    pub fn flush_set(&mut self, list: List, set: &str) -> usize {
        self.remove_if(|it| it.list == list && it.set.as_deref() == Some(set))
    }

    /// Removes entries of a list that belong to a set, for exactly these prefixes; returns for which there was one that held
    /// at `now`, in seconds of Unix time.
    pub fn remove_of_set(
        &mut self,
        (list, set): (List, &str),
        prefixes: &HashSet<IpNet>,
        now: u64,
    ) -> HashSet<IpNet> {
        self.drop_over(now);
        let mut removed = HashSet::new();
        self.entries.retain(|it| {
            let is_it =
                it.list == list && it.set.as_deref() == Some(set) && prefixes.contains(&it.prefix);
            if is_it {
                removed.insert(it.prefix);
            }
            !is_it
        });
        removed
    }

    fn remove_if(&mut self, is_removed: impl Fn(&Entry) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| !is_removed(entry));
        before - self.entries.len()
    }
}

impl Entry {
    /// Takes over what another entry with the same place has to say.
    fn extend(&mut self, entry: Self) -> Added {
        let end = |it: &Self| it.until.unwrap_or(NEVER);
        let is_longer = end(&entry) > end(self);
        // A set says itself until when it has its prefixes.
        let is_shorter = end(&entry) < end(self) && self.set.is_some();
        let has_reason =
            end(&entry) == end(self) && entry.reason.is_some() && entry.reason != self.reason;
        if !(is_longer || is_shorter || has_reason) {
            return Added::Already(self.until);
        }
        let reason = entry.reason.clone().or_else(|| self.reason.take());
        *self = Self { reason, ..entry };
        Added::Replaced
    }
}

impl Layers {
    /// Takes prefixes off a list, as [`take_off`](Self::take_off) does with each. `entries` are exceptions to
    /// add where the document lists a prefix. The results are in the order of the prefixes.
    pub fn take_off_all(
        &mut self,
        entries: Vec<Entry>,
        now: u64,
    ) -> Vec<Result<Removed, PolicyError>> {
        if entries.len() <= 1 || self.unsorted {
            return entries.into_iter().map(|entry| self.take_off(entry, now)).collect();
        }
        self.run_time.drop_over(now);
        let wanted: HashSet<_> = entries.iter().map(|it| (it.list, it.prefix)).collect();
        let (removed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.run_time.entries)
            .into_iter()
            .partition(|it| it.is_single() && wanted.contains(&(it.list, it.prefix)));
        self.run_time.entries = kept;
        let mut removed: HashSet<_> = removed.iter().map(|it| (it.list, it.prefix)).collect();
        let documented: HashSet<(List, IpNet)> = List::ALL
            .into_iter()
            .flat_map(|list| {
                let entries = self.policy.list(list).iter().filter(|it| !it.is_over(now));
                let prefixes = entries.flat_map(|it| self.policy.prefixes(&it.whom));
                prefixes.map(move |prefix| (list, *prefix))
            })
            .collect();
        let exceptions = self.run_time.entries.iter().filter(|it| it.exception);
        let mut excepted: HashSet<_> = exceptions.map(|it| (it.list, it.prefix)).collect();
        let take_off = |entry: Entry| {
            let place = (entry.list, entry.prefix);
            if removed.remove(&place) {
                return Ok(Removed::Entry);
            }
            if documented.contains(&place) && excepted.insert(place) {
                self.run_time.entries.push(Entry { exception: true, ..entry });
                return Ok(Removed::Excepted);
            }
            let whom = Whom::Prefix(entry.prefix).to_string();
            Err(PolicyError::NotListed { list: entry.list.name(), whom, within: None })
        };
        entries.into_iter().map(take_off).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::model::Listed;

    const NOW: u64 = 1_800_000_000;

    fn entry(prefix: &str, until: Option<u64>) -> Entry {
        let until = until.map(|time| NOW + time);
        Entry { until, ..Entry::new(List::Deny, prefix.parse().unwrap()) }
    }

    fn of_set(prefix: &str, until: Option<u64>, set: &str) -> Entry {
        Entry { set: Some(set.into()), ..entry(prefix, until) }
    }

    fn add(run_time: &mut RunTime, entry: Entry) -> Added {
        run_time.add(&Policy::default(), vec![entry], NOW).unwrap()[0]
    }

    #[test]
    fn an_entry_never_gets_shorter() {
        let mut run_time = RunTime::default();
        let mut put = |until, reason: Option<&str>| {
            let reason = reason.map(Into::into);
            let added = add(&mut run_time, Entry { reason, ..entry("192.0.2.1/32", until) });
            let now = run_time.entries()[0].clone();
            (added, now.until.map(|until| until - NOW), now.reason.map(|it| it.to_string()))
        };
        assert_eq!(put(Some(90), None), (Added::New, Some(90), None));
        assert_eq!(put(Some(89), Some("why")), (Added::Already(Some(NOW + 90)), Some(90), None));
        assert_eq!(put(Some(90), None), (Added::Already(Some(NOW + 90)), Some(90), None));
        let why = Some("why".to_owned());
        assert_eq!(put(Some(90), Some("why")), (Added::Replaced, Some(90), why.clone()));
        assert_eq!(put(Some(91), None), (Added::Replaced, Some(91), why.clone()));
        assert_eq!(put(None, None), (Added::Replaced, None, why.clone()));
        assert_eq!(put(Some(1000), Some("other")), (Added::Already(None), None, why));
    }

    #[test]
    fn several_are_added_at_once_or_none() {
        let mut run_time = RunTime::default();
        add(&mut run_time, entry("192.0.2.2/32", None));
        add(&mut run_time, Entry { list: List::Allow, ..entry("192.0.2.3/32", None) });
        let many = ["192.0.2.1/32", "192.0.2.2/32", "192.0.2.1/32", "192.0.2.3/32"];
        let added = run_time.add(&Policy::default(), many.map(|it| entry(it, None)).into(), NOW);
        assert_eq!(
            added.unwrap(),
            [Added::New, Added::Already(None), Added::Already(None), Added::Allowed]
        );
        assert_eq!(run_time.entries().len(), 3);
        let before = run_time.clone();
        for narrow in ["2001:db8::1/128", "192.0.2.1/24"] {
            let wrong = vec![entry("192.0.2.7/32", None), entry(narrow, None)];
            run_time.add(&Policy::default(), wrong.clone(), NOW).unwrap_err();
            let set = (List::Deny, "feed");
            run_time.replace(&Policy::default(), set, wrong, NOW).unwrap_err();
            assert_eq!(run_time, before);
        }
    }

    #[test]
    fn a_set_is_replaced_as_a_whole_and_nothing_else_with_it() {
        let mut run_time = RunTime::default();
        add(&mut run_time, entry("192.0.2.1/32", None));
        add(&mut run_time, of_set("192.0.2.2/32", None, "other"));
        let replace = |run_time: &mut RunTime, prefixes: &[&str], until| {
            let entries = prefixes.iter().map(|it| of_set(it, until, "feed")).collect();
            let set = (List::Deny, "feed");
            run_time.replace(&Policy::default(), set, entries, NOW).unwrap()
        };
        let (added, removed) = replace(
            &mut run_time,
            &["192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32", "192.0.2.4/32"],
            None,
        );
        assert_eq!(added, [Added::New; 4]);
        assert_eq!(removed, 0);
        // A ban by hand has its own end, and is kept when the set no longer has it.
        assert_eq!(add(&mut run_time, entry("192.0.2.4/32", Some(9))), Added::New);
        let by_hand = run_time.get(List::Deny, "192.0.2.4/32".parse().unwrap()).unwrap();
        assert_eq!(by_hand.until, Some(NOW + 9));
        let (added, removed) = replace(&mut run_time, &["192.0.2.3/32", "192.0.2.5/32"], Some(60));
        assert_eq!((added, removed), (vec![Added::Replaced, Added::New], 3));
        let (_, removed) = replace(&mut run_time, &["192.0.2.5/32"], Some(60));
        assert_eq!(removed, 1);
        let left: Vec<_> = run_time
            .entries()
            .iter()
            .map(|it| (it.prefix.addr().to_string(), it.set.as_ref().map(ToString::to_string)))
            .collect();
        let set = |name: &str| Some(name.to_owned());
        assert_eq!(
            left,
            [
                ("192.0.2.1".to_owned(), None),
                ("192.0.2.2".to_owned(), set("other")),
                ("192.0.2.4".to_owned(), None),
                ("192.0.2.5".to_owned(), set("feed")),
            ]
        );
        assert_eq!(run_time.flush_set(List::Allow, "feed"), 0);
        assert_eq!(run_time.flush_set(List::Deny, "feed"), 1);
    }

    /// Bans by hand and sets hold side by side, each with its own end, and only who set an entry ends it.
    #[test]
    fn a_prefix_has_an_entry_of_each_set_beside_that_by_hand() {
        const SOURCE: &str = "192.0.2.1/32";
        let source: IpNet = SOURCE.parse().unwrap();
        let mut layers = Layers::default();
        let replace = |layers: &mut Layers, set: &str, prefix: &str, until| {
            let entries = vec![of_set(prefix, until, set)];
            let set = (List::Deny, set);
            layers.run_time.replace(&layers.policy, set, entries, NOW).unwrap()
        };
        let is_denied = |layers: &Layers, later| {
            super::super::decides(&layers.view().around(source), NOW + later).is_some()
        };
        // A feed with the address comes and goes: the ban by hand stays as it was.
        let why = Some("scans".into());
        add(&mut layers.run_time, Entry { reason: why, ..entry(SOURCE, Some(60)) });
        let by_hand = layers.run_time.entries()[0].clone();
        replace(&mut layers, "feed", SOURCE, None);
        assert_eq!(layers.run_time.get(List::Deny, source), Some(&by_hand));
        assert!(is_denied(&layers, 60), "the feed has it");
        let stated = layers.view().around(source);
        assert_eq!(super::super::listing(&stated, NOW).denied, NEVER);
        replace(&mut layers, "feed", "192.0.2.9/32", None);
        assert_eq!(layers.run_time.get(List::Deny, source), Some(&by_hand));
        assert!(is_denied(&layers, 59) && !is_denied(&layers, 60));
        // A ban by hand of what feeds have ends, by itself or by a command, and theirs do not.
        replace(&mut layers, "feed", SOURCE, Some(90));
        replace(&mut layers, "other", SOURCE, Some(120));
        assert!(is_denied(&layers, 119) && !is_denied(&layers, 120));
        for several in [false, true] {
            let mut layers = layers.clone();
            let mut off = vec![entry(SOURCE, None)];
            off.extend(several.then(|| entry("192.0.2.7/32", None)));
            assert_eq!(layers.take_off_all(off, NOW)[0], Ok(Removed::Entry));
            let names: Vec<_> = layers.run_time.entries().iter().map(|it| it.set.clone()).collect();
            assert_eq!(names, [Some("feed".into()), Some("other".into())]);
            let by = layers.view().covering(List::Deny, source, NOW).unwrap();
            assert_eq!(by, "192.0.2.1/32 of set other", "the last to end");
            layers.take_off_all(vec![entry(SOURCE, None)], NOW)[0].clone().unwrap_err();
        }
        // All are stored, and restored once.
        let text = serde_json::to_string(&layers.run_time).unwrap();
        let mut restored: RunTime = serde_json::from_str(&text).unwrap();
        restored.extend(&layers.run_time);
        assert_eq!(restored, layers.run_time);
        assert_eq!(layers.run_time.flush_set(List::Deny, "feed"), 1);
        assert_eq!(layers.run_time.get(List::Deny, source), Some(&by_hand));
    }

    #[test]
    fn several_are_taken_off_as_one_by_one() {
        let whom = Whom::Prefix("192.0.2.3/32".parse().unwrap());
        let deny = vec![Listed { whom, until: None }];
        let policy = Policy { deny, ..Policy::default() };
        let mut layers = Layers { policy, ..Layers::default() };
        for prefix in ["192.0.2.1/32", "192.0.2.2/32"] {
            add(&mut layers.run_time, entry(prefix, None));
        }
        let off = ["192.0.2.1/32", "192.0.2.3/32", "192.0.2.9/32", "192.0.2.1/32"];
        let off: Vec<Entry> = off.map(|it| entry(it, None)).into();
        let mut one_by_one = layers.clone();
        let expected: Vec<_> =
            off.iter().map(|it| one_by_one.take_off(it.clone(), NOW).ok()).collect();
        let taken: Vec<_> = layers.take_off_all(off, NOW).into_iter().map(Result::ok).collect();
        assert_eq!(taken, [Some(Removed::Entry), Some(Removed::Excepted), None, None]);
        assert_eq!(taken, expected);
        assert_eq!(layers, one_by_one);
    }
}
