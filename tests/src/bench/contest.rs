//! What receives the frames in the measurements over a wire.

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_userspace::policy::Bucket;

use super::peer::Peer;

/// A limit far below the rate at which the source sends.
pub(crate) const SCANT: Bucket = Bucket { rate: Rate::per_second(1_000), burst: 200 };
/// A limit so slow that the source stays refused for the whole measurement.
const SPARSE: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 200 };
/// A limit that no sender can exceed.
const AMPLE: Bucket = Bucket { rate: Rate::per_second(1_000_000_000), burst: 1_000_000 };

/// A receiver of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contest {
    /// A program that drops every frame.
    Drop,
    /// The limiter, with the source over its limit.
    Over,
    /// The limiter, with the source over a limit of one packet a minute.
    LongOver,
    /// Another limiter, with the source over its limit.
    Peer(Peer),
    /// A program that passes every frame to the stack, which drops it.
    Pass,
    /// The limiter, with the source within its limit; the stack drops the frames.
    Within,
}

impl Contest {
    /// All contests, in the order of the report.
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

    /// The peer that has a target of its own.
    pub(crate) const NFTABLES: Self = Self::Peer(Peer::Ingress);

    /// The id in JSON.
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

    /// The name in the report.
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

    /// The limit of the source; `None` if the receiver is not the limiter.
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
