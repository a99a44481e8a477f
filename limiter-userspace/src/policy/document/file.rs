//! Reads regular files of bounded size.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use thiserror::Error;

/// The largest document, in bytes.
pub const DOCUMENT_BYTES: u64 = 8 << 20;
/// The largest file of a set, in bytes; also the limit for all set files of a policy together.
pub const SET_BYTES: u64 = 64 << 20;

/// Reads the file of a set. The argument is its path as in the document.
pub type SetFiles<'f> = dyn FnMut(&str) -> Result<Vec<u8>, FileError> + 'f;

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error("it cannot be read: {cause}")]
    Unreadable {
        /// The error of the system.
        cause: String,
    },
    /// The path leads to a directory, a pipe, a socket or a device.
    #[error("it is {what}")]
    NotAFile {
        /// The kind of file.
        what: &'static str,
    },
    /// The file is larger than the limit.
    #[error("it is larger than {} MiB", most >> 20)]
    TooLarge {
        /// The limit in bytes.
        most: u64,
    },
}

impl FileError {
    /// What the user can do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "check that it is there and may be read by this user",
            Self::NotAFile { .. } => "give a regular file",
            Self::TooLarge { .. } => "check that it is the right file",
        }
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// The file is opened once, and its type and size are those of the open file, so it does not matter if the
/// path is changed meanwhile. Opening never blocks, not even on a pipe without a writer. A file that grows
/// beyond `most` while it is read is refused.
pub fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let unreadable = |error: io::Error| FileError::Unreadable { cause: error.to_string() };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a pipe"
        } else {
            "a device or a socket"
        };
        return Err(FileError::NotAFile { what });
    }
    if metadata.len() > most {
        return Err(FileError::TooLarge { most });
    }
    let bytes = read_up_to(file, most).map_err(unreadable)?;
    if bytes.len() as u64 > most { Err(FileError::TooLarge { most }) } else { Ok(bytes) }
}

/// Reads at most one byte more than `most`.
fn read_up_to(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
