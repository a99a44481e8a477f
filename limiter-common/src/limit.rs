//! The built-in limits.

/// A limit, in the order in which limits are asked: narrow before wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// Packets per 5-tuple.
    Connection = 0,
    /// TCP SYNs without ACK per source.
    Syn = 1,
    /// Packets per source.
    Source = 2,
}

/// Number of limits.
pub const LIMITS: usize = Limit::ALL.len();

impl Limit {
    /// Every limit, narrow before wide.
    pub const ALL: [Self; 3] = [Self::Connection, Self::Syn, Self::Source];

    /// Its place in tables.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its bit in a set of limits.
    #[inline(always)]
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// The name that operators use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Syn => "syn",
            Self::Source => "source",
        }
    }

    /// What it counts, as a unit of its rate.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Connection | Self::Source => "packets",
            Self::Syn => "SYNs",
        }
    }
}
