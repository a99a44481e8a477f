//! What is wrong with a policy or an edit of it.

use ipnet::IpNet;
use limiter_common::{
    algorithm::rate::Rate,
    policy::limit::{COLUMNS, INLINE, LIMITS},
};
use thiserror::Error;

use super::units::{ValueError, format_rate};
use crate::policy::document::DOCUMENT_BYTES;

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
        nearest: Option<String>,
        /// The limits that there are.
        known: Vec<String>,
    },
    /// A rate out of its bounds, see [`Rate::check`].
    #[error(
        "a rate of {packets} in {period} ns is not between one in 366 days and {} per second",
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
    /// A packet that costs more than a bucket of this rate can be charged.
    #[error("a packet that costs {cost} is more than can be kept at {}", format_rate(*rate))]
    TooDear {
        /// The rate.
        rate: Rate,
        /// What the dearest packet costs.
        cost: u64,
        /// The most that one may cost at this rate.
        most: u64,
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
        "sources cannot be counted per /{length}: limit {limit} has a narrower override for {prefix}"
    )]
    KeyPrefixTooWide {
        /// The limit that has the override.
        limit: String,
        /// The override's prefix.
        prefix: IpNet,
        /// The prefix length asked for.
        length: u8,
    },
    /// The limit has no rate for sources without an override.
    #[error("limit {limit} is not set")]
    NotSet {
        /// The limit.
        limit: String,
        /// How many overrides it has.
        overrides: usize,
    },
    /// The limit has no such override.
    #[error("limit {limit} has no override for {prefix}")]
    NoOverride {
        /// The limit.
        limit: String,
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
    /// Numbers that an algorithm does not take.
    #[error("{name} takes {bounds}")]
    Algorithm {
        /// Its name in a policy.
        name: &'static str,
        /// What it takes.
        bounds: &'static str,
    },
    /// An edit of one rate where there are several.
    #[error("limit {limit} has several layers")]
    Layers {
        /// The limit.
        limit: String,
    },
    /// A limit whose layers cannot be deleted without its overrides.
    #[error("limit {limit} has several layers, and overrides of all of them")]
    LayersOverridden {
        /// The limit.
        limit: String,
    },
    /// A limit that does what another does.
    #[error("limit {other} has the match, key and count of limit {limit}")]
    SameLimit {
        /// The limit that is not there yet.
        limit: String,
        /// The one that is.
        other: String,
    },
    /// A policy that could not be written as a document.
    #[error(
        "as a document, the policy has {:.1} MiB, more than {} MiB: it could not be saved",
        *bytes as f64 / f64::from(1 << 20), DOCUMENT_BYTES >> 20
    )]
    TooLong {
        /// How many bytes it has.
        bytes: usize,
    },
    /// More limits than there are bits.
    #[error(
        "the policy needs {needed} limits, with each layer and candidate as one; {LIMITS} are the most"
    )]
    TooManyLimits {
        /// How many it has.
        needed: usize,
    },
    /// More tenants than can be numbered.
    #[error(
        "the policy has {needed} tenants; {} are the most",
        limiter_common::policy::limit::TENANTS
    )]
    TooManyTenants {
        /// How many it has.
        needed: usize,
    },
    /// More limits about one packet than are asked.
    #[error(
        "{} limits {what} can be about one packet ({packet}): {}; {most} are the most",
        limits.len(), limits.join(", ")
    )]
    TooManyAtOnce {
        /// The packet, in words.
        packet: String,
        /// The limits.
        limits: Vec<String>,
        /// How many there may be.
        most: usize,
        /// What they are.
        what: &'static str,
    },
    /// More limits with overrides than a profile has room for.
    #[error(
        "limit {limit} has overrides, and {} others that are not kept per source have some already",
        COLUMNS - INLINE
    )]
    TooManyColumns {
        /// The limit.
        limit: String,
    },
    /// More different profiles or meters than can be numbered.
    #[error("the policy has more than {most} different combinations of limits")]
    TooManyProfiles {
        /// How many there may be.
        most: u32,
    },
    /// A name that nothing has.
    #[error("{what} {name} is used, but not defined")]
    Undefined {
        /// `set`, `tenant`, ...
        what: &'static str,
        /// The name, quoted.
        name: String,
    },
    /// An override that is not about whole keys.
    #[error(
        "limit {limit} is not kept per source or tenant, so it can have no override for {whom}"
    )]
    OverrideOfKey {
        /// The limit.
        limit: String,
        /// Whom it is for.
        whom: String,
    },
    /// An override without one allowance for each layer, or of another algorithm.
    #[error("the override of limit {limit} for {whom} does not fit its layers")]
    OverrideShape {
        /// The limit.
        limit: String,
        /// Whom it is for.
        whom: String,
    },
    /// An override for sources that no packet of the limit has.
    #[error("limit {limit} is not about {prefix}: its `match` leaves it out")]
    NotAbout {
        /// The limit.
        limit: String,
        /// Whom the override would be for.
        prefix: IpNet,
    },
    /// What is to be removed from a list is not in it.
    #[error("{list} has no entry for {whom}")]
    NotListed {
        /// `allow`, `deny` or `penalty`.
        list: &'static str,
        /// Whom.
        whom: String,
        /// The entry of it that includes that.
        within: Option<String>,
    },
    /// What is to be put on a list for a time is on it for longer.
    #[error("{list} has {prefix} already, for longer than that")]
    ListedLonger {
        /// `allow`, `deny` or `penalty`.
        list: &'static str,
        /// Whom.
        prefix: IpNet,
    },
    /// An entry that nothing would ever come to.
    #[error("{entry} in {list} would be shadowed by {by} in allow")]
    Shadowed {
        /// `deny` or `penalty`.
        list: &'static str,
        /// Its entry.
        entry: String,
        /// The entry of `allow`.
        by: String,
    },
    /// A burst that some packet does not fit into.
    #[error("a burst of {burst} has no room for a packet that costs {least}")]
    NoRoom {
        /// The burst, as it is written.
        burst: String,
        /// The least that there has to be.
        least: String,
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
            | Self::TooDear { .. }
            | Self::NoRoom { .. }
            | Self::KeyPrefixTooLong { .. } => PolicyErrorKind::Usage,
            Self::OverrideTooNarrow { .. }
            | Self::KeyPrefixTooWide { .. }
            | Self::Document { .. }
            | Self::Algorithm { .. }
            | Self::Layers { .. }
            | Self::LayersOverridden { .. }
            | Self::SameLimit { .. }
            | Self::TooLong { .. }
            | Self::TooManyLimits { .. }
            | Self::TooManyTenants { .. }
            | Self::TooManyAtOnce { .. }
            | Self::TooManyColumns { .. }
            | Self::TooManyProfiles { .. }
            | Self::Undefined { .. }
            | Self::OverrideOfKey { .. }
            | Self::OverrideShape { .. }
            | Self::NotAbout { .. }
            | Self::ListedLonger { .. }
            | Self::Shadowed { .. } => PolicyErrorKind::Invalid,
            Self::UnknownLimit { .. }
            | Self::NotSet { .. }
            | Self::NoOverride { .. }
            | Self::NotListed { .. } => PolicyErrorKind::NotFound,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Value(error) => error.remedy(),
            Self::UnknownLimit { nearest: Some(nearest), .. } => format!("did you mean {nearest}?"),
            Self::UnknownLimit { nearest: None, known, .. } => {
                format!("the limits are {}", known.join(", "))
            }
            Self::RateOutOfBounds { .. } => {
                "to switch a limit off, use `limiter limit del NAME`".to_owned()
            }
            Self::NoBurst => "a burst is at least 1".to_owned(),
            Self::BurstTooLong { rate, largest, .. } => {
                format!("the largest burst at {} is {largest} packets", format_rate(*rate))
            }
            Self::TooDear { rate, most, .. } => format!(
                "give a higher rate, or costs of at most {most}, which is the most at {}",
                format_rate(*rate)
            ),
            Self::KeyPrefixTooLong { bits, .. } => format!("give a length from 0 to {bits}"),
            Self::OverrideTooNarrow { prefix, length } => {
                let wide = IpNet::new(prefix.addr(), *length).unwrap_or(*prefix).trunc();
                let option =
                    if prefix.addr().is_ipv4() { "--ipv4-prefix" } else { "--ipv6-prefix" };
                format!(
                    "give /{length} or wider, such as {wide}; or attach again with {option} {}",
                    prefix.prefix_len()
                )
            }
            Self::KeyPrefixTooWide { limit, prefix, .. } => format!(
                "remove it first: limiter limit del {limit} --src {prefix}; or give /{} or longer",
                prefix.prefix_len()
            ),
            Self::NotSet { limit, overrides: 0 } => {
                format!("set it with: limiter limit set {limit} --rate RATE")
            }
            Self::NotSet { limit, overrides } => format!(
                "it has overrides only ({overrides}); remove them by: limiter limit del {limit} --src \
                 PREFIX"
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
            Self::Layers { .. } | Self::NotAbout { .. } => {
                "change it in the document: `limiter policy show`, then `limiter policy apply FILE`"
                    .to_owned()
            }
            Self::LayersOverridden { limit } => {
                format!("`limiter limit del {limit} --all` deletes it with its overrides")
            }
            Self::TooLong { .. } => {
                "give overrides to wider prefixes or to tenants, which are written \
                                     once, or leave some out"
                    .to_owned()
            }
            Self::SameLimit { other, .. } => {
                format!("set that one: limiter limit set {other} --rate RATE")
            }
            Self::NotListed { within: Some(within), .. } => {
                format!("it has {within}, which can only be deleted as a whole")
            }
            Self::NotListed { list, .. } => format!("`limiter {list} list` shows what it has"),
            Self::ListedLonger { list, prefix } => {
                format!("`limiter {list} add {prefix} --for TIME` sets another end")
            }
            Self::Shadowed { .. } => {
                "on the same prefix, `allow` is asked first: `limiter allow del` takes it off that list"
                    .to_owned()
            }
            Self::NoRoom { least, .. } => format!("give at least {least}"),
            Self::TooManyAtOnce { .. } => "give some of them a narrower `match`".to_owned(),
            Self::Algorithm { .. }
            | Self::TooManyLimits { .. }
            | Self::TooManyTenants { .. }
            | Self::TooManyColumns { .. }
            | Self::TooManyProfiles { .. }
            | Self::Undefined { .. }
            | Self::OverrideOfKey { .. }
            | Self::OverrideShape { .. } => return None,
        })
    }
}
