//! What became of the blocks that the agent was asked for.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::metrics::{Family, Kind, Value::Whole};

/// What the agent tells, in the words of its answers, and `other` for what is none of these.
const RESULTS: [&str; 11] = [
    "blocked",
    "shorter",
    "unproven",
    "not_a_peer",
    "allowed",
    "own",
    "gateway",
    "too_many",
    "full",
    "failed",
    "other",
];

/// Why the agent was not asked for a block, or did not tell what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// The proxy is on another host, and so is the connection of the peer.
    Elsewhere,
    /// The proxy told no connection.
    NoPeer,
    /// The source of the request is not the peer.
    OtherSource,
    /// The request has the fields of another proxy.
    Proxied,
    /// Its address stands for many keys of the limit.
    Shared,
    /// The queue had no room.
    QueueFull,
    /// The agent was away for too long.
    Late,
    /// The agent answered with an error.
    Refused,
}

impl Dropped {
    const ALL: [Self; 8] = [
        Self::Elsewhere,
        Self::NoPeer,
        Self::OtherSource,
        Self::Proxied,
        Self::Shared,
        Self::QueueFull,
        Self::Late,
        Self::Refused,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::NoPeer => "no_peer",
            Self::OtherSource => "other_source",
            Self::Proxied => "proxied",
            Self::Shared => "shared",
            Self::QueueFull => "queue_full",
            Self::Late => "late",
            Self::Refused => "refused",
        }
    }
}

/// Blocks by what became of them.
#[derive(Debug, Default)]
pub(super) struct PushCounts(Mutex<BTreeMap<&'static str, u64>>);

impl PushCounts {
    /// Counts a block by what the agent says of it.
    pub(super) fn answered(&self, result: &str) {
        self.add(RESULTS.into_iter().find(|it| *it == result).unwrap_or("other"), 1);
    }

    /// Counts blocks that came to nothing.
    pub(super) fn dropped(&self, why: Dropped, count: usize) {
        if count > 0 {
            self.add(why.name(), count as u64);
        }
    }

    fn add(&self, result: &'static str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(result).or_default() += count;
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let mut family = Family::new(
            "limiter_bridge_pushed_total",
            Kind::Counter,
            "Blocks of peers that a penalty of a limit on requests called for, by what the agent made of them. It was \
             not asked: elsewhere, no_peer, other_source, proxied, shared, queue_full, late. It did not tell: refused.",
        );
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for result in RESULTS.into_iter().chain(Dropped::ALL.map(Dropped::name)) {
            family.push([("result", result)], Whole(counts.get(result).copied().unwrap_or(0)));
        }
        vec![family]
    }
}
