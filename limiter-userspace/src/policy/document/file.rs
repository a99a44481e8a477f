//! Files, read with care.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use thiserror::Error;

/// Bytes of a document.
pub const DOCUMENT_BYTES: u64 = 8 << 20;
/// Bytes of the file of a set.
pub const SET_BYTES: u64 = 64 << 20;

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("it cannot be read: {cause}")]
    Unreadable {
        /// What the system says.
        cause: String,
    },
    /// It is a directory, a pipe or a device.
    #[error("it is {what}")]
    NotAFile {
        /// What it is.
        what: &'static str,
    },
    /// It is larger than what is read of one.
    #[error("it is larger than {} MiB", most >> 20)]
    TooLarge {
        /// Bytes that are read of one.
        most: u64,
    },
}

impl FileError {
    /// What to do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "check that it is there and may be read by this user",
            Self::NotAFile { .. } => "give a regular file",
            Self::TooLarge { .. } => "check that it is the right file",
        }
    }
}

/// The bytes of a regular file of at most `most` bytes.
///
/// It is opened once and all questions are asked of what was opened, so it does not matter what
/// the name leads to a moment later. Opening never waits, also for a pipe that nobody writes to,
/// and a file that grows while it is read is cut off at `most`.
///
/// # Errors
/// Any [`FileError`].
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

/// At most one byte more than `most`.
fn read_up_to(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
