//! What the lists say of a source, and whether it is blocked.

use std::{fmt, time::Duration};

use limiter_common::abi::policy::Profile;

use super::{entries::Entries, state::SourceState};

/// A time of the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It never ends.
    Forever,
    /// It ends after so long.
    For(Duration),
}

impl Until {
    /// What is left at `now` of a time in a profile; nothing if it has passed, or never was.
    pub(super) const fn left(until: u64, now: u64) -> Option<Self> {
        match until {
            u64::MAX => Some(Self::Forever),
            until if until > now => Some(Self::For(Duration::from_nanos(until - now))),
            _ => None,
        }
    }
}

/// What the lists say of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// It is allowed.
    pub allowed: Option<Until>,
    /// It is denied.
    pub denied: Option<Until>,
    /// It is blocked by hand.
    pub blocked: Option<Until>,
    /// It is blocked because it stayed over a limit.
    pub penalty: Option<Block>,
}

/// A block of a source that stayed over a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Until when.
    pub until: Until,
    /// The limit; `None` if that is not known any more.
    pub limit: Option<String>,
    /// How many blocks it had of that without a rest between them.
    pub blocks: u64,
}

impl Lists {
    pub(super) fn of(entries: &Entries, source: &SourceState, now: u64) -> Self {
        let Profile { allowed, denied, blocked, .. } = source.profile;
        let penalty = Until::left(source.blocked, now).map(|until| {
            // A block in the entry may be shorter than the last one that is known of its limit, and be
            // left when that had to make room.
            let of = source.offences.iter().filter(|(_, it)| it.blocked >= source.blocked);
            let by = of.min_by_key(|(_, offence)| offence.blocked);
            let limit = by.and_then(|(bit, _)| entries.iter().find(|entry| entry.bit == *bit));
            Block {
                until,
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

    /// Whether they decide about its packets.
    pub(super) fn decide(&self) -> bool {
        self.allowed.or(self.denied).or(self.blocked).is_some() || self.penalty.is_some()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limit {
            Some(limit) => write!(f, "limit {limit}, block {}", self.blocks),
            None => write!(f, "a limit"),
        }
    }
}
