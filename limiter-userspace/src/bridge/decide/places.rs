//! The rows that are about a request, and their states.

mod queue;
mod repeats;
mod settle;
mod wide;

use limiter_common::{
    algorithm::{
        kind::WideKind,
        meter::Meter,
        policer::{Look, Refusal},
    },
    policy::charge::{Bill, Group, charge_at, look_at},
};

use super::{
    super::{
        answer::{Answer, Standing, Verdict},
        lease::{Lease, Numbers as LeaseNumbers},
        rules::{Numbers, Rules},
        table::{Entry, Key, StateWord, Table},
    },
    counts::Tally,
    repeats::Repeat,
    standing,
};

/// A row that is about a request, or about several with the same key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The place of the row in [`Rules::rows`].
    pub(super) row: usize,
    key: Key,
    /// A bit for each request of the bill that it is about.
    items: u32,
    /// Whether it is charged, and not only asked about.
    pub(super) is_charged: bool,
    cost: u64,
    /// The place of its numbers in [`Rules::numbers`], or behind those in what askers told.
    numbers: usize,
    state: State,
    look: Look,
    repeat: Repeat,
    /// The places of open requests that it took.
    lease: Option<Lease>,
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
    /// The row and the key of the request at a place of the bill, what it costs, and whether it is charged.
    pub(super) fn new(
        item: usize,
        (row, key): (usize, Key),
        (cost, is_charged): (u64, bool),
        numbers: usize,
        shared: Entry,
    ) -> Self {
        let (items, state, look) = (1 << item, State::Shared(shared), Look::default());
        let (repeat, lease) = (Repeat::Charged, None);
        Self { row, key, items, is_charged, cost, numbers, state, look, repeat, lease }
    }

    /// Adds another request, if both have the same state.
    fn add(&mut self, other: &Self) -> bool {
        let is_same = self.key == other.key || self.is_shared() && other.is_shared();
        if self.row != other.row || !is_same {
            return false;
        }
        self.cost = match (self.is_charged, other.is_charged) {
            (true, true) => self.cost.saturating_add(other.cost),
            (true, false) => self.cost,
            (false, true) => other.cost,
            (false, false) => self.cost.max(other.cost),
        };
        self.items |= other.items;
        self.is_charged |= other.is_charged;
        true
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.state, State::Shared(_))
    }

    const fn digest(&self) -> u64 {
        let [digest, _] = self.key.words();
        digest
    }

    const fn entry(&self) -> Entry {
        match self.state {
            State::Own(entry) | State::Vacant(entry) | State::Shared(entry) => entry,
        }
    }
}

/// The rows that are about the requests of a bill, in their order: a bit of the bill for each.
pub(super) struct Limited<'d> {
    pub(super) rules: &'d Rules,
    told: &'d [Numbers],
    pub(super) table: &'d Table,
    places: &'d mut Vec<Place>,
    pub(super) bill: Bill,
    /// When it is decided about, in nanoseconds.
    pub(super) now: u64,
}

impl<'d> Limited<'d> {
    /// Rows and keys in any order. Those with the same state become one.
    pub(super) fn new(
        (rules, told): (&'d Rules, &'d [Numbers]),
        table: &'d Table,
        places: &'d mut Vec<Place>,
        now: u64,
    ) -> Self {
        let mut limited = Self { rules, told, table, places, bill: Bill::default(), now };
        limited.find();
        let set = |is: fn(&Rules, &Place) -> bool| {
            let places = limited.places.iter().enumerate();
            places.fold(0, |set, (at, place)| set | u64::from(is(rules, place)) << at)
        };
        limited.bill = Bill {
            applies: set(|_, _| true),
            enforced: set(|rules, place| rules.rows[place.row].is_enforced),
            ..Bill::default()
        };
        limited
    }

    /// Whether this is so of one of them.
    pub(super) fn is_any(&self, is: impl Fn(&Place) -> bool) -> bool {
        self.places.iter().any(is)
    }

    /// Finds the state of each row and key, measured in the numbers of the row. No two have the same.
    fn find(&mut self) {
        self.places.sort_unstable_by_key(|place| (place.row, place.key));
        let mut is_complete = true;
        self.places.dedup_by(|place, kept| place.key == kept.key && kept.add(place));
        let (rules, told) = (self.rules, self.told);
        for place in &mut *self.places {
            let area = self.rules.rows[place.row].area;
            match self.table.find(area, place.key) {
                Some(entry) => {
                    place.state = State::Own(entry);
                    let numbers = numbers_at(rules, told, place.numbers);
                    self.table.carry(entry, &numbers.meter, self.now);
                }
                None => is_complete = false,
            }
        }
        if !is_complete {
            self.find_vacancies();
            // Several keys of a row may be without room, and share one state then.
            self.places.sort_unstable_by_key(|place| (place.row, place.is_shared()));
            self.places.dedup_by(|place, kept| kept.add(place));
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
                    let numbers = numbers_at(self.rules, self.told, place.numbers);
                    self.table.carry(shared, &numbers.shared, self.now);
                }
            }
        }
    }

    /// Looks at the rows one after the other, until one refuses. Charges nothing.
    pub(super) fn look(&mut self) {
        for at in 0..self.places.len() {
            let bit = 1 << at & self.bill.asked();
            if bit == 0 {
                continue;
            }
            if self.places[at].cost > self.numbers(at).most {
                self.bill.refuse(bit, Refusal::Exceed);
            } else if let Some(kind) = self.wide(at) {
                if let Err(refusal) = self.look_wide(at, kind) {
                    self.bill.refuse(bit, refusal);
                }
            } else {
                look_at(self, at, self.now);
            }
        }
    }

    /// Charges the rows that are due. Open requests have the next numbers.
    pub(super) fn charge(&mut self, leased: &mut LeaseNumbers) {
        let places = self.places.iter().enumerate();
        let charged = places.fold(0, |set, (at, place)| set | u64::from(place.is_charged) << at);
        self.bill.applies &= charged;
        for at in 0..self.places.len() {
            match self.wide(at) {
                Some(kind) => self.charge_wide(at, kind, leased),
                None => {
                    // Its table is locked, so no race is lost.
                    charge_at(self, at, false, self.now);
                }
            }
        }
    }

    /// Counts the requests under their rows, but for those that are only asked about.
    pub(super) fn count(&self, tallies: &mut [Tally]) {
        let bill = &self.bill;
        let monitored = if self.rules.is_monitored { u64::MAX } else { 0 };
        let conform = if bill.refused == 0 { bill.charged } else { 0 };
        let near = bill.near & conform;
        let exceed_monitor = bill.monitored() | bill.refused & monitored;
        let exceed = bill.refused & !monitored;
        for (at, place) in self.places.iter().enumerate().filter(|(_, place)| place.is_charged) {
            let is = |set: u64| set >> at & 1;
            let tally = &mut tallies[place.row];
            tally.conform += is(conform);
            tally.exceed += is(exceed);
            tally.exceed_monitor += is(exceed_monitor);
            tally.near += is(near);
        }
    }

    /// Tells what the rows that refuse requests have left for the request at a place of the bill, and whether it is over one of
    /// them: first that which refuses the bill, then others that would, then that with the least left.
    pub(super) fn tell(&self, item: usize, answer: &mut Answer) {
        if self.rules.is_monitored {
            return;
        }
        let standings = &mut answer.standings;
        let (mut settled, is_refused) = (0, self.bill.refused != 0);
        for (at, place) in self.places.iter().enumerate() {
            if place.items >> item & 1 == 0 || !self.rules.rows[place.row].is_enforced {
                continue;
            }
            standings.push(self.standing(at));
            if self.bill.refused >> at & 1 != 0 {
                let last = standings.len() - 1;
                standings.swap(0, last);
                settled = 1;
            }
        }
        if let Some(rest) = standings.get_mut(settled..) {
            rest.sort_unstable_by_key(|it| (is_refused && it.wait == 0, it.left));
        }
        // Nothing was charged, so what one has to wait for now is what it was asked about.
        if is_refused && (settled > 0 || standings.iter().any(|it| it.wait > 0)) {
            answer.verdict = Verdict::Limited;
            let first = standings.first();
            answer.refused_by = first.map(|it| it.limit);
            answer.refused_key = first.and_then(|it| self.digest(item, it));
        }
    }

    /// A digest of the key of the request at a place of the bill, under the limit that this tells of.
    fn digest(&self, item: usize, told: &Standing) -> Option<u64> {
        let place = self.places.iter().find(|place| {
            let row = &self.rules.rows[place.row];
            let is_of = (row.limit, row.layer) == (told.limit, told.layer);
            is_of && row.is_enforced && place.items >> item & 1 != 0
        });
        place.map(Place::digest)
    }

    /// A digest of the key at a place.
    pub(super) fn digest_at(&self, at: usize) -> u64 {
        self.places[at].digest()
    }

    /// What each row has left.
    pub(super) fn standings(&self) -> impl Iterator<Item = Standing> {
        (0..self.places.len()).map(|at| self.standing(at))
    }

    /// What the row at a place has left.
    fn standing(&self, at: usize) -> Standing {
        let place = &self.places[at];
        let row = &self.rules.rows[place.row];
        let Numbers { quota, window, most, .. } = *self.numbers(at);
        let (meter, cost) = (self.meter(at), place.cost.min(most));
        let fill = match place.state {
            State::Vacant(_) => standing::fresh(meter, self.now, cost),
            State::Own(entry) | State::Shared(entry) => {
                let (word, slots) = (self.table.word(entry), self.table.slots(entry));
                match self.wide(at) {
                    None => standing::of_word(meter, word.get(), self.now, cost),
                    Some(WideKind::SlidingLog) => {
                        standing::of_log(meter, &word, &slots, self.now, cost)
                    }
                    Some(WideKind::Concurrent) => standing::of_open(meter, &slots, self.now, cost),
                }
            }
        };
        let refuses = self.bill.refused >> at & 1 != 0;
        Standing {
            limit: row.limit,
            layer: row.layer,
            quota,
            window,
            left: fill.left.min(quota),
            wait: match fill.wait {
                _ if place.cost > most => u64::MAX,
                // There is room for it, and none to wait.
                0 if refuses => self.turn(at).max(1),
                wait => wait,
            },
            refills: fill.refills,
            // A key that shares a state may get one of its own before.
            holds: row.holds.filter(|_| !place.is_shared()),
        }
    }

    fn numbers(&self, at: usize) -> &'d Numbers {
        numbers_at(self.rules, self.told, self.places[at].numbers)
    }

    /// The meter of the state at a place.
    fn meter(&self, at: usize) -> &'d Meter {
        let numbers = self.numbers(at);
        if self.places[at].is_shared() { &numbers.shared } else { &numbers.meter }
    }

    /// The entry of the state at a place, made if need be.
    fn made(&mut self, at: usize) -> Entry {
        let place = &mut self.places[at];
        if let State::Vacant(entry) = place.state {
            let meter = &numbers_at(self.rules, self.told, place.numbers).meter;
            self.table.insert(entry, place.key, meter, self.now);
            place.state = State::Own(entry);
        }
        place.entry()
    }
}

/// The numbers at a place.
fn numbers_at<'d>(rules: &'d Rules, told: &'d [Numbers], place: usize) -> &'d Numbers {
    match place.checked_sub(rules.numbers.len()) {
        Some(place) => &told[place],
        None => &rules.numbers[place],
    }
}

/// The rows whose state is a word.
impl<'d> Group for Limited<'d> {
    type Word = StateWord<'d>;
    type Policer = Meter;

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
