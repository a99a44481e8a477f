//! The measured policies. Each has an instance of its own.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    policy::limit::{KEYED, WIDE},
};
use limiter_userspace::{
    datapath::sizes::Sizes,
    policy::{
        Bucket, Builtin, Policy,
        model::{
            Allowance, Count, KeyPart, Layer, Limit, Listed, Override, OverrideWhom, Penalty,
            Unproven, Whom,
        },
        units::default_burst,
    },
};

use super::{
    contest,
    shipped::{Example, Traffic},
};

/// The number of the override that contains the measured source.
pub(crate) const OWN: u32 = 0x1388;

/// A limit that no CPU can exceed.
const AMPLE: Bucket = Bucket { rate: Rate::per_second(100_000_000), burst: 10_000_000 };
/// The same rate with a burst that takes ten seconds to refill.
const DEEP: Bucket = Bucket { rate: AMPLE.rate, burst: 1_000_000_000 };
/// The same rate with a burst that takes two seconds to refill.
const LARGE: Bucket = Bucket { rate: AMPLE.rate, burst: 200_000_000 };
/// The same rate with a burst that refills in less than eight ticks, so that every packet reads the clock.
const SMALL: Bucket = Bucket { rate: AMPLE.rate, burst: 999 };
const SCANT: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 1 };
/// A limit under which one packet is owed for ten minutes.
const SLOW: Bucket = Bucket { rate: Rate { packets: 1, period: 600 * SECOND }, burst: 20 };
const PENALTY: Penalty = Penalty {
    backoff: 2,
    max: 3_600 * SECOND,
    unproven: Unproven::Block,
    ..Penalty::new(SECOND, 60 * SECOND)
};

/// The key of a limit, other than the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyed {
    All,
    Connection,
    Destination,
    /// The /24 of the source.
    Network,
}

impl Keyed {
    /// The name in ids.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Connection => "connection",
            Self::Destination => "destination",
            Self::Network => "source_24",
        }
    }

    /// The name in a policy.
    pub(crate) const fn document(self) -> &'static str {
        match self {
            Self::Network => "source/24",
            other => other.name(),
        }
    }

    const fn parts(self) -> &'static [KeyPart] {
        match self {
            Self::All => &[],
            Self::Connection => &[KeyPart::Connection],
            Self::Destination => &[KeyPart::Destination],
            Self::Network => &[KeyPart::SourcePrefix { ipv4: 24, ipv6: 64 }],
        }
    }
}

/// The most limits that a policy may apply to one packet, with keys that are new for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// Limits on open connections, of which the lists of the source are full.
    Concurrent,
    /// Sliding logs per connection.
    SlidingLog,
    /// Buckets per connection.
    Buckets,
}

impl Stack {
    pub(crate) const ALL: [Self; 3] = [Self::Concurrent, Self::SlidingLog, Self::Buckets];

    /// The number of limits.
    pub(crate) const fn limits(self) -> u64 {
        match self {
            Self::Concurrent | Self::SlidingLog => WIDE as u64,
            Self::Buckets => KEYED as u64,
        }
    }

    /// The name in ids.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Concurrent => "concurrent",
            Self::SlidingLog => "sliding_log",
            Self::Buckets => "keyed",
        }
    }

    fn limit(self, number: u64) -> Limit {
        let name = format!("limit-{number}");
        let limit = 128 - number;
        match self {
            Self::Concurrent => {
                let allowance = Allowance::Concurrent { limit, idle: 60 * SECOND };
                Limit { count: Count::Connections, ..by_key(name, &[KeyPart::Source], allowance) }
            }
            Self::SlidingLog => {
                let allowance = Allowance::SlidingLog { limit, window: (1 + number) * SECOND };
                by_key(name, &[KeyPart::Connection], allowance)
            }
            Self::Buckets => {
                let Bucket { rate, burst } = AMPLE;
                let rate = Rate { packets: rate.packets + 4_000 * number, ..rate };
                let allowance = Allowance::TokenBucket { rate, burst: burst - number };
                by_key(name, &[KeyPart::Connection], allowance)
            }
        }
    }
}

/// A policy and the sizes of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Observe,
    Source,
    Deep,
    /// A source well under its limit, charged by jiffy time.
    Ordinary,
    /// A source well under a limit for which every packet reads the clock.
    Small,
    Over,
    /// A source over a limit that soon admits the next packet.
    OverOften,
    /// Over the limit of the source, and within that of the connection.
    OverConnection,
    /// The other way round.
    OverSource,
    SynSource,
    ConnectionSource,
    All,
    /// One limit, with another key than the source.
    Keyed(Keyed),
    /// So many limits with the source as key.
    Limits(u32),
    /// The most limits with other keys.
    Stacked(Stack),
    /// One limit per source, with this algorithm.
    Algorithm(Allowance),
    /// So many overrides of the limit per source; the measured source is in one of them.
    Overrides(u32),
    /// So many limits, all except the first for a port that no frame has.
    Scoped(u32),
    Spoofed,
    SpoofedDefault,
    /// New sources under a limit so small that no packet passes untracked.
    SpoofedSmall,
    /// New sources under a limit with a penalty that no source has earned.
    SpoofedPenalty,
    /// New sources under a limit on SYNs and a limit on all packets.
    SpoofedSyns,
    /// New sources under a limit on new connections.
    SpoofedConnections,
    /// One source that opens connections, under a limit on SYNs.
    NewSyn,
    /// So many packets a second, with the default burst.
    PerSecond(u64),
    /// New sources under a limit with its default burst.
    SpoofedRate(Rate),
    /// All sources are denied, for ever or for an hour.
    Denied {
        /// It is for an hour.
        ends: bool,
    },
    /// New sources; all sources in the table owe for the whole measurement.
    SpoofedOwing,
    SpoofedOwingDefault,
    /// So many sources, with room for twice as many.
    Tracked(u32),
    /// So many sources, all over a limit of 1/min, with room for twice as many.
    Botnet(u32),
    /// A shipped policy. Each kind of traffic has an instance of its own.
    Example(Example, Traffic),
}

impl Setting {
    /// One limit of each algorithm except the token bucket. No packet exceeds them.
    pub(crate) fn algorithms() -> [Self; 6] {
        let Bucket { rate, burst } = AMPLE;
        let (limit, window) = (rate.packets, SECOND);
        [
            Allowance::LeakyBucket { rate, depth: burst },
            Allowance::Gcra { rate, tolerance: SECOND / 100 },
            Allowance::FixedWindow { limit, window },
            Allowance::SlidingWindow { limit, window },
            // The largest log, over a window in which the CPU cannot send so many packets.
            Allowance::SlidingLog { limit: 128, window: 1_000 },
            Allowance::Concurrent { limit: 128, idle: 60 * SECOND },
        ]
        .map(Self::Algorithm)
    }

    /// The name of its directory in the BPF file system.
    pub(crate) fn directory(self) -> String {
        match self {
            Self::Algorithm(allowance) => allowance.algorithm().to_owned(),
            Self::SpoofedRate(Rate { packets, period }) => {
                format!("SpoofedRate-{packets}-{period}")
            }
            Self::Keyed(key) => format!("keyed-{}", key.name()),
            Self::Example(example, traffic) => format!("{example:?}-{traffic:?}"),
            Self::Denied { ends } => format!("Denied-{ends}"),
            other => format!("{other:?}"),
        }
    }

    /// The sizes of its tables.
    pub(crate) fn sizes(self) -> Sizes {
        let small = Sizes {
            sources: 1 << 16,
            buckets: 1 << 16,
            wide_states: 1 << 11,
            overrides: 1 << 10,
            further: false,
            buckets_made: false,
        };
        match self {
            Self::SpoofedDefault | Self::SpoofedOwingDefault => Sizes::default(),
            Self::Overrides(number) => {
                Sizes { overrides: number.next_power_of_two().max(small.overrides), ..small }
            }
            Self::Tracked(number) | Self::Botnet(number) => {
                let sources = number.saturating_mul(2).clamp(small.sources, Sizes::MOST);
                Sizes { sources, ..small }
            }
            _ => small,
        }
    }

    /// The limits to which every conforming frame is charged.
    pub(crate) fn charged(self) -> Result<Vec<String>> {
        let conforms = self.exceeded().is_none() && !matches!(self, Self::Denied { .. });
        let about = |limit: &Limit| limit.matching.ports.is_empty();
        let names = self.policy()?.limits.into_iter().filter(about).map(|limit| limit.name);
        Ok(names.filter(|_| conforms).collect())
    }

    /// Whether a few frames may have another outcome than the others. Of random SYNs, some are sent twice: they pass as
    /// retransmissions, and are not charged to limits of new connections.
    pub(crate) const fn has_strays(self) -> bool {
        matches!(self, Self::Example(..) | Self::NewSyn | Self::SpoofedConnections)
    }

    /// Whether the bucket has to be drained before each measurement. The frames come only slightly faster
    /// than the limit admits, so the bucket fills up while the baseline runs.
    pub(crate) const fn is_drained(self) -> bool {
        matches!(self, Self::PerSecond(_))
    }

    /// The limit that refuses every frame; `None` if frames pass.
    pub(crate) const fn exceeded(self) -> Option<&'static str> {
        match self {
            Self::Over | Self::OverOften | Self::OverConnection => Some(Builtin::Source.name()),
            Self::OverSource => Some(Builtin::Connection.name()),
            _ => None,
        }
    }

    /// Builds the policy.
    pub(crate) fn policy(self) -> Result<Policy> {
        if let Self::Example(example, _) = self {
            return example.policy();
        }
        let defaults: &[(Builtin, Bucket)] = match self {
            Self::Observe
            | Self::Keyed(_)
            | Self::Limits(_)
            | Self::Stacked(_)
            | Self::Scoped(_)
            | Self::Algorithm(_) => &[],
            Self::Deep => &[(Builtin::Source, DEEP)],
            Self::Ordinary => &[(Builtin::Source, LARGE)],
            Self::Small | Self::SpoofedSmall => &[(Builtin::Source, SMALL)],
            Self::Over | Self::Botnet(_) => &[(Builtin::Source, SCANT)],
            Self::OverOften => &[(Builtin::Source, contest::SCANT)],
            Self::OverConnection => &[(Builtin::Connection, AMPLE), (Builtin::Source, SCANT)],
            Self::OverSource => &[(Builtin::Connection, SCANT), (Builtin::Source, AMPLE)],
            Self::SynSource | Self::SpoofedSyns => {
                &[(Builtin::Syn, AMPLE), (Builtin::Source, AMPLE)]
            }
            Self::ConnectionSource => &[(Builtin::Connection, AMPLE), (Builtin::Source, AMPLE)],
            Self::SpoofedOwing | Self::SpoofedOwingDefault => &[(Builtin::Source, SLOW)],
            Self::NewSyn => &[(Builtin::Syn, AMPLE)],
            Self::PerSecond(packets) => &[(Builtin::Source, by_default(Rate::per_second(packets)))],
            Self::SpoofedRate(rate) => &[(Builtin::Source, by_default(rate))],
            Self::All => &Builtin::ALL.map(|limit| (limit, AMPLE)),
            _ => &[(Builtin::Source, AMPLE)],
        };
        let mut policy = Policy::default();
        for (limit, bucket) in defaults {
            policy.set_default(*limit, *bucket)?;
        }
        match self {
            Self::Keyed(key) => {
                let Bucket { rate, burst } = AMPLE;
                let allowance = Allowance::TokenBucket { rate, burst };
                policy.limits.push(by_key(key.name(), key.parts(), allowance));
            }
            Self::Limits(number) => {
                let Bucket { rate, burst } = AMPLE;
                let limit = |number| by_source(number, Allowance::TokenBucket { rate, burst });
                policy.limits.extend((0..number).map(limit));
            }
            Self::Scoped(number) => {
                let Bucket { rate, burst } = AMPLE;
                policy.limits.extend((0..number).map(|at| {
                    let mut limit = by_source(at, Allowance::TokenBucket { rate, burst });
                    if at > 0 {
                        let port = 20_000 + at as u16;
                        limit.matching.ports.push(port..=port);
                    }
                    limit
                }));
            }
            Self::Stacked(stack) => {
                policy.limits.extend((0..stack.limits()).map(|number| stack.limit(number)));
            }
            Self::Algorithm(allowance) => policy.limits.push(by_source(0, allowance)),
            Self::SpoofedConnections | Self::NewSyn => {
                policy.limits.iter_mut().for_each(|limit| limit.count = Count::Connections);
            }
            Self::Denied { ends } => {
                let whom = Whom::Prefix("0.0.0.0/0".parse()?);
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
                policy.deny.push(Listed { whom, until: ends.then_some(now + 3_600) });
            }
            Self::SpoofedPenalty => {
                policy.limits.iter_mut().for_each(|limit| limit.penalty = Some(PENALTY));
            }
            Self::Overrides(number) => {
                for number in overrides(number) {
                    // Different rates and bursts, so that each override gets a profile of its own.
                    let more = u64::from(number) + 1;
                    let rate = Rate::per_second(AMPLE.rate.packets + 4_000 * more);
                    let bucket = Bucket::new(rate, AMPLE.burst + more)?;
                    let [_, high, low, last] = number.to_be_bytes();
                    // All overrides except the own one are outside the prefix of the measured source.
                    let prefix = if number == OWN {
                        format!("10.{}.{}.0/24", OWN >> 8, OWN & 0xff)
                    } else {
                        format!("11.{high}.{low}.{last}/32")
                    };
                    let whom = OverrideWhom::Prefix(prefix.parse()?);
                    let one = Override { whom, layers: Some(vec![bucket.into()]) };
                    policy.limits.iter_mut().for_each(|limit| limit.overrides.push(one.clone()));
                }
            }
            _ => {}
        }
        Ok(policy)
    }
}

/// The numbers of `number` overrides, including [`OWN`].
fn overrides(number: u32) -> impl Iterator<Item = u32> {
    let first = OWN.saturating_sub(number - 1);
    first..first + number
}

/// A bucket of this rate with the default burst.
fn by_default(rate: Rate) -> Bucket {
    Bucket { rate, burst: default_burst(rate) }
}

fn by_source(number: u32, allowance: Allowance) -> Limit {
    by_key(format!("limit-{number}"), &[KeyPart::Source], allowance)
}

fn by_key(name: impl Into<String>, key: &[KeyPart], allowance: Allowance) -> Limit {
    let layers = vec![Layer { allowance, key: None }];
    Limit { layers, ..Limit::new(name, key) }
}

#[cfg(test)]
mod tests {
    use limiter_userspace::policy::{Assignment, Context, compile};

    use super::*;

    #[test]
    fn every_override_has_a_profile_of_its_own() {
        for overrides in [1, 100, 10_000, 100_000] {
            let policy = Setting::Overrides(overrides).policy().unwrap();
            let (tables, _) =
                compile(&policy, &Assignment::default(), &Context::default()).unwrap();
            let overrides = overrides as usize;
            assert_eq!(tables.prefixes.len(), overrides);
            // One more profile for all other sources, and one for the buckets that sources without an entry
            // share.
            assert_eq!(tables.profiles.len(), overrides + 2);
            // One meter for each override, and three others.
            assert_eq!(tables.meters.len(), overrides + 3);
        }
    }
}
