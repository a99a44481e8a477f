//! Why a frame passed or was dropped.

use crate::packet::{Anomaly, Fragment, Packet};

/// The one reason under which a frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Passed: a plain IP packet within every limit that applies to it.
    Conform = 0,
    /// Passed: a fragment within every limit that applies to it.
    Fragment = 1,
    /// Passed: more extension headers than are walked, within every limit.
    ExtensionBound = 2,
    /// Passed: the source is known but what follows is cut short or contradicts itself; within every
    /// limit.
    Malformed = 3,
    /// Passed: the source cannot be read; within the limits of the one source that such frames share.
    Unreadable = 4,
    /// Passed: not IP, which no limit is about.
    NonIp = 5,
    /// Passed: the source is allowed.
    Allow = 6,
    /// Passed, because the policy only monitors: it would have been dropped.
    Monitor = 7,
    /// Dropped: over a limit, which has counted it.
    Exceed = 8,
    /// Dropped: the source is denied.
    Deny = 9,
    /// Dropped: the source is blocked for a time.
    Penalty = 10,
    /// Dropped undecided: other CPUs moved the same state more often than a packet may retry, the
    /// policy changed under it, or the kernel had no entry to give.
    Contended = 11,
}

/// Number of reasons.
pub const REASONS: usize = Reason::ALL.len();

impl Reason {
    /// Every reason, in the order of its place in the counters.
    pub const ALL: [Self; 12] = [
        Self::Conform,
        Self::Fragment,
        Self::ExtensionBound,
        Self::Malformed,
        Self::Unreadable,
        Self::NonIp,
        Self::Allow,
        Self::Monitor,
        Self::Exceed,
        Self::Deny,
        Self::Penalty,
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
        self as usize >= Self::Exceed as usize
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
            Self::Allow => "allow",
            Self::Monitor => "monitor",
            Self::Exceed => "exceed",
            Self::Deny => "deny",
            Self::Penalty => "penalty",
            Self::Contended => "contended",
        }
    }
}
