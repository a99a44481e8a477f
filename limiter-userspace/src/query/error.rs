//! Errors of questions to an instance.

use std::{io, net::IpAddr, path::PathBuf};

use thiserror::Error;

use crate::error::Failure;

/// Why a question cannot be answered.
#[derive(Debug, Error)]
pub enum InquiryError {
    /// A value of the command line is not valid.
    #[error("{what} {value} {fault}")]
    Value {
        /// The name of the value, such as `port`.
        what: &'static str,
        /// The value, quoted.
        value: String,
        /// The fault, as the rest of the sentence.
        fault: &'static str,
        /// What to write instead, with examples.
        examples: String,
    },
    /// The addresses of a packet are of different families.
    #[error("no packet goes from {from} to {to}: they are of different families")]
    Families {
        /// The source.
        from: IpAddr,
        /// The destination.
        to: IpAddr,
    },
    /// The frame asked for is shorter than its headers.
    #[error("a frame of {length} bytes has no room for the headers, which take {least}")]
    TooShort {
        /// The length asked for, in bytes.
        length: usize,
        /// The length of the headers, in bytes.
        least: usize,
    },
    /// The frame asked for is longer than any frame.
    #[error("a frame of {length} bytes is too long: {most} bytes are the most")]
    TooLong {
        /// The length asked for, in bytes.
        length: usize,
        /// The length of the longest frame, in bytes.
        most: usize,
    },
    /// The prefix asked for has more than one source.
    #[error("{prefix} is more than one source: sources are counted per /{length}")]
    ManySources {
        /// The prefix asked for.
        prefix: String,
        /// The length of the prefix that counts as one source.
        length: u8,
    },
    /// The source has no entry, counts or state.
    #[error("nothing is known of {name}: no packet of it was counted, or it was forgotten")]
    Unknown {
        /// The source.
        name: String,
    },
    /// The policy changed during every attempt to answer.
    #[error("the policy changed during every try to answer")]
    Changing,
    /// A capture file cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A capture is cut at its end: the program that wrote it was killed, or it is still being written.
    #[error("{} ends within packet {packet}", .path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// The number of the packet, from 1.
        packet: u64,
    },
    /// A file is no capture, is of a link type that is not read, or is damaged.
    #[error("{} {fault}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault, as the rest of the sentence.
        fault: String,
        /// The remedy.
        remedy: String,
    },
}

impl PartialEq for InquiryError {
    /// Compares the messages, as `io::Error` cannot be compared.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Failure for InquiryError {
    fn exit_code(&self) -> u8 {
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
            Self::Format { .. } | Self::Cut { .. } => 1,
            Self::Changing => 6,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Value { examples, .. } => examples.clone(),
            Self::Families { .. } => "give two IPv4 or two IPv6 addresses".to_owned(),
            Self::TooShort { least, .. } => format!("give `--length {least}` or more, or none"),
            Self::TooLong { most, .. } => format!("give `--length {most}` or less"),
            Self::ManySources { length, .. } => {
                format!("give an address, or a prefix of /{length}")
            }
            Self::Unknown { .. } => {
                "the limits that would apply to it are shown; `limiter top` lists known sources"
                    .to_owned()
            }
            Self::Changing => "try again in a moment".to_owned(),
            Self::Format { remedy, .. } => remedy.clone(),
            Self::Cut { .. } => {
                "wait until the file is written, or capture anew: `tcpdump -i IFACE -w FILE`"
                    .to_owned()
            }
            Self::Capture { .. } => return None,
        })
    }
}
