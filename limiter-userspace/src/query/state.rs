//! The state of limits, as a packet would find it. No state is ever written.
//!
//! State of an older policy is migrated in a copy, by the code with which the program migrates it.

use std::cell::Cell;

use limiter_common::{
    abi::{
        layout::shared,
        policy::Profile,
        state::{self, OffenceKey},
        table::{self, LimitState, WholeSource},
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
        penalty::{Block, Offence, Penalty},
    },
    table::probation::ProbationSlot,
};

use super::tables::Tables;
use crate::{datapath::buckets::MeasuredBucket, error::Result};

/// A word that was read. A store to it has no effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Still {
    word: u64,
    /// Whether the state is bound to the policy that the packet is decided under.
    bound: bool,
}

impl Word for Still {
    fn load(&self) -> u64 {
        self.word
    }

    fn load_acquire(&self) -> u64 {
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
    /// A full state, as a limit has it for a key without state.
    pub(super) fn fresh(meter: Meter, now: u64) -> Self {
        Self { meter, still: Still { word: meter.fresh(now), bound: true } }
    }

    /// The word at `now`, in nanoseconds. A word that counts as lost is replaced as the next packet
    /// would replace it.
    pub(super) fn word(&self, now: u64) -> u64 {
        match self.meter.decide(self.still.word, now, 1) {
            Decision::Lost(empty) => empty,
            Decision::Conform(_) | Decision::Exceed => self.still.word,
        }
    }

    /// Reads the state of a keyed limit under meter `number`; `None` if the key has none yet.
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

    /// The state in an entry of the bucket table, migrated to meter `number` of the policy in
    /// force.
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

/// The entry of a source, as its next packet would find it.
pub(super) struct SourceState {
    /// The entry as it is stored; `None` if the source has none yet.
    pub(super) known: Option<table::Source>,
    pub(super) profile: Profile,
    /// When the source's block by a limit ends, in nanoseconds; past or 0 if it is not blocked.
    pub(super) blocked: u64,
    /// The source's offences, and the block that was pushed.
    pub(super) offences: Vec<(By, Offence)>,
    words: [u64; INLINE],
}

/// By what a source is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The limit with this bit, which has a penalty.
    Limit(u64),
    /// A process that pushed the block.
    Push,
}

/// The result of looking up a source.
pub(super) enum Found {
    Source(Box<SourceState>),
    /// The entry is bound to a newer policy than the tables.
    Newer,
    /// Another CPU has locked the entry.
    Locked,
}

impl Found {
    /// The state of the source; `None` if it is changing, so that the question is to be asked again.
    pub(super) fn settled(self) -> Option<Box<SourceState>> {
        match self {
            Self::Source(source) => Some(source),
            Self::Newer | Self::Locked => None,
        }
    }
}

impl SourceState {
    /// Looks up a source by its key.
    pub(super) fn find(tables: &Tables<'_>, key: Address, now: u64) -> Result<Found> {
        let mut known = if key.family == Address::NONE.family {
            tables.maps.whole_entry(shared::UNREADABLE)?
        } else {
            tables.maps.whole_source(&key)?
        };
        let mut newcomer = None;
        if known.is_none() {
            // A source on probation has no entry yet. If it is not on probation any more, it may
            // have got one since the first look-up, so its entry is read once more.
            newcomer = tables.maps.newcomer(&key)?;
            if newcomer.is_none() {
                known = tables.maps.whole_source(&key)?;
            }
        }
        let known = known.or_else(|| newcomer.map(|newcomer| first_seen(key, newcomer)));
        Self::of(tables, (key, known, newcomer), now)
    }

    /// The state in an entry that was read.
    pub(super) fn of_entry(tables: &Tables<'_>, source: WholeSource, now: u64) -> Result<Found> {
        Self::of(tables, (source.entry.address, Some(source), None), now)
    }

    fn of(
        tables: &Tables<'_>,
        (key, known, newcomer): (Address, Option<WholeSource>, Option<ProbationSlot>),
        now: u64,
    ) -> Result<Found> {
        let source = known.unwrap_or_default();
        let seen = Binding(source.entry.binding);
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
        let mut words = source.words();
        if behind {
            for (place, word) in words.iter_mut().enumerate() {
                *word = carried(tables, &profile, &source, place, now)?;
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
            Some(source) if !behind => Block(source.entry.blocked).until(seen),
            _ => {
                let until = offences.iter().map(|(_, offence)| offence.blocked).max();
                // The version tag of a block does not depend on the profile, so any profile number
                // will do.
                let bound = Binding::new(tables.epoch, 0);
                Block::new(until.unwrap_or(0), bound).until(bound)
            }
        };
        let known = known.map(|source| source.entry);
        Ok(Found::Source(Box::new(Self { known, profile, blocked, offences, words })))
    }

    /// The state of the inline limit at `place` of the entry.
    pub(super) fn inline(&self, tables: &Tables<'_>, place: usize) -> Result<State> {
        let meter = tables.meter(self.profile.meters[place])?;
        Ok(State { meter, still: Still { word: self.words[place], bound: true } })
    }

    /// The place of a limit's word in the entries of sources; `None` for a keyed limit.
    pub(super) fn place_of(tables: &Tables<'_>, limit: &Limit) -> Option<usize> {
        tables.settings.inline.iter().position(|bit| *bit == limit.bit)
    }
}

/// The entry that a source on probation would be given.
fn first_seen(address: Address, newcomer: ProbationSlot) -> WholeSource {
    let passed = Tally { packets: 1, bytes: newcomer.facts.bytes() };
    let entry = table::Source { address, passed, ..table::Source::default() };
    WholeSource { entry, ..WholeSource::default() }
}

/// Reads the offences of a source against the limits with penalties that apply to it, and the block that was pushed. The end of a block is cut to what the penalty in force allows.
fn offences(tables: &Tables<'_>, profile: &Profile, source: Address) -> Result<Vec<(By, Offence)>> {
    // Sources that share an entry have no offences.
    let shared = source.family == Address::NONE.family;
    let mut left = if shared { 0 } else { tables.settings.penalties & profile.limits };
    let mut found = Vec::new();
    while left != 0 {
        let bit = left & left.wrapping_neg();
        left ^= bit;
        let penalty = tables.limit(bit)?.penalty;
        let key = OffenceKey { source, limit: penalty.limit };
        let known = tables.maps.offence(&key)?;
        found.extend(known.map(|known| {
            let blocked = penalty.until(known.since, known.blocked);
            let by = if penalty.limit == Penalty::PUSHED { By::Push } else { By::Limit(bit) };
            (by, Offence { blocked, ..known })
        }));
    }
    Ok(found)
}

/// The word at `place` of an entry of an older policy, after migration. A place whose limit does
/// not apply to the source keeps its word.
fn carried(
    tables: &Tables<'_>,
    profile: &Profile,
    source: &WholeSource,
    place: usize,
    now: u64,
) -> Result<u64> {
    let LimitState { word, scale, limit_id } = source.limit(place);
    if tables.settings.inline[place] & profile.limits == 0 {
        return Ok(word);
    }
    let meter = tables.meter(profile.meters[place])?;
    let [word, scale] = [word, scale].map(Cell::new);
    let bucket = binding::Bucket { word: &word, scale: &scale };
    if limit_id == tables.settings.limit_ids[place] {
        bucket.carry(&meter.gcra, now);
    } else {
        bucket.renew(&meter.gcra, now, 0);
    }
    Ok(word.load())
}

#[cfg(test)]
impl State {
    /// The same state with another word.
    pub(super) fn with_word(self, word: u64) -> Self {
        Self { still: Still { word, ..self.still }, ..self }
    }
}
