//! The state of limits, as a packet would find it at a time; nothing of it is ever written.
//!
//! State that is behind the policy in force is carried over by the code that the program carries it
//! over with, in a copy.

use std::cell::Cell;

use limiter_common::{
    abi::{
        layout::{map, shared},
        policy::Profile,
        state::{self, Offence, OffenceKey},
        table,
    },
    algorithm::{
        binding::{self, Binding, Measured, Standing, bind},
        debt,
        meter::Meter,
        policer::{Decision, Policer as _},
    },
    base::{address::Address, tally::Tally, word::Word},
    policy::{
        limit::{BucketKey, INLINE, Limit},
        penalty::Block,
    },
    table::probation::ProbationSlot,
};

use super::tables::Tables;
use crate::{datapath::buckets::MeasuredBucket, error::Result};

/// A word that was read. Whoever stores in it stores nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Still {
    word: u64,
    /// Whether the state is under the policy that the packet is decided under.
    bound: bool,
}

impl Word for Still {
    fn load(&self) -> u64 {
        self.word
    }

    fn compare_exchange(&self, _: u64, _: u64) -> u64 {
        self.word
    }

    fn bound(&self) -> bool {
        self.bound
    }
}

/// The state of a limit for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) meter: Meter,
    pub(super) still: Still,
}

impl State {
    /// State that is not there yet.
    pub(super) fn fresh(meter: Meter, now: u64) -> Self {
        Self { meter, still: Still { word: meter.fresh(now), bound: true } }
    }

    /// The word, or the one that the next packet will put in the place of a lost one.
    pub(super) fn word(&self, now: u64) -> u64 {
        match self.meter.decide(self.still.word, now, 1) {
            Decision::Lost(empty) => empty,
            Decision::Conform(_) | Decision::Exceed => self.still.word,
        }
    }

    /// The state of a limit by a key of its own, under the meter of this number; `None` when it is
    /// not there yet.
    pub(super) fn keyed(
        tables: &Tables<'_>,
        key: &BucketKey,
        number: u32,
        now: u64,
    ) -> Result<Option<Self>> {
        let found = tables.maps.bucket(key)?;
        let meter = tables.meter(number)?;
        Ok(found.map(|bucket| Self::of_bucket(tables, &bucket, (number, meter), now)))
    }

    /// What an entry of the table of buckets is to a packet.
    pub(super) fn of_bucket(
        tables: &Tables<'_>,
        bucket: &MeasuredBucket,
        (number, meter): (u32, Meter),
        now: u64,
    ) -> Self {
        let MeasuredBucket { bucket: state::Bucket { binding, word, .. }, measure } = *bucket;
        let target = Binding::new(tables.epoch, number).like(Binding(binding));
        let [entry, word, scale, span] =
            [binding, word, measure.scale, measure.span].map(Cell::new);
        if entry.load() != target.0 {
            let state = Measured { word: &word, scale: &scale, span: &span };
            let carry = || state.carry(&meter, now);
            let _: Option<Binding> = bind(&entry, target, carry);
        }
        let bound = entry.load() == target.0;
        Self { meter, still: Still { word: word.load(), bound } }
    }
}

/// The entry of a source, as a packet of it would find it.
pub(super) struct SourceState {
    /// The entry as it is; `None` when there is none yet.
    pub(super) known: Option<table::Source>,
    pub(super) profile: Profile,
    /// Until when it is blocked because it stayed over a limit, in nanoseconds, or was.
    pub(super) blocked: u64,
    /// What it did to be, by the bits of limits with penalties that are about it.
    pub(super) offences: Vec<(u64, Offence)>,
    words: [u64; INLINE],
}

/// What a packet finds in the place of its source.
pub(super) enum Found {
    Source(Box<SourceState>),
    /// It is bound under a newer policy than the one that is asked about.
    Newer,
    /// Others keep it from being bound.
    Locked,
}

impl SourceState {
    /// The entry of a source, by its key.
    pub(super) fn find(tables: &Tables<'_>, key: Address, now: u64) -> Result<Found> {
        let mut known: Option<table::Source> = if key.family == Address::NONE.family {
            let entry = tables.maps.entry(map::SHARED_SOURCES, &shared::UNREADABLE)?;
            entry.map(table::Source::settled)
        } else {
            tables.maps.source(&key)?
        };
        let mut newcomer = None;
        if known.is_none() {
            // Who has sent a single packet may have no entry yet, or one since it was asked for.
            newcomer = tables.maps.newcomer(&key)?;
            if newcomer.is_none() {
                known = tables.maps.source(&key)?;
            }
        }
        let known = known.or_else(|| newcomer.map(|newcomer| first_seen(key, newcomer)));
        Self::of(tables, (key, known, newcomer), now)
    }

    /// What an entry is to a packet of its source.
    pub(super) fn of_entry(tables: &Tables<'_>, entry: table::Source, now: u64) -> Result<Found> {
        Self::of(tables, (entry.address, Some(entry), None), now)
    }

    fn of(
        tables: &Tables<'_>,
        (key, known, newcomer): (Address, Option<table::Source>, Option<ProbationSlot>),
        now: u64,
    ) -> Result<Found> {
        let entry = known.unwrap_or(table::Source::NEW);
        let seen = Binding(entry.binding);
        let (profile, behind) = match seen.standing(tables.epoch) {
            Standing::Current if seen.epoch() == tables.epoch => {
                (tables.profile(seen.profile())?, false)
            }
            Standing::Current => return Ok(Found::Newer),
            Standing::Behind => match tables.profile_of(&key)? {
                Some(profile) => (profile, true),
                None => return Ok(Found::Newer),
            },
            Standing::Locked => return Ok(Found::Locked),
        };
        let mut words = entry.words;
        if behind {
            for (place, word) in words.iter_mut().enumerate() {
                *word = carried(tables, &profile, &entry, place, now)?;
            }
        }
        if let Some(newcomer) = newcomer {
            let (settings, before) = (&tables.settings, &tables.before);
            let charged = newcomer.facts.charged(tables.epoch, settings, before);
            for (place, word) in words.iter_mut().enumerate() {
                let bit = tables.settings.inline[place] & profile.limits;
                if charged >> place & 1 != 0 && bit != 0 {
                    let meter = tables.meter(profile.meters[place])?;
                    let charged = newcomer.word(&tables.limit(bit)?, &meter.gcra);
                    if debt::owes(charged, meter.gcra.scale().0, now) != 0 {
                        *word = charged;
                    }
                }
            }
        }
        let offences = offences(tables, &profile, key)?;
        let blocked = match &known {
            Some(entry) if !behind => Block(entry.blocked).until(seen),
            _ => {
                let until = offences.iter().map(|(_, offence)| offence.blocked).max();
                // A block is told apart by the epoch of its entry, whatever the profile.
                let bound = Binding::new(tables.epoch, 0);
                Block::new(until.unwrap_or(0), bound).until(bound)
            }
        };
        Ok(Found::Source(Box::new(Self { known, profile, blocked, offences, words })))
    }

    /// The state of the limit at a place of the entry.
    pub(super) fn inline(&self, tables: &Tables<'_>, place: usize) -> Result<State> {
        let meter = tables.meter(self.profile.meters[place])?;
        Ok(State { meter, still: Still { word: self.words[place], bound: true } })
    }

    /// The place in the entry of the state of a limit; `None` if it has a key of its own.
    pub(super) fn place_of(tables: &Tables<'_>, limit: &Limit) -> Option<usize> {
        tables.settings.inline.iter().position(|bit| *bit == limit.bit)
    }
}

/// What the entry of a source says that was not given one yet.
const fn first_seen(address: Address, newcomer: ProbationSlot) -> table::Source {
    let passed = Tally { packets: 1, bytes: newcomer.facts.bytes() };
    table::Source { address, passed, ..table::Source::NEW }
}

/// What is known of a source that was over limits with penalties that are about it, and the bits of
/// those. It says until when they are blocked under the penalties in force.
fn offences(
    tables: &Tables<'_>,
    profile: &Profile,
    source: Address,
) -> Result<Vec<(u64, Offence)>> {
    // Sources that share an entry have none.
    let shared = source.family == Address::NONE.family;
    let mut left = if shared { 0 } else { tables.settings.penalties & profile.limits };
    let mut found = Vec::new();
    while left != 0 {
        let bit = left & left.wrapping_neg();
        left ^= bit;
        let penalty = tables.limit(bit)?.penalty;
        let key = OffenceKey { source, limit: penalty.limit };
        let known: Option<Offence> = tables.maps.entry(map::OFFENCES, &key)?;
        found.extend(known.map(|known| {
            let blocked = penalty.until(known.since, known.blocked);
            (bit, Offence { blocked, ..known })
        }));
    }
    Ok(found)
}

/// The word at a place of an entry that is behind, as the first packet makes it.
fn carried(
    tables: &Tables<'_>,
    profile: &Profile,
    entry: &table::Source,
    place: usize,
    now: u64,
) -> Result<u64> {
    if tables.settings.inline[place] & profile.limits == 0 {
        return Ok(entry.words[place]);
    }
    let meter = tables.meter(profile.meters[place])?;
    let [word, scale] = [entry.words[place], entry.scales[place]].map(Cell::new);
    let bucket = binding::Bucket { word: &word, scale: &scale };
    if entry.limit_ids[place] == tables.settings.limit_ids[place] {
        bucket.carry(&meter.gcra, now);
    } else {
        bucket.renew(&meter.gcra, now, 0);
    }
    Ok(word.load())
}

#[cfg(test)]
impl State {
    /// The same with another word.
    pub(super) fn with_word(self, word: u64) -> Self {
        Self { still: Still { word, ..self.still }, ..self }
    }
}
