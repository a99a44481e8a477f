//! The lists that a source is on, and whether a limit blocks it.

use std::{fmt, time::Duration};

use limiter_common::abi::policy::Profile;

use super::{
    entries::Entries,
    state::{By, SourceState},
};

/// How long a list entry or a block lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// For ever.
    Forever,
    /// For this much longer.
    For(Duration),
}

impl Until {
    /// Converts an end in a profile, in nanoseconds of the datapath's clock, to the time left at
    /// `now`. `u64::MAX` means for ever. Returns `None` if the end has passed, or was never set
    /// (0).
    pub(super) const fn left(until: u64, now: u64) -> Option<Self> {
        match until {
            u64::MAX => Some(Self::Forever),
            until if until > now => Some(Self::For(Duration::from_nanos(until - now))),
            _ => None,
        }
    }
}

/// The lists that a source is on. `None` means that it is not on the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// On the list `allow`.
    pub allowed: Option<Until>,
    /// On the list `deny`.
    pub denied: Option<Until>,
    /// On the list `penalty`: blocked by hand.
    pub blocked: Option<Until>,
    /// Blocked by a limit that the source stayed over, or by a push.
    pub penalty: Option<Block>,
}

/// A block of a source by a limit, or by a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// When it ends.
    pub until: Until,
    /// Whether it was pushed.
    pub pushed: bool,
    /// The limit; `None` if its record was evicted, or if the block was pushed.
    pub limit: Option<String>,
    /// How many blocks of this limit, this one included, came without a rest between them.
    pub blocks: u64,
}

impl Lists {
    pub(super) fn of(entries: &Entries, source: &SourceState, now: u64) -> Self {
        let Profile { allowed, denied, blocked, .. } = source.profile;
        let penalty = Until::left(source.blocked, now).map(|until| {
            // The block in the entry may be shorter than the limit's latest one, and may outlive
            // the limit's record, which is evicted when its map is full.
            let of = source.offences.iter().filter(|(_, it)| it.blocked >= source.blocked);
            let by = of.min_by_key(|(_, offence)| offence.blocked);
            let limit = by.and_then(|(by, _)| entries.iter().find(|it| By::Limit(it.bit) == *by));
            Block {
                until,
                pushed: by.is_some_and(|(by, _)| *by == By::Push),
                limit: limit.map(|entry| entry.limit.name.clone()),
                blocks: by.map_or(0, |(_, offence)| offence.blocks),
            }
        });
        Self {
            allowed: Until::left(allowed, now),
            denied: Until::left(denied, now),
            blocked: Until::left(blocked, now),
            penalty,
        }
    }

    /// Whether a list or a block decides about the source's packets, so that no limit is asked.
    pub(super) fn decide(&self) -> bool {
        self.allowed.or(self.denied).or(self.blocked).is_some() || self.penalty.is_some()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limit {
            _ if self.pushed => f.write_str("pushed"),
            Some(limit) => write!(f, "limit {limit}, block {}", self.blocks),
            None => write!(f, "a limit"),
        }
    }
}
