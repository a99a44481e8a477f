//! The sources that are over their limits, as the agent tells of them.
//!
//! The datapath tells when one begins to be, and when one is blocked. That it is within its limits again
//! is seen here, by its entry; so nothing is to be done in the kernel for it.
//!
//! Of all that there is to tell, so much is told, and the rest is counted: what the datapath left out,
//! what came while no agent was there to hear it, and what is beyond the budget here; of a source that is
//! not followed, its release too.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    time::Duration,
};

use limiter_common::{
    algorithm::{
        binding::Binding,
        gcra::Gcra,
        rate::{Rate, SECOND},
        time::Time,
    },
    base::address::Address,
    memory::event::{Episode, EventStats, QUIET, STEP, SourceEvent, kind},
    policy::penalty::Block,
};

use super::event::{Event, Limited};
use crate::{
    datapath::{bpffs::Pins, link::exists, maps::Maps, ring::Ring},
    error::Result,
    policy::interfaces::Port,
    query::{self, Inquiry},
};

/// Sources that are followed until they are within their limits again.
const FOLLOWED: usize = 4096;
/// EventStats that are taken at a look.
const TAKEN: usize = 1 << 14;
/// How often it is told what was left out, in nanoseconds.
const SUMMARY: u64 = 10 * SECOND;
/// How often a source is looked at that is blocked for long, in nanoseconds: a block may be lifted.
const AGAIN: u64 = 60 * SECOND;
/// Seconds of events that may be told at once.
const BURST: u64 = 10;

/// What is known of the sources of an instance.
pub(super) struct Sources {
    pins: Pins,
    /// Since when there is an agent to hear of them, in nanoseconds.
    since: u64,
    /// For what is dropped, and for what is only monitored: that keeps no place from the other.
    budgets: Option<[Budget; 2]>,
    heard: Option<Heard>,
    followed: HashMap<Address, Followed>,
    /// Events that were not told, since that was.
    left_out: u64,
    /// When it was, in nanoseconds.
    summed: u64,
}

/// An instance that is listened to.
struct Heard {
    maps: Maps,
    listener: Ring<SourceEvent>,
    /// What the datapath had left out at the last look.
    left_out: u64,
}

/// A source that is over a limit.
struct Followed {
    /// Since when, in nanoseconds, as far as it is known.
    since: u64,
    /// When it was refused last, or its block ended, in nanoseconds, as far as it is known.
    last: u64,
    /// Until when it is blocked, or was, in nanoseconds, as far as it is known; 0 if it never was, or if
    /// it was seen that it was ended before.
    end: u64,
    /// Whether it was told that packets are dropped.
    drops: bool,
    /// Packets of it that were dropped before.
    dropped: u64,
    /// When it is looked at next.
    due: u64,
}

impl Followed {
    /// Notes what its entry says at `now`: when it was refused last, and until when it is blocked, or was. That is 0 also where
    /// the datapath has forgotten a block that is over. Returns when the source is within its limits again, unless it is
    /// refused before. All are in nanoseconds.
    fn note(&mut self, refused: u64, blocked: u64, now: u64) -> u64 {
        // A block that the entry has no more is over, or was ended before.
        self.end = if blocked == 0 && self.end <= now { self.end } else { blocked };
        self.last = self.last.max(refused).max(self.end.min(now));
        self.last.max(self.end).saturating_add(QUIET + STEP)
    }
}

/// How many events are told.
#[derive(Debug)]
pub(super) struct Budget {
    bucket: Gcra,
    word: u64,
}

impl Budget {
    /// So many events in the long run; none where the rate is none that can be kept.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        Self::with_burst(rate, BURST)
    }

    /// The same, of which those of so many seconds may come at once.
    pub(super) fn with_burst(rate: Rate, seconds: u64) -> Option<Self> {
        let burst = u128::from(rate.packets) * u128::from(seconds * SECOND)
            / u128::from(rate.period.max(1));
        let burst = u64::try_from(burst).unwrap_or(u64::MAX).max(1);
        Some(Self { bucket: rate.bucket(burst, 1).ok()?, word: 0 })
    }

    /// Whether one more is told at `now` (nanoseconds).
    pub(super) fn spend(&mut self, now: u64) -> bool {
        let next = self.bucket.conform(self.word, Time::exact(now), 1);
        next.map(|next| self.word = next).is_some()
    }
}

impl Sources {
    /// Those of the instance that is pinned there, of which so many events are told.
    pub(super) fn new(pins: Pins, rate: Option<Rate>) -> Self {
        let budgets = rate.and_then(|rate| Some([Budget::new(rate)?, Budget::new(rate)?]));
        let (heard, followed) = (None, HashMap::new());
        Self { pins, since: query::now(), budgets, heard, followed, left_out: 0, summed: 0 }
    }

    /// What happened since the last look, also where it ends with an error; so many events that were to
    /// be told before were lost.
    pub(super) fn look(&mut self, lost: u64) -> (Vec<Event>, Result<()>) {
        let (now, mut events) = (query::now(), Vec::new());
        self.left_out += lost;
        if self.budgets.is_none() {
            return (events, Ok(()));
        }
        let result = self.listen().and_then(|()| {
            let Some(mut heard) = self.heard.take() else { return Ok(()) };
            let result = self.hear(&mut heard, now, &mut events);
            self.heard = Some(heard);
            result
        });
        if self.left_out != 0 && now.saturating_sub(self.summed) >= SUMMARY {
            self.summed = now;
            events.extend(self.rest());
        }
        (events, result)
    }

    /// What was left out since that was told.
    pub(super) fn rest(&mut self) -> Option<Event> {
        let events = mem::take(&mut self.left_out);
        (events != 0).then_some(Event::LeftOut { events })
    }

    /// Listens to the instance, if there is one: it may have been removed and made again.
    fn listen(&mut self) -> Result<()> {
        if let Some(heard) = &self.heard
            && heard.maps.are_pinned(&self.pins)?
        {
            return Ok(());
        }
        self.heard = None;
        self.followed.clear();
        if exists(&self.pins)? {
            let maps = Maps::open(&self.pins)?;
            let left_out = left_out(&maps.event_stats()?);
            let listener = Ring::events(&self.pins)?;
            self.heard = Some(Heard { maps, listener, left_out });
        }
        Ok(())
    }

    fn hear(&mut self, heard: &mut Heard, now: u64, events: &mut Vec<Event>) -> Result<()> {
        let Heard { maps, listener, .. } = heard;
        let mut telling = None;
        for source_event in listener.take(TAKEN) {
            if source_event.time < self.since {
                self.left_out += u64::from(source_event.again == 0);
            } else if self.follow(&source_event)
                && self.spend(now, source_event.kind == kind::MONITORED)
            {
                let telling = match &mut telling {
                    Some(telling) => telling,
                    none => none.insert(Telling::new(maps, now)?),
                };
                match telling.event(&source_event, now) {
                    Some(event) => events.push(event),
                    None => self.left_out += 1,
                }
            }
        }
        self.release(maps, now, telling, events)?;
        let left_out = left_out(&maps.event_stats()?);
        self.left_out += left_out.saturating_sub(mem::replace(&mut heard.left_out, left_out));
        Ok(())
    }

    /// Whether one more event is told; it is counted if not.
    fn spend(&mut self, now: u64, monitored: bool) -> bool {
        let is_told =
            self.budgets.as_mut().is_some_and(|budgets| budgets[usize::from(monitored)].spend(now));
        self.left_out += u64::from(!is_told);
        is_told
    }

    /// Follows the source of a notice. Whether that says something new of it.
    fn follow(&mut self, source_event: &SourceEvent) -> bool {
        let has_room = self.followed.len() < FOLLOWED;
        let drops = source_event.kind != kind::MONITORED;
        let due = source_event.time.saturating_add(QUIET + STEP);
        match self.followed.entry(source_event.source) {
            Entry::Occupied(mut followed) => {
                let followed = followed.get_mut();
                let is_news = source_event.kind == kind::BLOCKED || drops && !followed.drops;
                followed.drops |= drops;
                followed.last = followed.last.max(source_event.time);
                if source_event.kind == kind::BLOCKED {
                    followed.end = source_event.until;
                }
                followed.due = followed.due.max(due);
                is_news
            }
            Entry::Vacant(place) if has_room => {
                let dropped = source_event.dropped.saturating_sub(u64::from(drops));
                let (since, last, end) = (source_event.time, source_event.time, source_event.until);
                place.insert(Followed { since, last, end, drops, dropped, due });
                true
            }
            // It is told again and again, and its release is not.
            Entry::Vacant(_) => {
                self.left_out += u64::from(source_event.again == 0);
                source_event.again == 0
            }
        }
    }

    /// Tells which sources are within their limits again.
    fn release<'a>(
        &mut self,
        maps: &'a Maps,
        now: u64,
        mut telling: Option<Telling<'a>>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let mut over = Vec::new();
        for (address, followed) in &mut self.followed {
            if followed.due > now {
                continue;
            }
            // One that has no entry any more owes nothing.
            let (refused, blocked) = maps.source(address)?.map_or((0, 0), |entry| {
                let blocked = Block(entry.blocked).until(Binding(entry.binding));
                // The first may be a step too early.
                (Episode(entry.episode).last_at(now), blocked)
            });
            let quiet = followed.note(refused, blocked, now);
            followed.due = quiet.min(now.saturating_add(AGAIN));
            if quiet <= now {
                over.push(*address);
            }
        }
        for address in over {
            let Some(followed) = self.followed.remove(&address) else { continue };
            if !self.spend(now, !followed.drops) {
                continue;
            }
            let telling = match &mut telling {
                Some(telling) => telling,
                none => none.insert(Telling::new(maps, now)?),
            };
            match telling.inquiry.name_of(&address) {
                Some(source) => events.push(Event::Released {
                    source,
                    lasted: Duration::from_nanos(followed.last.saturating_sub(followed.since)),
                    dropped: dropped(maps, &address)?
                        .and_then(|dropped| dropped.checked_sub(followed.dropped)),
                }),
                None => self.left_out += 1,
            }
        }
        Ok(())
    }
}

/// What it takes to tell of sources, read once a look.
struct Telling<'a> {
    inquiry: Inquiry<'a>,
    /// The interfaces that are attached.
    interfaces: Vec<Port>,
}

impl<'a> Telling<'a> {
    fn new(maps: &'a Maps, now: u64) -> Result<Self> {
        Ok(Self { inquiry: Inquiry::new(maps, now)?, interfaces: maps.ports()? })
    }

    /// What a notice tells; nothing if it is of no source under the policy in force.
    fn event(&mut self, source_event: &SourceEvent, now: u64) -> Option<Event> {
        let source = self.inquiry.name_of(&source_event.source)?;
        // How it stands now is told beside that; what keeps it from being known keeps nothing else.
        let standing = self.inquiry.standing(source_event.source, source_event.tally, now);
        let interface = self.interfaces.iter().find(|port| port.slot == source_event.slot);
        let limited = Limited {
            source,
            name: self.inquiry.limit_of_tally(source_event.tally),
            limit: standing.ok().flatten(),
            interface: interface.map(|port| port.name.clone()),
        };
        Some(match source_event.kind {
            kind::BLOCKED => {
                let length =
                    Duration::from_nanos(source_event.until.saturating_sub(source_event.time));
                Event::Blocked(limited, length)
            }
            kind::MONITORED => Event::Monitored(limited),
            _ => Event::Limited(limited),
        })
    }
}

/// Packets of a source that were dropped since it has an entry; nothing if it has none.
fn dropped(maps: &Maps, source: &Address) -> Result<Option<u64>> {
    let outstanding = maps.outstanding_of(source)?.dropped.packets;
    Ok(maps.source(source)?.map(|entry| entry.dropped.packets.wrapping_add(outstanding)))
}

fn left_out(event_stats: &EventStats) -> u64 {
    event_stats.suppressed.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked_at(time: u64, end: u64) -> Followed {
        Followed { since: time, last: time, end, drops: true, dropped: 0, due: 0 }
    }

    #[test]
    fn a_block_that_was_forgotten_ended_when_it_was_to_end() {
        let (begin, end) = (100 * SECOND, 160 * SECOND);
        let mut followed = blocked_at(begin, end);
        assert_eq!(followed.note(begin, end, begin + 11 * SECOND), end + QUIET + STEP);
        // A packet came after the end, and the entry has no block any more.
        let now = end + QUIET + STEP;
        assert_eq!((followed.note(begin, 0, now), followed.last), (now, end));
        // Nothing was looked at before.
        let mut followed = blocked_at(begin, end);
        assert_eq!((followed.note(begin, 0, now), followed.last), (now, end));
    }

    #[test]
    fn a_block_that_was_ended_before_its_time_is_no_more() {
        let (begin, end) = (100 * SECOND, 160 * SECOND);
        let (mut followed, lifted) = (blocked_at(begin, end), begin + 20 * SECOND);
        assert_eq!(followed.note(begin, 0, lifted), begin + QUIET + STEP);
        assert_eq!(
            (followed.note(begin, 0, end + SECOND), followed.last),
            (begin + QUIET + STEP, begin)
        );
    }
}
