//! The run-time lists: bans, allows and penalties that commands set, beside the lists of the document.
//!
//! Commands such as `limiter deny add` write to this layer; edits of the document do not touch it.
//! [`decides`] is the only place that says which entry of the two layers holds for a source.

use std::{cmp::Reverse, collections::HashSet, sync::Arc};

use ipnet::IpNet;

pub(crate) use self::stored::Readable;
pub use self::{allowed::Allowed, many::Added};
use super::{
    error::PolicyError,
    lists::List,
    model::{Limit, Listed, Policy, Whom},
    shadowed::{Entry as ShadowedEntry, Shadowed},
};

/// The reason given to entries that an older version stored in its document.
const UPGRADED: &str = "set before the upgrade";

/// The end of an entry without an end, in seconds of Unix time.
const NEVER: u64 = u64::MAX;

/// A run-time layer without entries.
static EMPTY: RunTime = RunTime { entries: Vec::new() };

/// The longest reason, in characters.
pub const REASON: usize = 200;

/// A run-time entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The list that the entry is in.
    pub list: List,
    /// The sources that the entry is for: a prefix without host bits.
    pub prefix: IpNet,
    /// Whether the entry is an exception: it takes the sources off this list of the document instead of
    /// adding them.
    pub exception: bool,
    /// When the entry ends, in seconds of Unix time; `None`: never.
    pub until: Option<u64>,
    /// The reason that the user gave, at most [`REASON`] characters.
    pub reason: Option<Arc<str>>,
    /// The set that the entry belongs to, which a command replaces as a whole; `None`: none.
    pub set: Option<Arc<str>>,
    /// The user who set the entry.
    pub by: Option<Arc<str>>,
    /// When the entry was set, in seconds of Unix time.
    pub since: Option<u64>,
}

/// The list, the prefix, whether it is an exception, and the set.
type Place = (List, IpNet, bool, Option<Arc<str>>);

/// The run-time layer. In each list, a prefix has at most one entry of each set, one without a set, and one
/// exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    entries: Vec<Entry>,
}

/// How a prefix was taken off a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Its run-time entry was removed.
    Entry,
    /// A run-time exception was added, since the prefix is listed in the document.
    Excepted,
}

/// A document and the run-time lists beside it, for changing both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// The policy of the document, with the edits that commands made to its limits.
    pub policy: Policy,
    /// The run-time lists.
    pub run_time: RunTime,
    /// Whether the lists of `policy` may hold entries that commands set: version 0.1 stored those in the
    /// document.
    pub unsorted: bool,
}

/// A document and the run-time lists beside it, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Layered<'a> {
    /// The policy of the document.
    pub policy: &'a Policy,
    /// The run-time lists.
    pub run_time: &'a RunTime,
}

/// The layer of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer<'a> {
    /// The document; the entry names a prefix or a set.
    Document(&'a Whom),
    /// The run-time lists.
    RunTime(&'a Entry),
}

/// An entry of either layer with one of its prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated<'a> {
    /// The list that the entry is in.
    pub list: List,
    /// The sources that the entry is for.
    pub prefix: IpNet,
    /// When the entry ends, in seconds of Unix time; [`u64::MAX`]: never.
    pub until: u64,
    /// The layer that the entry comes from.
    pub layer: Layer<'a>,
}

/// Until when lists apply to a source, as the datapath stores it. The datapath evaluates `allowed` first,
/// then `denied`, then `blocked`. Each is in seconds of Unix time: 0 if the list does not apply, [`u64::MAX`]
/// for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Until when the source is allowed.
    pub allowed: u64,
    /// Until when it is denied.
    pub denied: u64,
    /// Until when it is blocked by hand.
    pub blocked: u64,
    /// When this listing has to be computed again, in seconds of Unix time. Three end times cannot say, for
    /// example, that a source is allowed after a ban has ended.
    pub stale: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Entry {
    /// An entry that puts the sources of a prefix on a list for ever.
    pub const fn new(list: List, prefix: IpNet) -> Self {
        let (exception, until, reason, set, by, since) = (false, None, None, None, None, None);
        Self { list, prefix, exception, until, reason, set, by, since }
    }

    /// Whether the entry has ended at `now`, in seconds of Unix time.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The identity of the entry: a layer has one entry with each.
    fn place(&self) -> Place {
        (self.list, self.prefix, self.exception, self.set.clone())
    }

    /// Whether an entry of `allow` never ends.
    fn allows_for_ever(&self) -> bool {
        self.list == List::Allow && !self.exception && self.until.is_none()
    }

    /// Whether the entry was set by itself: it is no exception, and belongs to no set.
    const fn is_single(&self) -> bool {
        !self.exception && self.set.is_none()
    }
}

impl<'a> Stated<'a> {
    /// An entry of the document, for one of the prefixes that it stands for.
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

    pub(crate) const fn is_exception(&self) -> bool {
        matches!(self.layer, Layer::RunTime(entry) if entry.exception)
    }

    fn length(&self) -> u8 {
        self.prefix.prefix_len()
    }

    /// All that counts of the entry where no other one has its sources.
    pub(super) const fn says(&self) -> (List, u64, bool, bool) {
        (self.list, self.until, self.is_run_time(), self.is_exception())
    }
}

/// Returns the entry that decides about a source at `now` (seconds of Unix time), or `None`. `stated` has the
/// entries whose prefixes contain the source.
///
/// 1. An exception hides the document's entries in its list whose prefixes are as long as its own or shorter.
/// 2. Each layer answers from the entries that are left.
///    - The document evaluates all of `allow`, then all of `deny`, then the penalties. Its answer has the
///      length of the longest prefix in the first list with an entry; the lists after it do not count.
///    - The run-time layer answers by its longest prefix; on the same prefix the lists have that order too. Of
///      a list's entries of that prefix, the one that ends last answers.
/// 3. The answer with the longer prefix decides. If both are as long, the run-time answer does.
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
        // Several sets may have the same prefix.
        let longest = run_time().filter(|it| Some(it.length()) == longest);
        return longest.min_by_key(|it| (it.list, Reverse(it.until)));
    }
    answer
}

/// A period in which one list decides about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase<'s, 'a> {
    /// The entry that decides when the period begins.
    pub by: &'s Stated<'a>,
    /// When the period begins, in seconds of Unix time.
    pub from: u64,
    /// When the period ends, in seconds of Unix time; [`u64::MAX`]: never.
    pub until: u64,
}

/// The periods in which some list decides about a source, from `now` on (seconds of Unix time), in order of
/// time. There may be gaps between them. `stated` is as in [`decides`].
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

/// Computes what the datapath stores for a source from `now` on (seconds of Unix time). `stated` is as in
/// [`decides`].
pub fn listing(stated: &[Stated<'_>], now: u64) -> Listing {
    let mut listing = Listing::default();
    if !stated.iter().any(Stated::is_run_time) {
        // The datapath evaluates the document's lists in the document's order, so their ends suffice.
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
    /// More prefixes than the lists of an instance have room for: each takes 10 to 36 bytes of its 32 MiB.
    pub const MOST_PREFIXES: usize = 2_000_000;

    /// All entries and exceptions, in the order in which they were set.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether there are neither entries nor exceptions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries and exceptions of a list.
    pub fn list(&self, list: List) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.list == list)
    }

    /// The entry of a list for exactly this prefix, exceptions and entries of sets apart.
    pub fn get(&self, list: List, prefix: IpNet) -> Option<&Entry> {
        self.get_of(list, prefix, None)
    }

    /// The entry of a list for exactly this prefix that belongs to a set, or for `None` to none.
    pub fn get_of(&self, list: List, prefix: IpNet, set: Option<&str>) -> Option<&Entry> {
        self.list(list).find(|it| it.prefix == prefix && !it.exception && it.set.as_deref() == set)
    }

    /// The exception of a list for exactly this prefix.
    pub fn exception(&self, list: List, prefix: IpNet) -> Option<&Entry> {
        self.list(list).find(|entry| entry.prefix == prefix && entry.exception)
    }

    /// Adds an entry, or replaces the one with the same list, prefix and set; returns whether there was one. An
    /// exception and an entry of the same prefix are kept side by side, so that the exception holds again
    /// when a ban ends. Entries that have ended at `now` (seconds of Unix time) are removed.
    ///
    /// # Errors
    /// Nothing is changed on an error.
    /// - [`PolicyError::Value`] for a prefix with host bits;
    /// - [`PolicyError::OverrideTooNarrow`] for a prefix that is narrower than a source;
    /// - [`PolicyError::Shadowed`] if this layer allows the same prefix for ever.
    pub fn put(&mut self, policy: &Policy, entry: Entry, now: u64) -> Result<bool, PolicyError> {
        let Entry { list, prefix, .. } = entry;
        policy.key_prefix.check_source(prefix)?;
        if list != List::Allow && !entry.exception {
            self.check_allowed(list, prefix)?;
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

    /// Refuses a prefix for a list that comes after `allow` if this layer allows exactly that for ever.
    ///
    /// # Errors
    /// [`PolicyError::Shadowed`], which names the entry of `allow`.
    pub fn check_allowed(&self, list: List, prefix: IpNet) -> Result<(), PolicyError> {
        let by = self.list(List::Allow).find(|it| it.prefix == prefix && it.allows_for_ever());
        by.map_or(Ok(()), |by| {
            let by = Stated::of_run_time(by).to_string();
            Err(PolicyError::Shadowed { list: list.name(), entry: prefix.to_string(), by })
        })
    }

    /// Adds the entries of another layer; they replace those with the same list, prefix and set.
    pub fn extend(&mut self, other: &Self) {
        let taken: HashSet<_> = other.entries.iter().map(Entry::place).collect();
        self.entries.retain(|it| !taken.contains(&it.place()));
        self.entries.extend_from_slice(&other.entries);
    }

    /// Removes all entries and exceptions of a list; returns how many.
    pub fn flush(&mut self, list: List) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.list != list);
        before - self.entries.len()
    }

    /// Removes the entries that have ended at `now` (seconds of Unix time); returns how many.
    pub fn drop_over(&mut self, now: u64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| !entry.is_over(now));
        before - self.entries.len()
    }

    /// Whether an entry or an exception has an end.
    pub fn has_ends(&self) -> bool {
        self.entries.iter().any(|entry| entry.until.is_some())
    }

    /// Removes the entry of a list for exactly this prefix, not those of sets, if it still holds at `now`;
    /// returns whether it did.
    fn remove(&mut self, list: List, prefix: IpNet, now: u64) -> bool {
        let before = self.entries.len();
        let is_it = |it: &Entry| it.list == list && it.prefix == prefix && it.is_single();
        self.entries.retain(|entry| !is_it(entry) || entry.is_over(now));
        self.entries.len() < before
    }
}

impl Layers {
    /// The same for reading.
    pub const fn view(&self) -> Layered<'_> {
        Layered { policy: &self.policy, run_time: &self.run_time }
    }

    /// The limits and overrides without effect, as text: the lists of both layers contain all of their
    /// sources.
    pub fn shadowed(&self) -> Vec<String> {
        // Most policies have nothing that lists could shadow, and lists may be long.
        let could_be = |limit: &Limit| {
            !limit.overrides.is_empty()
                || !limit.matching.sources.is_empty()
                || limit.is_of_tenants()
        };
        if !self.policy.limits.iter().any(could_be) {
            return Vec::new();
        }
        let mut all = self.policy.clone();
        for entry in self.run_time.entries.iter().filter(|entry| !entry.exception) {
            let whom = Whom::Prefix(entry.prefix);
            all.list_mut(entry.list).push(Listed { whom, until: entry.until });
        }
        let is_listed = |it: &Shadowed<'_>| matches!(it.entry, ShadowedEntry::Listed { .. });
        let found = all.shadowed().into_iter().filter(|it| !is_listed(it));
        found.map(|it| it.to_string()).collect()
    }

    /// The same run-time lists beside another document.
    ///
    /// If `self` is [`unsorted`](Self::unsorted), its listed prefixes that `document` lacks become run-time
    /// entries. Some may be bans that the old document had: a ban too many shows in `limiter deny list`, a
    /// lost one would not.
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
                        let reason = Some(UPGRADED.into());
                        let entry = Entry { until: *until, reason, ..Entry::new(list, prefix) };
                        run_time.entries.push(entry);
                    }
                }
            }
        }
        Self { policy: document, run_time, unsorted: false }
    }

    /// Separates what commands of an older version set from what `document` has, the one that the policy came
    /// from. Prefixes that the document lists and the policy does not become exceptions.
    ///
    /// Limits stay as they are in force: edits may have changed them since.
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
                    let reason = Some(UPGRADED.into());
                    let exception = Entry { exception: true, reason, ..Entry::new(list, prefix) };
                    sorted.run_time.entries.push(exception);
                }
            }
        }
        sorted
    }

    /// The run-time lists to keep when an instance is removed. For an [`unsorted`](Self::unsorted) policy,
    /// whose document is gone with it, they include the prefixes of its lists whose entries decide now or
    /// later. Such an entry may have been hidden until some time by another list; as the longer prefix it
    /// then decides at once. A ban too many shows in the list.
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

    /// Takes a prefix off a list. Removes its run-time entry, not those of sets, if that holds at `now` (seconds of Unix time);
    /// else adds `exception`, if the document lists exactly this prefix. Run-time entries that have ended at
    /// `now` are removed.
    ///
    /// # Errors
    /// [`PolicyError::NotListed`], or an error of [`RunTime::put`]; nothing is changed on an error.
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
    /// The number of entries of a list that hold at `now`, in seconds of Unix time, in both layers.
    pub fn listed(self, list: List, now: u64) -> usize {
        let document = self.policy.list(list).iter().filter(|listed| !listed.is_over(now));
        let run_time = self.run_time.list(list).filter(|it| !it.exception && !it.is_over(now));
        document.count() + run_time.count()
    }

    /// The entries of both layers whose prefixes contain all of `prefix`.
    pub fn around(self, prefix: IpNet) -> Vec<Stated<'a>> {
        let mut stated = Vec::new();
        for list in List::ALL {
            for listed in self.policy.list(list) {
                let around =
                    self.policy.prefixes(&listed.whom).iter().filter(|it| it.contains(&prefix));
                stated.extend(around.map(|it| Stated::of_document(list, listed, *it)));
            }
        }
        let around = self.run_time().filter(|it| it.prefix.contains(&prefix));
        stated.extend(around.map(Stated::of_run_time));
        stated
    }

    /// The run-time entries, without those that are narrower than a source of this policy.
    pub fn run_time(self) -> impl Iterator<Item = &'a Entry> {
        let fits = move |entry: &&Entry| self.policy.key_prefix.check_source(entry.prefix).is_ok();
        self.run_time.entries.iter().filter(fits)
    }
}

impl std::fmt::Display for Stated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.layer {
            Layer::Document(whom @ Whom::Set(_)) => write!(f, "{} of {whom}", self.prefix),
            Layer::RunTime(Entry { set: Some(set), .. }) => {
                write!(f, "{} of set {set}", self.prefix)
            }
            _ => write!(f, "{}", self.prefix),
        }
    }
}

mod allowed;
mod many;
mod stored;

#[cfg(test)]
mod tests;
