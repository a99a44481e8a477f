//! The run-time lists: a layer of bans, allows and penalties beside the document.
//!
//! Commands such as `limiter deny add` write to this layer, and an edit of the document leaves it alone.
//! [`decides`] is the one place that says which entry of both layers holds for a source.

use std::{cmp::Reverse, collections::HashSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    error::PolicyError,
    lists::List,
    model::{Listed, Policy, Whom},
    shadowed::{Entry as ShadowedEntry, Shadowed},
};

/// The reason of entries that an older version stored in its document.
const UPGRADED: &str = "set before the upgrade";

/// An end that never comes, in seconds of Unix time.
const NEVER: u64 = u64::MAX;

/// A layer without entries.
static EMPTY: RunTime = RunTime { entries: Vec::new() };

/// Most characters of a reason.
pub const REASON: usize = 200;

/// An entry that a command set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The list that it is of.
    pub list: List,
    /// The sources that it is about: a prefix without host bits.
    pub prefix: IpNet,
    /// Whether it takes sources off this list of the document, instead of putting them on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exception: bool,
    /// Until when it holds, in seconds of Unix time; `None` for ever.
    pub until: Option<u64>,
    /// Why it was set, in the words of whoever set it.
    #[serde(default)]
    pub reason: Option<String>,
    /// The user who set it.
    #[serde(default)]
    pub by: Option<String>,
    /// When it was set, in seconds of Unix time.
    #[serde(default)]
    pub since: Option<u64>,
}

/// The run-time layer. Of a list, each prefix has one entry at most, and beside it one exception.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunTime {
    entries: Vec<Entry>,
}

/// What came of taking a prefix off a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Its run-time entry is gone.
    Entry,
    /// The document has it, and a run-time exception takes it off.
    Excepted,
}

/// A document and the run-time lists beside it, to be changed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// The policy of the document, with the edits of its limits.
    pub policy: Policy,
    /// The run-time lists.
    pub run_time: RunTime,
    /// Whether the lists of the policy may have entries that commands set: up to version 0.1 they were
    /// stored as part of it.
    pub unsorted: bool,
}

/// Both layers, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Layered<'a> {
    /// The policy of the document.
    pub policy: &'a Policy,
    /// The run-time lists.
    pub run_time: &'a RunTime,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer<'a> {
    /// The document: a prefix of its own, or a set.
    Document(&'a Whom),
    /// A command.
    RunTime(&'a Entry),
}

/// An entry of either layer, for one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated<'a> {
    /// The list that it is of.
    pub list: List,
    /// The sources that it is about.
    pub prefix: IpNet,
    /// Until when it holds, in seconds of Unix time; [`u64::MAX`] for ever.
    pub until: u64,
    /// Where it comes from.
    pub layer: Layer<'a>,
}

/// The ends of what holds for a source, as the datapath asks for them: `allowed` first, then `denied`, then
/// `blocked`. In seconds of Unix time; 0 for what does not hold, [`u64::MAX`] for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Until when the source is allowed.
    pub allowed: u64,
    /// Until when it is denied.
    pub denied: u64,
    /// Until when it is blocked by hand.
    pub blocked: u64,
    /// When these say too little, and have to be found anew: the datapath cannot store that a source is
    /// allowed after a ban has ended.
    pub stale: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Entry {
    /// An entry that puts the sources of a prefix on a list for ever.
    pub const fn new(list: List, prefix: IpNet) -> Self {
        Self { list, prefix, exception: false, until: None, reason: None, by: None, since: None }
    }

    /// Whether it holds no more at a time of Unix, in seconds.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// What only one entry of a layer has.
    const fn place(&self) -> (List, IpNet, bool) {
        (self.list, self.prefix, self.exception)
    }
}

impl<'a> Stated<'a> {
    /// An entry of the document, for one of the prefixes that it means.
    pub fn of_document(list: List, listed: &'a Listed, prefix: IpNet) -> Self {
        let until = listed.until.unwrap_or(NEVER);
        Self { list, prefix, until, layer: Layer::Document(&listed.whom) }
    }

    /// A run-time entry.
    pub fn of_run_time(entry: &'a Entry) -> Self {
        let Entry { list, prefix, until, .. } = *entry;
        Self { list, prefix, until: until.unwrap_or(NEVER), layer: Layer::RunTime(entry) }
    }

    const fn is_run_time(&self) -> bool {
        matches!(self.layer, Layer::RunTime(_))
    }

    const fn is_exception(&self) -> bool {
        matches!(self.layer, Layer::RunTime(entry) if entry.exception)
    }

    fn length(&self) -> u8 {
        self.prefix.prefix_len()
    }
}

/// The entry that decides about a source at `now`, in seconds of Unix time, of those whose prefixes have it:
///
/// 1. An exception hides the entries of its list in the document that are as long as it or shorter.
/// 2. Each layer has an answer of what is left. The document asks all of `allow`, then all of `deny`, then the
///    penalties; its answer is as long as the longest entry of the list that has one. Run-time, the longest
///    prefix answers, and the lists are asked so on one prefix.
/// 3. The longer answer decides: the run-time one if both are as long. What the document's answer is asked before
///    does not count, however long.
pub fn decides<'s, 'a>(stated: &'s [Stated<'a>], now: u64) -> Option<&'s Stated<'a>> {
    let live = || stated.iter().filter(|it| it.until > now);
    let is_hidden = |it: &Stated<'_>| {
        live().any(|by| by.is_exception() && by.list == it.list && by.length() >= it.length())
    };
    let document = || live().filter(|it| !it.is_run_time() && !is_hidden(it));
    let run_time = || live().filter(|it| it.is_run_time() && !it.is_exception());
    let answer = document().min_by_key(|it| (it.list, Reverse(it.until), Reverse(it.length())));
    // The entry that holds longest need not have the longest prefix of its list.
    let of_document =
        answer.and_then(|by| document().filter(|it| it.list == by.list).map(Stated::length).max());
    let longest = run_time().map(Stated::length).max();
    if longest.is_some() && longest >= of_document {
        return run_time().filter(|it| Some(it.length()) == longest).min_by_key(|it| it.list);
    }
    answer
}

/// A time in which one list decides about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase<'s, 'a> {
    /// The entry that decides when it begins.
    pub by: &'s Stated<'a>,
    /// When it begins, in seconds of Unix time.
    pub from: u64,
    /// When it ends; [`u64::MAX`] for never.
    pub until: u64,
}

/// What decides about a source from `now` on, in the order of time. Between two phases there may be a time in
/// which nothing does.
pub fn phases<'s, 'a>(stated: &'s [Stated<'a>], now: u64) -> Vec<Phase<'s, 'a>> {
    let mut times: Vec<u64> = stated.iter().map(|it| it.until).collect();
    times.retain(|it| *it > now && *it != NEVER);
    times.sort_unstable();
    let mut phases: Vec<Phase<'_, '_>> = Vec::new();
    for from in std::iter::once(now).chain(times) {
        let by = decides(stated, from);
        if let Some(phase) = phases.last_mut().filter(|phase| phase.until == NEVER) {
            if by.is_some_and(|by| by.list == phase.by.list) {
                continue;
            }
            phase.until = from;
        }
        phases.extend(by.map(|by| Phase { by, from, until: NEVER }));
    }
    phases
}

/// What holds for a source from `now` on, of entries whose prefixes have it.
pub fn listing(stated: &[Stated<'_>], now: u64) -> Listing {
    let mut listing = Listing::default();
    if !stated.iter().any(Stated::is_run_time) {
        // In this order the datapath asks, so there is nothing to be found out.
        for it in stated.iter().filter(|it| it.until > now) {
            let field = listing.field(it.list);
            *field = it.until.max(*field);
        }
        return listing;
    }
    let mut end = now;
    for Phase { by, from, until } in phases(stated, now) {
        let is_late = by.list == List::Allow && listing.denied | listing.blocked != 0;
        if is_late || from != end {
            listing.stale = Some(from);
            break;
        }
        *listing.field(by.list) = until;
        end = until;
    }
    listing
}

impl Listing {
    const fn field(&mut self, list: List) -> &mut u64 {
        match list {
            List::Allow => &mut self.allowed,
            List::Deny => &mut self.denied,
            List::Penalty => &mut self.blocked,
        }
    }
}

impl RunTime {
    /// All entries, exceptions too, in the order in which they were set.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries of a list, exceptions too.
    pub fn list(&self, list: List) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.list == list)
    }

    /// The entry of a list that puts a prefix on it.
    pub fn get(&self, list: List, prefix: IpNet) -> Option<&Entry> {
        self.list(list).find(|entry| entry.prefix == prefix && !entry.exception)
    }

    /// The exception of a list for a prefix.
    pub fn exception(&self, list: List, prefix: IpNet) -> Option<&Entry> {
        self.list(list).find(|entry| entry.prefix == prefix && entry.exception)
    }

    /// Puts an entry in the place of the one that its list has for the prefix, and says whether there was one.
    /// An exception stays beside an entry: a ban that ends leaves what was before it. Entries that are over at
    /// `now` are dropped.
    ///
    /// # Errors
    /// [`PolicyError::OverrideTooNarrow`] for less than a source, or [`PolicyError::Shadowed`] when the layer
    /// allows the same prefix for ever; nothing was changed then.
    pub fn put(&mut self, policy: &Policy, entry: Entry, now: u64) -> Result<bool, PolicyError> {
        let Entry { list, prefix, .. } = entry;
        policy.key_prefix.check_source(prefix)?;
        let allowed = self.get(List::Allow, prefix).filter(|it| it.until.is_none());
        if list != List::Allow && !entry.exception && allowed.is_some() {
            let (list, entry, by) = (list.name(), prefix.to_string(), prefix.to_string());
            return Err(PolicyError::Shadowed { list, entry, by });
        }
        self.drop_over(now);
        let same = self.entries.iter_mut().find(|it| it.place() == entry.place());
        let is_there = same.is_some();
        match same {
            Some(before) => *before = entry,
            None => self.entries.push(entry),
        }
        Ok(is_there)
    }

    /// Checks that an entry of a list for a prefix does not hold longer already, in seconds of Unix time.
    ///
    /// # Errors
    /// [`PolicyError::ListedLonger`].
    pub fn check_longer(
        &self,
        list: List,
        prefix: IpNet,
        until: Option<u64>,
    ) -> Result<(), PolicyError> {
        match self.get(list, prefix).map(|entry| entry.until.unwrap_or(NEVER)) {
            Some(before) if before > until.unwrap_or(NEVER) => {
                Err(PolicyError::ListedLonger { list: list.name(), prefix })
            }
            _ => Ok(()),
        }
    }

    /// Takes in the entries of another layer, in the place of its own for the same prefixes.
    pub fn extend(&mut self, other: &Self) {
        let taken: HashSet<_> = other.entries.iter().map(Entry::place).collect();
        self.entries.retain(|it| !taken.contains(&it.place()));
        self.entries.extend_from_slice(&other.entries);
    }

    /// Removes the entries of a list, exceptions too, and says how many they were.
    pub fn flush(&mut self, list: List) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.list != list);
        before - self.entries.len()
    }

    /// Drops the entries that are over at `now`, and says how many they were.
    pub fn drop_over(&mut self, now: u64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| !entry.is_over(now));
        before - self.entries.len()
    }

    /// Whether an entry has an end.
    pub fn has_ends(&self) -> bool {
        self.entries.iter().any(|entry| entry.until.is_some())
    }

    /// Removes the entry of a list that puts a prefix on it at `now`, and says whether there was one.
    fn remove(&mut self, list: List, prefix: IpNet, now: u64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.place() != (list, prefix, false) || entry.is_over(now));
        self.entries.len() < before
    }
}

impl Layers {
    /// Both, to be read.
    pub const fn view(&self) -> Layered<'_> {
        Layered { policy: &self.policy, run_time: &self.run_time }
    }

    /// The limits and overrides that decide nothing, as it is told: the lists of both layers have all that they
    /// are for.
    pub fn shadowed(&self) -> Vec<String> {
        let mut all = self.policy.clone();
        for entry in self.run_time.entries.iter().filter(|entry| !entry.exception) {
            let whom = Whom::Prefix(entry.prefix);
            all.list_mut(entry.list).push(Listed { whom, until: entry.until });
        }
        let is_listed = |it: &Shadowed<'_>| matches!(it.entry, ShadowedEntry::Listed { .. });
        let found = all.shadowed().into_iter().filter(|it| !is_listed(it));
        found.map(|it| it.to_string()).collect()
    }

    /// Another document with the same run-time lists.
    ///
    /// Of an older version's policy, what another document has not is taken for set at run time: a ban too many
    /// is seen in the list, a lost one is not.
    #[must_use]
    pub fn under(&self, document: Policy) -> Self {
        let mut run_time = self.run_time.clone();
        if self.unsorted {
            for list in List::ALL {
                let written: HashSet<_> =
                    document.list(list).iter().map(|it| (&it.whom, it.until)).collect();
                for Listed { whom, until } in self.policy.list(list) {
                    let Whom::Prefix(prefix) = *whom else { continue };
                    let fits = document.key_prefix.check_source(prefix).is_ok();
                    if fits
                        && !written.contains(&(whom, *until))
                        && run_time.get(list, prefix).is_none()
                    {
                        let reason = Some(UPGRADED.to_owned());
                        let entry = Entry { until: *until, reason, ..Entry::new(list, prefix) };
                        run_time.entries.push(entry);
                    }
                }
            }
        }
        Self { policy: document, run_time, unsorted: false }
    }

    /// Tells what an older version's commands set from what is in the document that its policy came from.
    ///
    /// Limits stay as they are in force, which edits may have made others than those of the document.
    #[must_use]
    pub fn sorted_by(&self, document: &Policy) -> Self {
        let mut policy = self.policy.clone();
        for list in List::ALL {
            policy.list_mut(list).clone_from(&document.list(list).to_vec());
        }
        let mut sorted = self.under(policy);
        for list in List::ALL {
            let in_force: HashSet<_> = self.policy.list(list).iter().map(|it| &it.whom).collect();
            for Listed { whom, .. } in document.list(list) {
                if let Whom::Prefix(prefix) = *whom
                    && !in_force.contains(whom)
                    && sorted.run_time.exception(list, prefix).is_none()
                {
                    let reason = Some(UPGRADED.to_owned());
                    let exception = Entry { exception: true, reason, ..Entry::new(list, prefix) };
                    sorted.run_time.entries.push(exception);
                }
            }
        }
        sorted
    }

    /// What is to be kept of an instance that is about to be removed: the run-time lists, and of an older
    /// version's policy all prefixes whose entries decide now or later, as its document is gone with it. One that
    /// another list is asked before until then is in force at once, by its longer prefix: a ban too many is seen.
    pub fn kept(&self, now: u64) -> RunTime {
        let key_prefix = self.policy.key_prefix;
        let mut kept = self.under(Policy { key_prefix, ..Policy::default() }).run_time;
        kept.entries.retain(|entry| {
            let stated = self.view().around(entry.prefix);
            let ends = entry.until.unwrap_or(NEVER);
            let decides = |it: &Phase<'_, '_>| it.by.list == entry.list && it.from < ends;
            entry.exception || phases(&stated, now).iter().any(decides)
        });
        kept
    }

    /// Takes a prefix off a list: its run-time entry that holds at `now`, or else with an `exception` the entry of
    /// the document. Run-time entries that are over then are dropped.
    ///
    /// # Errors
    /// [`PolicyError::NotListed`]; nothing was changed then.
    pub fn take_off(&mut self, exception: Entry, now: u64) -> Result<Removed, PolicyError> {
        let Entry { list, prefix, .. } = exception;
        if self.run_time.remove(list, prefix, now) {
            self.run_time.drop_over(now);
            return Ok(Removed::Entry);
        }
        if self.unsorted {
            let entries = self.policy.list_mut(list);
            let before = entries.len();
            entries.retain(|it| it.whom != Whom::Prefix(prefix) || it.is_over(now));
            if entries.len() < before {
                return Ok(Removed::Entry);
            }
        }
        let stated = self.view().around(prefix);
        let is_its = |it: &Stated<'_>| !it.is_run_time() && it.list == list && it.prefix == prefix;
        let exception_before = self.run_time.exception(list, prefix);
        let is_excepted = exception_before.is_some_and(|entry| !entry.is_over(now));
        if stated.iter().any(|it| is_its(it) && it.until > now) && !is_excepted {
            let exception = Entry { exception: true, ..exception };
            self.run_time.put(&self.policy, exception, now)?;
            return Ok(Removed::Excepted);
        }
        let within = decides(&stated, now).filter(|it| it.list == list).map(Stated::to_string);
        Err(PolicyError::NotListed { list: list.name(), whom: prefix.to_string(), within })
    }
}

impl<'a> From<&'a Policy> for Layered<'a> {
    /// A document without run-time lists.
    fn from(policy: &'a Policy) -> Self {
        Self { policy, run_time: &EMPTY }
    }
}

impl<'a> From<&'a Layers> for Layered<'a> {
    fn from(layers: &'a Layers) -> Self {
        layers.view()
    }
}

impl<'a> Layered<'a> {
    /// How many entries of a list hold at `now`, in seconds of Unix time.
    pub fn listed(self, list: List, now: u64) -> usize {
        let document = self.policy.list(list).iter().filter(|listed| !listed.is_over(now));
        let run_time = self.run_time.list(list).filter(|it| !it.exception && !it.is_over(now));
        document.count() + run_time.count()
    }

    /// The entries of both layers whose prefixes have all of this one.
    pub fn around(self, prefix: IpNet) -> Vec<Stated<'a>> {
        let mut stated = Vec::new();
        for list in List::ALL {
            for listed in self.policy.list(list) {
                let around =
                    self.policy.prefixes(&listed.whom).iter().filter(|it| it.contains(&prefix));
                stated.extend(around.map(|it| Stated::of_document(list, listed, *it)));
            }
        }
        stated.extend(self.run_time().filter(|it| it.prefix.contains(&prefix)));
        stated
    }

    /// The run-time entries, but for those that are narrower than a source.
    pub fn run_time(self) -> impl Iterator<Item = Stated<'a>> {
        let fits = move |entry: &&Entry| self.policy.key_prefix.check_source(entry.prefix).is_ok();
        self.run_time.entries.iter().filter(fits).map(Stated::of_run_time)
    }
}

impl std::fmt::Display for Stated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.layer {
            Layer::Document(whom @ Whom::Set(_)) => write!(f, "{} of {whom}", self.prefix),
            _ => write!(f, "{}", self.prefix),
        }
    }
}

#[cfg(test)]
mod tests;
