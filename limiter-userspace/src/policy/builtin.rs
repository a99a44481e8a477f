//! The limits that every policy can have by a name alone.

use super::model::{Count, KeyPart, Limit};

/// A limit that needs no definition: `limiter limit set source --rate 1kpps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// Packets per connection.
    Connection,
    /// SYNs without ACK per source.
    Syn,
    /// Packets per source.
    Source,
}

impl Builtin {
    /// Every one, narrow before wide.
    pub const ALL: [Self; 3] = [Self::Connection, Self::Syn, Self::Source];

    /// The name that operators use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Syn => "syn",
            Self::Source => "source",
        }
    }

    /// The built-in limit of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The limit, which admits everything.
    pub fn limit(self) -> Limit {
        let key = if self == Self::Connection { KeyPart::Connection } else { KeyPart::Source };
        let count = if self == Self::Syn { Count::Syns } else { Count::Packets };
        Limit { count, ..Limit::new(self.name(), &[key]) }
    }
}

impl AsRef<str> for Builtin {
    fn as_ref(&self) -> &str {
        self.name()
    }
}
