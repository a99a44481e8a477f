//! The rows that are about a request, and their states.

use limiter_common::{
    algorithm::{
        meter::Meter,
        policer::{Look, Refusal},
        sliding_log::SlidingLog,
    },
    policy::charge::{Bill, Group, charge_at, look_at},
};

use super::{
    super::{
        answer::Standing,
        rules::{MOST_AT_ONCE, Numbers, Rules},
        table::{Area, Entry, Key, StateWord, Table},
    },
    counts::Tally,
    standing,
};

/// A row that is about a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The place of the row in [`Rules::rows`].
    pub(super) row: usize,
    key: Key,
    cost: u64,
    /// The place of its numbers in [`Rules::numbers`].
    numbers: usize,
    state: State,
    look: Look,
}

/// Where the state of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the entry of the key.
    Own(Entry),
    /// Nowhere yet. The key can have this entry.
    Vacant(Entry),
    /// In the state that keys of the row without an entry share.
    Shared(Entry),
}

impl Place {
    pub(super) const fn new(
        row: usize,
        key: Key,
        cost: u64,
        numbers: usize,
        shared: Entry,
    ) -> Self {
        Self { row, key, cost, numbers, state: State::Shared(shared), look: Look::NONE }
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.state, State::Shared(_))
    }

    const fn entry(&self) -> Entry {
        match self.state {
            State::Own(entry) | State::Vacant(entry) | State::Shared(entry) => entry,
        }
    }
}

/// A request and the rows that are about it, in their order: a bit of the bill for each.
pub(super) struct Limited<'d> {
    pub(super) rules: &'d Rules,
    pub(super) table: &'d Table,
    pub(super) places: &'d mut [Place],
    pub(super) bill: Bill,
    /// When it is decided about, in nanoseconds.
    pub(super) now: u64,
}

impl<'d> Limited<'d> {
    /// Finds the state of each row, measured in its numbers. No two rows have the same.
    pub(super) fn find(&mut self) {
        let mut is_complete = true;
        for place in &mut *self.places {
            let area = self.rules.rows[place.row].area;
            match self.table.find(area, place.key) {
                Some(entry) => {
                    place.state = State::Own(entry);
                    self.table.carry(entry, &self.rules.numbers[place.numbers].carry, self.now);
                }
                None => is_complete = false,
            }
        }
        if !is_complete {
            self.find_vacancies();
        }
    }

    /// Finds an entry for each key without one.
    fn find_vacancies(&mut self) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            let State::Shared(shared) = place.state else { continue };
            let row = &self.rules.rows[place.row];
            let taken = |entry| self.places.iter().any(|place| place.entry() == entry);
            match self.table.vacancy(row.area, place.key, self.now, row.share, taken) {
                Some(entry) => self.places[at].state = State::Vacant(entry),
                None => {
                    self.table.carry(shared, &self.rules.numbers[place.numbers].shared, self.now);
                }
            }
        }
    }

    /// Looks at the rows one after the other, until one refuses. Charges nothing.
    pub(super) fn look(&mut self) {
        for at in 0..self.places.len() {
            let bit = 1 << at & self.bill.asked();
            if bit == 0 {
                break;
            }
            let place = self.places[at];
            if place.cost > self.numbers(at).most {
                self.bill.refuse(bit, Refusal::Exceed);
            } else if self.is_log(at) {
                let looked = match (self.log(at), place.state) {
                    (None, _) => Err(Refusal::Exceed),
                    (Some(_), State::Vacant(_)) => Ok(()),
                    (Some(log), State::Own(entry) | State::Shared(entry)) => {
                        let (word, slots) = (self.table.word(entry), self.table.slots(entry));
                        log.look(&word, &slots, self.now).map(drop)
                    }
                };
                if let Err(refusal) = looked {
                    self.bill.refuse(bit, refusal);
                }
            } else {
                look_at(self, at, self.now);
            }
        }
    }

    /// Charges the rows that are due.
    pub(super) fn charge(&mut self) {
        for at in 0..self.places.len() {
            if self.is_log(at) {
                self.charge_log(at);
            } else {
                charge_at(self, at, true, self.now);
            }
        }
    }

    /// Charges as many events as the request costs to a log.
    fn charge_log(&mut self, at: usize) {
        let bit = 1 << at & self.bill.due();
        if bit == 0 {
            return;
        }
        let (entry, cost) = (self.made(at), self.places[at].cost);
        let log = self.meter(at).sliding_log();
        let (word, slots) = (self.table.word(entry), self.table.slots(entry));
        let mut last = None;
        for _ in 0..cost {
            let Ok(look) = log.look(&word, &slots, self.now) else { break };
            last = log.attempt(&word, &slots, look, self.now);
        }
        if let Some(event) = last {
            self.bill.charged |= bit;
            self.bill.note_near(bit, log.is_near(&slots, event));
        }
    }

    /// Counts the request under its rows.
    pub(super) fn count(&self, tallies: &mut [Tally]) {
        let bill = &self.bill;
        let monitored = if self.rules.is_monitored { u64::MAX } else { 0 };
        let conform = if bill.refused == 0 { bill.charged } else { 0 };
        let near = bill.near & conform;
        let exceed_monitor = bill.monitored() | bill.refused & monitored;
        let exceed = bill.refused & !monitored;
        for (at, place) in self.places.iter().enumerate() {
            let is = |set: u64| set >> at & 1;
            let tally = &mut tallies[place.row];
            tally.conform += is(conform);
            tally.exceed += is(exceed);
            tally.exceed_monitor += is(exceed_monitor);
            tally.near += is(near);
        }
    }

    /// Tells what the rows that refuse requests have left: first that which refuses this one, then that with the least left.
    pub(super) fn tell(&self, standings: &mut Vec<Standing>) {
        if self.rules.is_monitored {
            return;
        }
        let mut settled = 0;
        for (at, place) in self.places.iter().enumerate() {
            let row = &self.rules.rows[place.row];
            if !row.is_enforced {
                continue;
            }
            let Numbers { quota, window, most, .. } = *self.numbers(at);
            let (meter, cost) = (self.meter(at), place.cost.min(most));
            let fill = match place.state {
                State::Vacant(_) => standing::fresh(meter, self.now, cost),
                State::Own(entry) | State::Shared(entry) if self.is_log(at) => {
                    let (word, slots) = (self.table.word(entry), self.table.slots(entry));
                    standing::of_log(meter, &word, &slots, self.now, cost)
                }
                State::Own(entry) | State::Shared(entry) => {
                    standing::of_word(meter, self.table.word(entry).get(), self.now, cost)
                }
            };
            standings.push(Standing {
                limit: row.limit,
                layer: row.layer,
                quota,
                window,
                left: fill.left.min(quota),
                wait: if place.cost > most { u64::MAX } else { fill.wait },
                refills: fill.refills,
            });
            if self.bill.refused >> at & 1 != 0 {
                let last = standings.len() - 1;
                standings.swap(0, last);
                settled = 1;
            }
        }
        if let Some(rest) = standings.get_mut(settled..) {
            rest.sort_unstable_by_key(|standing| standing.left);
        }
    }

    fn numbers(&self, at: usize) -> &'d Numbers {
        &self.rules.numbers[self.places[at].numbers]
    }

    /// The meter of the state at a place.
    fn meter(&self, at: usize) -> &'d Meter {
        let numbers = self.numbers(at);
        if self.places[at].is_shared() { &numbers.shared } else { &numbers.meter }
    }

    fn is_log(&self, at: usize) -> bool {
        self.rules.rows[self.places[at].row].area == Area::Logs
    }

    /// The log in which as many events as the request costs have room where one has in this; `None` if they never have.
    fn log(&self, at: usize) -> Option<SlidingLog> {
        standing::for_cost(self.meter(at).sliding_log(), self.places[at].cost)
    }

    /// The entry of the state at a place, made if need be.
    fn made(&mut self, at: usize) -> Entry {
        let place = &mut self.places[at];
        if let State::Vacant(entry) = place.state {
            let meter = &self.rules.numbers[place.numbers].meter;
            self.table.insert(entry, place.key, meter, self.now);
            place.state = State::Own(entry);
        }
        place.entry()
    }
}

/// The rows whose state is a word.
impl<'d> Group for Limited<'d> {
    type Word = StateWord<'d>;
    type Policer = Meter;
    const LEN: usize = MOST_AT_ONCE;

    fn bill(&mut self) -> &mut Bill {
        &mut self.bill
    }

    fn look(&mut self, place: usize) -> &mut Look {
        &mut self.places[place].look
    }

    fn bit(&self, place: usize) -> u64 {
        1 << place
    }

    fn policer(&self, place: usize) -> Option<(&Meter, u64)> {
        Some((self.meter(place), self.places[place].cost))
    }

    fn find(&mut self, place: usize) -> Option<StateWord<'d>> {
        match self.places[place].state {
            State::Own(entry) | State::Shared(entry) => Some(self.table.word(entry)),
            State::Vacant(_) => None,
        }
    }

    fn create(&mut self, place: usize) -> Option<StateWord<'d>> {
        let entry = self.made(place);
        Some(self.table.word(entry))
    }
}
