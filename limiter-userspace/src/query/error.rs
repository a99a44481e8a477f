//! Questions that cannot be answered.

use std::{io, net::IpAddr, path::PathBuf};

use thiserror::Error;

/// Why a question cannot be answered.
#[derive(Debug, Error)]
pub enum InquiryError {
    /// A value of the command line that cannot be read.
    #[error("{what} {value} {fault}")]
    Value {
        /// What it is for.
        what: &'static str,
        /// The value, quoted.
        value: String,
        /// What is wrong with it.
        fault: &'static str,
        /// What to write instead.
        examples: String,
    },
    /// Addresses of different families in one packet.
    #[error("no packet goes from {from} to {to}: they are of different families")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
    /// A frame shorter than its headers.
    #[error("a frame of {length} bytes has no room for the headers, which take {least}")]
    TooShort {
        /// What was asked for.
        length: usize,
        /// What it takes.
        least: usize,
    },
    /// A frame longer than any.
    #[error("a frame of {length} bytes is longer than any, which has {most} at most")]
    TooLong {
        /// What was asked for.
        length: usize,
        /// The longest one.
        most: usize,
    },
    /// More than a source was asked for.
    #[error("{prefix} is more than one source: sources are counted per /{length}")]
    ManySources {
        /// What was asked for.
        prefix: String,
        /// The prefix length that makes a source.
        length: u8,
    },
    /// Nothing is known of a source.
    #[error("nothing is known of {name}: no packet of it was counted, or it was forgotten")]
    Unknown {
        /// The source.
        name: String,
    },
    /// The policy changed whenever it was read.
    #[error("the policy changes faster than it can be asked")]
    Changing,
    /// A file of packets that cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A file that holds no packets that can be asked about.
    #[error("{} {fault}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
        /// What to do about it.
        remedy: String,
    },
}

impl PartialEq for InquiryError {
    /// By what they say.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl InquiryError {
    /// See [`Error::exit_code`](crate::error::Error::exit_code).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Value { .. }
            | Self::Families { .. }
            | Self::TooShort { .. }
            | Self::TooLong { .. }
            | Self::ManySources { .. } => 2,
            Self::Unknown { .. } => 4,
            Self::Capture { cause, .. } => match cause.kind() {
                io::ErrorKind::NotFound => 4,
                io::ErrorKind::PermissionDenied => 5,
                _ => 1,
            },
            Self::Format { .. } => 3,
            Self::Changing => 6,
        }
    }

    /// What to do about it.
    pub(crate) fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Value { examples, .. } => examples.clone(),
            Self::Families { .. } => "give two IPv4 or two IPv6 addresses".to_owned(),
            Self::TooShort { least, .. } => format!("give `--length {least}` or more, or none"),
            Self::TooLong { most, .. } => format!("give `--length {most}` or less"),
            Self::ManySources { length, .. } => {
                format!("give an address, or a prefix of /{length}")
            }
            Self::Unknown { .. } => {
                "what is shown is what would apply to it; `limiter top` lists sources that are known"
                    .to_owned()
            }
            Self::Changing => "try again in a moment".to_owned(),
            Self::Format { remedy, .. } => remedy.clone(),
            Self::Capture { .. } => return None,
        })
    }
}
