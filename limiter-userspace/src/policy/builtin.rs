//! The limits that have a name without being defined in a document.

use super::model::{Count, KeyPart, Limit};

/// A limit that can be set by its name alone: `limiter limit set source --rate 1kpps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// SYNs without ACK per source.
    Syn,
    /// Packets per source.
    Source,
    /// Packets per connection.
    Connection,
}

impl Builtin {
    /// All of them, in the order in which they are asked.
    pub const ALL: [Self; 3] = [Self::Syn, Self::Source, Self::Connection];

    /// All of them, in the order in which commands list them.
    pub const LISTED: [Self; 3] = [Self::Connection, Self::Syn, Self::Source];

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
