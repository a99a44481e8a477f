//! What takes the frames that come over a wire.

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_userspace::policy::Bucket;

use super::peer::Peer;

/// What one source may send in the contests in which it sends far more.
pub(crate) const SCANT: Bucket = Bucket { rate: Rate::per_second(1_000), burst: 200 };
/// The same of a limit under which it stays refused for long.
const SPARSE: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 200 };
/// What it cannot exceed.
const AMPLE: Bucket = Bucket { rate: Rate::per_second(1_000_000_000), burst: 1_000_000 };

/// What receives the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contest {
    /// A program that drops them.
    Drop,
    /// The limiter, over its limit.
    Over,
    /// The limiter, over a limit that admits a packet a minute.
    LongOver,
    /// Another limiter, over its limit.
    Peer(Peer),
    /// A program that passes them to the stack, which drops them.
    Pass,
    /// The limiter, within its limit, and the stack.
    Within,
}

impl Contest {
    /// Each of them, in the order of the report.
    pub(crate) const ALL: [Self; 8] = [
        Self::Drop,
        Self::Over,
        Self::LongOver,
        Self::NFTABLES,
        Self::Peer(Peer::Prerouting),
        Self::Peer(Peer::Hashlimit),
        Self::Pass,
        Self::Within,
    ];

    /// The other that there is a target for.
    pub(crate) const NFTABLES: Self = Self::Peer(Peer::Ingress);

    /// Its name for scripts.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Drop => "xdp_drop",
            Self::Over => "limiter_over_limit",
            Self::LongOver => "limiter_over_limit_of_1_min",
            Self::Peer(peer) => peer.id(),
            Self::Pass => "xdp_pass",
            Self::Within => "limiter_within_limit",
        }
    }

    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Drop => "bare XDP_DROP",
            Self::Over => "limiter, over its limit: dropped",
            Self::LongOver => "limiter, over a limit of 1/min: dropped",
            Self::Peer(peer) => peer.name(),
            Self::Pass => "bare XDP_PASS: the stack drops it",
            Self::Within => "limiter, within its limit: the stack drops it",
        }
    }

    /// The limit of its source, where the limiter receives.
    pub(crate) const fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Over => Some(SCANT),
            Self::LongOver => Some(SPARSE),
            Self::Within => Some(AMPLE),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contests_have_names_of_their_own() {
        let mut names: Vec<_> =
            Contest::ALL.into_iter().flat_map(|contest| [contest.id(), contest.name()]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * Contest::ALL.len());
    }
}
