//! What is wrong with a policy or an edit of it.

use ipnet::IpNet;
use limiter_common::{limit::Limit, rate::Rate};
use thiserror::Error;

use super::units::{ValueError, format_rate};

/// What an error means for the command that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyErrorKind {
    /// A value on the command line is bad.
    Usage,
    /// The policy would not be, or is not, a valid one.
    Invalid,
    /// What is to be shown or removed is not there.
    NotFound,
}

/// What is wrong with a policy or an edit of it; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A value that cannot be read.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// No limit has this name.
    #[error("there is no limit {name}")]
    UnknownLimit {
        /// The name, quoted.
        name: String,
        /// The limit that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A rate out of its bounds, see [`Rate::check`].
    #[error(
        "a rate of {packets} packets in {period} ns is not between one packet in 366 days and \
         {} packets per second",
        Rate::MAX_PER_SECOND
    )]
    RateOutOfBounds {
        /// See [`Rate::packets`].
        packets: u64,
        /// See [`Rate::period`].
        period: u64,
    },
    /// A burst of 0.
    #[error("a burst of 0 packets admits nothing")]
    NoBurst,
    /// A burst that no bucket of this rate can hold.
    #[error("a burst of {burst} packets is more than can be kept at {}", format_rate(*rate))]
    BurstTooLong {
        /// The rate.
        rate: Rate,
        /// The burst.
        burst: u64,
        /// The largest burst at this rate.
        largest: u64,
    },
    /// A length that no address has.
    #[error("sources of {family} cannot be counted per /{length}: addresses have {bits} bits")]
    KeyPrefixTooLong {
        /// The family.
        family: &'static str,
        /// The prefix length.
        length: u8,
        /// Bits of an address.
        bits: u8,
    },
    /// An override within a source.
    #[error("sources are counted per /{length}, and {prefix} is narrower")]
    OverrideTooNarrow {
        /// The override's prefix.
        prefix: IpNet,
        /// The prefix length that makes a source of its family.
        length: u8,
    },
    /// A new prefix length of sources with which an override would be within one.
    #[error(
        "sources cannot be counted per /{length}: limit {} has a narrower override for {prefix}",
        limit.name()
    )]
    KeyPrefixTooWide {
        /// The limit that has the override.
        limit: Limit,
        /// The override's prefix.
        prefix: IpNet,
        /// The prefix length asked for.
        length: u8,
    },
    /// The limit has no rate for sources without an override.
    #[error("limit {} is not set", limit.name())]
    NotSet {
        /// The limit.
        limit: Limit,
        /// How many overrides it has.
        overrides: usize,
    },
    /// The limit has no such override.
    #[error("limit {} has no override for {prefix}", limit.name())]
    NoOverride {
        /// The limit.
        limit: Limit,
        /// The prefix asked for.
        prefix: IpNet,
        /// Its overrides that are nearest to that, at most [`PolicyError::NEAREST`].
        nearest: Vec<IpNet>,
        /// How many it has.
        total: usize,
    },
    /// A stored policy that cannot be used.
    #[error("the stored policy cannot be used: {cause}")]
    Document {
        /// Why.
        cause: String,
    },
    /// More different plans than can be numbered.
    #[error("the policy has more than {most} different combinations of limits")]
    TooManyPlans {
        /// How many there may be.
        most: u32,
    },
}

impl PolicyError {
    /// How many overrides are named beside one that was not found.
    pub const NEAREST: usize = 3;

    /// What it means for the command.
    pub const fn kind(&self) -> PolicyErrorKind {
        match self {
            Self::Value(_)
            | Self::RateOutOfBounds { .. }
            | Self::NoBurst
            | Self::BurstTooLong { .. }
            | Self::KeyPrefixTooLong { .. } => PolicyErrorKind::Usage,
            Self::OverrideTooNarrow { .. }
            | Self::KeyPrefixTooWide { .. }
            | Self::Document { .. }
            | Self::TooManyPlans { .. } => PolicyErrorKind::Invalid,
            Self::UnknownLimit { .. } | Self::NotSet { .. } | Self::NoOverride { .. } => {
                PolicyErrorKind::NotFound
            }
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Value(error) => error.remedy(),
            Self::UnknownLimit { nearest: Some(nearest), .. } => format!("did you mean {nearest}?"),
            Self::UnknownLimit { nearest: None, .. } => {
                format!("the limits are {}", Limit::ALL.map(Limit::name).join(", "))
            }
            Self::RateOutOfBounds { .. } => {
                "to switch a limit off, use `limiter limit del NAME`".to_owned()
            }
            Self::NoBurst => "a burst is at least 1".to_owned(),
            Self::BurstTooLong { rate, largest, .. } => {
                format!("the largest burst at {} is {largest} packets", format_rate(*rate))
            }
            Self::KeyPrefixTooLong { bits, .. } => format!("give a length from 0 to {bits}"),
            Self::OverrideTooNarrow { prefix, length } => {
                let wide = IpNet::new(prefix.addr(), *length).unwrap_or(*prefix).trunc();
                let option =
                    if prefix.addr().is_ipv4() { "--ipv4-prefix" } else { "--ipv6-prefix" };
                format!(
                    "an override has to be /{length} or wider, such as {wide}; or attach again \
                     with {option} {}",
                    prefix.prefix_len()
                )
            }
            Self::KeyPrefixTooWide { limit, prefix, .. } => format!(
                "remove it first: limiter limit del {} --src {prefix}; or give /{} or longer",
                limit.name(),
                prefix.prefix_len()
            ),
            Self::NotSet { limit, overrides: 0 } => {
                format!("set it with: limiter limit set {} --rate RATE", limit.name())
            }
            Self::NotSet { limit, overrides } => format!(
                "it has overrides only ({overrides}); remove them by: limiter limit del {} --src \
                 PREFIX",
                limit.name()
            ),
            Self::NoOverride { total: 0, .. } => "it has no overrides at all".to_owned(),
            Self::NoOverride { nearest, total, .. } => {
                let names: Vec<_> = nearest.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                if nearest.len() == *total {
                    format!("its overrides are {names}")
                } else {
                    format!("the nearest of its {total} overrides are {names}")
                }
            }
            Self::Document { .. } => {
                "use the version of limiter that stored it; or start from an empty policy: \
                 limiter detach --all, attach again, and set the limits anew"
                    .to_owned()
            }
            Self::TooManyPlans { .. } => return None,
        })
    }
}
