//! How a piece of text stands out. The text alone always says it all.

/// What a piece of text is, for a terminal to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary text.
    #[default]
    Plain,
    /// What the eye should find first.
    Strong,
    /// Titles, and what is off.
    Faint,
    /// Traffic that passed.
    Passed,
    /// Traffic that was dropped.
    Dropped,
}

impl Tone {
    /// The escape sequence that begins it; empty for plain text.
    pub const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Passed => "\x1b[32m",
            Self::Dropped => "\x1b[31m",
        }
    }

    /// The tone of a count of drops: only one that is not zero stands out.
    pub const fn of_drops(count: u64) -> Self {
        if count == 0 { Self::Plain } else { Self::Dropped }
    }
}

/// The escape sequence that ends every tone.
pub const RESET: &str = "\x1b[0m";
