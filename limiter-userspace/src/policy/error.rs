//! Errors of a policy and of edits of it.

use ipnet::IpNet;
use limiter_common::{
    algorithm::rate::Rate,
    policy::limit::{COLUMNS, INLINE, LIMITS},
};
use thiserror::Error;

use super::units::{ValueError, format_data_rate, format_rate, format_size};
use crate::{
    error::{Failure, INVALID},
    output::number::grouped,
};

/// How a command reports an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyErrorKind {
    /// A bad value on the command line.
    Usage,
    /// The policy is invalid, or an edit would make it so.
    Invalid,
    /// What was to be shown or removed does not exist.
    NotFound,
}

/// An error of a policy or of an edit. On an error, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A value that cannot be parsed.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// No limit has this name.
    #[error("there is no limit {name}")]
    UnknownLimit {
        /// The name, quoted.
        name: String,
        /// The nearest name, if one is near.
        nearest: Option<String>,
        /// The names of the limits.
        known: Vec<String>,
    },
    /// The limit with this name is on requests, and commands change limits on packets only.
    #[error("limit {limit} is on requests, and this command is for limits on packets")]
    OnRequests {
        /// The limit.
        limit: String,
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
    #[error("a burst of 0 admits nothing")]
    NoBurst,
    /// A burst that no bucket of this rate can hold.
    #[error(
        "a burst of {} is more than a bucket holds at {}",
        amount(*burst, *bytes), rate_in(*rate, *bytes)
    )]
    BurstTooLong {
        /// The rate.
        rate: Rate,
        /// The burst.
        burst: u64,
        /// The largest burst at this rate.
        largest: u64,
        /// Whether the limit counts bytes.
        bytes: bool,
    },
    /// A packet whose cost at this rate is longer than a bucket can represent.
    #[error(
        "a packet that costs {} is more than a bucket holds at {}",
        amount(*cost, *bytes), rate_in(*rate, *bytes)
    )]
    TooDear {
        /// The rate.
        rate: Rate,
        /// The cost of the most expensive packet.
        cost: u64,
        /// The largest cost at this rate.
        most: u64,
        /// Whether the limit counts bytes, so that the length of a packet is its cost.
        bytes: bool,
    },
    /// A prefix length that is longer than an address.
    #[error("sources of {family} cannot be counted per /{length}: addresses have {bits} bits")]
    KeyPrefixTooLong {
        /// The family.
        family: &'static str,
        /// The prefix length.
        length: u8,
        /// The number of bits of an address.
        bits: u8,
    },
    /// A prefix that is narrower than a source.
    #[error("sources are counted per /{length}, and {prefix} is narrower")]
    OverrideTooNarrow {
        /// The prefix.
        prefix: IpNet,
        /// The prefix length of a source in its address family.
        length: u8,
    },
    /// A new prefix length of sources that is shorter than the prefix of an override.
    #[error(
        "sources cannot be counted per /{length}: limit {limit} has a narrower override for {prefix}"
    )]
    KeyPrefixTooWide {
        /// The limit that has the override.
        limit: String,
        /// The override's prefix.
        prefix: IpNet,
        /// The new prefix length.
        length: u8,
    },
    /// The limit has no rate for sources without an override.
    #[error("limit {limit} is not set")]
    NotSet {
        /// The limit.
        limit: String,
        /// The number of its overrides.
        overrides: usize,
    },
    /// A burst, or a mode that goes by a rate, for a limit that drops all that it is about.
    #[error("limit {limit} drops all that it is about, and has no rate")]
    DropsAll {
        /// The limit.
        limit: String,
    },
    /// The limit has no such override.
    #[error("limit {limit} has no override for {prefix}")]
    NoOverride {
        /// The limit.
        limit: String,
        /// The prefix asked for.
        prefix: IpNet,
        /// The nearest overrides of the limit, at most [`PolicyError::NEAREST`].
        nearest: Vec<IpNet>,
        /// The number of its overrides.
        total: usize,
    },
    /// A stored policy that cannot be used.
    #[error("the stored policy cannot be used: {cause}")]
    Document {
        /// The cause.
        cause: String,
    },
    /// Numbers that are out of the algorithm's range.
    #[error("{name} takes {bounds}")]
    Algorithm {
        /// The name of the algorithm in a document.
        name: &'static str,
        /// The range.
        bounds: &'static str,
    },
    /// An edit of the rate of a limit with several layers.
    #[error("limit {limit} has several layers")]
    Layers {
        /// The limit.
        limit: String,
    },
    /// Deleting the layers of a limit whose overrides have several layers too.
    #[error("limit {limit} has several layers, and overrides of all of them")]
    LayersOverridden {
        /// The limit.
        limit: String,
    },
    /// A built-in limit would be added beside one with the same match, key and count.
    #[error("limit {other} has the match, key and count of limit {limit}")]
    SameLimit {
        /// The built-in limit.
        limit: String,
        /// The limit that exists.
        other: String,
    },
    /// A limit that a command adds, and that no document could have.
    #[error("{message}")]
    NewLimit {
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        remedy: Option<String>,
    },
    /// A limit that a command adds, where the policy has another one with its name.
    #[error("there is another limit {limit} already")]
    LimitExists {
        /// The limit.
        limit: String,
    },
    /// A policy whose document would be too long to be read back.
    #[error(
        "as a document, the policy has {:.1} MiB, more than {} MiB: it could not be saved",
        *bytes as f64 / f64::from(1 << 20), most >> 20
    )]
    TooLong {
        /// The length of the document in bytes.
        bytes: usize,
        /// The length of the longest document that is read, in bytes.
        most: u64,
    },
    /// A rate of zero, with a burst or another action beside it.
    #[error(
        "limit {limit} with rate 0 drops all that it is about: neither a burst nor another action goes with that"
    )]
    NothingBesideZero {
        /// The limit.
        limit: String,
    },
    /// A rate for a limit that goes by what is open.
    #[error("limit {limit} is about open connections, and has no rate")]
    NoRate {
        /// The limit.
        limit: String,
    },
    /// A limit with `action: drop` and without `match`, which a command was to make.
    #[error("limit {limit} would drop every packet, as it has no match")]
    DropsEverything {
        /// The limit.
        limit: String,
    },
    /// A policy whose document would have too much to be read back.
    #[error("as a document, the policy has more than {} {what}: it could not be saved", grouped(*most as u64))]
    TooMuchToRead {
        /// What there is too much of.
        what: &'static str,
        /// The most that is read.
        most: usize,
    },
    /// A policy that, with the run-time lists, does not fit where an instance keeps it.
    #[error(
        "the policy and its {} run-time entries take {} MiB, and an instance has room for {} MiB",
        grouped(*entries as u64), bytes.div_ceil(1 << 20), room >> 20
    )]
    TooMuch {
        /// The number of run-time entries.
        entries: usize,
        /// The bytes that they take together.
        bytes: usize,
        /// The bytes that there is room for.
        room: usize,
    },
    /// More limits than the 64 bits of a set of limits.
    #[error(
        "the policy needs {needed} limits, with each layer and candidate as one; {LIMITS} are the most"
    )]
    TooManyLimits {
        /// The number that the policy needs, each layer and candidate being one.
        needed: usize,
    },
    /// As many limits as there are, and none left for the row of pushed blocks.
    #[error(
        "the policy needs {LIMITS} limits, with each layer and candidate as one; {most} are the most beside blocks that are \
         pushed"
    )]
    NoRowForPushes {
        /// The most that a policy has beside them.
        most: u32,
    },
    /// More limits on requests than a policy has.
    #[error("the policy has {needed} limits on requests; {most} are the most")]
    TooManyOnRequests {
        /// The number that the policy has.
        needed: usize,
        /// The largest number.
        most: usize,
    },
    /// More layers and candidates of limits on requests than there are shared states for.
    #[error("the limits on requests have {needed} layers and candidates; {most} are the most")]
    TooManyRows {
        /// The number that the policy has.
        needed: usize,
        /// The largest number.
        most: usize,
    },
    /// More limits about one request than the bridge evaluates.
    #[error(
        "a request can be about {needed} limits at once, with each layer and candidate as one; {most} are the most"
    )]
    TooManyOfRequest {
        /// The number of limits, each layer and candidate being one.
        needed: usize,
        /// The largest number.
        most: usize,
    },
    /// More tenants than tenant numbers.
    #[error(
        "the policy has {needed} tenants; {} are the most",
        limiter_common::policy::limit::TENANTS
    )]
    TooManyTenants {
        /// The number of tenants.
        needed: usize,
    },
    /// More keyed limits about one packet than the datapath evaluates.
    #[error(
        "{} limits {what} can be about one packet ({packet}): {}; {most} are the most",
        limits.len(), limits.join(", ")
    )]
    TooManyAtOnce {
        /// The packet, in words.
        packet: String,
        /// The names of the limits.
        limits: Vec<String>,
        /// The largest number.
        most: usize,
        /// Which limits are counted, in words.
        what: &'static str,
    },
    /// More keyed limits with overrides than a profile has columns for.
    #[error(
        "limit {limit} cannot have overrides: {} limits that are not kept per source have some, which is the most",
        COLUMNS - INLINE
    )]
    TooManyColumns {
        /// The limit.
        limit: String,
    },
    /// More different profiles or meters than an entry can name.
    #[error("the policy has more than {most} different {what}")]
    TooManyNumbers {
        /// [`PROFILES`] or [`METERS`].
        what: &'static str,
        /// The largest number.
        most: u32,
    },
    /// A name that is used and not defined.
    #[error("{what} {name} is used, but not defined")]
    Undefined {
        /// What it names: `set`, `tenant`, ...
        what: &'static str,
        /// The name, quoted.
        name: String,
    },
    /// An override that the key of its limit cannot tell apart.
    #[error(
        "limit {limit} is not kept per source or tenant, so it can have no override for {whom}"
    )]
    OverrideOfKey {
        /// The limit.
        limit: String,
        /// The sources that it is for.
        whom: String,
    },
    /// An override by a property that the key of its limit does not have.
    #[error("limit {limit} is not kept per {field}, so it can have no override for a {field}")]
    OverrideOfField {
        /// The limit.
        limit: String,
        /// The property, in the words of a document.
        field: String,
    },
    /// An override that does not have one allowance, of the same algorithm, for each layer.
    #[error("the override of limit {limit} for {whom} does not fit its layers")]
    OverrideShape {
        /// The limit.
        limit: String,
        /// The sources that it is for.
        whom: String,
    },
    /// An override for sources that the match of its limit leaves out.
    #[error("limit {limit} is not about {prefix}: its `match` leaves it out")]
    NotAbout {
        /// The limit.
        limit: String,
        /// The sources that it would be for.
        prefix: IpNet,
    },
    /// The prefix to be removed is not in the list.
    #[error("{list} has no entry for {whom}")]
    NotListed {
        /// `allow`, `deny` or `penalty`.
        list: &'static str,
        /// The prefix.
        whom: String,
        /// The entry that decides about all of the prefix, if it is of this list.
        within: Option<String>,
    },
    /// An entry that would never decide, because the same prefix is allowed for ever.
    #[error("{entry} in {list} would be shadowed by {by} in allow")]
    Shadowed {
        /// `deny` or `penalty`.
        list: &'static str,
        /// The entry.
        entry: String,
        /// The entry of `allow`.
        by: String,
    },
    /// A burst that is smaller than the cost of some packet.
    #[error("a burst of {burst} has no room for a packet that costs {least}")]
    NoRoom {
        /// The burst, as it is written in a document.
        burst: String,
        /// The smallest burst, as it is written in a document.
        least: String,
    },
}

impl Failure for PolicyError {
    fn exit_code(&self) -> u8 {
        match self.kind() {
            PolicyErrorKind::Usage => 2,
            PolicyErrorKind::Invalid => INVALID,
            PolicyErrorKind::NotFound => 4,
        }
    }

    fn remedy(&self) -> Option<String> {
        self.remedy()
    }
}

/// Profiles, in words of a document.
pub const PROFILES: &str = "combinations of limits for sources";
/// Meters, in words of a document.
pub const METERS: &str = "rates, bursts and other numbers of limits";

/// An amount as a document has it.
fn amount(amount: u64, bytes: bool) -> String {
    if bytes { format_size(amount) } else { amount.to_string() }
}

/// A rate as a document has it.
fn rate_in(rate: Rate, bytes: bool) -> String {
    if bytes { format_data_rate(rate) } else { format_rate(rate) }
}

impl PolicyError {
    /// The error of a limit that counts bytes, if `is` says so: its numbers are told as bytes.
    pub(super) fn counting_bytes(mut self, is: bool) -> Self {
        if let Self::BurstTooLong { bytes, .. } | Self::TooDear { bytes, .. } = &mut self {
            *bytes = is;
        }
        self
    }

    /// The number of overrides that are named if one was not found.
    pub const NEAREST: usize = 3;

    /// How a command reports the error.
    pub const fn kind(&self) -> PolicyErrorKind {
        match self {
            Self::Value(_)
            | Self::RateOutOfBounds { .. }
            | Self::NoBurst
            | Self::BurstTooLong { .. }
            | Self::TooDear { .. }
            | Self::NoRoom { .. }
            | Self::NewLimit { .. }
            | Self::NothingBesideZero { .. }
            | Self::NoRate { .. }
            | Self::KeyPrefixTooLong { .. } => PolicyErrorKind::Usage,
            Self::OverrideTooNarrow { .. }
            | Self::KeyPrefixTooWide { .. }
            | Self::Document { .. }
            | Self::Algorithm { .. }
            | Self::OnRequests { .. }
            | Self::Layers { .. }
            | Self::LayersOverridden { .. }
            | Self::SameLimit { .. }
            | Self::LimitExists { .. }
            | Self::TooLong { .. }
            | Self::TooMuchToRead { .. }
            | Self::DropsEverything { .. }
            | Self::TooMuch { .. }
            | Self::TooManyLimits { .. }
            | Self::NoRowForPushes { .. }
            | Self::TooManyOnRequests { .. }
            | Self::TooManyRows { .. }
            | Self::TooManyOfRequest { .. }
            | Self::TooManyTenants { .. }
            | Self::TooManyAtOnce { .. }
            | Self::TooManyColumns { .. }
            | Self::TooManyNumbers { .. }
            | Self::Undefined { .. }
            | Self::OverrideOfKey { .. }
            | Self::OverrideOfField { .. }
            | Self::OverrideShape { .. }
            | Self::NotAbout { .. }
            | Self::Shadowed { .. } => PolicyErrorKind::Invalid,
            Self::UnknownLimit { .. }
            | Self::NotSet { .. }
            | Self::DropsAll { .. }
            | Self::NoOverride { .. }
            | Self::NotListed { .. } => PolicyErrorKind::NotFound,
        }
    }

    /// What the user can do about it; `None` if there is nothing to add to the message.
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
            Self::BurstTooLong { rate, largest, bytes, .. } => {
                let (rate, largest) = (rate_in(*rate, *bytes), amount(*largest, *bytes));
                format!("the largest burst at {rate} is {largest}")
            }
            Self::TooDear { bytes: true, .. } => "give a higher rate".to_owned(),
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
            Self::DropsAll { limit } => {
                format!("give it one with: limiter limit set {limit} --rate RATE")
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
            Self::OnRequests { .. } | Self::Layers { .. } | Self::NotAbout { .. } => {
                "change it in the document: `limiter policy show`, then `limiter policy apply FILE`"
                    .to_owned()
            }
            Self::LayersOverridden { limit } => {
                format!("`limiter limit del {limit} --all` deletes it with its overrides")
            }
            Self::NoRate { .. } => {
                "`--burst N` sets how many may be open; `limiter limit add` makes a limit of the rate".to_owned()
            }
            Self::NothingBesideZero { limit } => format!(
                "`limiter limit set {limit} --rate 0` alone, or a rate above zero; `--action off` switches the limit off"
            ),
            Self::DropsEverything { limit } => format!(
                "`limiter limit add NAME --match udp:53 --action drop` drops what matches; for all that there is, write \
                 `action: drop` in a document; `limiter limit del {limit}` switches it off"
            ),
            Self::TooLong { .. } | Self::TooMuchToRead { .. } => {
                "give overrides to wider prefixes or to tenants, which are written \
                                     once, or leave some out"
                    .to_owned()
            }
            Self::TooMuch { .. } => {
                "list wider prefixes, and many with one command: entries that one command set take less \
                 room"
                    .to_owned()
            }
            Self::SameLimit { other, .. } => {
                format!("set that one: limiter limit set {other} --rate RATE")
            }
            Self::NewLimit { remedy, .. } => return remedy.clone(),
            Self::LimitExists { limit } => format!(
                "change it: limiter limit set {limit} --rate RATE; or delete it first: limiter limit del {limit} --all"
            ),
            Self::NotListed { within: Some(within), .. } => {
                format!("it has {within}, which can only be deleted as a whole")
            }
            Self::NotListed { list, .. } => format!("`limiter {list} list` shows what it has"),
            Self::Shadowed { .. } => {
                "on the same prefix, `allow` is asked first: `limiter allow del` takes it off that list, with `--set SET` \
                 where it is of a set"
                    .to_owned()
            }
            Self::NoRoom { least, .. } => format!("give at least {least}"),
            Self::TooManyAtOnce { .. } => "give some of them a narrower `match`".to_owned(),
            Self::TooManyOfRequest { .. } => {
                "let the `match` of each name other values of the same property, such as a route"
                    .to_owned()
            }
            Self::OverrideOfField { field, .. } => {
                format!("add {field} to its `key`, or give such requests a limit of their own")
            }
            Self::NoRowForPushes { .. } => {
                "take a limit, a layer or a candidate out of the policy, or block by `limiter penalty add` without `--push`"
                    .to_owned()
            }
            Self::TooManyOnRequests { .. } | Self::TooManyRows { .. } => {
                "give limits that differ in a rate alone one name and `overrides`".to_owned()
            }
            Self::Algorithm { .. }
            | Self::TooManyLimits { .. }
            | Self::TooManyTenants { .. }
            | Self::TooManyColumns { .. }
            | Self::TooManyNumbers { .. }
            | Self::Undefined { .. }
            | Self::OverrideOfKey { .. }
            | Self::OverrideShape { .. } => return None,
        })
    }
}
