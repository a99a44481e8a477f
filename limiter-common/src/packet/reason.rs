//! Why a frame passed or was dropped.

use crate::packet::{
    headers::{Anomaly, Fragment, Packet},
    named::named,
};

named! {
    /// The one reason under which a frame is counted, by its name in statistics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Reason {
        /// Passed: a plain IP packet within every limit that applies to it.
        Conform = 0, "conform";
        /// Passed: a fragment within every limit that applies to it.
        Fragment = 1, "fragment";
        /// Passed: the source is known but what follows is cut short or contradicts itself; within every
        /// limit.
        Malformed = 2, "malformed";
        /// Passed: the source cannot be read; within the limits of the one source that such frames share.
        Unreadable = 3, "unreadable";
        /// Passed: not IP, which no limit is about; within its budget if it has one.
        NonIp = 4, "non_ip";
        /// Passed: [control traffic](crate::packet::control) of the link, within its budgets.
        Control = 5, "control";
        /// Passed: the source is allowed.
        Allow = 6, "allow";
        /// Passed, because the policy only monitors: it would have been dropped.
        Monitor = 7, "monitor";
        /// Dropped: over a limit, which has counted it.
        Exceed = 8, "exceed";
        /// Dropped: the source is denied.
        Deny = 9, "deny";
        /// Dropped: the source is blocked for a time.
        Penalty = 10, "penalty";
        /// Dropped: more tags, labels or extension headers than are walked, whoever sent it and whatever limits and lists say; but
        /// where nothing is dropped it passes as [`Monitor`](Self::Monitor).
        TooDeep = 11, "too_deep";
        /// Dropped: control traffic of the link, over one of its budgets.
        ControlExceed = 12, "control_exceed";
        /// Dropped: [not IP](crate::packet::link::NonIp::Other), over the budget of such frames.
        NonIpExceed = 13, "non_ip_exceed";
        /// Dropped: a first fragment that contradicts an earlier one of the same datagram, whoever sent it and whatever limits
        /// and lists say, see [`fragment`](crate::memory::fragment); but where nothing is dropped it passes as
        /// [`Monitor`](Self::Monitor).
        Overlap = 14, "overlap";
        /// Dropped undecided: other CPUs moved the same state more often than a packet may retry, the
        /// policy changed under it, or the kernel had no entry to give.
        Contended = 15, "contended";
        /// Passed: the interface has no main program to ask, see [`PROGRAM`](crate::abi::layout::map::PROGRAM).
        Unloaded = 16, "unloaded";
    }
}

/// Number of reasons.
pub const REASONS: usize = Reason::ALL.len();
/// Number of reasons under which the main program counts frames: all but the last one.
pub const DECIDED: usize = Reason::Unloaded.index();

impl Reason {
    /// Its place in the counters.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether frames of this reason are dropped.
    #[inline(always)]
    pub const fn drops(self) -> bool {
        self as usize >= Self::Exceed as usize && !matches!(self, Self::Unloaded)
    }

    /// The reason to pass a packet that is within its limits; [`TooDeep`](Self::TooDeep) for one that no limit is
    /// asked about.
    #[inline(always)]
    pub const fn conform(packet: &Packet) -> Self {
        match (packet.anomaly, packet.fragment.get()) {
            (Anomaly::Unreadable, _) => Self::Unreadable,
            (Anomaly::Malformed, _) => Self::Malformed,
            (Anomaly::TooDeep, _) => Self::TooDeep,
            (Anomaly::None | Anomaly::Unsized, Fragment::First | Fragment::Later(_)) => {
                Self::Fragment
            }
            (Anomaly::None | Anomaly::Unsized, Fragment::Whole) => Self::Conform,
        }
    }
}
