//! Why a frame passed or was dropped.

use crate::{
    limit::Limit,
    packet::{Anomaly, Fragment, Packet},
};

/// The one reason under which a frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Passed: a plain IP packet within every limit that applies to it.
    Conform = 0,
    /// Passed: a fragment within the limits of its source.
    Fragment = 1,
    /// Passed: more extension headers than are walked, within the limits of its source.
    ExtensionBound = 2,
    /// Passed: the source is known but what follows is cut short or contradicts itself; within the
    /// limits of its source.
    Malformed = 3,
    /// Passed: the source cannot be read; within the limits of the one source that such frames share.
    Unreadable = 4,
    /// Passed: not IP, which no limit is about.
    NonIp = 5,
    /// Dropped: over the `connection` limit.
    ConnectionExceed = 6,
    /// Dropped: over the `syn` limit.
    SynExceed = 7,
    /// Dropped: over the `source` limit.
    SourceExceed = 8,
    /// Dropped undecided: other CPUs moved the same bucket more often than a packet may retry, the
    /// policy changed under it, or the kernel had no entry to give to its connection.
    Contended = 9,
}

/// Number of reasons.
pub const REASONS: usize = Reason::ALL.len();

impl Reason {
    /// Every reason, in the order of its place in the counters.
    pub const ALL: [Self; 10] = [
        Self::Conform,
        Self::Fragment,
        Self::ExtensionBound,
        Self::Malformed,
        Self::Unreadable,
        Self::NonIp,
        Self::ConnectionExceed,
        Self::SynExceed,
        Self::SourceExceed,
        Self::Contended,
    ];

    /// Its place in the counters.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether frames of this reason are dropped.
    #[inline(always)]
    pub const fn drops(self) -> bool {
        self as usize >= Self::ConnectionExceed as usize
    }

    /// The reason to drop a packet that is over this limit.
    #[inline(always)]
    pub const fn exceed(limit: Limit) -> Self {
        match limit {
            Limit::Connection => Self::ConnectionExceed,
            Limit::Syn => Self::SynExceed,
            Limit::Source => Self::SourceExceed,
        }
    }

    /// The limit that packets dropped for this reason are over.
    #[inline(always)]
    pub const fn exceeded(self) -> Option<Limit> {
        match self {
            Self::ConnectionExceed => Some(Limit::Connection),
            Self::SynExceed => Some(Limit::Syn),
            Self::SourceExceed => Some(Limit::Source),
            _ => None,
        }
    }

    /// The reason to pass a packet that is within its limits.
    #[inline(always)]
    pub const fn conform(packet: &Packet) -> Self {
        match (packet.anomaly, packet.fragment.get()) {
            (Anomaly::Unreadable, _) => Self::Unreadable,
            (Anomaly::Malformed, _) => Self::Malformed,
            (Anomaly::ExtensionBound, _) => Self::ExtensionBound,
            (Anomaly::None, Fragment::First | Fragment::Later(_)) => Self::Fragment,
            (Anomaly::None, Fragment::Whole) => Self::Conform,
        }
    }

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conform => "conform",
            Self::Fragment => "fragment",
            Self::ExtensionBound => "extension_bound",
            Self::Malformed => "malformed",
            Self::Unreadable => "unreadable",
            Self::NonIp => "non_ip",
            Self::ConnectionExceed => "connection_exceed",
            Self::SynExceed => "syn_exceed",
            Self::SourceExceed => "source_exceed",
            Self::Contended => "contended",
        }
    }
}
