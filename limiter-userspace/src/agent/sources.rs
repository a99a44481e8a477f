//! The sources that are over their limits, as the agent tells of them.
//!
//! The datapath tells when one begins to be, and when one is blocked. That it is within its limits again
//! is seen here, by its entry; so nothing is to be done in the kernel for it.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    time::Duration,
};

use limiter_common::{
    address::Address,
    gcra::{Gcra, Time},
    notice::{Notice, Notices, QUIET, STEP, kind},
    rate::{Rate, SECOND},
};

use super::event::{Event, Limited};
use crate::{
    datapath::{bpffs::Pins, instance::exists, maps::Maps, notices::Listener},
    error::Result,
    inquiry::{self, Inquiry},
};

/// Sources that are followed until they are within their limits again; of more, that is not told.
const FOLLOWED: usize = 4096;
/// Notices that are taken at a look.
const TAKEN: usize = 1 << 14;
/// How often it is told what was left out, in nanoseconds.
const SUMMARY: u64 = 10_000_000_000;
/// Seconds of events that may be told at once.
const BURST: u64 = 10;

/// What is known of the sources of an instance.
pub(super) struct Sources {
    pins: Pins,
    budget: Budget,
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
    listener: Listener,
    /// Since when, in nanoseconds.
    since: u64,
    /// What the datapath had left out at the last look.
    left_out: u64,
}

/// A source that is over a limit.
struct Followed {
    /// Since when, in nanoseconds, as far as it is known.
    since: u64,
    /// Until when it is blocked, in nanoseconds, or was.
    until: u64,
    /// Packets of it that were dropped before.
    dropped: u64,
    /// When it is looked at next.
    due: u64,
}

/// How many events are told.
struct Budget {
    bucket: Option<Gcra>,
    word: u64,
}

impl Budget {
    /// So many events in the long run; none where there is no rate.
    fn new(rate: Option<Rate>) -> Self {
        let bucket = rate.and_then(|rate| {
            let burst =
                u128::from(rate.packets) * u128::from(BURST * SECOND) / u128::from(rate.period);
            rate.bucket(u64::try_from(burst).unwrap_or(u64::MAX).max(1), 1).ok()
        });
        Self { bucket, word: 0 }
    }

    /// Whether one more is told at `now` (nanoseconds).
    fn spend(&mut self, now: u64) -> bool {
        let next = self.bucket.and_then(|it| it.conform(self.word, Time::exact(now), 1));
        next.map(|next| self.word = next).is_some()
    }
}

impl Sources {
    /// Those of the instance that is pinned there, of which so many events are told.
    pub(super) fn new(pins: Pins, rate: Option<Rate>) -> Self {
        Self {
            pins,
            budget: Budget::new(rate),
            heard: None,
            followed: HashMap::new(),
            left_out: 0,
            summed: 0,
        }
    }

    /// What happened since the last look.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn look(&mut self) -> Result<Vec<Event>> {
        let now = inquiry::now();
        if self.budget.bucket.is_none() || !self.listen(now)? {
            return Ok(Vec::new());
        }
        let Some(mut heard) = self.heard.take() else { return Ok(Vec::new()) };
        let events = self.hear(&mut heard, now);
        self.heard = Some(heard);
        events
    }

    /// Listens to the instance, if there is one: it may have been removed and made again.
    fn listen(&mut self, now: u64) -> Result<bool> {
        if let Some(heard) = &self.heard
            && heard.maps.are_pinned(&self.pins)?
        {
            return Ok(true);
        }
        self.heard = None;
        self.followed.clear();
        if !exists(&self.pins)? {
            return Ok(false);
        }
        let maps = Maps::open(&self.pins)?;
        let left_out = left_out(&maps.noticed()?);
        let listener = Listener::open(&self.pins)?;
        self.heard = Some(Heard { maps, listener, since: now, left_out });
        Ok(true)
    }

    fn hear(&mut self, heard: &mut Heard, now: u64) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let Heard { maps, listener, since, .. } = heard;
        let mut inquiry = None;
        for notice in listener.take(TAKEN) {
            // What was told before this agent came is told no more; what goes on is, by the datapath.
            if notice.time < *since || !self.is_news(&notice) {
                continue;
            }
            if !self.budget.spend(now) {
                self.left_out += 1;
                continue;
            }
            let inquiry = match &mut inquiry {
                Some(inquiry) => inquiry,
                none => none.insert(Inquiry::new(maps, now)?),
            };
            events.extend(told(maps, inquiry, &notice, now)?);
        }
        self.release(maps, now, &mut events)?;
        let left_out = left_out(&maps.noticed()?);
        self.left_out += left_out.saturating_sub(mem::replace(&mut heard.left_out, left_out));
        if self.left_out != 0 && now.saturating_sub(self.summed) >= SUMMARY {
            self.summed = now;
            events.push(Event::LeftOut { events: mem::take(&mut self.left_out) });
        }
        Ok(events)
    }

    /// Follows the source of a notice. Whether that says something new of it.
    fn is_news(&mut self, notice: &Notice) -> bool {
        let room = self.followed.len() < FOLLOWED;
        let due = notice.time.max(notice.until).saturating_add(QUIET);
        match self.followed.entry(notice.source) {
            Entry::Occupied(mut followed) => {
                let followed = followed.get_mut();
                followed.until = followed.until.max(notice.until);
                followed.due = followed.due.max(due);
                notice.again == 0
            }
            Entry::Vacant(place) => {
                if room {
                    let Notice { time: since, until, .. } = *notice;
                    let dropped =
                        notice.dropped.saturating_sub(u64::from(notice.kind == kind::LIMITED));
                    place.insert(Followed { since, until, dropped, due });
                }
                true
            }
        }
    }

    /// Tells which sources are within their limits again.
    fn release(&mut self, maps: &Maps, now: u64, events: &mut Vec<Event>) -> Result<()> {
        let mut over = Vec::new();
        for (address, followed) in &mut self.followed {
            if followed.due > now {
                continue;
            }
            let entry = maps.source(address)?;
            let last = entry.map_or(0, |entry| entry.refused).max(followed.until);
            // It is written a step late.
            followed.due = last.saturating_add(QUIET + STEP);
            if followed.due <= now {
                over.push((*address, last));
            }
        }
        for (address, last) in over {
            let Some(followed) = self.followed.remove(&address) else { continue };
            if !self.budget.spend(now) {
                self.left_out += 1;
                continue;
            }
            let Some(source) = Inquiry::new(maps, now)?.name_of(&address) else { continue };
            let dropped = dropped(maps, &address)?;
            events.push(Event::Released {
                source,
                lasted: Duration::from_nanos(last.saturating_sub(followed.since)),
                dropped: dropped.and_then(|dropped| dropped.checked_sub(followed.dropped)),
            });
        }
        Ok(())
    }
}

/// What a notice tells; nothing if it is of no source under the policy in force.
fn told(
    maps: &Maps,
    inquiry: &mut Inquiry<'_>,
    notice: &Notice,
    now: u64,
) -> Result<Option<Event>> {
    let Some(standing) = inquiry.standing(notice.source, notice.tally, now)? else {
        return Ok(None);
    };
    let slots = maps.slots()?;
    let interface = slots.into_iter().find(|(slot, _)| *slot == notice.slot).map(|(_, name)| name);
    let limited = Limited { source: standing.source, limit: standing.limit, interface };
    Ok(Some(match notice.kind {
        kind::BLOCKED => {
            let length = Duration::from_nanos(notice.until.saturating_sub(notice.time));
            Event::Blocked(limited, length)
        }
        kind::MONITORED => Event::Monitored(limited),
        _ => Event::Limited(limited),
    }))
}

/// Packets of a source that were dropped since it has an entry; nothing if it has none.
fn dropped(maps: &Maps, source: &Address) -> Result<Option<u64>> {
    let outstanding = maps.remembered(source)?;
    let of = outstanding.iter().filter(|refused| refused.source == *source);
    let outstanding: u64 = of.map(|refused| refused.dropped.packets).sum();
    Ok(maps.source(source)?.map(|entry| entry.dropped.packets.wrapping_add(outstanding)))
}

fn left_out(noticed: &Notices) -> u64 {
    noticed.left_out.into_iter().sum()
}
