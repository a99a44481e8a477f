//! The emphasis of a piece of text. The text alone always has all the information.

/// The kind of a piece of text, for a terminal to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary text.
    #[default]
    Plain,
    /// The text that the eye should find first.
    Strong,
    /// Titles, and settings that are off.
    Faint,
    /// Traffic that passed.
    Passed,
    /// Traffic that was dropped.
    Dropped,
}

impl Tone {
    /// The escape sequence that starts the tone; empty for plain text.
    pub const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Passed => "\x1b[32m",
            Self::Dropped => "\x1b[31m",
        }
    }

    /// The tone of a count of drops: [`Dropped`](Self::Dropped) unless it is 0.
    pub const fn of_drops(count: u64) -> Self {
        if count == 0 { Self::Plain } else { Self::Dropped }
    }
}

/// The escape sequence that ends every tone.
pub const RESET: &str = "\x1b[0m";
