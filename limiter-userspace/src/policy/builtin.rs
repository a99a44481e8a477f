//! The limits that have a name without being defined in a document.

use super::model::{Count, KeyPart, Limit};

/// A limit that can be set by its name alone: `limiter limit set source --rate 1kpps`.
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
    /// All of them, narrow before wide.
    pub const ALL: [Self; 3] = [Self::Connection, Self::Syn, Self::Source];

    /// The name that operators use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Syn => "syn",
            Self::Source => "source",
        }
    }

    /// The built-in limit with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The definition of the limit, without a rate: it limits nobody.
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
