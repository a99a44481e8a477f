//! How a program is attached.

use std::fmt;

/// Where an attached XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the kernel's generic path, for drivers without XDP.
    Generic = 0,
    /// In the driver, before a socket buffer is made.
    Native = 1,
}

impl Mode {
    /// The word that statistics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }

    /// The mode as it is kept in an [`Interface`](limiter_common::abi::interface::Interface).
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The mode of a [`code`](Self::code).
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Generic),
            1 => Some(Self::Native),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
