//! What takes the frames that come over a wire.

use limiter_common::rate::Rate;
use limiter_userspace::policy::Bucket;

/// What one source may send in the contests in which it sends far more.
pub(crate) const SCANT: Bucket = Bucket { rate: Rate::per_second(1_000), burst: 200 };
/// What it cannot exceed.
const AMPLE: Bucket = Bucket { rate: Rate::per_second(1_000_000_000), burst: 1_000_000 };

/// What receives the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contest {
    /// A program that drops them.
    Drop,
    /// The limiter, over its limit.
    Over,
    /// A dynamic set with a limit per source at the ingress hook, over it.
    Nftables,
    /// A program that passes them to the stack, which drops them.
    Pass,
    /// The limiter, within its limit, and the stack.
    Within,
}

impl Contest {
    /// Each of them, in the order of the report.
    pub(crate) const ALL: [Self; 5] =
        [Self::Drop, Self::Over, Self::Nftables, Self::Pass, Self::Within];

    /// Its name for scripts.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Drop => "xdp_drop",
            Self::Over => "limiter_over_limit",
            Self::Nftables => "nftables_over_limit",
            Self::Pass => "xdp_pass",
            Self::Within => "limiter_within_limit",
        }
    }

    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Drop => "bare XDP_DROP",
            Self::Over => "limiter, over its limit: dropped",
            Self::Nftables => "nftables at ingress, over its limit: dropped",
            Self::Pass => "bare XDP_PASS: the stack drops it",
            Self::Within => "limiter, within its limit: the stack drops it",
        }
    }

    /// The limit of its source, where the limiter receives.
    pub(crate) const fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Over => Some(SCANT),
            Self::Within => Some(AMPLE),
            _ => None,
        }
    }
}
