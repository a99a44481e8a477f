//! The decision about a request.
//!
//! First the lists of the source, then all limits that are about the request, narrow keys before wide ones, then all of them
//! are charged or none. The arithmetic, and what is asked in which order, is that of the kernel half: see
//! [`charge`](limiter_common::policy::charge).

use std::{
    net::IpAddr,
    slice::from_mut,
    time::{SystemTime, UNIX_EPOCH},
};

use limiter_common::{algorithm::kind::Kind, base::address::Address};

pub use self::counts::{Counts, RowCounts};
pub(super) use self::repeats::PARTS;
use self::{
    counts::Tally,
    places::{Limited, Place},
    repeats::Repeats,
};
use super::{
    answer::{Answer, Standing, Verdict},
    lease::{Leases, Numbers as LeaseNumbers},
    request::Request,
    rules::{About, Compiled, Counted, Listed, MOST_AT_ONCE, Numbers, Row, Rules},
    table::{Entries, Entry, Open, Table},
};
use crate::{
    datapath::sys,
    policy::{Context, Policy, PolicyError},
};

mod counts;
mod places;
mod repeats;
mod standing;

/// The most requests that are decided about at once.
pub const MOST_ITEMS: usize = 32;

/// Decides about requests, by the limits of a policy and the state of a table.
///
/// It decides about one bill at a time. Whoever answers several clients at once puts it into a mutex: a decision takes
/// well below a microsecond.
#[derive(Debug)]
pub struct Decider {
    rules: Rules,
    table: Table,
    /// By the place of the row.
    tallies: Vec<Tally>,
    /// What happened to requests, without the counts of rows.
    counted: Counts,
    /// The rows that are about the requests of a bill.
    places: Vec<Place>,
    /// Requests that may be sent again.
    repeats: Repeats,
    /// The numbers of places of open requests.
    leased: LeaseNumbers,
    /// The numbers of rows that askers told.
    told: Vec<Numbers>,
}

/// What is done to what limits were charged, other than by asking them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is charged whatever is left: more than that is owed.
    Charge,
    /// It is given back, what is charged at most.
    Refund,
}

/// A request of a bill: all that are charged by a bill are charged, or none is.
#[derive(Clone, Copy)]
pub struct Item<'r> {
    /// The request.
    pub request: &'r Request<'r>,
    /// What the caller says that it costs, times what it costs by the policy; at least 1.
    pub hits: u64,
    /// What is done about it.
    pub effect: Effect,
}

/// What is done about a request of a bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is asked about. Nothing is charged, and nothing is counted.
    Ask,
    /// It is charged and counted.
    Charge,
    /// It passes, and its limits get back what it costs: a [`Settlement::Refund`], unless another request of the bill is refused.
    Refund,
}

/// What counts open requests. It reads all entries that may have some, which takes 40 ms where there are most.
#[derive(Debug)]
pub struct OpenRequests {
    entries: Entries,
    /// The class and the shared state of each row that counts open requests.
    rows: Vec<Option<(u16, Entry)>>,
}

impl OpenRequests {
    /// How many requests are open at `now`, in nanoseconds, by each layer and candidate in the order of
    /// [`Counts::rows`](Counts): the places that they have, and those that nobody gave back yet. `None` for one that counts none.
    pub fn count(&self, now: u64) -> Vec<Option<u64>> {
        let mut open: Vec<_> = self.rows.iter().map(|row| row.map(|_| 0)).collect();
        if open.iter().all(Option::is_none) {
            return open;
        }
        for (of, places) in self.entries.places(now) {
            let is_of = |(class, shared): (u16, Entry)| match of {
                Open::Class(of) => of == class,
                Open::Shared(of) => of == shared,
            };
            let at = self.rows.iter().position(|row| row.is_some_and(is_of));
            if let Some(number) = at.and_then(|at| open[at].as_mut()) {
                *number += places;
            }
        }
        open
    }
}

impl Decider {
    /// Decides by this policy, and by the state of this table.
    ///
    /// # Errors
    /// Any [`PolicyError`] of limits on requests that cannot be compiled.
    pub fn new(policy: &Policy, table: Table) -> Result<Self, PolicyError> {
        let rules = Rules::compile(policy, &clock(), table.seed())?.claim(&table);
        let tallies = vec![Tally::default(); rules.rows.len()];
        let places = Vec::with_capacity(MOST_AT_ONCE);
        Ok(Self {
            rules,
            table,
            tallies,
            counted: Counts::default(),
            places,
            repeats: Repeats::default(),
            leased: LeaseNumbers::new(),
            told: Vec::new(),
        })
    }

    /// Decides by another policy from now on. Keys keep what they are charged by limits that stay. Where the numbers of one are
    /// others, each key keeps the share that it has used, and a debt as the time that it takes.
    ///
    /// # Errors
    /// As [`new`](Self::new). The policy before stays in force then.
    pub fn apply(&mut self, policy: &Policy) -> Result<(), PolicyError> {
        let compiled = compile(policy, self.table.seed())?;
        drop(self.adopt(compiled));
        Ok(())
    }

    /// The requests that are known at `now`, in ns of `CLOCK_MONOTONIC`, because they may be sent again: those of one of [`PARTS`] of
    /// the table.
    pub(super) fn repeats(&self, part: usize, now: u64) -> Vec<[u64; 4]> {
        self.repeats.stored(part, now)
    }

    /// How often those changed.
    pub(super) const fn repeat_changes(&self) -> u64 {
        self.repeats.changes()
    }

    /// Takes over the [repeats](Self::repeats) of the process before, of a decider with the same [`seed`](Self::seed).
    pub(super) fn restore_repeats(&mut self, repeats: &[[u64; 4]]) {
        self.repeats.restore(repeats);
    }

    /// What policies are [compiled](compile) for.
    pub const fn seed(&self) -> [u64; 2] {
        self.table.seed()
    }

    /// Decides by another policy from now on, as [`apply`](Self::apply) does, which was compiled for this [`seed`](Self::seed).
    /// Returns the rules before, which take time to free where lists are long.
    pub fn adopt(&mut self, compiled: Compiled) -> impl Sized + use<> {
        let rules = compiled.claim(&self.table);
        let before = self.rules.rows.iter().zip(&self.tallies);
        let same = |name: &str| before.clone().find(|(row, _)| row.name == name);
        let kept = |name: &str| same(name).map(|(_, tally)| *tally).unwrap_or_default();
        self.tallies = rules.rows.iter().map(|row| kept(&row.name)).collect();
        std::mem::replace(&mut self.rules, rules)
    }

    /// Decides about a request that the caller says to cost `hits` times what it costs by the policy, at least 1. `now` is in
    /// nanoseconds of `CLOCK_MONOTONIC`. It is charged to all limits that are about it, or to none.
    pub fn decide(&mut self, request: &Request<'_>, hits: u64, now: u64, answer: &mut Answer) {
        let item = Item { request, hits, effect: Effect::Charge };
        self.decide_all(&[item], now, from_mut(answer));
    }

    /// What [`decide`](Self::decide) would answer. Nothing is charged, and nothing is counted.
    pub fn peek(&mut self, request: &Request<'_>, hits: u64, now: u64, answer: &mut Answer) {
        let item = Item { request, hits, effect: Effect::Ask };
        self.decide_all(&[item], now, from_mut(answer));
    }

    /// Decides about up to [`MOST_ITEMS`] requests at once, with an answer for each: if one is refused, none is charged. What
    /// several of them cost the same key is added up. Refunds come last, and make no room for the others. Requests beyond that number are denied, and so are those beyond 64 layers
    /// and candidates of limits that are about them altogether.
    pub fn decide_all(&mut self, items: &[Item<'_>], now: u64, answers: &mut [Answer]) {
        self.places.clear();
        self.told.clear();
        let mut is_denied = false;
        for (at, (item, answer)) in items.iter().zip(&mut *answers).enumerate() {
            answer.standings.clear();
            answer.leases.0.clear();
            answer.hold = 0;
            let begin = self.places.len();
            let gathered = match item.effect {
                _ if at >= MOST_ITEMS => Err(None),
                Effect::Refund => Ok(()),
                Effect::Ask | Effect::Charge => self.gather(item, at, now),
            };
            (answer.verdict, answer.refused_by, answer.refused_key) = (Verdict::Pass, None, None);
            if let Err(refused_by) = gathered {
                (answer.verdict, answer.refused_by) = (Verdict::Denied, refused_by);
                self.places.truncate(begin);
                is_denied = true;
            }
        }
        let Self { rules, table, tallies, counted, places, repeats, leased, told } = self;
        let mut limited = Limited::new((rules, told), table, places, now);
        // Of several at once none is held back, or known for a repeat.
        let single = if let [item] = items { Some(item.request) } else { None };
        if let Some(request) = single {
            limited.find_repeats(repeats, request);
        }
        limited.look();
        if limited.bill.refused == 0
            && let Some((at, time)) = limited.hold()
        {
            let has_room = single.is_some_and(|it| it.told.hold(limited.digest_at(at)));
            match answers {
                [answer] if has_room => answer.hold = if rules.is_monitored { 0 } else { time },
                _ => limited.refuse(at),
            }
        }
        let mut is_refused = false;
        if limited.is_any(|place| place.is_charged) {
            counted.shared +=
                u64::from(limited.is_any(|place| place.is_charged && place.is_shared()));
            is_refused = limited.bill.refused > 0 || is_denied;
            if !is_refused {
                limited.charge(leased);
                limited.lease(answers);
                limited.note_repeats(repeats, tallies);
            }
            limited.count(tallies);
        }
        for (at, answer) in answers.iter_mut().enumerate() {
            if answer.verdict == Verdict::Pass {
                limited.tell(at, answer);
            } else if rules.is_monitored {
                (answer.verdict, answer.refused_by) = (Verdict::Pass, None);
            }
        }
        // Also where a refusal is only counted.
        if !is_refused && answers.iter().all(|answer| answer.verdict == Verdict::Pass) {
            self.give_back(items, now, answers);
        }
    }

    /// Gives back what a bill has to. The answers tell what is left then: also of what owes more, a refund passes.
    fn give_back(&mut self, items: &[Item<'_>], now: u64, answers: &mut [Answer]) {
        let all = items.iter().zip(answers);
        for (item, answer) in all.filter(|(item, _)| item.effect == Effect::Refund) {
            let _: bool = self.settle(item.request, item.hits, Settlement::Refund, now, answer);
            (answer.verdict, answer.refused_by, answer.refused_key) = (Verdict::Pass, None, None);
        }
    }

    /// Charges the limits that are about a request, or gives back what they were charged, after the fact: `hits` times what the
    /// request costs, at `now`. All of them are charged, whatever they have left, and the request is not counted. The answer is
    /// what [`peek`](Self::peek) would tell then of a request of cost 1. Returns whether a limit or a list is about the request.
    ///
    /// Buckets owe what they have not, for a day at most, or for as long as their burst takes. Windows count their limit at
    /// most, and logs [`MOST`](limiter_common::algorithm::sliding_log::SlidingLog::MOST) events. Limits of open requests are left
    /// as they are: a place is given back by [`release`](Self::release).
    pub fn settle(
        &mut self,
        request: &Request<'_>,
        hits: u64,
        settlement: Settlement,
        now: u64,
        answer: &mut Answer,
    ) -> bool {
        self.places.clear();
        self.told.clear();
        let is_listed = self.rules.profile(address(request).as_ref()).listed(now).is_some();
        let is_settled =
            is_listed || self.gather(&Item { request, hits, effect: Effect::Ask }, 0, now).is_err();
        let is_about = is_settled || !self.places.is_empty();
        if !is_settled {
            let Self { rules, table, places, counted, told, .. } = self;
            let mut limited = Limited::new((rules, told), table, places, now);
            let is_shared = limited.is_any(Place::is_shared);
            counted.shared += u64::from(is_shared && settlement == Settlement::Charge);
            limited.settle(settlement);
        }
        self.peek(request, 1, now, answer);
        is_about
    }

    /// Gives back the places of requests that ended by `now`, in nanoseconds. Returns how many of them were not given back before.
    pub fn release(&mut self, leases: &Leases, now: u64) -> u64 {
        let rows = || self.rules.rows.iter().filter(|row| row.kind == Kind::Concurrent);
        let shared = || rows().map(|row| row.shared);
        let leases = leases.0.iter();
        let released = leases.map(|it| self.table.release(it.key, shared(), it.tags(), now)).sum();
        self.counted.released += released;
        released
    }

    /// What the limits that count by the source alone have left for a source at `now`, whatever it asks for, those that only count
    /// too. Nothing is charged.
    pub fn of_source(&mut self, source: IpAddr, now: u64) -> Vec<Standing> {
        let Self { rules, table, places, .. } = self;
        let nothing = Request::of(source);
        let source = Address::from(source.to_canonical());
        let profile = rules.profile(Some(&source));
        places.clear();
        rules.of_source(&source, profile, &rules.values(&nothing), |about| {
            if let About::Counts { row, key, cost, numbers: Counted::At(numbers) } = about
                && places.len() < MOST_AT_ONCE
            {
                let shared = rules.rows[row].shared;
                places.push(Place::new(0, (row, key), (cost, false), numbers, shared));
            }
        });
        Limited::new((rules, &[]), table, places, now).standings().collect()
    }

    /// What was counted since this was made. What limits counted that are gone is not among it.
    pub fn counts(&self) -> Counts {
        let row = |(row, tally): (&Row, &Tally)| RowCounts {
            limit: row.limit,
            layer: row.layer,
            is_candidate: row.is_candidate,
            name: row.name.clone(),
            conform: tally.conform,
            exceed: tally.exceed,
            exceed_monitor: tally.exceed_monitor,
            near: tally.near,
            missing: tally.missing,
            repeat: tally.repeat,
        };
        Counts {
            rows: self.rules.rows.iter().zip(&self.tallies).map(row).collect(),
            keys: self.table.keys(),
            ..self.counted.clone()
        }
    }

    /// What counts open requests, by the rows of this policy. Decisions go on meanwhile.
    pub fn open(&self) -> OpenRequests {
        let is_of = |row: &Row| row.kind == Kind::Concurrent;
        let rows = self.rules.rows.iter().map(|row| is_of(row).then_some((row.class, row.shared)));
        OpenRequests { entries: self.table.entries(), rows: rows.collect() }
    }

    /// The table.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Collects the rows that are about a request, the one at this place of a bill.
    ///
    /// # Errors
    /// It is denied, whatever its rate: by a limit, or by none.
    fn gather(&mut self, item: &Item<'_>, at: usize, now: u64) -> Result<(), Option<usize>> {
        let Self { rules, tallies, counted, places, told, .. } = self;
        let Item { request, hits, effect } = *item;
        let is_charged = effect == Effect::Charge;
        let counts = u64::from(is_charged);
        let source = address(request);
        let profile = rules.profile(source.as_ref());
        match profile.listed(now) {
            Some(Listed::Allowed) => {
                counted.allowed += counts;
                return Ok(());
            }
            Some(Listed::Denied) => {
                counted.denied += counts;
                return Err(None);
            }
            None => {}
        }
        let (mut refused_by, mut is_too_much) = (None, false);
        let values = rules.values(request);
        rules.find(source.as_ref(), profile, &values, hits, |about| match about {
            About::Counts { .. } if places.len() == MOST_AT_ONCE => is_too_much = true,
            About::Counts { row, key, cost, numbers } => {
                let shared = rules.rows[row].shared;
                let numbers = match numbers {
                    Counted::At(place) => place,
                    Counted::Told(own) => {
                        told.push(*own);
                        rules.numbers.len() + told.len() - 1
                    }
                };
                places.push(Place::new(at, (row, key), (cost, is_charged), numbers, shared));
            }
            About::Misses(row, refuses) => {
                tallies[row].missing += counts;
                if refuses {
                    refused_by = Some(rules.rows[row].limit);
                }
            }
            About::Refuses(limit) => {
                counted.dropped += counts;
                refused_by = Some(limit);
            }
        });
        counted.too_many += counts * u64::from(is_too_much);
        match refused_by {
            None if !is_too_much => Ok(()),
            refused_by => Err(refused_by),
        }
    }
}

/// The source of a request, as lists and keys have it.
fn address(request: &Request<'_>) -> Option<Address> {
    request.source.map(|source| Address::from(source.to_canonical()))
}

/// Checks that a bridge could decide by a policy.
///
/// # Errors
/// As [`Decider::new`].
pub fn check(policy: &Policy) -> Result<(), PolicyError> {
    if policy.on_requests.is_empty() {
        return Ok(());
    }
    compile(policy, [0; 2]).map(drop)
}

/// Compiles a policy for a decider of this [`seed`](Decider::seed).
///
/// # Errors
/// As [`Decider::new`].
pub fn compile(policy: &Policy, seed: [u64; 2]) -> Result<Compiled, PolicyError> {
    Rules::compile(policy, &clock(), seed)
}

/// The clocks, for the ends of list entries.
fn clock() -> Context {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Context { unix, monotonic: sys::monotonic(), ..Context::default() }
}

#[cfg(test)]
mod tests;
