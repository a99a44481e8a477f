//! How much a limit admits.

use limiter_common::algorithm::rate::Rate;
use serde::{Deserialize, Serialize};

/// An algorithm and its numbers. Amounts are in the unit of [`Limit::count`](super::Limit::count): packets, bytes, connections,
/// SYNs or weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Allowance {
    /// A bucket that fills at `rate` and holds `burst`.
    TokenBucket {
        /// The long-run rate.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// The most that is admitted at once, at least 1.
        burst: u64,
    },
    /// A virtual queue that drains at `rate` and holds `depth`.
    LeakyBucket {
        /// The rate at which the queue drains.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// What the queue holds, at least 1.
        depth: u64,
    },
    /// The generic cell rate algorithm (ITU-T I.371).
    Gcra {
        /// The long-run rate, the inverse of the increment T.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// How much earlier than its theoretical time a packet may come, in ns: the limit tau of I.371.
        tolerance: u64,
    },
    /// At most `limit` in each window. Windows begin at multiples of their length on the monotonic clock.
    FixedWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of a window in ns, 1 ms to 366 days.
        window: u64,
    },
    /// At most about `limit` in the last `window`, estimated from the counters of two fixed windows.
    SlidingWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of the window in ns, 1 ms to 366 days.
        window: u64,
    },
    /// At most `limit` in any `window`, exactly: the time of each admitted packet is kept.
    SlidingLog {
        /// What a window admits, 1 to 128.
        limit: u64,
        /// The length of the window in ns, 1 ns to 366 days; a document gives at least 1 ms.
        window: u64,
    },
    /// At most `limit` open connections or requests.
    Concurrent {
        /// Open connections or requests, 1 to 128.
        limit: u64,
        /// Time without packets after which a connection counts as closed, and time after which a request does whose end nobody
        /// told, in ns: 1 s to 30 days.
        idle: u64,
    },
}

/// The fields of a [`Rate`], whose crate does not use serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Rate", deny_unknown_fields)]
struct RateFields {
    packets: u64,
    period: u64,
}
